package allconcur

import (
	"errors"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// fiveServers returns server 0 of five.
func fiveServers(t *testing.T, config Config) *Engine {
	t.Helper()
	config.Servers, config.Reliable = 5, overlays(t, 5)[0]
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// setOf returns a set of servers of a small group.
func setOf(servers ...order.ServerID) serverSet {
	s := newServerSet(8)
	for _, p := range servers {
		s.add(p)
	}
	return s
}

// voted gives an engine a vote from the voter itself.
func (e *Engine) voted(t *testing.T, phase votePhase, epoch order.Epoch, round order.Round,
	voter order.ServerID, set serverSet) {
	t.Helper()
	must(t, e.Receive(voter, encodeVote(kindForward, phase, 0, epoch, round, voter, set)))
}

// TestKnownVotes: known votes are those of others for rounds that are not A-delivered, and those
// that messages of a later round imply.
func TestKnownVotes(t *testing.T) {
	t.Parallel()
	e := fiveServers(t, Config{Engine: EngineAllConcur})
	all := setOf(0, 1, 2, 3, 4)
	e.voted(t, phaseDecided, 1, 1, 1, all)
	e.voted(t, phaseConfirmed, 1, 1, 2, all)
	e.voted(t, phaseDecided, 2, 2, 3, setOf(1, 3))
	e.voted(t, phaseDecided, 3, 3, 4, all)
	e.voted(t, phaseDecided, 4, 4, 4, all) // too far ahead
	five := []order.ServerID{0, 1, 2, 3, 4}
	want := []order.KnownVote{
		{Voter: 1, Round: 1, Epoch: 1, Reliable: true, Origins: five},
		{Voter: 2, Round: 1, Epoch: 1, Reliable: true, Confirmed: true, Origins: five},
		{Voter: 3, Round: 2, Epoch: 2, Reliable: true, Origins: []order.ServerID{1, 3}},
		{Voter: 4, Round: 3, Epoch: 3, Reliable: true, Origins: five},
	}
	if got := e.KnownVotes(); !reflect.DeepEqual(got, want) {
		t.Errorf("knows %+v", got)
	}
	if len(e.Votes()) != 0 {
		t.Errorf("votes %+v", e.Votes())
	}
	// Its own vote is not among them.
	e = fiveServers(t, Config{Engine: EngineAllConcur})
	must(t, e.Broadcast(nil))
	for p := order.ServerID(1); p < 5; p++ {
		must(t, e.Receive(p, encodeMessage(kindReliable, 0, 1, 1, p, nil)))
	}
	e.voted(t, phaseDecided, 1, 1, 3, all)
	if got := e.KnownVotes(); len(got) != 1 || got[0].Voter != 3 {
		t.Errorf("knows %+v", got)
	}
	if got := e.Votes(); len(got) != 1 || got[0].Round != 1 || !got[0].Reliable ||
		len(got[0].Delivery.Messages) != 5 {
		t.Errorf("votes %+v", got)
	}
	perfect := fiveServers(t, Config{Engine: EngineAllConcur, Detector: DetectorPerfect})
	if got := perfect.KnownVotes(); got != nil {
		t.Errorf("under P there are votes: %+v", got)
	}

	// After two complete unreliable rounds, messages of the third show the voters for the first.
	e = fiveServers(t, Config{Engine: EngineAllConcurPlus})
	for round := order.Round(1); round <= 2; round++ {
		must(t, e.Broadcast(nil))
		for p := order.ServerID(1); p < 5; p++ {
			must(t, e.Receive(p, encodeMessage(kindUnreliable, 0, 1, round, p, nil)))
		}
	}
	must(t, e.Receive(2, encodeMessage(kindUnreliable, 0, 1, 3, 2, nil)))
	must(t, e.Broadcast(nil))
	want = []order.KnownVote{{Voter: 2, Round: 1, Epoch: 1, Origins: five}}
	if got := e.KnownVotes(); !reflect.DeepEqual(got, want) {
		t.Errorf("knows %+v", got)
	}
	// In the rerun of the second round, a voter voted for the first round too, and confirms it.
	must(t, e.Suspect(4))
	e.voted(t, phaseConfirmed, 2, 2, 1, setOf(0, 1, 2, 3))
	e.voted(t, phaseDecided, 2, 2, 3, setOf(0, 1, 2, 3))
	var first []order.KnownVote
	for _, k := range e.KnownVotes() {
		if !k.Reliable {
			first = append(first, k)
		}
	}
	want = []order.KnownVote{{Voter: 1, Round: 1, Epoch: 1, Confirmed: true, Origins: five},
		{Voter: 3, Round: 1, Epoch: 1, Origins: five}}
	if !reflect.DeepEqual(first, want) {
		t.Errorf("knows %+v", first)
	}
}

// TestVotesThatAreNone: votes for a set without the voter, of unknown servers, of a wrong length,
// or over no edge.
func TestVotesThatAreNone(t *testing.T) {
	t.Parallel()
	vote := func(kind frameKind, voter order.ServerID, set serverSet) []byte {
		return encodeVote(kind, phaseDecided, 0, 1, 1, voter, set)
	}
	for name, c := range map[string]struct {
		frame []byte
		good  bool
	}{
		"a vote":            {vote(kindForward, 1, setOf(1, 4)), true},
		"without the voter": {vote(kindForward, 1, setOf(0, 4)), false},
		"of server 5":       {vote(kindForward, 5, setOf(5)), false},
		"for server 5":      {vote(kindForward, 1, setOf(1, 5)), false},
		"two words":         {vote(kindForward, 1, serverSet{2, 0}), false},
		"backward":          {vote(kindBackward, 1, setOf(1)), false},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcur})
		err := e.Receive(1, c.frame)
		if (err == nil) != c.good || err != nil && !errors.Is(err, order.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
		if (len(e.KnownVotes()) == 1) != c.good {
			t.Errorf("%s: counts %+v", name, e.KnownVotes())
		}
		perfect := fiveServers(t, Config{Engine: EngineAllConcur, Detector: DetectorPerfect})
		if err := perfect.Receive(1, c.frame); !errors.Is(err, order.ErrFrame) {
			t.Errorf("%s under P: %v", name, err)
		}
	}
	g, err := digraph.Complete(64)
	if err != nil {
		t.Fatal(err)
	}
	full, err := New(Config{Engine: EngineAllConcur, Servers: 64, Reliable: g})
	if err != nil {
		t.Fatal(err)
	}
	must(t, full.Receive(63, vote(kindForward, 63, serverSet{1 << 63})))
	if got := full.KnownVotes(); len(got) != 1 || got[0].Origins[0] != 63 {
		t.Errorf("counts %+v", got)
	}
	// In a ring 0 > 1 > 2 > 3 > 0 votes go both ways along the edges. The paper's go one way each.
	ring, err := digraph.Ring(4)
	if err != nil {
		t.Fatal(err)
	}
	for _, detector := range []Detector{DetectorEventual, DetectorEventualPaper} {
		for _, kind := range []frameKind{kindForward, kindBackward} {
			for from := order.ServerID(1); from < 4; from++ {
				e, err := New(Config{Engine: EngineAllConcur, Servers: 4, Reliable: ring,
					Detector: detector})
				if err != nil {
					t.Fatal(err)
				}
				comes := ring.HasEdge(int(from), 0) || ring.HasEdge(0, int(from))
				switch {
				case detector == DetectorEventual && kind == kindBackward:
					comes = false
				case detector == DetectorEventualPaper && kind == kindForward:
					comes = ring.HasEdge(int(from), 0)
				case detector == DetectorEventualPaper:
					comes = ring.HasEdge(0, int(from))
				}
				if err := e.Receive(from, vote(kind, 2, setOf(2))); (err == nil) != comes {
					t.Errorf("%v: kind %d from %d: %v", detector, kind, from, err)
				}
			}
		}
	}
}

// TestOutvotedServersHalt: a majority decided a set without this server, or another set than this
// server did.
func TestOutvotedServersHalt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decides bool
		voters  []order.ServerID
		set     serverSet
		round   order.Round
		halts   bool
	}{
		"a minority without it": {false, []order.ServerID{1, 2}, setOf(1, 2, 3), 1, false},
		"a majority without it": {false, []order.ServerID{1, 2, 3}, setOf(1, 2, 3), 1, true},
		"a majority with it": {false, []order.ServerID{1, 2, 3}, setOf(0, 1, 2, 3),
			1, false},
		"without it, later": {false, []order.ServerID{1, 2, 3}, setOf(1, 2, 3), 2, true},
		"it decided the same": {true, []order.ServerID{1, 2, 3}, setOf(0, 1, 2, 3, 4),
			1, false},
		"it decided another":         {true, []order.ServerID{1, 2, 3}, setOf(0, 1, 2, 3), 1, true},
		"a minority decided another": {true, []order.ServerID{1, 2}, setOf(0, 1, 2, 3), 1, false},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcur})
		if c.decides {
			must(t, e.Broadcast(nil))
			for p := order.ServerID(1); p < 5; p++ {
				must(t, e.Receive(p, encodeMessage(kindReliable, 0, 1, 1, p, nil)))
			}
			if !e.decided {
				t.Fatal("it has not decided")
			}
		}
		for _, p := range c.voters {
			e.voted(t, phaseDecided, order.Epoch(c.round), c.round, p, c.set)
		}
		if halted := e.Status().Halted != ""; halted != c.halts {
			t.Errorf("%s: halts %v", name, halted)
		}
	}
}

