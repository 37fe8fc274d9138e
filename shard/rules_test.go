package shard

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// serversTo lists the servers below n.
func serversTo(n int) (list []order.ServerID) {
	for server := range order.ServerID(n) {
		list = append(list, server)
	}
	return list
}

// newTestMember returns server 0 of n at tick 1000. It holds nine durable blocks and knows the
// decision of generation 1. All others were just heard, and hold the same.
func newTestMember(t *testing.T, n int) (*Member, *bookChain) {
	t.Helper()
	chain := &bookChain{height: 9, stored: 9, durable: 9,
		membership: generation.Membership{Members: serversTo(n)}}
	decision := &generation.Decision{Generation: 1, Members: serversTo(n)}
	for server := range n {
		decision.Disks = append(decision.Disks, diskOf(server))
	}
	m, err := New(Config{Disk: Disk{ID: diskOf(0), Original: true,
		State: generation.State{Decided: decision, Instance: 1}},
		Chain: chain, Timing: DefaultTiming(), Ticket: 7, Home: "home"})
	if err != nil {
		t.Fatal(err)
	}
	m.now = 1000
	for server := range order.ServerID(n) {
		if server > 0 {
			p := m.peer(server)
			p.heard, p.linked, p.at, p.Disk = true, true, m.now, diskOf(int(server))
			p.Heights, p.Tip, p.Mode = Heights{9, 9, 9}, hashAt(9, 0), Starting
		}
	}
	m.Ready()
	return m, chain
}

// groupOf returns a group of all members that works in a run.
func groupOf(n int, run generation.Run) *Group {
	return &Group{Run: run, First: 10, Base: 9, BaseHash: hashAt(9, 0), Members: serversTo(n),
		Shard: generation.Membership{Members: serversTo(n)}}
}

// work makes the member work in a run.
func (m *Member) work(n int, run generation.Run) {
	m.synod.Working(run, generation.Membership{Members: serversTo(n)})
	m.group = groupOf(n, run)
	m.view.Mode = Ordering
	m.synod.Ready()
}

// effectsOf lists a member's effects of one kind.
func effectsOf[E Effect](m *Member) (list []E) {
	for _, e := range m.Ready() {
		if e, is := e.(E); is {
			list = append(list, e)
		}
	}
	return list
}

