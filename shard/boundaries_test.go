package shard

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// A member that nobody can give the next block names that block to programs, too.
func TestTheBlockThatNobodyHas(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 3)
	p := m.peer(1)
	p.Group, p.Absent = *groupOf(3, generation.NewRun(1, 0)), 10
	p.Heights.Ordered, p.Tip = 12, hashAt(12, 0)
	m.follow()
	if got := m.View().Reason; got.Kind != NoBlock || got.Height != 10 {
		t.Errorf("%+v, want block 10", got)
	}
}

// A disk that did not take blocks that were to be set aside is asked again after Timing.Announce.
// Until that tick is over the member waits for space.
func TestSpaceToSetBlocksAsideIsWaitedFor(t *testing.T) {
	t.Parallel()
	announce := DefaultTiming().Announce
	for ago, waits := range map[int]bool{announce - 1: true, announce: true, announce + 1: false} {
		m, _ := newTestMember(t, 3)
		m.noSpace, m.view.Mode = true, Halted
		m.asideRefused, m.settleAt = true, m.now-ago
		if m.explainSpace(); m.noSpace != waits || (m.view.Mode == Halted) != waits {
			t.Errorf("%d ticks later: waits for space: %v, %v", ago, m.noSpace, m.view.Mode)
		}
	}
}

// What a member without a group says of itself, where it is at the edge of two cases.
func TestWhatAMemberSaysAtTheEdge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Member, *bookChain)
		mode   Mode
		kind   ReasonKind
	}{
		"is at the base, and fetches": {func(m *Member, _ *bookChain) {
			m.pending, m.job = decisionOf(2), fetching
		}, Starting, Between},
		"is no member, and nobody works": {func(_ *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{1, 2}
		}, Starting, Joining},
	} {
		m, chain := newTestMember(t, 3)
		c.change(m, chain)
		m.explain(nil)
		if view := m.View(); view.Mode != c.mode || view.Reason.Kind != c.kind {
			t.Errorf("%s: %v, %+v: %s", name, view.Mode, view.Reason, view.Why)
		}
	}
}

// Blocks behind the base of a run that takes this member in are set aside where what it fetched
// from that generation ends with the base: it has them from somewhere else.
func TestBlocksBehindWhatWasFetchedAreSetAside(t *testing.T) {
	t.Parallel()
	for fetchedTo, aside := range map[uint64]bool{8: true, 9: true, 10: false} {
		m, chain := newTestMember(t, 3)
		chain.height, m.fetchedTo, m.fetchedIn = 10, fetchedTo, 1
		m.enter(1, groupOf(3, generation.NewRun(1, 1)))
		did := slices.Contains(m.effects, Effect(SetAside{Keep: 9}))
		if did != aside || (m.ticket == 7) != aside {
			t.Errorf("fetched up to %d: %+v, ticket %d", fetchedTo, m.effects, m.ticket)
		}
	}
}

// That something was saved is news only where the disk holds now that a change is effective.
func TestSavingIsNoNewsByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ changed, flushed, flushing, first uint64 }{
		"no change":                  {0, 9, 9, 0},
		"a change that was known":    {9, 9, 9, 0},
		"a change that is effective": {9, 8, 9, 9},
		"a change that is not":       {9, 7, 8, 9},
	} {
		m, chain := newTestMember(t, 3)
		chain.changed, m.flushed, m.flushing = c.changed, c.flushed, c.flushing
		m.saving, m.held, m.news = true, generation.Ready{}, false
		if got := m.unflushed(); got != c.first {
			t.Fatalf("%s: the first change that the disk does not hold is %d", name, got)
		}
		m.onSaved()
		if want := name == "a change that is effective"; m.news != want {
			t.Errorf("%s: news %v", name, m.news)
		}
	}
}

// That a round is wanted does not mean that the disk refused one.
func TestARoundIsRefusedByTheDisk(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		for _, wanted := range []bool{false, true} {
			m, _ := newTestMember(t, 3)
			m.learns(decisionOf(2, 10))
			if !wanted {
				m.synod.Holds([32]byte{10})
			}
			m.roundRefused = refused
			if m.fetchWanted(false); m.roundRefused != (refused && wanted) {
				t.Errorf("refused %v, wanted %v: waits for space: %v", refused, wanted,
					m.roundRefused)
			}
		}
	}
}

// A member that is past the base of a decision sets nothing aside where others order already and
// may have sent it these blocks, or where a block behind the base is durable. Either is enough.
//
// If it has fetched none of these blocks, they are older than the group. It sets them aside even if
// others order: the group may need this member, and would stop and start anew for ever without it.
func TestBlocksBehindABaseThatStay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others  bool
		fetched uint64
		durable uint64
		aside   bool
	}{
		"nobody orders, and none is durable":   {false, 10, 9, true},
		"others order":                         {true, 10, 9, false},
		"others order, and fetched the base":   {true, 9, 9, true},
		"others order, and fetched none":       {true, 0, 9, true},
		"one is durable":                       {false, 10, 10, false},
		"one is durable, and fetched none":     {false, 0, 10, false},
		"others order, and one is durable too": {true, 10, 10, false},
	} {
		m, chain := newTestMember(t, 3)
		d := decisionOf(2)
		m.learns(d)
		m.pending, m.pendingAt = d, m.now
		chain.height, chain.durable, m.fetchedTo = 10, c.durable, c.fetched
		if c.others {
			m.peer(1).Group = *groupOf(3, generation.NewRun(2, 0))
		}
		m.activate()
		did := slices.Contains(m.effects, Effect(SetAside{Keep: 9}))
		if did != c.aside || (m.pending != nil) != c.aside || m.end != nil {
			t.Errorf("%s: pending %+v, %+v, ended with %v", name, m.pending, m.effects, m.end)
		}
	}
}

