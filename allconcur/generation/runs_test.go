package generation

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestReports: a synod adds its own fields to the report of its node.
func TestReports(t *testing.T) {
	t.Parallel()
	m, shard := Membership{Members: members(3)}, Membership{Number: 1, Members: members(2)}
	d := next(Head{Generation: 1, Height: 5})
	head := func(height uint64, followed Generation) Report {
		return Report{Head: Head{Generation: followed, Height: height}, Membership: m}
	}
	s, err := NewSynod(Config{Grace: 1, Patience: 1, Report: head(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if !s.report.Shard.Equal(m) || s.report.Restarted {
		t.Errorf("of a new node: %+v", s.report)
	}
	state := State{Disk: DiskID{1}, Activated: NewRun(2, 0), Shard: shard,
		Start: Head{Generation: 1, Height: 5}, Decided: d, Instance: 2}
	for _, c := range []struct {
		height   uint64
		followed Generation
		want     Generation
	}{{4, 0, 1}, {5, 0, 2}, {6, 0, 2}, {6, 9, 2}, {4, 2, 2}} {
		if s, err = NewSynod(Config{Original: true, State: state, Grace: 1, Patience: 1,
			Report: head(c.height, c.followed)}); err != nil {
			t.Fatal(err)
		}
		r := s.report
		if r.Head.Generation != c.want || !r.Shard.Equal(shard) || !r.Restarted ||
			r.Run != NewRun(2, 0) || r.Disk != state.Disk || !r.Original {
			t.Errorf("after a restart, %+v: %+v", c, r)
		}
	}
	// What another process's engine voted, saw and held is not its own. Its own stays until the
	// next run.
	stopped := head(6, 2)
	stopped.Votes, stopped.Known = []Vote{{TailRound: TailRound{Round: 7}}}, []KnownVote{{Round: 7}}
	stopped.Vouched = []TailRound{{Round: 7}}
	s.Idle(stopped, 0)
	if len(s.report.Votes)+len(s.report.Known)+len(s.report.Vouched) > 0 {
		t.Errorf("of another process: %+v", s.report)
	}
	for _, run := range []Run{NewRun(2, 0), NewRun(2, 0), NewRun(2, 1)} {
		s.Working(run, shard)
		if s.report.Restarted ||
			len(s.report.Votes)+len(s.report.Known)+len(s.report.Vouched) > 0 {
			t.Errorf("while it works in run %d: %+v", run, s.report)
		}
		if want := Generation(1 + run.Eon()); s.state.Start.Generation != want ||
			s.state.Start.Height != 6 {
			t.Errorf("run %d starts from %+v", run, s.state.Start)
		}
		s.Idle(stopped, 0)
		s.Idle(head(6, 2), 0)
		if len(s.report.Votes) != 1 || len(s.report.Known) != 1 ||
			len(s.report.Vouched) != 1 || s.report.Restarted {
			t.Errorf("after run %d: %+v", run, s.report)
		}
	}
}

// TestRunsThatMustNotStart: each of these is a bug of a driver.
func TestRunsThatMustNotStart(t *testing.T) {
	t.Parallel()
	shard := Membership{Members: members(3)}
	for name, c := range map[string]struct {
		run   Run
		begin func(*Synod)
	}{
		"an earlier one": {NewRun(1, 0), func(s *Synod) { s.Working(NewRun(1, 1), shard) }},
		"a frozen one": {NewRun(1, 0), func(s *Synod) {
			s.Receive(0, Message{Kind: KindPrepare, Generation: 2, Ballot: Ballot{Number: 1},
				Known: s.Decided()})
		}},
		"one before a decision": {NewRun(1, 0), func(s *Synod) {
			s.Receive(0, Message{Kind: KindDecided, Value: next(Head{})})
		}},
		"one whose is not known":   {NewRun(2, 0), func(*Synod) {}},
		"one without any decision": {NewRun(1, 0), func(s *Synod) { s.state.Decided = nil }},
	} {
		s, _ := settledSynod(t)
		c.begin(s)
		func() {
			defer func() {
				if _, said := recover().(string); !said {
					t.Errorf("%s starts", name)
				}
			}()
			s.Working(c.run, shard)
		}()
	}
}

// TestOnlyAWorkingEngineStalls: a node that does not work waits for its turn all the same.
func TestOnlyAWorkingEngineStalls(t *testing.T) {
	t.Parallel()
	s, _ := settledSynod(t)
	s.Tick()
	s.Stalled(true)
	s.Tick()
	if s.phase != phasePreparing || s.MustEnd() {
		t.Errorf("phase %d, ends %v", s.phase, s.MustEnd())
	}
}

// TestFrozenRuns: runs of generations before a promised or decided one are frozen.
func TestFrozenRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state State
		first Generation // the first generation that is not frozen
	}{
		"new":     {State{}, 0},
		"decided": {State{Decided: next(Head{}), Instance: 2}, 2},
		"promised": {State{Decided: next(Head{}), Instance: 3,
			Promised: Ballot{Number: 1}}, 3},
		"promised, and knows nothing": {State{Instance: 3, Promised: Ballot{Number: 1}}, 3},
		"entered, without a promise":  {State{Decided: next(Head{}), Instance: 3}, 2},
	} {
		s := Synod{state: c.state}
		for g := range Generation(5) {
			if s.Frozen(NewRun(g, 1)) != (g < c.first) {
				t.Errorf("%s: generation %d is frozen: %v", name, g, g >= c.first)
			}
		}
	}
}

// TestFetching: what a member of a decision lacks is asked for at once, and again after a while.
func TestFetching(t *testing.T) {
	t.Parallel()
	s, _ := settledSynod(t)
	d := next(Head{Generation: 1, Height: 12, Hash: [32]byte{12}},
		TailRound{Round: 1, Content: [32]byte{1}}, TailRound{Round: 2, Content: [32]byte{2}})
	for _, id := range [][32]byte{d.Base.Hash, {1}, {77}} {
		s.held[id] = true
	}
	s.Receive(0, Message{Kind: KindDecided, Value: d, Holders: []order.ServerID{2}})
	if len(s.held) != 2 || !s.held[d.Base.Hash] || !s.held[[32]byte{1}] {
		t.Errorf("holds %v", s.held)
	}
	for i, want := range []int{1, 0, 0, 0, 0, 1, 0} {
		fetch := s.Ready().Fetch
		if len(fetch) != want || want == 1 && (fetch[0].ID() != [32]byte{2} ||
			!slices.Equal(fetch[0].From, []order.ServerID{2, 0, 1})) {
			t.Errorf("after %d ticks it asks for %+v", i, fetch)
		}
		s.Tick()
	}
	s.Holds([32]byte{2})
	if len(s.Wanted()) != 0 {
		t.Errorf("wants %+v", s.Wanted())
	}
	// A node that works, took part already, or has no seat wants nothing.
	clear(s.held)
	s.state.Activated = NewRun(1, 3)
	if len(s.Wanted()) != 3 {
		t.Errorf("wants %+v", s.Wanted())
	}
	s.working = NewRun(1, 3)
	working := len(s.Wanted())
	s.working, s.state.Activated = 0, NewRun(2, 0)
	activated := len(s.Wanted())
	s.state.Activated, s.state.Disk = 0, DiskID{99}
	if working+activated+len(s.Wanted()) > 0 {
		t.Errorf("wants %d, %d and %d things", working, activated, len(s.Wanted()))
	}
}

// TestLearnedDecisions: a decision ends what was promised for its generation, and nothing for a
// later one.
func TestLearnedDecisions(t *testing.T) {
	t.Parallel()
	for instance, kept := range map[Generation]bool{1: false, 2: false, 3: true} {
		s, _ := settledSynod(t)
		s.state.Instance, s.state.Promised = instance, Ballot{Number: 4}
		s.Receive(0, Message{Kind: KindDecided, Value: next(Head{})})
		if (s.state.Promised.Number == 4) != kept || s.state.Instance != max(2, instance) {
			t.Errorf("a promise for generation %d: %+v", instance, s.state)
		}
		if ready := s.Ready(); !ready.MustSave || ready.Decided == nil ||
			ready.State.Promised != s.state.Promised {
			t.Errorf("not saved: %+v", ready)
		}
	}
}

// TestEmptyRounds: a promise counts the rounds after the last block only in the generation in which
// the node executed them. In a generation that it followed, they may have had another outcome.
func TestEmptyRounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worked, followed, decided Generation
		height                    uint64
		want                      order.Round
	}{
		"worked":                        {1, 0, 1, 8, 13},
		"follows the same":              {1, 1, 1, 8, 13},
		"follows a later one":           {1, 2, 2, 8, 11},
		"follows it before the base":    {1, 2, 2, 7, 8},
		"does not know how that began":  {1, 2, 1, 8, 13},
		"knows of a later one":          {1, 1, 2, 8, 13},
		"never worked":                  {0, 1, 1, 8, 8},
		"never worked, and followed it": {0, 2, 2, 9, 11},
	} {
		s, first := settledSynod(t)
		second := next(Head{Generation: 1, Height: 8, Round: 11})
		s.state.Decided = map[Generation]*Decision{1: first,
			2: second}[min(c.decided, max(1, c.worked))]
		if c.worked > 0 {
			s.Working(NewRun(c.worked, 0), s.report.Membership)
			s.Idle(s.report, 0)
		}
		report := s.report
		report.Head = Head{Generation: c.followed, Height: c.height, Round: 13}
		report.Empty = 5
		s.Report(report)
		if c.decided == 2 {
			// The label changes without a report.
			s.Receive(0, Message{Kind: KindDecided, Value: second})
		}
		for range 2 {
			if got := s.report.Head.Round; got != c.want || s.report.Empty != 0 {
				t.Errorf("%s: round %d of generation %d, want %d", name, got,
					s.report.Head.Generation, c.want)
			}
			s.label()
		}
		if c.followed == 2 && c.decided == 2 {
			s.Working(NewRun(2, 1), s.report.Membership)
			if got := s.report.Head.Round; got != c.want {
				t.Errorf("%s: round %d as it enters, want %d", name, got, c.want)
			}
		}
	}
}