// A disk is admitted if it holds everything that is durable, or recently held everything that was
// durable a moment before.
func TestMayAdmit(t *testing.T) {
	t.Parallel()
	hearsay := DefaultTiming().Hearsay
	for name, c := range map[string]struct {
		change func(*Member, *peer)
		may    bool
	}{
		"holds all": {func(*Member, *peer) {}, true},
		"lacks one": {func(_ *Member, p *peer) { p.Heights.Stored = 8 }, false},
		"had caught up": {func(m *Member, p *peer) {
			p.Heights.Stored, p.caughtUp, p.caughtAt = 8, true, m.now-hearsay+1
		}, true},
		"had caught up long ago": {func(m *Member, p *peer) {
			p.Heights.Stored, p.caughtUp, p.caughtAt = 8, true, m.now-hearsay
		}, false},
		"another disk had caught up": {func(m *Member, p *peer) {
			p.Heights.Stored, p.caughtUp, p.caughtAt, p.disk = 8, true, m.now, diskOf(7)
		}, false},
		"not heard lately": {func(m *Member, p *peer) { p.at = m.now - hearsay }, false},
		"not linked":       {func(_ *Member, p *peer) { p.linked = false }, false},
		"not heard":        {func(_ *Member, p *peer) { p.heard = false }, false},
		"another disk": {func(_ *Member, p *peer) {
			p.Disk, p.disk = diskOf(7), diskOf(7)
		}, false},
		"further": {func(_ *Member, p *peer) {
			p.Heights.Ordered, p.Tip = 10, hashAt(10, 0)
		}, false},
		"another chain": {func(_ *Member, p *peer) { p.Tip = hashAt(9, 1) }, false},
		"in the group":  {func(m *Member, _ *peer) { m.group = groupOf(3, 1) }, false},
		"was in the group": {func(m *Member, _ *peer) {
			m.group, m.removed = groupOf(3, 1), []order.ServerID{1}
		}, true},
	} {
		m, _ := newTestMember(t, 3)
		m.group = &Group{Members: []order.ServerID{0, 2}}
		p := m.peer(1)
		p.disk = p.Disk
		c.change(m, p)
		if got := m.mayAdmit(WishReceived{From: 1, Wish: Wish{Kind: WishAdmit,
			Disk: diskOf(1)}}); got != c.may {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestModesHaveNames(t *testing.T) {
	t.Parallel()
	for mode, name := range []string{"unknown", "starting", "ordering", "following", "halted",
		"stopping", "unknown"} {
		if got := Mode(mode).String(); got != name {
			t.Errorf("mode %d is %s, want %s", mode, got, name)
		}
	}
}

// The bench leaves a majority.
func TestBenchLeavesAMajority(t *testing.T) {
	t.Parallel()
	next := groupOf(5, 2)
	benched(next, []order.ServerID{9, 1, 2, 3})
	if !slices.Equal(next.Members, []order.ServerID{0, 3, 4}) {
		t.Errorf("left are %v", next.Members)
	}
	m, _ := newTestMember(t, 5)
	m.group = groupOf(5, 1)
	for _, c := range []struct {
		server  order.ServerID
		removed []order.ServerID
		may     bool
	}{{1, nil, true}, {1, []order.ServerID{2}, true}, {1, []order.ServerID{2, 3}, false},
		{1, []order.ServerID{1}, false}, {5, nil, false}} {
		if m.removed = c.removed; m.mayBench(c.server) != c.may {
			t.Errorf("%+v", c)
		}
	}
}

// A tick for which the rounds waited is forgotten after the window.
func TestLagsAreForgotten(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 5)
	m.group = groupOf(5, 1)
	for _, p := range []Progressed{
		{Awaited: []order.ServerID{1}}, {Waiting: 1, Awaited: []order.ServerID{1, 2}},
		{Waiting: 1, Awaited: []order.ServerID{0}}, {Waiting: 1},
		{Waiting: 9, Awaited: []order.ServerID{1}, Relayed: true},
		{Waiting: 9, Awaited: []order.ServerID{1}, Relayed: true, Stuck: true},
	} {
		if m.watchLags(p); len(m.Lags()) != 0 {
			t.Errorf("%+v: %v", p, m.Lags())
		}
	}
	m.watchLags(Progressed{Waiting: 1, Awaited: []order.ServerID{2}})
	m.watchLags(Progressed{Waiting: 1, Awaited: []order.ServerID{3}})
	m.watchLags(Progressed{Waiting: 2, Awaited: []order.ServerID{3}})
	if got := m.Lags(); !slices.Equal(got, []Lag{{2, 1}, {3, 2}}) {
		t.Errorf("lags %v", got)
	}
	for range lagWindow - 3 {
		m.watchLags(Progressed{})
	}
	if got := m.Lags(); !slices.Equal(got, []Lag{{2, 1}, {3, 2}}) {
		t.Errorf("lags %v at the end of the window", got)
	}
	m.watchLags(Progressed{})
	m.watchLags(Progressed{})
	if got := m.Lags(); !slices.Equal(got, []Lag{{3, 1}}) {
		t.Errorf("lags %v behind the window", got)
	}
	m.watchLags(Progressed{})
	if got := m.Lags(); len(got) != 0 {
		t.Errorf("lags %v behind the window", got)
	}
}

// Only a bounded number of troubles is remembered, for a while. With each one after the first, a
// member has to be heard regularly for longer.
func TestTroubles(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 3)
	p := m.peer(1)
	timing := m.config.Timing
	for _, c := range []struct{ troubles, want []int }{
		{nil, []int{1000}}, {[]int{1000 - timing.Trouble, 1001 - timing.Trouble},
			[]int{1001 - timing.Trouble, 1000}},
		{[]int{901, 902, 903}, []int{901, 902, 903, 1000}},
		{[]int{901, 902, 903, 904}, []int{902, 903, 904, 1000}},
	} {
		p.troubles = slices.Clone(c.troubles)
		m.troubled(1)
		if !slices.Equal(p.troubles, c.want) {
			t.Errorf("after %v: %v", c.troubles, p.troubles)
		}
	}
	for _, c := range []struct {
		troubles []int
		since    int
		steady   bool
	}{
		{nil, 1000, true}, {[]int{999}, 1000, true},
		{[]int{1000 - timing.Trouble, 999}, 1000, true},
		{[]int{1001 - timing.Trouble, 999}, 1000, false},
		{[]int{998, 999}, 1000 - timing.Steady, true},
		{[]int{998, 999}, 1001 - timing.Steady, false},
		{[]int{997, 998, 999}, 1000 - 2*timing.Steady, true},
		{[]int{997, 998, 999}, 1001 - 2*timing.Steady, false},
	} {
		if p.troubles, p.steadySince = c.troubles, c.since; m.steady(p) != c.steady {
			t.Errorf("%+v", c)
		}
	}
}

// A wish is marked at most once in a while for each server. The wish to end a generation is the
// same from all servers.
func TestMarks(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 4)
	mark := func(want bool, from order.ServerID, kind WishKind, number uint64) {
		t.Helper()
		if got := m.mark(WishReceived{From: from, Wish: Wish{Kind: kind, Number: number}}); got !=
			want {
			t.Errorf("at tick %d: server %d's wish %d %d is marked: %v", m.now, from, kind, number,
				got)
		}
	}
	mark(true, 1, WishEnter, 7)
	mark(false, 1, WishEnter, 7)
	mark(true, 2, WishEnter, 7)
	mark(true, 1, WishEnter, 8)
	mark(true, 1, WishRegroup, 1)
	mark(false, 2, WishRegroup, 1)
	mark(true, 2, WishRegroup, 2)
	m.now += m.config.Timing.Mark - 1
	mark(false, 1, WishEnter, 7)
	m.now++
	mark(true, 1, WishEnter, 7)
	mark(false, 1, WishEnter, 7)
	for number := range uint64(marksMax) - 1 {
		mark(true, 1, WishEnter, 100+number)
	}
	mark(false, 1, WishEnter, 200)
	mark(true, 3, WishEnter, 200)
}