// Whether a member talks to a server that left does not depend on others in the list before it:
// this server itself, or one that left before the process began.
func TestLeaversBehindOthers(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]Former{
		"this server":          {Server: 0, Left: 10},
		"one that left before": {Server: 1, Left: 5},
	} {
		m, chain := newTestMember(t, 3)
		m.peer(1).linked = false
		chain.height, chain.membership.Members = 10, []order.ServerID{3}
		chain.former = []Former{first, {Server: 2, Left: 10}}
		if got := m.Leavers(); !slices.Equal(got, []order.ServerID{2}) {
			t.Errorf("%s: talks to %v, want server 2", name, got)
		}
	}
}

// attempt has a member open an attempt to form the next generation, and some others promise. Change
// spoils their promises.
func (m *Member) attempt(t *testing.T, promise []order.ServerID, change func(*generation.Report)) {
	t.Helper()
	m.tickSynod()
	var prepare generation.Message
	for _, e := range m.synod.Ready().Messages {
		if e.Message.Kind == generation.KindPrepare {
			prepare = e.Message
		}
	}
	if prepare.Kind != generation.KindPrepare {
		t.Fatal("no attempt was opened")
	}
	membership, _ := m.chain.Membership()
	for _, server := range promise {
		report := generation.Report{
			Head: generation.Head{Generation: 1, Height: 9, Hash: hashAt(9, 0), Round: 9},
			Disk: diskOf(int(server)), Original: true, Run: generation.NewRun(1, 0), Durable: 9,
			Membership: membership, Shard: membership,
		}
		change(&report)
		m.synod.Receive(server, generation.Message{Kind: generation.KindPromise,
			Generation: prepare.Generation, Ballot: prepare.Ballot, Known: prepare.Known,
			Report: report})
	}
}

// A member that waits tells those that cannot be reached from those that are full, and from those
// that promised and are of use, although nothing was heard of them since. It seeks a durable block
// only where a member has not answered; otherwise nobody has it.
func TestForWhomAMemberWaits(t *testing.T) {
	t.Parallel()
	same := func(*generation.Report) {}
	restarted := func(r *generation.Report) { r.Restarted = true }
	lost := func(r *generation.Report) { r.Durable = 12 }
	perhaps := func(r *generation.Report) { r.Perhaps = true }
	unheard := func(server order.ServerID) func(*Member) {
		return func(m *Member) { m.peer(server).at = 0 }
	}
	nothing := func(*Member) {}
	decided := func(generations int) func(*Member) {
		return func(m *Member) {
			m.peer(1).Decided = m.synod.Next() + generation.Generation(generations)
		}
	}
	type waits struct {
		unreachable, restarted, full []order.ServerID
		durable, sought              uint64
		// silent are those whose promise is over: they have to promise again.
		silent, perhaps []order.ServerID
	}
	servers := func(servers ...order.ServerID) []order.ServerID { return servers }
	for name, c := range map[string]struct {
		before  func(*Member)
		promise []order.ServerID
		report  func(*generation.Report)
		after   func(*Member)
		want    waits
	}{
		"one is full": {func(m *Member) { m.peer(2).Full = true }, servers(1), same, nothing,
			waits{full: servers(2)}},
		"one was full, and is unheard": {func(m *Member) { m.peer(2).Full, m.peer(2).at = true, 0 },
			servers(1), same, nothing, waits{unreachable: servers(2)}},
		"one promised, and is unheard": {nothing, servers(1), same, unheard(1), waits{}},
		"one promised, and is cut off": {nothing, servers(1), same,
			func(m *Member) { m.peer(1).linked = false }, waits{}},
		"one restarted": {nothing, servers(1), restarted, nothing, waits{restarted: servers(1)}},
		"one restarted, and is unheard": {nothing, servers(1), restarted, unheard(1),
			waits{restarted: servers(1)}},
		"one restarted, and is cut off": {nothing, servers(1), restarted,
			func(m *Member) { m.peer(1).linked = false }, waits{unreachable: servers(1)}},
		"one restarted, and knows the decision before": {nothing, servers(1), restarted,
			decided(-1), waits{restarted: servers(1)}},
		"one restarted, and decided since": {nothing, servers(1), restarted, decided(0),
			waits{silent: servers(1)}},
		"one restarted, and decided more since": {nothing, servers(1), restarted, decided(3),
			waits{silent: servers(1)}},
		"one perhaps had more": {nothing, servers(1), perhaps, nothing, waits{perhaps: servers(1)}},
		"one perhaps had more, and decided since": {nothing, servers(1), perhaps, decided(0),
			waits{silent: servers(1)}},
		"one remembers, and decided since": {nothing, servers(1), same, decided(0), waits{}},
		"a durable block is gone": {nothing, servers(1, 2), lost, nothing,
			waits{durable: 12}},
		"a durable block is gone, and one is silent": {nothing, servers(1), lost, nothing,
			waits{sought: 12}},
		"a durable block is gone, and one is away": {unheard(2), servers(1), lost, nothing,
			waits{unreachable: servers(2), sought: 12}},
		"a durable block is gone, and one is full": {func(m *Member) { m.peer(2).Full = true },
			servers(1), lost, nothing, waits{full: servers(2), sought: 12}},
		"a durable block is gone, and one that promised is unheard": {nothing, servers(1, 2), lost,
			unheard(1), waits{sought: 12}},
	} {
		m, _ := newTestMember(t, 3)
		c.before(m)
		m.attempt(t, c.promise, c.report)
		c.after(m)
		r, why := m.waitingFor()
		w := r.Waiting
		silent := slices.DeleteFunc(slices.Clone(w.Silent), func(server order.ServerID) bool {
			return server == 2
		})
		got := waits{w.Unreachable, w.Restarted, r.Full, w.Durable, r.Sought, silent,
			w.Perhaps}
		if !slices.Equal(got.unreachable, c.want.unreachable) || got.durable != c.want.durable ||
			!slices.Equal(got.restarted, c.want.restarted) || got.sought != c.want.sought ||
			!slices.Equal(got.full, c.want.full) || !slices.Equal(got.silent, c.want.silent) ||
			!slices.Equal(got.perhaps, c.want.perhaps) || !slices.IsSorted(w.Silent) {
			t.Errorf("%s: %+v, want %+v: %s", name, got, c.want, why)
		}
	}
}