// TestVotesThatAreEnough: t votes, or a majority's confirmations.
func TestVotesThatAreEnough(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decided, confirmed []order.ServerID
		suspected          []order.ServerID
		confirms, delivers bool
	}{
		"two more":            {[]order.ServerID{1, 2}, nil, nil, false, false},
		"three more are fast": {[]order.ServerID{1, 2, 3}, nil, nil, false, true},
		"two more, and nobody else comes": {[]order.ServerID{1, 2}, nil, []order.ServerID{3, 4},
			true, false},
		"two more, one may come": {[]order.ServerID{1, 2}, nil, []order.ServerID{3}, false, false},
		"one more, and nobody else comes": {[]order.ServerID{1}, nil, []order.ServerID{2, 3, 4},
			false, false},
		"two more, one confirmed": {[]order.ServerID{1}, []order.ServerID{2}, nil, true, false},
		"two confirmed":           {nil, []order.ServerID{1, 2}, nil, true, true},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcur})
		must(t, e.Broadcast(nil))
		for p := order.ServerID(1); p < 5; p++ {
			must(t, e.Receive(p, encodeMessage(kindReliable, 0, 1, 1, p, nil)))
		}
		for _, p := range c.suspected {
			must(t, e.Suspect(p))
		}
		all := setOf(0, 1, 2, 3, 4)
		for _, p := range c.decided {
			e.voted(t, phaseDecided, 1, 1, p, all)
		}
		for _, p := range c.confirmed {
			e.voted(t, phaseConfirmed, 1, 1, p, all)
		}
		delivered := len(e.Ready().Deliveries) == 1
		if delivered != c.delivers || !delivered && e.confirmed != c.confirms {
			t.Errorf("%s: A-delivers %v, confirms %v", name, delivered, e.confirmed)
		}
	}
}