// Wishes count only from members, while this member works, and only for the current generation, a
// disk that counts, and a server that is not in yet.
func TestWishes(t *testing.T) {
	t.Parallel()
	entrant := Entrant{Server: 1, Ticket: 7, Disk: diskOf(1)}
	for name, c := range map[string]struct {
		change func(*Member)
		wish   WishReceived
		marks  bool
	}{
		"enter":               {nil, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, true},
		"enter, not a member": {nil, WishReceived{3, Wish{WishEnter, 7, diskOf(1)}}, false},
		"enter, nobody works": {func(m *Member) {
			m.group = nil
		}, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, false},
		"enter, stalled": {func(m *Member) {
			m.stalled = true
		}, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, false},
		"enter, starting": {func(m *Member) {
			m.starting = groupOf(3, 2)
		}, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, false},
		"enter, is in": {func(m *Member) {
			m.group.Entrants = []Entrant{entrant}
		}, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, false},
		"enter, was in before": {func(m *Member) {
			m.group.Entrants, m.removed = []Entrant{entrant}, []order.ServerID{1}
		}, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, true},
		"enter, another is in": {func(m *Member) {
			m.removed = []order.ServerID{1}
		}, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, true},
		"enter, unsteady": {func(m *Member) {
			m.peer(1).troubles, m.peer(1).steadySince = []int{998, 999}, 1000
		}, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, false},
		"enter, another disk": {func(m *Member) {
			m.chain.(*bookChain).membership.Disks = []generation.DiskID{{}, diskOf(5), {}}
		}, WishReceived{1, Wish{WishEnter, 7, diskOf(1)}}, false},
		"regroup":          {nil, WishReceived{1, Wish{Kind: WishRegroup, Number: 1}}, true},
		"regroup, another": {nil, WishReceived{1, Wish{Kind: WishRegroup, Number: 2}}, false},
		"admit, is in":     {nil, WishReceived{1, Wish{Kind: WishAdmit, Disk: diskOf(1)}}, false},
		"admit": {func(m *Member) {
			m.removed = []order.ServerID{1}
		}, WishReceived{1, Wish{Kind: WishAdmit, Disk: diskOf(1)}}, true},
		"admit, not caught up": {func(m *Member) {
			m.peer(1).Heights.Stored, m.removed = 3, []order.ServerID{1}
		}, WishReceived{1, Wish{Kind: WishAdmit, Disk: diskOf(1)}}, false},
	} {
		m, _ := newTestMember(t, 3)
		m.work(3, generation.NewRun(1, 0))
		m.Ready()
		if c.change != nil {
			c.change(m)
		}
		for _, first := range []bool{true, false} {
			m.onWish(c.wish)
			effects := m.effects
			m.effects = nil
			marks := slices.ContainsFunc(effects, func(e Effect) bool {
				switch e := e.(type) {
				case Mark:
					return !e.Bench && (e.Regroup && e.Entrant == Entrant{} || !e.Regroup &&
						e.Entrant == entrant)
				case Admit:
					return e == Admit{Server: 1, Disk: diskOf(1)}
				}
				return false
			})
			if marks != (c.marks && first) {
				t.Errorf("%s, first %v: %+v", name, first, effects)
			}
		}
	}
}

