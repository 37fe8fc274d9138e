package shard

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// A learner whose chain ends beyond that of all working members gives up its own blocks after a
// while, unless it has them from working members, or one of them is durable.
func TestStranded(t *testing.T) {
	t.Parallel()
	wait := 2 * DefaultTiming().Announce
	for name, c := range map[string]struct {
		change func(*Member, *bookChain)
		want   bool
	}{
		"a learner with more": {func(*Member, *bookChain) {}, true},
		"one of them works": {func(m *Member, _ *bookChain) {
			m.peer(2).Group.Run = 0
		}, false},
		"nobody works": {func(m *Member, _ *bookChain) {
			m.peer(1).Group.Run = 0
		}, false},
		"its disk counts": {func(_ *Member, c *bookChain) {
			c.membership.Disks = nil
		}, false},
		"removed by what it holds": {func(_ *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{1, 2}
		}, true},
		"has them from before": {func(m *Member, _ *bookChain) {
			m.fetchedTo, m.fetchedIn = 12, 1
			m.peer(1).Group.Run = generation.NewRun(2, 0)
		}, true},
		"took part in their generation": {func(m *Member, _ *bookChain) {
			m.synod.Working(generation.NewRun(1, 0), m.peer(1).Group.Shard)
		}, false},
		"took part in an earlier one": {func(m *Member, _ *bookChain) {
			m.synod.Working(generation.NewRun(1, 0), m.peer(1).Group.Shard)
			m.peer(1).Group.Run = generation.NewRun(2, 0)
		}, true},
		"as far as they":               {func(_ *Member, c *bookChain) { c.height = 9 }, false},
		"one further":                  {func(_ *Member, c *bookChain) { c.height = 10 }, true},
		"less than they":               {func(_ *Member, c *bookChain) { c.height = 8 }, false},
		"has them from those who work": {func(m *Member, _ *bookChain) { m.fetchedTo = 12 }, false},
		"has more from them":           {func(m *Member, _ *bookChain) { m.fetchedTo = 13 }, false},
		"has them from another": {func(m *Member, _ *bookChain) {
			m.fetchedTo, m.fetchedIn = 12, 0
		}, true},
		"has all but one from them": {func(m *Member, _ *bookChain) { m.fetchedTo = 11 }, true},
		"their last one is durable": {func(_ *Member, c *bookChain) { c.durable = 9 }, true},
		"an own one is durable":     {func(_ *Member, c *bookChain) { c.durable = 10 }, false},
	} {
		m, chain := newTestMember(t, 3)
		chain.height, chain.membership.Disks = 12, []generation.DiskID{diskOf(9), {}, {}}
		m.fetchedIn = 1
		m.peer(1).Group = *groupOf(3, generation.NewRun(1, 0))
		m.peer(2).Group = m.peer(1).Group
		c.change(m, chain)
		var workers []peer
		for _, server := range []order.ServerID{1, 2} {
			if m.peer(server).orders() {
				workers = append(workers, *m.peer(server))
			}
		}
		for _, after := range []int{0, wait, 1} {
			m.now += after
			if got, want := m.stranded(workers, m.peer(1)), c.want && after == 1; got != want {
				t.Errorf("%s, %d ticks later: stranded %v", name, after, got)
			}
		}
		chain.height = 9
		m.stranded(workers, m.peer(1))
		chain.height = 12
		if m.stranded(workers, m.peer(1)) {
			t.Errorf("%s: does not wait again after it was not so", name)
		}
	}
}

// A peer vouches for a base if it works, or if its chain ends with the base.
func TestVouches(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 3)
	target := &generation.Head{Height: 9, Hash: hashAt(9, 0)}
	for name, c := range map[string]struct {
		works  bool
		height uint64
		tip    [32]byte
		want   bool
	}{
		"ends with it":                 {false, 9, hashAt(9, 0), true},
		"ends with another block":      {false, 9, hashAt(9, 1), false},
		"is further":                   {false, 10, hashAt(9, 0), false},
		"is further, and elsewhere":    {false, 10, hashAt(10, 1), false},
		"works":                        {true, 12, hashAt(12, 0), true},
		"works, and ends with another": {true, 9, hashAt(9, 1), true},
	} {
		p := m.peer(1)
		p.Heights.Ordered, p.Tip, p.Group.Run = c.height, c.tip, 0
		if c.works {
			p.Group = *groupOf(3, generation.NewRun(1, 0))
		}
		if m.vouches(p, target) != c.want {
			t.Errorf("%s: vouches %v", name, !c.want)
		}
	}
}

