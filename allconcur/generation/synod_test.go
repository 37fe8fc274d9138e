package generation

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// settledSynod returns server 1 of three, which knows the decision of generation 1 and has promised
// nothing since.
func settledSynod(t *testing.T) (*Synod, *Decision) {
	t.Helper()
	disks := []DiskID{{1}, {2}, {3}}
	first := &Decision{Generation: 1, Members: members(3), Disks: disks}
	s, err := NewSynod(Config{Self: 1, Original: true, Grace: 2, Patience: 5,
		State: State{Disk: disks[1], Decided: first, Instance: 1},
		Report: Report{Head: Head{Generation: 1, Height: 8, Round: 8, Hash: [32]byte{8}},
			Membership: Membership{Members: members(3)}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Ready()
	return s, first
}

// next returns a value for generation 2.
func next(base Head, tail ...TailRound) *Decision {
	return &Decision{Generation: 2, Base: base, Tail: tail, Members: members(3),
		Disks: []DiskID{{1}, {2}, {3}}}
}

// answer returns the only message that a synod has for server 0, of kind 0 if there is none. It
// also returns whether State was to be saved.
func answer(t *testing.T, s *Synod) (Message, bool) {
	t.Helper()
	ready := s.Ready()
	switch len(ready.Messages) {
	case 0:
		return Message{}, ready.MustSave
	case 1:
		if ready.Messages[0].To != 0 {
			t.Fatalf("answers server %d", ready.Messages[0].To)
		}
		return ready.Messages[0].Message, ready.MustSave
	}
	t.Fatalf("%d messages", len(ready.Messages))
	return Message{}, false
}

// TestMessagesThatMakeNoSense: such messages are dropped, and change nothing.
func TestMessagesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	ballot := Ballot{Number: 7}
	unsound := &Decision{Generation: 1}
	for name, m := range map[string]Message{
		"prepare of generation 0":             {Kind: KindPrepare, Ballot: ballot},
		"prepare without the decision before": {Kind: KindPrepare, Generation: 2, Ballot: ballot},
		"prepare with an unsound one": {Kind: KindPrepare, Generation: 2, Ballot: ballot,
			Known: unsound},
		"prepare with one of another": {Kind: KindPrepare, Generation: 3, Ballot: ballot,
			Known: &Decision{Generation: 1, Members: members(3), Disks: []DiskID{{1}, {2}, {3}}}},
		"accept without a value": {Kind: KindAccept, Generation: 2, Ballot: ballot},
		"accept of an unsound value": {Kind: KindAccept, Generation: 2, Ballot: ballot,
			Value: &Decision{Generation: 2}},
		"accept of another generation's value": {Kind: KindAccept, Generation: 2, Ballot: ballot,
			Value: &Decision{Generation: 3, Members: members(1), Disks: []DiskID{{1}}}},
		"accept of a later generation": {Kind: KindAccept, Generation: 3, Ballot: ballot,
			Value: &Decision{Generation: 3, Members: members(1), Disks: []DiskID{{1}}}},
		"nothing decided": {Kind: KindDecided, Generation: 2},
		"unsound decision": {Kind: KindDecided, Generation: 2,
			Value: &Decision{Generation: 2}},
		"promise to nobody":     {Kind: KindPromise, Generation: 2},
		"acceptance of nothing": {Kind: KindAccepted, Generation: 2},
	} {
		s, _ := settledSynod(t)
		before := s.AppendState(nil)
		s.Receive(0, m)
		if a, save := answer(t, s); a.Kind != 0 || save ||
			!slices.Equal(before, s.AppendState(nil)) || s.Err() != nil {
			t.Errorf("%s: answer %+v, save %v, error %v", name, a, save, s.Err())
		}
	}
}

// TestPromises: the highest ballot is promised, and no lower one after it. A request for a decided
// generation is answered with its decision.
func TestPromises(t *testing.T) {
	t.Parallel()
	s, first := settledSynod(t)
	prepare := func(number uint64, kind Kind, save bool) Message {
		t.Helper()
		s.Receive(0, Message{Kind: KindPrepare, Generation: 2, Ballot: Ballot{Number: number},
			Known: first})
		a, saved := answer(t, s)
		if a.Kind != kind || saved != save || a.Generation != 2 || a.Ballot.Number != number {
			t.Errorf("ballot %d: answer %+v, save %v", number, a, saved)
		}
		return a
	}
	prepare(2, KindPromise, true)
	prepare(2, KindPromise, false)
	if a := prepare(1, KindRefuse, false); a.Accepted.Number != 2 {
		t.Errorf("the refusal names ballot %+v", a.Accepted)
	}
	prepare(3, KindPromise, true)
	s.Receive(0, Message{Kind: KindPrepare, Generation: 1, Ballot: Ballot{Number: 9}})
	if a, save := answer(t, s); a.Kind != KindDecided || a.Value == nil || !a.Value.Equal(*first) ||
		save {
		t.Errorf("a settled generation: %+v, save %v", a, save)
	}
	s.Receive(0, Message{Kind: KindAccept, Generation: 1, Ballot: Ballot{Number: 9}, Value: first})
	if a, save := answer(t, s); a.Kind != KindDecided || save {
		t.Errorf("a settled generation: %+v, save %v", a, save)
	}
}

// TestAccepts: a value is accepted in the highest promised ballot or a higher one, once everything
// that it names is here, and never below a height that is known to be durable.
func TestAccepts(t *testing.T) {
	t.Parallel()
	s, first := settledSynod(t)
	head := s.report.Head
	accept := func(number uint64, value *Decision) (Kind, bool) {
		t.Helper()
		s.Receive(0, Message{Kind: KindAccept, Generation: 2, Ballot: Ballot{Number: number},
			Value: value})
		a, save := answer(t, s)
		if a.Kind == KindAccepted && (a.Disk != DiskID{2} || !a.Original ||
			a.Ballot.Number != number) {
			t.Errorf("accepted as %+v", a)
		}
		return a.Kind, save
	}
	if kind, save := accept(4, next(head)); kind != KindAccepted || !save ||
		s.state.Promised.Number != 4 || s.state.Accepted.Number != 4 {
		t.Errorf("answer %d, save %v, state %+v", kind, save, s.state)
	}
	if kind, save := accept(3, next(head)); kind != KindRefuse || save {
		t.Errorf("below what was accepted: answer %d, save %v", kind, save)
	}
	s.Receive(0, Message{Kind: KindPrepare, Generation: 2, Ballot: Ballot{Number: 3}, Known: first})
	if a, _ := answer(t, s); a.Kind != KindRefuse {
		t.Errorf("a promise below what was accepted: %+v", a)
	}
	// The contents of a tail are fetched first. The promise is made before that.
	round := TailRound{Round: 9, Content: [32]byte{99}}
	if kind, save := accept(5, next(head, round)); kind != 0 || !save ||
		s.state.Promised.Number != 5 || s.state.Accepted.Number != 4 {
		t.Errorf("without the contents: answer %d, save %v, state %+v", kind, save, s.state)
	}
	if wanted := s.Wanted(); len(wanted) != 1 || wanted[0].ID() != round.Content ||
		!slices.Equal(wanted[0].From, members(3)) {
		t.Errorf("wants %+v", wanted)
	}
	s.Holds([32]byte{98})
	if a, _ := answer(t, s); a.Kind != 0 {
		t.Errorf("something else is here: %+v", a)
	}
	s.Holds(round.Content)
	if a, save := answer(t, s); a.Kind != KindAccepted || !save || s.state.Accepted.Number != 5 {
		t.Errorf("with the contents: answer %+v, save %v", a, save)
	}
	// Durable blocks are not given up: neither block 9, which the tail holds, nor block 10.
	report := s.report
	report.Durable = 9
	s.Report(report)
	if kind, _ := accept(6, next(head, round)); kind != KindAccepted {
		t.Errorf("a value that ends with the durable block: answer %d", kind)
	}
	report.Durable = 10
	s.Report(report)
	if kind, _ := accept(7, next(head, round)); kind != 0 || s.state.Accepted.Number != 6 {
		t.Errorf("a value that ends below the durable block: answer %d", kind)
	}
}

// TestBasesThatAreHeld: a node holds its own head, earlier blocks of the chain of its generation,
// and fetched blocks.
func TestBasesThatAreHeld(t *testing.T) {
	t.Parallel()
	s, _ := settledSynod(t)
	fetched := Head{Generation: 1, Height: 20, Hash: [32]byte{20}}
	s.Holds(fetched.Hash)
	for _, c := range []struct {
		base Head
		held bool
	}{
		{s.report.Head, true}, {fetched, true},
		{Head{Generation: 0, Height: 8, Hash: [32]byte{8}}, true},
		{Head{Generation: 0, Height: 8, Hash: [32]byte{7}}, false},
		{Head{Generation: 0, Height: 7, Hash: [32]byte{8}}, false},
		// At the same height the hash decides.
		{Head{Generation: 1, Height: 8}, false}, {Head{Generation: 1, Height: 7}, true},
		{Head{Generation: 1, Height: 9}, false}, {Head{Generation: 2, Height: 7}, false},
	} {
		if s.holdsBase(c.base) != c.held {
			t.Errorf("%+v: held %v", c.base, !c.held)
		}
	}
}

// TestWorkingNodes: a working node refuses, unless the group ended in order or makes no progress.
// In these cases the engine stops before anything is promised.
func TestWorkingNodes(t *testing.T) {
	t.Parallel()
	shard := Membership{Members: members(3)}
	for _, c := range []struct {
		name             string
		stalled, regroup bool
		generation       Generation
		answer           Kind
		ends             bool
	}{
		{"works", false, false, 2, KindRefuse, false},
		{"ended in order", false, true, 2, 0, true},
		{"stalls", true, false, 2, 0, true},
		{"was left behind", false, true, 3, 0, false},
	} {
		s, known := settledSynod(t)
		s.Working(NewRun(1, 0), shard)
		s.Ready()
		s.Stalled(c.stalled)
		if c.generation == 3 {
			known = next(Head{})
		}
		ballot := Ballot{Number: 1}
		s.Receive(0, Message{Kind: KindPrepare, Generation: c.generation, Ballot: ballot,
			Known: known, Regroup: c.regroup})
		a, _ := answer(t, s)
		if a.Kind != c.answer || a.Kind == KindRefuse && a.Working != 1 || s.MustEnd() != c.ends ||
			s.state.Promised != (Ballot{}) {
			t.Errorf("%s: answer %+v, ends %v", c.name, a, s.MustEnd())
		}
		if c.name == "stalls" {
			s.Stalled(false)
			if s.MustEnd() {
				t.Error("the group gets on again, and the node leaves it")
			}
			s.Stalled(true)
			s.Receive(0, Message{Kind: KindPrepare, Generation: 2, Ballot: ballot, Known: known})
		}
		if c.name == "ended in order" {
			s.Stalled(true)
			s.Stalled(false)
			if !s.MustEnd() {
				t.Error("the group that ended in order goes on, since it does not stall")
			}
		}
		if c.ends {
			s.Idle(Report{Head: s.report.Head, Membership: shard}, 0)
			if a, save := answer(t, s); a.Kind != KindPromise || !save || s.MustEnd() {
				t.Errorf("%s: when it has ended, the answer is %+v", c.name, a)
			}
			if s.Frozen(NewRun(2, 0)) || !s.Frozen(NewRun(1, 0)) {
				t.Errorf("%s: the promise freezes another run than 1", c.name)
			}
		}
	}
	for _, stalled := range []bool{false, true} {
		s, _ := settledSynod(t)
		s.Working(NewRun(1, 0), shard)
		s.Ready()
		s.Stalled(stalled)
		s.Receive(0, Message{Kind: KindAccept, Generation: 2, Ballot: Ballot{Number: 1},
			Value: next(s.report.Head)})
		a, save := answer(t, s)
		if want := map[bool]Kind{false: KindRefuse}[stalled]; a.Kind != want || save ||
			s.state.AcceptedValue != nil {
			t.Errorf("a value, stalled %v: answer %+v, save %v", stalled, a, save)
		}
	}
}

// ticksUntil counts the ticks until a synod is in a phase, up to 200.
func (s *Synod) ticksUntil(wanted phase) (ticks int) {
	for s.phase != wanted && ticks < 200 {
		s.Tick()
		ticks++
	}
	return ticks
}

// TestTurns counts ticks: server 1 of three, with a grace of 2 and a patience of 5.
func TestTurns(t *testing.T) {
	t.Parallel()
	turns := func(name string, s *Synod, wanted phase, want int) {
		t.Helper()
		if got := s.ticksUntil(wanted); got != want {
			t.Errorf("%s: %d ticks, want %d", name, got, want)
		}
	}
	s, first := settledSynod(t)
	turns("its turn", s, phasePreparing, 2)
	turns("too few promises", s, phaseWaiting, 10)
	turns("its turn again", s, phasePreparing, 2)
	if s.ballot.Number != 2 {
		t.Errorf("the second attempt has ballot %+v", s.ballot)
	}

	// Another server's attempt gets the time that it may take, from its last message on.
	other := Message{Kind: KindPrepare, Generation: 2, Ballot: Ballot{Number: 5}, Known: first}
	s.Receive(0, other)
	if s.phase != phaseWaiting {
		t.Error("a higher ballot does not end the own attempt")
	}
	s.Tick()
	other.Ballot.Number++
	s.Receive(0, other)
	turns("another's attempt", s, phasePreparing, 11)
	other.Ballot.Number += 2
	s.Receive(0, other)
	s.Tick()
	s.Receive(0, Message{Kind: KindAccept, Generation: 2, Ballot: other.Ballot,
		Value: next(Head{Generation: 1, Height: 9})})
	turns("another's value", s, phasePreparing, 11)

	// A higher ballot in a refusal ends the own attempt. A lower one, or one of another attempt,
	// does not.
	refuse := Message{Kind: KindRefuse, Generation: 2, Ballot: s.ballot,
		Accepted: Ballot{Number: 1}}
	s.Receive(0, refuse)
	refuse.Accepted, refuse.Ballot.Number = Ballot{Number: 90}, 1
	s.Receive(0, refuse)
	refuse.Accepted, refuse.Ballot, refuse.Generation = Ballot{Number: 95}, s.ballot, 1
	s.Receive(0, refuse)
	if s.phase != phasePreparing || s.highest.Number != 90 {
		t.Errorf("phase %d, highest ballot %+v", s.phase, s.highest)
	}
	refuse.Generation = 2
	s.Receive(0, refuse)
	if s.phase != phaseWaiting {
		t.Error("a refusal does not end the attempt")
	}

	// If another node works, this node asks only to notice the end of that.
	s, _ = settledSynod(t)
	s.Receive(0, Message{Kind: KindRefuse, Generation: 2, Working: 1})
	turns("somebody works", s, phasePreparing, 22)
	if s.Elsewhere() != 1 {
		t.Errorf("somebody works in generation %d", s.Elsewhere())
	}

	// The own group stalls. This server gives it up after its patience; the servers before it do so
	// sooner.
	s, _ = settledSynod(t)
	s.Working(NewRun(1, 0), Membership{Members: members(3)})
	for range 50 {
		s.Tick()
	}
	s.Stalled(true)
	for ticks := 1; ticks <= 6; ticks++ {
		s.Stalled(true)
		s.Tick()
		if s.MustEnd() != (ticks == 6) {
			t.Errorf("after %d ticks it ends its group: %v", ticks, s.MustEnd())
		}
	}
	s.Stalled(false)
	if s.MustEnd() {
		t.Error("the group gets on again, and the node leaves it")
	}

	// The own group is stuck. Nothing is gained by patience, unless it gets on again.
	s, _ = settledSynod(t)
	s.Stuck(true) // no engine works, so this says nothing
	s.Working(NewRun(1, 0), Membership{Members: members(3)})
	s.Stuck(true)
	for range 50 {
		s.Tick()
	}
	if s.MustEnd() {
		t.Error("it ends a group that does not stall")
	}
	for _, stuck := range []bool{true, false} {
		s.Stalled(false)
		s.Stalled(true)
		s.Stuck(stuck)
		ends := map[bool]int{true: 2, false: 6}[stuck]
		for ticks := 1; ticks <= ends; ticks++ {
			s.Tick()
			if s.MustEnd() != (ticks == ends) {
				t.Errorf("stuck %v: after %d ticks it ends its group: %v", stuck, ticks,
					s.MustEnd())
			}
		}
	}

	// The engine has just stopped. An earlier proposer proposed for a group that still worked.
	s.highest = Ballot{Number: 3}
	s.refused = 1
	s.Idle(s.report, 1)
	turns("just stopped", s, phasePreparing, 2)
	turns("too few promises", s, phaseWaiting, 10)
	turns("somebody works", s, phasePreparing, 22)
}

// TestGrace: with enough promises a proposer waits for the others for a while, and longer at a
// chain's first start. It does not wait once all have promised, or if a group ended in order and
// the others cannot be reached.
func TestGrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		fresh, all       bool
		ended, stuck     Generation
		linked, accepted bool
		ticks            int
	}{
		{name: "two of three", ticks: 2},
		{name: "first start", fresh: true, ticks: 4},
		{name: "all", all: true, ticks: 0},
		{name: "ended in order", ended: 1, ticks: 0},
		{name: "was stuck", stuck: 1, ticks: 0},
		{name: "was stuck, and reaches the third", stuck: 1, linked: true, ticks: 2},
		{name: "was stuck before that", stuck: 9, ticks: 2},
		{name: "ended in order, and reaches the third", ended: 1, linked: true, ticks: 2},
	} {
		s, first := settledSynod(t)
		report := s.report
		if c.fresh {
			first, s.state.Decided = nil, nil
			s.state.Instance = 0
			report.Head = Head{}
			s.Report(report)
		}
		s.ended, s.stuck = c.ended, c.stuck
		s.Linked(2, c.linked)
		s.ticksUntil(phasePreparing)
		promise := func(from order.ServerID) {
			r := report
			r.Disk, r.Original, r.Shard = DiskID{byte(from + 1)}, true, r.Membership
			s.Receive(from, Message{Kind: KindPromise, Generation: s.state.Instance,
				Ballot: s.ballot, Report: r, Known: first})
		}
		promise(0)
		if c.all {
			promise(2)
		}
		if got := s.ticksUntil(phaseAccepting); got != c.ticks {
			t.Errorf("%s: %d ticks, want %d", c.name, got, c.ticks)
			continue
		}
		// Without acceptances the attempt is given up.
		if got := s.ticksUntil(phaseWaiting); got != 11 {
			t.Errorf("%s: gives up after %d ticks, want 11", c.name, got)
		}
	}
}