// TestEonEnds: the next eon begins with the remaining members and the entrants, as far as they
// count.
func TestEonEnds(t *testing.T) {
	t.Parallel()
	last := generation.NewRun(1, eonsMax-1)
	for name, c := range map[string]struct {
		run      generation.Run
		change   func(*Member, *bookChain, *EonEnded)
		starting []order.ServerID // the next group, if there is one
		settles  generation.Generation
		ignored  bool
	}{
		"all":              {run: 1 << 16, starting: serversTo(4)},
		"the last but one": {run: last, starting: serversTo(4)},
		"the last":         {run: last + 1, settles: 1},
		"regroup": {run: 1 << 16, change: func(_ *Member, _ *bookChain, e *EonEnded) {
			e.Regroup = true
		}, settles: 1},
		"too few": {run: 1 << 16, change: func(_ *Member, _ *bookChain, e *EonEnded) {
			e.Members = serversTo(2)
		}, settles: 1},
		"a majority": {run: 1 << 16, change: func(_ *Member, _ *bookChain, e *EonEnded) {
			e.Members = serversTo(3)
		}, starting: serversTo(3)},
		"one is gone": {run: 1 << 16, change: func(_ *Member, c *bookChain, _ *EonEnded) {
			c.membership.Members = []order.ServerID{0, 1, 3}
		}, starting: []order.ServerID{0, 1, 3}},
		"one enters": {run: 1 << 16, change: func(_ *Member, _ *bookChain, e *EonEnded) {
			e.Members, e.Entrants = serversTo(3), []Entrant{{Server: 3, Disk: diskOf(3)}}
		}, starting: serversTo(4)},
		"one enters that is in": {run: 1 << 16, change: func(_ *Member, _ *bookChain, e *EonEnded) {
			e.Entrants = []Entrant{{Server: 3, Disk: diskOf(3)}}
		}, starting: serversTo(4)},
		"one enters that is no member": {run: 1 << 16,
			change: func(_ *Member, _ *bookChain, e *EonEnded) {
				e.Entrants = []Entrant{{Server: 7, Disk: diskOf(7)}}
			}, starting: serversTo(4)},
		"one enters with another disk": {run: 1 << 16,
			change: func(_ *Member, c *bookChain, e *EonEnded) {
				c.membership.Disks = []generation.DiskID{{}, {}, {}, diskOf(9)}
				e.Members, e.Entrants = serversTo(3), []Entrant{{Server: 3, Disk: diskOf(3)}}
			}, starting: serversTo(3)},
		"benched": {run: 1 << 16, change: func(_ *Member, _ *bookChain, e *EonEnded) {
			e.Benched = []order.ServerID{2}
		}, starting: []order.ServerID{0, 1, 3}},
		"without this": {run: 1 << 16, change: func(_ *Member, _ *bookChain, e *EonEnded) {
			e.Members = []order.ServerID{1, 2, 3}
		}},
		"another run": {run: 1 << 16, change: func(_ *Member, _ *bookChain, e *EonEnded) {
			e.Run++
		}, ignored: true},
		"no group": {run: 1 << 16, change: func(m *Member, _ *bookChain, _ *EonEnded) {
			m.group = nil
		}, ignored: true},
		"starting": {run: 1 << 16, change: func(m *Member, _ *bookChain, _ *EonEnded) {
			m.starting = groupOf(4, 9)
		}, ignored: true},
	} {
		m, chain := newTestMember(t, 4)
		m.work(4, c.run)
		ended := EonEnded{Run: c.run, Members: serversTo(4)}
		if c.change != nil {
			c.change(m, chain, &ended)
		}
		before := m.starting
		m.onEonEnded(ended)
		switch {
		case c.ignored:
			if m.starting != before || m.job == settling {
				t.Errorf("%s: starts %+v", name, m.starting)
			}
		case c.starting == nil:
			if m.starting != nil || m.group != nil || m.job != settling || m.endedIn != c.settles {
				t.Errorf("%s: starts %+v, job %d, ended generation %d", name, m.starting, m.job,
					m.endedIn)
			}
		default:
			if m.starting == nil || !slices.Equal(m.starting.Members, c.starting) ||
				m.starting.Run != c.run+1 || m.starting.Base != 9 || m.starting.First != 10 {
				t.Errorf("%s: starts %+v", name, m.starting)
			}
		}
		if (len(m.peer(2).troubles) > 0) != (name == "benched") {
			t.Errorf("%s: the bench is remembered: %v", name, m.peer(2).troubles)
		}
	}
}