// TestWaiting: why no generation is formed, before an attempt, during one and after it.
func TestWaiting(t *testing.T) {
	t.Parallel()
	equal := func(a, b Waiting) bool {
		return a.Missing == b.Missing && a.Memory == b.Memory && a.Durable == b.Durable &&
			slices.Equal(a.Unreachable, b.Unreachable) &&
			slices.Equal(a.Silent, b.Silent) && slices.Equal(a.Forgot, b.Forgot) &&
			slices.Equal(a.Restarted, b.Restarted) && slices.Equal(a.Perhaps, b.Perhaps)
	}
	list := func(servers ...order.ServerID) []order.ServerID { return servers }
	s, first := settledSynod(t)
	report := s.report
	report.Membership = Membership{Members: members(6)}
	s.Report(report)
	waits := func(when string, want Waiting) {
		t.Helper()
		if got := s.Waiting(); !equal(got, want) {
			t.Errorf("%s: waits for %+v, want %+v", when, got, want)
		}
	}
	for linked, want := range []Waiting{
		{Missing: 3, Unreachable: list(0, 2, 3, 4, 5)}, {Missing: 2, Unreachable: list(2, 3, 4, 5)},
		{Missing: 1, Unreachable: list(3, 4, 5)}, {Unreachable: list(4, 5)}, {Unreachable: list(5)},
		{},
	} {
		waits("no attempt", want)
		s.Linked([]order.ServerID{0, 2, 3, 4, 5, 6}[linked], true)
	}
	s.Linked(5, false)
	s.waitsFor = Waiting{Memory: true, Silent: list(0), Forgot: list(2, 3), Restarted: list(3),
		Perhaps: list(3, 4)}
	given := s.Waiting()
	s.Restarted(5)
	waits("a restart of one of which nothing was told", s.waitsFor)
	s.Restarted(3)
	s.Restarted(3)
	waits("a restart", Waiting{Memory: true, Silent: list(0, 3), Forgot: list(2), Perhaps: list(4)})
	if !slices.Equal(given.Perhaps, list(3, 4)) || !slices.Equal(given.Silent, list(0)) {
		t.Errorf("what was told before a restart changed to %+v", given)
	}
	for _, last := range []Waiting{{Missing: 1}, {Memory: true}, {Perhaps: list(1)}, {Durable: 9}} {
		s.waitsFor = last
		waits("the last attempt", last)
	}
	s.waitsFor, s.working = Waiting{}, NewRun(1, 0)
	waits("at work", Waiting{})
	s.working = 0

	s.ticksUntil(phasePreparing)
	waits("a new attempt", Waiting{Missing: 3, Silent: list(0, 2, 3, 4), Unreachable: list(5)})
	promise := func(from order.ServerID, change func(*Report)) {
		r := report
		r.Disk, r.Shard = DiskID{byte(from + 1)}, r.Membership
		change(&r)
		s.Receive(from, Message{Kind: KindPromise, Generation: 2, Ballot: s.ballot, Report: r,
			Known: first})
	}
	promise(0, func(r *Report) { r.Original = false })
	waits("a learner", Waiting{Missing: 3, Forgot: list(0), Silent: list(2, 3, 4),
		Unreachable: list(5)})
	promise(2, func(r *Report) { r.Perhaps, r.Run = true, NewRun(1, 0) })
	promise(3, func(*Report) {})
	waits("a disk that had perhaps more", Waiting{Missing: 1, Forgot: list(0), Perhaps: list(2),
		Silent: list(4), Unreachable: list(5)})
	s.Restarted(2)
	waits("it restarted within the attempt", Waiting{Missing: 1, Forgot: list(0),
		Silent: list(2, 4), Unreachable: list(5)})
	s.Tick()
	waits("it restarted a tick ago", Waiting{Missing: 1, Forgot: list(0), Silent: list(2, 4),
		Unreachable: list(5)})
	s.Restarted(0)
	s.Restarted(3)
	waits("a learner restarted, and one of which nothing was told",
		Waiting{Missing: 1, Silent: list(0, 2, 4), Unreachable: list(5)})
	promise(4, func(*Report) {})
	waits("a majority had not, others may", Waiting{Silent: list(0, 2), Unreachable: list(5)})

	s.reset()
	report.Run = NewRun(1, 0)
	s.state.Activated, s.state.Shard, s.remembers = report.Run, report.Membership, true
	s.Report(report)
	s.ticksUntil(phasePreparing)
	for _, from := range list(0, 2, 3) {
		promise(from, func(r *Report) { r.Restarted = true })
	}
	waits("memory", Waiting{Memory: true, Restarted: list(0, 2, 3), Silent: list(4),
		Unreachable: list(5)})
	s.promises[0].message.Value, s.promises[2].message.Value = next(Head{}), next(Head{})
	waits("a value that binds", Waiting{Restarted: list(0, 2, 3), Silent: list(4),
		Unreachable: list(5)})
	s.promises[2].message.Report.Membership.Number = s.report.Membership.Number + 2
	if got := s.Waiting().Changes; got != s.report.Membership.Number+2 {
		t.Errorf("the newest membership that a promise told of is number %d", got)
	}
	s.promises[0].message.Report.Shard.Number = s.report.Membership.Number + 3
	if got := s.Waiting().Changes; got != s.report.Membership.Number+3 {
		t.Errorf("the newest membership that a promise counted with is number %d", got)
	}
	s.state.Shard.Number = s.report.Membership.Number + 4
	if got := s.Waiting().Changes; got != s.report.Membership.Number+4 {
		t.Errorf("the newest membership that the node counted with is number %d", got)
	}
}

// TestLearnersDoNotPropose: a learner never proposes, however long no other server does.
func TestLearnersDoNotPropose(t *testing.T) {
	t.Parallel()
	s, err := NewSynod(Config{Self: 1, Grace: 2, Patience: 5, State: State{Disk: DiskID{9}},
		Report: Report{Membership: Membership{Members: members(3)}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ticksUntil(phasePreparing); got != 200 || !s.Learner() {
		t.Errorf("a learner proposes after %d ticks", got)
	}
	s, err = NewSynod(Config{Self: 3, Original: true, Grace: 2, Patience: 5,
		Report: Report{Membership: Membership{Members: members(3)}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ticksUntil(phasePreparing); got != 200 {
		t.Errorf("one that is no member proposes after %d ticks", got)
	}
}