// TestPromisesThatDoNotCount: of another attempt, with a head that is not of an earlier generation,
// and the second one of a server.
func TestPromisesThatDoNotCount(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Message){
		"of another generation":    func(m *Message) { m.Generation++ },
		"of an earlier generation": func(m *Message) { m.Generation-- },
		"of another ballot":        func(m *Message) { m.Ballot.Number++ },
		"with a head of its own":   func(m *Message) { m.Report.Head.Generation = 2 },
		"with a head of a later":   func(m *Message) { m.Report.Head.Generation = 3 },
	} {
		s, first := settledSynod(t)
		s.ticksUntil(phasePreparing)
		report := s.report
		report.Disk = DiskID{1}
		good := Message{Kind: KindPromise, Generation: 2, Ballot: s.ballot, Report: report,
			Known: first}
		bad := good
		change(&bad)
		s.Receive(0, bad)
		if len(s.promises) != 1 {
			t.Errorf("a promise %s counts", name)
		}
		s.Receive(0, good)
		good.Report.Durable = 99
		s.Receive(0, good)
		if len(s.promises) != 2 || s.promises[0].message.Report.Durable != 0 {
			t.Errorf("two promises of a server: %d, durable %d", len(s.promises),
				s.promises[0].message.Report.Durable)
		}
	}
}