// A run takes this process in if it names the process's ticket and disk and makes progress. Nothing
// that this member took part in, promised or lacks may keep it out.
func TestEntrances(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Member, *peer)
		enters bool
	}{
		"all is well": {func(*Member, *peer) {}, true},
		"stalled":     {func(_ *Member, p *peer) { p.Stalled = true }, false},
		"this was removed": {func(_ *Member, p *peer) {
			p.Removed = []order.ServerID{0}
		}, false},
		"another was removed": {func(_ *Member, p *peer) { p.Removed = []order.ServerID{2} }, true},
		"not in the group": {func(_ *Member, p *peer) {
			p.Group.Members = []order.ServerID{1, 2}
		}, false},
		"another ticket": {func(_ *Member, p *peer) { p.Group.Entrants[0].Ticket++ }, false},
		"another disk": {func(_ *Member, p *peer) {
			p.Group.Entrants[0].Disk = diskOf(9)
		}, false},
		"took part": {func(m *Member, _ *peer) {
			m.work(3, generation.NewRun(1, 1))
			m.group = nil
		}, false},
		"took part later": {func(m *Member, _ *peer) {
			m.work(3, generation.NewRun(1, 2))
			m.group = nil
		}, false},
		"took part before": {func(m *Member, _ *peer) {
			m.work(3, generation.NewRun(1, 0))
			m.group = nil
		}, true},
		"promised the next": {func(m *Member, _ *peer) {
			m.synod.Receive(1, generation.Message{Kind: generation.KindPrepare, Generation: 2,
				Ballot: generation.Ballot{Number: 1, Proposer: 1}, Known: m.synod.Decided()})
		}, false},
		"decision not known": {func(_ *Member, p *peer) {
			p.Group.Run = generation.NewRun(2, 1)
		}, false},
	} {
		m, _ := newTestMember(t, 3)
		p := m.peer(1)
		p.Group = *groupOf(3, generation.NewRun(1, 1))
		p.Group.Entrants = []Entrant{{Server: 0, Ticket: 7, Disk: diskOf(0)}}
		c.change(m, p)
		if got := m.entrance(p); (got != nil) != c.enters || m.called() != c.enters {
			t.Errorf("%s: %+v, called %v", name, got, m.called())
		}
		if !c.enters {
			continue
		}
		m.group = groupOf(3, 1)
		working := m.called()
		m.group, m.starting = nil, groupOf(3, 1)
		if working || m.called() {
			t.Errorf("%s: called while it works, or starts", name)
		}
	}
}