// A member whose chain has another block at the height of a base leaves its branch for the base,
// unless one of the blocks to give up is durable. The next time it asks another peer.
func TestLeavesBranch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		base    generation.Head
		durable uint64
		leaves  bool
	}{
		"another block":               {generation.Head{Height: 9, Hash: hashAt(9, 1)}, 8, true},
		"another block below the tip": {generation.Head{Height: 8, Hash: hashAt(8, 1)}, 7, true},
		"the same":                    {generation.Head{Height: 9, Hash: hashAt(9, 0)}, 8, false},
		"not there yet":               {generation.Head{Height: 10, Hash: hashAt(10, 1)}, 8, false},
		"another block, and it is durable": {generation.Head{Height: 9, Hash: hashAt(9, 1)},
			9, false},
	} {
		m, chain := newTestMember(t, 3)
		chain.durable = c.durable
		left := m.leaveBranch(&c.base)
		aside := effectsOf[SetAside](m)
		if left != c.leaves || (len(aside) == 1) != c.leaves || m.strays != truth(c.leaves) {
			t.Errorf("%s: leaves %v, %+v, %d strays", name, left, aside, m.strays)
		}
		if c.leaves && aside[0].Keep != c.base.Height-1 {
			t.Errorf("%s: %+v", name, aside)
		}
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A peer that does not vouch for the base, or does not work while no base is wanted, proves nothing
// about where chains part. A peer that returns nothing is not asked next. Before this rule, a
// removed member listened to a peer on a branch that was given up, and ended with the error that
// the shard goes on without a durable block.
func TestStrays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vouches, wanted, forked, grew, nobody, works bool
		strays                                       int
		// takes says whether the point where the chains part is used.
		takes bool
	}{
		"vouches, and parts":        {vouches: true, wanted: true, forked: true, takes: true},
		"parts":                     {wanted: true, forked: true, strays: 1},
		"parts, and gave blocks":    {wanted: true, forked: true, grew: true, strays: 1},
		"gives nothing":             {wanted: true, strays: 1},
		"gives blocks":              {wanted: true, grew: true},
		"no base is wanted":         {forked: true},
		"no base, and it works":     {works: true, forked: true, takes: true},
		"nobody was asked":          {wanted: true, nobody: true, forked: true},
		"vouches and gives nothing": {vouches: true, wanted: true},
	} {
		m, chain := newTestMember(t, 3)
		if c.wanted {
			m.pending = &generation.Decision{Base: generation.Head{Height: 12, Hash: hashAt(12, 0)}}
		}
		p := m.peer(1)
		p.Heights.Ordered, p.Tip = 12, hashAt(12, byte(1-truth(c.vouches)))
		if c.works {
			p.Group.Run = generation.NewRun(4, 1)
		}
		// The first one does not answer.
		m.job, m.began, m.from = fetching, 9,
			[]peer{{Announcement: Announcement{Group: Group{Run: generation.NewRun(4, 1)}}}, *p}
		if c.wanted {
			m.from = m.from[1:]
		}
		if c.nobody {
			m.from = nil
		}
		if c.grew {
			chain.height = 10
		}
		m.onFetched(Fetched{Reached: -1, Forked: c.forked, Parted: max(0, len(m.from)-1),
			Common: 7})
		if m.strays != c.strays || m.forked != c.takes || c.takes && m.common != 7 {
			t.Errorf("%s: %d strays, parts %v at %d", name, m.strays, m.forked, m.common)
		}
	}
}

// Nothing is set aside if the chains part at the end of this one.
func TestPartsAtItsEnd(t *testing.T) {
	t.Parallel()
	for common, aside := range map[uint64]bool{8: true, 9: false} {
		m, chain := newTestMember(t, 3)
		chain.durable, m.forked, m.common, m.forkedBy = 7, true, common, 1
		p := m.peer(1)
		p.Mode, p.Group, p.Heights.Ordered = Ordering, *groupOf(3, generation.NewRun(1, 1)), 9
		m.forkedAt = p.at - 1
		m.follow()
		if got := len(effectsOf[SetAside](m)) > 0; got != aside {
			t.Errorf("parts after %d of 9: sets aside %v", common, got)
		}
	}
}