// fill begins a ballot with a confirmed vote.
func (b *ballot) fill(epoch order.Epoch, round order.Round, voter order.ServerID) {
	b.begin(epoch, round)
	s := b.grow()
	copy(s.origins, setOf(0, 1, 2, 3, 4))
	b.count(s, voter, phaseConfirmed)
}

// TestBallotsOfStates: one state of a round gets votes: the latest one known, unless this server
// decided another.
func TestBallotsOfStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		filled      [2]int // epoch and round of the existing ballot
		decided     bool
		epoch       order.Epoch
		round       order.Round
		none, fresh bool
	}{
		"the same":                    {[2]int{2, 2}, false, 2, 2, false, false},
		"an earlier epoch":            {[2]int{2, 2}, false, 1, 2, true, false},
		"a later epoch":               {[2]int{2, 2}, false, 3, 2, false, true},
		"another round there":         {[2]int{2, 6}, false, 2, 2, false, true},
		"another round, later":        {[2]int{9, 6}, false, 2, 2, false, true},
		"nothing there":               {[2]int{0, 0}, false, 2, 2, false, true},
		"delivered":                   {[2]int{0, 0}, false, 2, 0, true, false},
		"the last":                    {[2]int{0, 0}, false, 2, 3, false, true},
		"too far ahead":               {[2]int{0, 0}, false, 2, 4, true, false},
		"it decided":                  {[2]int{1, 1}, true, 2, 1, true, false},
		"it did not":                  {[2]int{1, 1}, false, 2, 1, false, true},
		"it decided, another's epoch": {[2]int{2, 1}, true, 3, 1, false, true},
		"it decided, another round":   {[2]int{1, 2}, true, 2, 2, false, true},
		"it decided, the same":        {[2]int{1, 1}, true, 1, 1, false, false},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcur})
		e.decided = c.decided
		if c.filled[0] > 0 {
			e.ballots[c.filled[1]%ballotsKept].fill(order.Epoch(c.filled[0]),
				order.Round(c.filled[1]), 3)
		}
		b := e.ballotOf(c.epoch, c.round)
		if (b == nil) != c.none {
			t.Errorf("%s: %+v", name, b)
		} else if b != nil && (b.epoch != c.epoch || b.round != c.round ||
			b.voters.has(3) == c.fresh) {
			t.Errorf("%s: epoch %d, round %d, votes of %v", name, b.epoch, b.round,
				b.voters.appendTo(nil))
		}
	}
}