// TestConfig: a wrong configuration is refused.
func TestConfig(t *testing.T) {
	t.Parallel()
	good := Config{Grace: 1, Patience: 1,
		Report: Report{Membership: Membership{Members: members(2)}}}
	if _, err := NewSynod(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"grace": func(c *Config) { c.Grace = 0 }, "patience": func(c *Config) { c.Patience = 0 },
		"members": func(c *Config) { c.Report.Membership.Members = []order.ServerID{1, 0} },
	} {
		bad := good
		change(&bad)
		if _, err := NewSynod(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// shown returns a promise as a proposer keeps it.
func shown(server order.ServerID, m Membership, height uint64) pending {
	return pending{from: server, message: Message{Kind: KindPromise,
		Report: Report{Head: Head{Generation: 1, Height: height, Round: order.Round(height)},
			Disk: DiskID{byte(server + 1)}, Original: true, Shard: m, Membership: m}}}
}

// TestNeverChosen: a value that one server accepted is left out if no server holds its base, and so
// many others of each required membership promised that no majority accepted it.
func TestNeverChosen(t *testing.T) {
	t.Parallel()
	m := Membership{Members: members(3)}
	other := Membership{Number: 1, Members: members(3), Disks: []DiskID{{}, {}, {3}}}
	base := Head{Generation: 1, Height: 9, Round: 9, Hash: [32]byte{9}}
	for name, c := range map[string]struct {
		change func(promises []pending) []pending
		never  bool
	}{
		"nothing taken away": {func(p []pending) []pending { return p }, true},
		"two accepted": {func(p []pending) []pending {
			p[1].message.Value = p[0].message.Value
			return p
		}, false},
		"another value accepted": {func(p []pending) []pending {
			p[1].message.Value = next(Head{})
			return p
		}, true},
		"one did not promise": {func(p []pending) []pending { return p[:2] }, false},
		"another membership": {func(p []pending) []pending {
			p[1].message.Report.Membership = other
			return p
		}, true},
		"another at the furthest": {func(p []pending) []pending {
			p[2].message.Report.Membership = other
			return p
		}, true},
		"a change": {func(p []pending) []pending {
			p[1].message.Report.Former = []Former{{other, 99}}
			return p
		}, true},
		"a run that counted with another": {func(p []pending) []pending {
			p[1].message.Report.Run, p[1].message.Report.Shard = 1, other
			return p
		}, true},
		"a run that counted with two that did not promise": {func(p []pending) []pending {
			p[1].message.Report.Run, p[1].message.Report.Shard = 1,
				Membership{Number: 7, Members: members(5)}
			return p
		}, false},
		"a change of the furthest that may not be durable": {func(p []pending) []pending {
			p[2].message.Report.Former = []Former{{Membership{Number: 7, Members: members(5)}, 99}}
			return p
		}, false},
		"nobody promised": {func(p []pending) []pending { return nil }, false},
		"an older run that counted with another": {func(p []pending) []pending {
			p[0].message.Report.Run, p[1].message.Report.Run, p[2].message.Report.Run = 1, 2, 2
			p[0].message.Report.Shard = other
			return p
		}, true},
		"a run that counted with this": {func(p []pending) []pending {
			p[1].message.Report.Run = 1
			return p
		}, true},
		"no run, and another to count with": {func(p []pending) []pending {
			p[1].message.Report.Shard = Membership{}
			return p
		}, true},
		"a disk that does not count": {func(p []pending) []pending {
			p[1].message.Report.Original = false
			return p
		}, false},
		"the base": {func(p []pending) []pending {
			p[1].message.Report.Head = base
			return p
		}, false},
		"the base, under an older name": {func(p []pending) []pending {
			p[1].message.Report.Head = base
			p[1].message.Report.Head.Generation = 0
			return p
		}, false},
		"the base's height, in an older chain": {func(p []pending) []pending {
			p[1].message.Report.Head = Head{Height: 9}
			return p
		}, true},
		"more, in an older chain": {func(p []pending) []pending {
			p[1].message.Report.Head = Head{Height: 10}
			return p
		}, true},
		"the base's hash, at another height": {func(p []pending) []pending {
			p[1].message.Report.Head = Head{Height: 3, Hash: base.Hash}
			return p
		}, true},
		"a height of its chain": {func(p []pending) []pending {
			p[1].message.Report.Head = Head{Generation: 1, Height: 9}
			return p
		}, false},
		"a later one": {func(p []pending) []pending {
			p[1].message.Report.Head = Head{Generation: 1, Height: 10}
			return p
		}, false},
	} {
		s, _ := settledSynod(t)
		value := next(base)
		s.promises = []pending{shown(0, m, 5), shown(1, m, 5), shown(2, m, 6)}
		s.promises[0].message.Value, s.promises[0].message.Accepted = value, Ballot{Number: 1}
		s.promises = c.change(s.promises)
		if v := s.survey(); s.neverChosen(&v, value) != c.never {
			t.Errorf("%s: never chosen %v", name, !c.never)
		}
	}
}

// TestLearnersBindNobody: a value that was accepted on a disk that counts binds a proposer. A value
// that only a learner accepted does not, in any ballot.
func TestLearnersBindNobody(t *testing.T) {
	t.Parallel()
	m := Membership{Members: members(3)}
	base := Head{Generation: 1, Height: 9, Round: 9, Hash: [32]byte{9}}
	for original, bound := range map[bool]uint64{true: 2, false: 1} {
		s, _ := settledSynod(t)
		s.promises = []pending{shown(0, m, 5), shown(1, m, 5), shown(2, m, 5)}
		for i := range 2 {
			message := &s.promises[i].message
			message.Value, message.Accepted = next(Head{Generation: 1, Height: uint64(i)}),
				Ballot{Number: uint64(i) + 1}
		}
		s.promises[1].message.Value = next(base)
		s.promises[1].message.Report.Original = original
		s.promises = append(s.promises[:1:1], s.promises[1]) // two of three: none knows of all
		v := s.survey()
		if got := s.bound(&v); got == nil || got.Accepted.Number != bound {
			t.Errorf("original %v: bound by %+v, want ballot %d", original, got, bound)
		}
		s.promises[0].message.Value = nil
		if v := s.survey(); (s.bound(&v) != nil) != original {
			t.Errorf("original %v, nothing else accepted: bound %v", original, !original)
		}
	}
}

// TestHighestAcceptedValue: the value accepted in the highest ballot binds a proposer.
func TestHighestAcceptedValue(t *testing.T) {
	t.Parallel()
	m := Membership{Members: members(5)}
	for _, ballots := range [][]uint64{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {0, 0, 3, 1}} {
		s, _ := settledSynod(t)
		for i, ballot := range ballots {
			p := shown(order.ServerID(i), m, 5)
			if ballot > 0 {
				p.message.Value, p.message.Accepted = next(Head{Generation: 1, Height: ballot}),
					Ballot{Number: ballot}
			}
			s.promises = append(s.promises, p)
		}
		v := s.survey()
		if bound := s.bound(&v); bound == nil || bound.Accepted.Number != 3 ||
			s.propose(v).Base.Height != 3 {
			t.Errorf("ballots %v: bound by %+v", ballots, bound)
		}
	}
}

// TestHolders: holders have the base (if there is no tail), voted for a round of the tail, accepted
// the value, or held the tail of the decision that is followed again.
func TestHolders(t *testing.T) {
	t.Parallel()
	m := Membership{Members: members(6)}
	round := TailRound{Round: 6, Content: [32]byte{6}}
	plain, tailed := next(Head{Generation: 1, Height: 5, Round: 5}),
		next(Head{Generation: 1, Height: 5, Round: 5}, round)
	promises := []pending{shown(0, m, 4), shown(1, m, 5), shown(2, m, 6), shown(3, m, 5),
		shown(4, m, 5), shown(5, m, 9)}
	promises[3].message.Report.Votes = []Vote{{TailRound: TailRound{Round: 6}}, {TailRound: round}}
	promises[4].message.Value = tailed
	promises[5].message.Report.Head.Generation = 0
	for _, c := range []struct {
		value, decided *Decision
		want           []order.ServerID
	}{
		{plain, nil, []order.ServerID{1, 2, 3, 4}},
		{tailed, nil, []order.ServerID{3, 4}},
		{tailed, &Decision{Base: tailed.Base}, []order.ServerID{0, 3, 4}},
		{tailed, &Decision{}, []order.ServerID{3, 4}},
		{plain, &Decision{Base: plain.Base}, []order.ServerID{1, 2, 3, 4}},
	} {
		s, _ := settledSynod(t)
		s.promises, s.holders, s.state.Decided = promises, []order.ServerID{0}, c.decided
		if got := s.holdersOf(*c.value); !slices.Equal(got, c.want) {
			t.Errorf("of %+v after %+v: %v, want %v", c.value, c.decided, got, c.want)
		}
	}
}

// TestDurableBlocksKeepAProposerWaiting: a proposer proposes nothing that ends below a block that
// is known to be durable, or that may lie beyond what a disk shows.
func TestDurableBlocksKeepAProposerWaiting(t *testing.T) {
	t.Parallel()
	s, first := settledSynod(t)
	report := s.report
	s.ticksUntil(phasePreparing)
	promise := func(from order.ServerID, change func(*Report)) {
		r := report
		r.Disk = DiskID{byte(from + 1)}
		change(&r)
		s.Receive(from, Message{Kind: KindPromise, Generation: 2, Ballot: s.ballot, Report: r,
			Known: first})
	}
	promise(0, func(r *Report) { r.Perhaps, r.Run = true, NewRun(1, 0) })
	for range 9 {
		s.Tick()
		if w := s.Waiting(); s.phase != phasePreparing || !slices.Equal(w.Perhaps, members(1)) ||
			w.Durable != 0 || w.Missing != 0 {
			t.Fatalf("phase %d, waits for %+v", s.phase, w)
		}
	}
	promise(2, func(*Report) {})
	if s.phase != phaseAccepting {
		t.Errorf("phase %d, waits for %+v", s.phase, s.Waiting())
	}

	s, first = settledSynod(t)
	s.ticksUntil(phasePreparing)
	promise(0, func(r *Report) { r.Durable = 9 })
	promise(2, func(*Report) {})
	s.Tick()
	if w := s.Waiting(); s.phase != phasePreparing || w.Durable != 9 || w.Memory ||
		len(w.Perhaps) > 0 {
		t.Errorf("phase %d, waits for %+v", s.phase, w)
	}

	// The tail counts.
	s.state.Decided = next(Head{Generation: 1, Height: 8}, TailRound{Round: 9})
	for durable, below := range map[uint64]bool{8: false, 9: false, 10: true} {
		if s.endsBelowDurable(survey{head: Head{Generation: 1}, durable: durable}) != below {
			t.Errorf("it ends with block 9, below block %d: %v", durable, !below)
		}
	}
}

// TestAcceptancesThatDoNotCount: of another generation or ballot. A majority of all required
// memberships decides.
func TestAcceptancesThatDoNotCount(t *testing.T) {
	t.Parallel()
	s, first := settledSynod(t)
	report := s.report
	s.ticksUntil(phasePreparing)
	for _, from := range []order.ServerID{0, 2} {
		report.Disk = DiskID{byte(from + 1)}
		s.Receive(from, Message{Kind: KindPromise, Generation: 2, Ballot: s.ballot, Report: report,
			Known: first})
	}
	good := Message{Kind: KindAccepted, Generation: 2, Ballot: s.ballot, Disk: DiskID{1},
		Original: true}
	for _, change := range []func(*Message){
		func(m *Message) { m.Generation = 1 }, func(m *Message) { m.Generation = 3 },
		func(m *Message) { m.Ballot.Number++ }, func(m *Message) { m.Disk = DiskID{7} },
	} {
		bad := good
		change(&bad)
		s.Receive(0, bad)
		if s.Next() != 2 {
			t.Fatalf("decided by %+v", bad)
		}
	}
	s.Ready()
	s.Receive(0, good)
	ready := s.Ready()
	if s.Next() != 3 || ready.Decided == nil || len(ready.Messages) != 2 ||
		!slices.Equal(ready.Messages[0].Message.Holders, members(2)) {
		t.Fatalf("not decided: %+v", ready)
	}
	// A node that works in an earlier generation is behind.
	s.Receive(0, Message{Kind: KindRefuse, Generation: 3, Working: 1})
	if s.Elsewhere() != 0 {
		t.Errorf("somebody works in generation %d", s.Elsewhere())
	}
	s.Receive(0, Message{Kind: KindRefuse, Generation: 3, Working: 2})
	if s.Elsewhere() != 2 {
		t.Errorf("somebody works in generation %d", s.Elsewhere())
	}
}