// TestWhereChainsPartIsConfirmed: where another chain parts from this one counts only once the peer
// that answered so has announced itself again, and is to be believed. It may have answered as a new
// process with an old disk.
func TestWhereChainsPartIsConfirmed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change       func(m *Member, p *peer)
		aside, waits bool
	}{
		"announced itself":      {func(_ *Member, p *peer) { p.at++ }, true, false},
		"announced nothing yet": {func(*Member, *peer) {}, false, true},
		"began anew": {func(_ *Member, p *peer) {
			p.at++
			p.heard = false
		}, false, false},
		"is away": {func(_ *Member, p *peer) {
			p.at++
			p.linked = false
		}, false, false},
		"does not work": {func(_ *Member, p *peer) {
			p.at++
			p.Group.Run = 0
		}, false, false},
		"does not work, but ends with the wanted base": {func(m *Member, p *peer) {
			m.pending = decisionOf(2)
			p.at++
			p.Group.Run, p.Heights.Ordered, p.Tip = 0, 9, hashAt(9, 0)
		}, true, false},
	} {
		m, chain := newTestMember(t, 3)
		chain.durable = 7
		p := m.peer(1)
		p.Mode, p.Group, p.Heights.Ordered = Ordering, *groupOf(3, generation.NewRun(1, 1)), 9
		m.now += 10
		p.at = m.now
		m.forked, m.common, m.forkedBy, m.forkedAt = true, 8, 1, m.now
		c.change(m, p)
		m.follow()
		if got := len(effectsOf[SetAside](m)) > 0; got != c.aside || m.forked != c.waits {
			t.Errorf("%s: sets aside %v, waits %v", name, got, m.forked)
		}
	}
}

// A member that a run takes in fetches up to that run's base only. If it has the base, or another
// block there, it fetches nothing beyond from working members, unless they have less than it has.
func TestFetchesUpToARunThatTakesItIn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		height, theirs uint64
		branch         byte
		fetches        bool
	}{
		"lacks the base":                    {8, 12, 0, true},
		"has another block there":           {9, 12, 1, false},
		"has another block, they end there": {9, 9, 1, true},
		"has more, they end there":          {10, 9, 1, true},
	} {
		m, chain := newTestMember(t, 3)
		p := m.peer(1)
		p.Mode, p.Group = Ordering, *groupOf(3, generation.NewRun(1, 1))
		p.Group.Entrants = []Entrant{{Server: 0, Ticket: m.ticket, Disk: diskOf(0)}}
		p.Heights.Ordered, p.Tip = c.theirs, hashAt(c.theirs, 0)
		chain.height, chain.branch = c.height, c.branch
		m.fetchedTo, m.fetchedIn = c.height, 1 // or it gives them up at once
		m.follow()
		fetches := effectsOf[Fetch](m)
		if (len(fetches) == 1) != c.fetches || c.fetches && fetches[0].Limit != 9 {
			t.Errorf("%s: %+v", name, fetches)
		}
	}
}

// A member explains why it does not order, whether or not another member orders.
func TestExplains(t *testing.T) {
	t.Parallel()
	hearsay := DefaultTiming().Hearsay
	for name, c := range map[string]struct {
		change func(*Member)
		works  bool
		want   ReasonKind
	}{
		"nobody works":          {func(*Member) {}, false, Forming},
		"nobody works, low":     {func(m *Member) { m.low = true }, false, Forming},
		"nobody works, benched": {func(m *Member) { m.onBench = true }, false, Forming},
		"others work":           {func(*Member) {}, true, Entering},
		"others work, and it is to join": {func(m *Member) {
			m.chain.(*bookChain).membership.Members = []order.ServerID{1, 2}
		}, true, Joining},
		"others work, low":     {func(m *Member) { m.low = true }, true, NoSpace},
		"others work, benched": {func(m *Member) { m.onBench = true }, true, Benched},
		"stopped": {func(m *Member) {
			m.setMode(Halted, because(EngineStopped), "stopped")
			m.stoppedAt = m.now - hearsay + 1
		}, false, EngineStopped},
		"stopped a while ago": {func(m *Member) {
			m.setMode(Halted, because(EngineStopped), "stopped")
			m.stoppedAt = m.now - hearsay
		}, false, Forming},
		"forked a while ago": {func(m *Member) {
			m.setMode(Halted, because(Forked), "forked")
			m.stoppedAt = m.now - hearsay
		}, false, Forked},
	} {
		m, _ := newTestMember(t, 3)
		c.change(m)
		var workers []peer
		if c.works {
			p := *m.peer(1)
			p.Group = *groupOf(3, generation.NewRun(1, 0))
			workers = append(workers, p)
		}
		m.explain(workers)
		if got := m.View().Reason.Kind; got != c.want {
			t.Errorf("%s: kind %d, want %d", name, got, c.want)
		}
	}
}