// TestVotesOfOtherStatesAreNotKnown: votes in ballots of past states are not reported.
func TestVotesOfOtherStatesAreNotKnown(t *testing.T) {
	t.Parallel()
	e := fiveServers(t, Config{Engine: EngineAllConcur})
	e.ballots[1].fill(1, 5, 1)
	e.ballots[2].fill(1, 2, 2)
	if got := e.KnownVotes(); len(got) != 1 || got[0].Voter != 2 || got[0].Round != 2 {
		t.Errorf("knows %+v", got)
	}
	// For the waiting unreliable round, only votes in the state that follows it count.
	for name, c := range map[string]struct {
		rerun bool
		epoch order.Epoch
		round order.Round
		known int
	}{
		"the rerun": {true, 2, 2, 1}, "another epoch": {true, 9, 2, 0},
		"another round": {true, 2, 6, 0}, "an unreliable round": {false, 1, 3, 0},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcurPlus})
		for round := order.Round(1); round <= 2; round++ {
			must(t, e.Broadcast(nil))
			for p := order.ServerID(1); p < 5; p++ {
				must(t, e.Receive(p, encodeMessage(kindUnreliable, 0, 1, round, p, nil)))
			}
		}
		if c.rerun {
			must(t, e.Suspect(4))
		}
		e.ballots[e.round%ballotsKept].fill(c.epoch, c.round, 1)
		if got := e.knownUnreliable(); len(got) != c.known {
			t.Errorf("%s: knows %+v", name, got)
		}
	}
}

// TestOutsideOfTheMajority: too few messages are here, and no more are awaited.
func TestOutsideOfTheMajority(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*Engine)
		outside bool
	}{
		"two of five": {func(*Engine) {}, true},
		"three of five": {func(e *Engine) {
			e.current.add(2, encodeMessage(kindReliable, 0, 1, 1, 2, nil))
		}, false},
		"decided":         {func(e *Engine) { e.decided = true }, false},
		"one is awaited":  {func(e *Engine) { e.tracking.awaitedCount = 1 }, false},
		"without its own": {func(e *Engine) { e.current.drop(0) }, false},
		"unreliable":      {func(e *Engine) { e.reliable = false }, false},
		"as published":    {func(e *Engine) { e.config.Detector = DetectorEventualPaper }, false},
		"halted":          {func(e *Engine) { e.halted = "why" }, false},
		"ended":           {func(e *Engine) { e.ended = true }, false},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcur})
		e.tracking.awaitedCount = 0
		for p := range order.ServerID(2) {
			e.current.add(p, encodeMessage(kindReliable, 0, 1, 1, p, nil))
		}
		if c.change(e); e.OutsideMajority() != c.outside {
			t.Errorf("%s: %v", name, !c.outside)
		}
	}
}