// An operator is called once too few disks have remembered for Timing.Hearsay, and that was true
// for a moment.
func TestWhenAnOperatorIsCalled(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 2)
	chain.membership.Disks = []generation.DiskID{diskOf(9), {}}
	want := m.config.Timing.Hearsay + m.config.Timing.Announce
	for tick := range want + 1 {
		m.peer(1).at = m.now
		if r, _ := m.waitingFor(); r.Recover != (tick == want) {
			t.Fatalf("after %d ticks: recover %v, want it after %d", tick, r.Recover, want)
		}
		m.now++
	}
}

// What was said is said no more after four times Timing.Announce, even if what is true since
// changes with each tick.
func TestWaitingIsNotSaidForLong(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 3)
	m.peer(1).linked = false
	_, before := m.waitingFor()
	for tick := 1; tick <= 4*m.config.Timing.Announce; tick++ {
		m.now++
		m.peer(2).linked, m.peer(2).Full = tick%2 == 0, true
		if _, why := m.waitingFor(); (why == before) != (tick < 4*m.config.Timing.Announce) {
			t.Fatalf("after %d ticks: %s", tick, why)
		}
	}
}

// The chain names another disk for a member. One that knows as many changes and counts its disk
// even so is on another branch, which may be the shard's. With fewer it does not know yet that it
// forgot.
func TestWhoForgets(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	chain.membership.Number, chain.membership.Disks = 2, []generation.DiskID{{}, diskOf(9), {}}
	for changes, forgets := range map[uint64]bool{1: true, 2: false, 3: false} {
		p := m.peer(1)
		if p.Changes = changes; m.forgets(p, chain.membership) != forgets {
			t.Errorf("with %d changes, of 2: forgets %v", changes, !forgets)
		}
	}
}

// A server that left, and whose chain has the change with which it left as its newest, left for
// good.
func TestLeftForGoodWithItsOwnLeave(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	chain.membership = generation.Membership{Number: 1, Members: serversTo(2)}
	chain.former = []Former{{Server: 2, Left: 9}}
	for changes, left := range map[uint64]bool{0: true, 1: true, 2: false} {
		m.peer(2).Changes = changes
		if got := m.leftForGood(chain.membership)(2); got != left {
			t.Errorf("with %d changes, of 1: left for good %v", changes, got)
		}
	}
}

// Once a majority cannot be heard there is no new attempt, and what the members promised in the
// last one may no longer be true of their disks.
func TestDoubtIsNotNamedWithoutAMajority(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 4)
	m.attempt(t, []order.ServerID{1}, func(r *generation.Report) { r.Perhaps = true })
	for _, unheard := range []order.ServerID{3, 2} {
		m.peer(unheard).at = 0
		r, why := m.waitingFor()
		if names := len(r.Waiting.Perhaps) > 0; names != (unheard == 3) {
			t.Errorf("without %d, it waits for %+v: %s", unheard, r.Waiting, why)
		}
		m.now += 2 // it is asked anew, and says at once what is true
		m.peer(1).at = m.now
		if unheard == 3 {
			m.peer(2).at = m.now
		}
	}
}