// While a member fetches blocks or sets some aside, its mode says whether another member orders.
// The one that it asked may have stopped meanwhile.
func TestModeFollowsThePeers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at    job
		works bool
		want  Mode
	}{
		{fetching, false, Starting}, {fetching, true, Following},
		{settingAside, false, Starting}, {settingAside, true, Following},
	} {
		m, _ := newTestMember(t, 3)
		m.job = c.at
		m.setMode(Halted, because(EngineStopped), "stopped")
		m.stoppedAt = m.now - m.config.Timing.Hearsay
		if c.works {
			p := m.peer(1)
			p.Group, p.Mode = *groupOf(3, generation.NewRun(1, 0)), Ordering
			p.Heights.Ordered, p.Tip = 12, hashAt(12, 0)
		}
		m.follow()
		if got := m.View().Mode; got != c.want {
			t.Errorf("job %d, a peer orders %v: mode %s, want %s", c.at, c.works, got, c.want)
		}
	}
}

// The peers that serve a base are asked in the order of their knowledge of it.
func TestTowards(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 4)
	target := &generation.Head{Height: 9, Hash: hashAt(9, 0)}
	with := func(server order.ServerID, branch byte) peer {
		p := *m.peer(server)
		p.Heights.Ordered, p.Tip = 9, hashAt(9, branch)
		return p
	}
	servers := func(peers []peer) (list []order.ServerID) {
		for i := range peers {
			list = append(list, peers[i].server)
		}
		return list
	}
	vouch, other, third := with(1, 0), with(2, 1), with(3, 1)
	for name, c := range map[string]struct {
		ahead  []peer
		strays int
		want   []order.ServerID
	}{
		"all vouch":     {[]peer{vouch}, 0, []order.ServerID{1}},
		"some vouch":    {[]peer{vouch, other, third}, 1, []order.ServerID{1}},
		"nobody does":   {[]peer{other, third}, 0, []order.ServerID{2}},
		"the next one":  {[]peer{other, third}, 1, []order.ServerID{3}},
		"and the first": {[]peer{other, third}, 2, []order.ServerID{2}},
	} {
		m.strays = c.strays
		if got := servers(m.towards(c.ahead, target)); !slices.Equal(got, c.want) {
			t.Errorf("%s: asks %v, want %v", name, got, c.want)
		}
	}
}

// A member's old disk counts for the blocks before the one that names another disk for it. The
// member does not give these blocks up because working members announced a moment ago that they had
// less.
func TestStrandedWithAnOldDisk(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	m.work(3, generation.NewRun(1, 0)) // with this disk
	chain.durable = 8
	// These are their last announcements. Then the links stall.
	for _, server := range []order.ServerID{1, 2} {
		p := m.peer(server)
		p.Mode, p.Group, p.Heights, p.Tip = Ordering, *groupOf(3, generation.NewRun(1, 0)),
			Heights{8, 8, 8}, hashAt(8, 0)
	}
	// This member A-delivers blocks 9 and 10 of the run. Block 10 names another disk for it. Block
	// 9 is durable on its disk and on server 1's.
	chain.height, chain.stored, chain.changed = 10, 10, 10
	chain.membership.Number, chain.membership.Disks = 1, []generation.DiskID{diskOf(33), {}, {}}
	m.Step(EonEnded{Run: generation.NewRun(1, 0), Members: serversTo(3)})
	m.Step(Settled{})
	for range 30 {
		for _, e := range m.Ready() {
			switch e := e.(type) {
			case Save:
				m.Step(Saved{})
			case SetAside:
				t.Fatalf("%d ticks later it keeps %d", m.now-1000, e.Keep)
			}
		}
		m.Step(Tick{})
	}
}

// A member that was removed by a block that is not known to be durable is needed. It does not give
// that block up for the branch of a peer that takes no part in any run.
func TestLeaverKeepsItsBranch(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	m.work(3, generation.NewRun(1, 0))
	chain.durable = 8
	// Blocks 9 and 10 are of this run, and 10 removes this member. Both are durable on its disk and
	// server 1's.
	chain.height, chain.stored, chain.changed = 10, 10, 10
	chain.membership.Number, chain.membership.Members = 1, []order.ServerID{1, 2}
	chain.former = []Former{{Server: 0, Left: 10}}
	m.Step(EonEnded{Run: generation.NewRun(1, 0), Members: serversTo(3)})
	m.Step(Settled{})
	// Server 1 crashes. Server 2 comes up, with four blocks of a branch that was given up while it
	// was away.
	m.Step(Linked{Server: 1})
	m.Step(AnnouncementReceived{From: 2, Announcement: Announcement{Mode: Starting,
		Heights: Heights{12, 12, 8},
		Tip:     hashAt(12, 1), Disk: diskOf(2)}})
	for range 30 {
		for _, e := range m.Ready() {
			switch e := e.(type) {
			case Save:
				m.Step(Saved{})
			case Fetch:
				m.Step(Fetched{Reached: -1, Forked: true, Common: 8})
			case SetAside:
				t.Fatalf("%d ticks later it keeps %d", m.now-1000, e.Keep)
			}
		}
		m.Step(Tick{})
	}
}