// TestVotesOfStrangers: votes of removed servers, and in groups of more servers than a word has
// bits.
func TestVotesOfStrangers(t *testing.T) {
	t.Parallel()
	vote := func(voter order.ServerID, set serverSet) []byte {
		return encodeVote(kindForward, phaseDecided, 0, 1, 1, voter, set)
	}
	for name, c := range map[string]struct {
		from, voter, removed order.ServerID
		known                int
	}{
		"a member's":       {1, 2, 3, 1},
		"from one removed": {1, 2, 1, 0},
		"of one removed":   {1, 2, 2, 0},
		"its own":          {1, 0, 3, 0},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcur})
		e.members.remove(c.removed)
		must(t, e.Receive(c.from, vote(c.voter, setOf(0, 1, 2, 3, 4))))
		if got := e.ballots[1].voters.count(); got != c.known {
			t.Errorf("%s: %d votes", name, got)
		}
	}
	for n, set := range map[int]serverSet{64: {^uint64(0)}, 70: {2, 1 << 5}} {
		g, err := digraph.Complete(n)
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(Config{Engine: EngineAllConcur, Servers: n, Reliable: g})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Receive(1, vote(order.ServerID(n), set)); !errors.Is(err, order.ErrFrame) {
			t.Errorf("of server %d: %v", n, err)
		}
		if must(t, e.Receive(1, vote(1, set))); len(e.KnownVotes()) != 1 {
			t.Errorf("of %d servers: %+v", n, e.KnownVotes())
		}
	}
	ring, err := digraph.Ring(4)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Engine: EngineAllConcur, Servers: 4, Reliable: ring})
	if err != nil {
		t.Fatal(err)
	}
	clear(e.overlay.votes[0].place) // all were removed; they may still be heard
	for from := order.ServerID(1); from < 4; from++ {
		if e.votesCome(kindForward, from) != (from != 2) {
			t.Errorf("votes come from server %d: %v", from, from == 2)
		}
	}
}

// TestOwnBallot: the own ballot is of the current state, whatever was there before.
func TestOwnBallot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		epoch order.Epoch
		round order.Round
		kept  bool
	}{"the state": {1, 1, true}, "another epoch": {2, 1, false}, "another round": {1, 5, false},
		"neither": {2, 5, false}} {
		e := fiveServers(t, Config{Engine: EngineAllConcur})
		e.ballots[1].fill(c.epoch, c.round, 3)
		if b := e.ownBallot(); b.epoch != 1 || b.round != 1 || b.voters.has(3) != c.kept {
			t.Errorf("%s: epoch %d, round %d, kept %v", name, b.epoch, b.round, b.voters.has(3))
		}
	}
}

// TestOutvotedElsewhere: votes of a majority in another state do not outvote this server, unless
// they are for a round that it voted for already.
func TestOutvotedElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Engine)
		epoch  order.Epoch
		round  order.Round
		halts  bool
	}{
		"the state":     {func(*Engine) {}, 1, 1, true},
		"another epoch": {func(*Engine) {}, 2, 1, false},
		"another round": {func(*Engine) {}, 1, 2, false},
		"not decided":   {func(e *Engine) { e.decided = false }, 1, 1, false},
		"as published": {func(e *Engine) {
			e.config.Detector = DetectorEventualPaper
		}, 1, 1, false},
		"voted for it": {func(e *Engine) {
			e.decided = false
			e.older.begin(1, 2, false)
		}, 1, 2, true},
		"voted before": {func(e *Engine) {
			e.decided = false
			e.older.begin(1, 2, false)
		}, 1, 3, false},
		"voted later": {func(e *Engine) {
			e.decided = false
			e.older.begin(1, 3, false)
		}, 1, 2, true},
		"unreliable now": {func(e *Engine) { e.reliable = false }, 1, 1, false},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcur})
		e.decided = true
		e.current.add(0, encodeMessage(kindReliable, 0, 1, 1, 0, nil))
		c.change(e)
		b := newBallot(5)
		b.fill(c.epoch, c.round, 1)
		s := b.ofOrigin(1)
		b.count(s, 2, phaseDecided)
		if e.haltIfOutvoted(b, s); e.halted != "" {
			t.Errorf("%s: two votes outvote it", name)
		}
		b.count(s, 3, phaseDecided)
		if e.haltIfOutvoted(b, s); (e.halted != "") != c.halts {
			t.Errorf("%s: halts %v", name, e.halted != "")
		}
	}
}