// Blocks that the majority goes on without are set aside, but never durable ones. If the disk had
// no space for it, they are not set aside again at once.
func TestSettingAside(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	chain.durable = 5
	aside := func(keep uint64, want bool) {
		t.Helper()
		m.effects, m.job = nil, idle
		m.fallBack(keep)
		did := slices.ContainsFunc(m.effects, func(e Effect) bool {
			return e == SetAside{Keep: keep}
		})
		if did != want || (m.job == settingAside) != want {
			t.Errorf("at tick %d, down to %d: %+v", m.now, keep, m.effects)
		}
	}
	aside(5, true)
	m.onSetAside(WasSetAside{Reason: "the disk is full"})
	m.now += m.config.Timing.Announce - 1
	aside(5, false)
	m.now++
	aside(5, true)
	m.onSetAside(WasSetAside{})
	aside(6, true)
	if m.end != nil {
		t.Fatal(m.end)
	}
	aside(4, false)
	if !errors.Is(m.end, ErrFork) {
		t.Errorf("a durable block is set aside: %v", m.end)
	}
}

func TestDurabilityCounts(t *testing.T) {
	t.Parallel()
	var d Durability
	if d.Counts() {
		t.Error("counts before a run")
	}
	if d.Begin(1, generation.Membership{Members: serversTo(3)}, nil); !d.Counts() {
		t.Error("does not count in a run")
	}
	if d.End(); d.Counts() {
		t.Error("counts after a run")
	}
}

// A change is refused if too few of the working members would have disks that count. A member that
// entered with a disk that the chain replaced works for a while, but does not count.
func TestTooFew(t *testing.T) {
	t.Parallel()
	named := func(server int, disk generation.DiskID) func(*Member, *bookChain) {
		return func(_ *Member, c *bookChain) {
			c.membership.Number, c.membership.Disks = 1,
				make([]generation.DiskID, len(c.membership.Members))
			c.membership.Disks[server] = disk
		}
	}
	for name, c := range map[string]struct {
		change  func(*Member, *bookChain)
		of      int // the number of members after the change
		members int
		working []order.ServerID
		refused string // a part of the reason
	}{
		"one of three leaves": {nil, 3, 2, serversTo(2), ""},
		"one of three is down": {nil, 3, 2, serversTo(1),
			"of the 2 members that there would be, 1 order, "},
		"one joins three":        {nil, 3, 4, serversTo(3), ""},
		"one joins two of three": {nil, 3, 4, serversTo(2), "start the members that are down, or"},
		"one joins one":          {nil, 1, 2, serversTo(1), ""},
		"nobody works":           {nil, 3, 2, nil, "0 order, and a majority is 2"},
		"one has a learner's disk": {func(m *Member, _ *bookChain) {
			m.peer(1).Learner = true
		}, 3, 2, serversTo(2), "disk of member 1 first"},
		"the chain names another disk": {named(1, diskOf(9)), 3, 2, serversTo(2),
			"1 order with disks that count"},
		"the chain names this disk": {named(1, diskOf(1)), 3, 2, serversTo(2), ""},
		"it names another one here": {named(0, diskOf(9)), 3, 2, serversTo(2),
			"disk of member 0 first"},
		"one of five is no harm": {named(1, diskOf(9)), 5, 4, serversTo(4), ""},
		"nothing was heard of one": {func(m *Member, _ *bookChain) {
			m.peer(1).heard = false
		}, 3, 2, serversTo(2), ""},
	} {
		m, chain := newTestMember(t, c.of)
		if c.change != nil {
			c.change(m, chain)
		}
		err := m.TooFew(c.members, c.working)
		if (err == nil) != (c.refused == "") || err != nil &&
			!strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
	}
}