// TestEonOfOne: the eon of a group of one ends with a round of a later epoch.
func TestEonOfOne(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Engine: EngineAllConcurPlus, Servers: 1, Reliable: overlays(t, 1)[0],
		Change: func(order.Delivery) bool {
			return true
		}})
	if err != nil {
		t.Fatal(err)
	}
	var epochs []order.Epoch
	for e.CanBroadcast() && len(epochs) < 9 {
		must(t, e.Broadcast(nil))
		for _, d := range e.Ready().Deliveries {
			epochs = append(epochs, d.Epoch)
		}
	}
	if !e.Status().Ended || !reflect.DeepEqual(epochs, []order.Epoch{1, 1, 2}) {
		t.Errorf("ended %v, epochs %v", e.Status().Ended, epochs)
	}
}

// TestSkips: a server may skip while neither it nor a majority has decided. A server that has
// decided halts if a majority skipped.
func TestSkips(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  Config
		decided bool
		votes   int
		may     bool
	}{
		"a minority decided": {Config{}, false, 2, true},
		"a majority decided": {Config{}, false, 3, false}, "it decided": {Config{}, true, 1, false},
		"as published":    {Config{Detector: DetectorEventualPaper}, true, 3, true},
		"under P":         {Config{Detector: DetectorPerfect}, true, 0, true},
		"the planted bug": {Config{Fault: FaultSkipAfterDecided}, true, 3, true},
	} {
		c.config.Engine = EngineAllConcur
		e := fiveServers(t, c.config)
		for p := range order.ServerID(c.votes) {
			b := e.ownBallot()
			s := b.ofOrigin(0)
			if s == nil {
				s = b.grow()
				copy(s.origins, setOf(0, 1, 2, 3))
			}
			b.count(s, p, phaseDecided)
		}
		if e.decided = c.decided; e.maySkip() != c.may {
			t.Errorf("%s: may skip %v", name, !c.may)
		}
	}
	for name, c := range map[string]struct {
		detector Detector
		decided  bool
		skipped  int
		halts    bool
	}{
		"two": {DetectorEventual, true, 2, false}, "three": {DetectorEventual, true, 3, true},
		"three, and it has not decided": {DetectorEventual, false, 3, false},
		"three, as published":           {DetectorEventualPaper, true, 3, false},
	} {
		e := fiveServers(t, Config{Engine: EngineAllConcur, Detector: c.detector})
		e.decided = c.decided
		for p := range order.ServerID(c.skipped) {
			e.haltIfSkipped(p + 1)
		}
		if (e.halted != "") != c.halts {
			t.Errorf("%s skipped: halts %v", name, e.halted != "")
		}
	}
}

// TestPublishedVotes: the paper's votes need a majority both ways.
func TestPublishedVotes(t *testing.T) {
	t.Parallel()
	for _, forward := range []int{2, 3} {
		for _, backward := range []int{2, 3} {
			e := fiveServers(t, Config{Engine: EngineAllConcur, Detector: DetectorEventualPaper})
			e.current.add(0, encodeMessage(kindReliable, 0, 1, 1, 0, nil))
			e.decided = true
			b := e.ownBallot()
			for p := range order.ServerID(forward) {
				b.see(kindForward, phaseDecided, p)
			}
			for p := range order.ServerID(backward) {
				b.see(kindBackward, phaseDecided, p)
			}
			if e.agreed() != (forward == 3 && backward == 3) {
				t.Errorf("%d and %d votes: %v", forward, backward, e.agreed())
			}
		}
	}
}

// TestSetsInFrames: sets of several words.
func TestSetsInFrames(t *testing.T) {
	t.Parallel()
	set := serverSet{1, 2, 3}
	frame := encodeVote(kindForward, phaseDecided, 1, 2, 3, 0, set)
	copied := make(serverSet, 3)
	if copySet(copied, frame); !copied.equal(set) || !sameSet(frame, set) ||
		sameSet(frame, serverSet{1, 2, 4}) || sameSet(frame, serverSet{1, 3, 3}) {
		t.Errorf("%v", copied)
	}
}
