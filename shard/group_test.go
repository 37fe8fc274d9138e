package shard

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// A run begins if it is later than all runs that this disk took part in, its generation is not
// over, and the disk counts. Its engine starts once the disk holds that.
func TestBegin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run    generation.Run
		change func(*Member, *bookChain)
		begins bool
	}{
		"the next eon": {generation.NewRun(1, 1), func(*Member, *bookChain) {}, true},
		"the same run": {generation.NewRun(1, 0), func(*Member, *bookChain) {}, false},
		"an earlier run": {generation.NewRun(1, 0), func(m *Member, _ *bookChain) {
			m.synod.Working(generation.NewRun(1, 1), m.group.Shard)
		}, false},
		"a learner": {generation.NewRun(1, 1), func(_ *Member, c *bookChain) {
			c.membership.Disks = []generation.DiskID{diskOf(9), {}, {}}
		}, false},
		"decided further": {generation.NewRun(1, 1), func(m *Member, _ *bookChain) {
			m.learns(decisionOf(2))
		}, false},
	} {
		for _, works := range []bool{true, false} {
			m, chain := newTestMember(t, 3)
			m.work(3, generation.NewRun(1, 0))
			c.change(m, chain)
			if !works {
				m.group = nil
			}
			m.effects, m.pending = nil, decisionOf(1)
			m.begin(groupOf(3, c.run))
			saves, _ := m.took()
			if c.begins != (m.starting != nil) || c.begins != (saves == 1) ||
				c.begins != (m.pending != nil) {
				t.Errorf("%s: starts %+v, %d saves", name, m.starting, saves)
			}
			if !c.begins && (m.group != nil || (m.job == settling) != works) {
				t.Errorf("%s: goes on in run %+v, job %d", name, m.group, m.job)
			}
			if !c.begins {
				continue
			}
			m.Ready()
			ticket := m.ticket
			m.onSaved()
			if started := effectsOf[Start](m); len(started) != 1 || started[0].Group.Run != c.run ||
				m.ticket != ticket+1 || m.group == nil || m.starting != nil {
				t.Errorf("%s: starts %+v, ticket %d", name, started, m.ticket)
			}
		}
	}
	// If the disk is full, the run is left to the others.
	for _, works := range []bool{true, false} {
		m, _ := newTestMember(t, 3)
		if works {
			m.work(3, generation.NewRun(1, 0))
		}
		m.begin(groupOf(3, generation.NewRun(1, 1)))
		ticket := m.ticket
		m.onSaveFailed(SaveFailed{Reason: "the disk is full"})
		if m.starting != nil || m.group != nil || (m.job == settling) != works ||
			m.ticket != ticket+1 || !m.unsaved {
			t.Errorf("works %v: starts %+v, job %d, ticket %d", works, m.starting, m.job, m.ticket)
		}
	}
}

// A member leaves a group that went on without it, or that waits for its disk.
func TestLeavesItsGroup(t *testing.T) {
	t.Parallel()
	full := DefaultTiming().Full
	other := func(run generation.Run, removed ...order.ServerID) func(*Member) {
		return func(m *Member) { m.peer(1).Group, m.peer(1).Removed = *groupOf(4, run), removed }
	}
	for name, c := range map[string]struct {
		change func(*Member)
		leaves bool
	}{
		"all is well":        {func(*Member) {}, false},
		"a later generation": {other(generation.NewRun(2, 0)), true},
		"a later generation, stalled": {func(m *Member) {
			other(generation.NewRun(2, 0))(m)
			m.peer(1).Stalled = true
		}, false},
		"a later one, long ago": {func(m *Member) {
			other(generation.NewRun(2, 0))(m)
			m.peer(1).at = 0
		}, false},
		"the same run":               {other(generation.NewRun(1, 3)), false},
		"removed in it":              {other(generation.NewRun(1, 3), 0), true},
		"a later eon, with it":       {other(generation.NewRun(1, 4)), false},
		"a later eon, without it":    {other(generation.NewRun(1, 4), 0), true},
		"an earlier eon, without it": {other(generation.NewRun(1, 2), 0), false},
		"an earlier generation":      {other(generation.NewRun(0, 9), 0), false},
		"full for a moment": {func(m *Member) {
			m.full, m.fullAt = "full", m.now-full
		}, false},
		"full": {func(m *Member) {
			m.full, m.fullAt = "full", m.now-full-1
		}, true},
		"was full": {func(m *Member) { m.fullAt = m.now - full - 1 }, false},
		"full, of two": {func(m *Member) {
			m.full, m.fullAt, m.group.Members = "full", m.now-full-1, serversTo(2)
		}, false},
		"full, of three": {func(m *Member) {
			m.full, m.fullAt, m.group.Members = "full", m.now-full-1, serversTo(3)
		}, true},
		"starts the next": {func(m *Member) {
			other(generation.NewRun(2, 0))(m)
			m.starting = groupOf(4, generation.NewRun(1, 4))
		}, false},
	} {
		m, _ := newTestMember(t, 4)
		m.work(4, generation.NewRun(1, 3))
		c.change(m)
		m.checkGroup()
		if left := m.group == nil; left != c.leaves || left != (m.job == settling) {
			t.Errorf("%s: leaves %v, job %d", name, left, m.job)
		}
		if halted := m.view.Mode == Halted; halted != (strings.HasPrefix(name, "full") &&
			name != "full for a moment") || halted != m.noSpace {
			t.Errorf("%s: %v: %s", name, m.view.Mode, m.view.Why)
		}
	}
	m, _ := newTestMember(t, 3)
	m.onDiskFull(DiskFull{Reason: "a", Low: true})
	m.now++
	m.onDiskFull(DiskFull{Reason: "b", Low: true})
	if m.full != "b" || m.fullAt != m.now-1 || !m.low {
		t.Errorf("full since tick %d: %s", m.fullAt, m.full)
	}
	m.onDiskFull(DiskFull{})
	if m.full != "" || m.fullAt != m.now-1 || m.low {
		t.Errorf("full: %s", m.full)
	}
}

// A group that waits for too long stalls. Outside of the majority it stalls sooner.
func TestStalls(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	run := generation.NewRun(1, 3)
	for name, c := range map[string]struct {
		change func(*Member)
		in     Progressed
		mode   Mode
		why    string
	}{
		"gets on": {nil, Progressed{Run: run}, Ordering, ""},
		"waits":   {nil, Progressed{Run: run, Waiting: timing.Stall}, Ordering, ""},
		"waits too long": {nil, Progressed{Run: run, Waiting: timing.Stall + 1},
			Halted, "no progress"},
		"waits outside": {nil, Progressed{Run: run, Waiting: timing.Outside, Outside: true},
			Ordering, ""},
		"too long outside": {nil, Progressed{Run: run, Waiting: timing.Outside + 1, Outside: true},
			Halted, "outside of the majority, perhaps by wrong suspicions"},
		"waits, stuck": {nil, Progressed{Run: run, Waiting: timing.Stuck, Stuck: true},
			Ordering, ""},
		"is stuck": {nil, Progressed{Run: run, Waiting: timing.Stuck + 1, Stuck: true},
			Halted, "no progress without suspected nodes"},
		"hears no majority": {func(m *Member) {
			m.peer(1).linked, m.peer(2).linked = false, false
		}, Progressed{Run: run, Waiting: timing.Outside + 1}, Halted,
			"outside of the majority: fewer than 3 of the 4 nodes"},
		"hears just a majority": {func(m *Member) {
			m.peer(1).linked = false
		}, Progressed{Run: run, Waiting: timing.Outside + 1}, Ordering, ""},
		"another run": {nil, Progressed{Run: run + 1, Waiting: 999}, Ordering, ""},
		"starts": {func(m *Member) {
			m.starting = groupOf(4, run+1)
		}, Progressed{Run: run, Waiting: 999}, Ordering, ""},
		"has no group": {func(m *Member) {
			m.group = nil
		}, Progressed{Run: run, Waiting: 999}, Ordering, ""},
	} {
		m, _ := newTestMember(t, 4)
		m.work(4, run)
		if c.change != nil {
			c.change(m)
		}
		m.onProgressed(c.in)
		stalled := c.mode == Halted
		if m.view.Mode != c.mode || !strings.HasPrefix(m.view.Why, c.why) || m.stalled != stalled {
			t.Errorf("%s: %v: %s", name, m.view.Mode, m.view.Why)
		}
		if !stalled {
			continue
		}
		// The synod may end the group now. Progress withdraws that.
		m.news = false
		m.onProgressed(c.in)
		if m.news {
			t.Errorf("%s: it stalls still, and that is news", name)
		}
		m.onProgressed(Progressed{Run: run})
		if m.view.Mode != Ordering || m.stalled || !m.news {
			t.Errorf("%s: when it gets on: %v: %s", name, m.view.Mode, m.view.Why)
		}
	}
	m, _ := newTestMember(t, 4)
	m.work(4, run)
	m.news = false
	m.onProgressed(Progressed{Run: run})
	if m.news {
		t.Error("nothing new is news")
	}
	m.onProgressed(Progressed{Run: run, Removed: []order.ServerID{1}})
	m.onProgressed(Progressed{Run: run, Removed: []order.ServerID{1, 3}})
	if !m.news || !slices.Equal(m.removed, []order.ServerID{1, 3}) ||
		len(m.peer(1).troubles) != 1 || len(m.peer(3).troubles) != 1 ||
		len(m.peer(2).troubles) != 0 {
		t.Errorf("removed %v, troubles %v", m.removed, m.peer(1).troubles)
	}
}

// An engine that halted ends the run, if it is the current one.
func TestEngineHalts(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(1, 3)
	for name, c := range map[string]struct {
		change func(*Member)
		run    generation.Run
		ends   bool
	}{
		"halts":       {func(*Member) {}, run, true},
		"another run": {func(*Member) {}, run + 1, false},
		"starts":      {func(m *Member) { m.starting = groupOf(3, run+1) }, run, false},
		"no group":    {func(m *Member) { m.group = nil }, run, false},
	} {
		m, _ := newTestMember(t, 3)
		m.work(3, run)
		c.change(m)
		m.onHalted(EngineHalted{Run: c.run, Reason: "why"})
		if ended := m.job == settling; ended != c.ends ||
			ended != strings.HasPrefix(m.view.Why, "why; ") {
			t.Errorf("%s: ends %v: %s", name, ended, m.view.Why)
		}
	}
	// The synod gets the engine's votes once it has settled.
	m, _ := newTestMember(t, 3)
	m.work(3, run)
	m.freeze(1)
	before := m.synod.AppendState(nil)
	m.onSettled(Settled{Report: generation.Report{Votes: []generation.Vote{{}},
		Known: []generation.KnownVote{{}}}})
	after := m.synod.AppendState(nil)
	if m.job != idle || slices.Equal(before, after) {
		t.Errorf("job %d", m.job)
	}
	m.onSettled(Settled{})
	if !slices.Equal(after, m.synod.AppendState(nil)) {
		t.Error("settles twice")
	}
}

// A removed member stays for a moment, and longer if it does not know that its removal is durable.
func TestLeaves(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	for name, c := range map[string]struct {
		change  func(*Member, *bookChain)
		ticks   int // until its end, -1 for none
		forGood bool
	}{
		"a member":     {func(_ *Member, c *bookChain) { c.former = nil }, -1, false},
		"another left": {func(_ *Member, c *bookChain) { c.former[0].Server = 1 }, -1, false},
		"durable":      {func(*Member, *bookChain) {}, timing.Removed + 1, true},
		"durable just so": {func(_ *Member, c *bookChain) {
			c.durable = 7
		}, timing.Removed + 1, true},
		"in doubt":     {func(_ *Member, c *bookChain) { c.durable = 6 }, -1, false},
		"known before": {func(m *Member, _ *bookChain) { m.config.Disk.Gone = true }, 0, false},
		"works":        {func(m *Member, _ *bookChain) { m.group = groupOf(3, 1) }, -1, false},
		"starts": {func(m *Member, _ *bookChain) {
			m.starting = groupOf(3, 1)
		}, -1, false},
		"settles":         {func(m *Member, _ *bookChain) { m.job = settling }, -1, false},
		"is over already": {func(m *Member, _ *bookChain) { m.end = ErrFork }, -1, false},
	} {
		m, chain := newTestMember(t, 3)
		chain.former = []Former{{Server: 0, Left: 7}}
		c.change(m, chain)
		ticks := 0
		for m.leave(); !errors.Is(m.end, ErrRemoved) && ticks < 500; ticks++ {
			m.now++
			m.leave()
		}
		if c.ticks < 0 && ticks < 500 || c.ticks >= 0 && ticks != c.ticks {
			t.Errorf("%s: ends after %d ticks, want %d", name, ticks, c.ticks)
		}
		forGood := 0
		for _, e := range m.effects {
			if e == (RemovedForGood{Height: 7}) {
				forGood++
			}
		}
		if forGood > 1 || (forGood == 1) != c.forGood {
			t.Errorf("%s: says for good %d times", name, forGood)
		}
	}
	// The block that removed it is given up, so it is a member again.
	m, chain := newTestMember(t, 3)
	chain.former = []Former{{Server: 1, Left: 3}, {Server: 0, Left: 7}}
	m.leave()
	chain.former = nil
	m.leave()
	if m.leavingSince != 0 || m.known != 0 || m.end != nil {
		t.Errorf("leaves since %d, for block %d", m.leavingSince, m.known)
	}
}

// Another member's claim of what is durable counts as far as its chain is this one's.
func TestBelieveDurable(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(1, 3)
	said := func(ordered, durable uint64, branch byte) Announcement {
		return Announcement{Heights: Heights{ordered, ordered, durable},
			Tip: hashAt(ordered, branch)}
	}
	in := func(a Announcement, run generation.Run) Announcement {
		a.Group.Run = run
		return a
	}
	for name, c := range map[string]struct {
		a     Announcement
		works bool
		know  uint64
	}{
		"more":                        {said(8, 6, 0), false, 6},
		"as much":                     {said(8, 5, 0), false, 0},
		"up to its tip":               {said(7, 7, 0), false, 7},
		"more than it has":            {said(6, 7, 0), false, 0},
		"up to this one's tip":        {said(9, 9, 0), false, 9},
		"another chain":               {said(9, 9, 1), false, 0},
		"further":                     {said(12, 8, 0), false, 0},
		"further, in the same run":    {in(said(12, 8, 0), run), true, 8},
		"past this one, in a later":   {in(said(12, 11, 0), run+1), true, 9},
		"further, in another":         {in(said(12, 8, 0), generation.NewRun(2, 0)), true, 0},
		"further, and does not work":  {said(12, 8, 0), true, 0},
		"further, this does not work": {in(said(12, 8, 0), run), false, 0},
	} {
		m, chain := newTestMember(t, 3)
		chain.durable = 5
		if c.works {
			m.group = groupOf(3, run)
		}
		m.believeDurable(&c.a)
		var know uint64
		for _, e := range m.effects {
			if k, is := e.(KnowDurable); is {
				know = k.Height
			}
		}
		if know != c.know {
			t.Errorf("%s: knows %d, want %d", name, know, c.know)
		}
	}
}

// The disk of a member outside of the group counts if it follows this run and holds this chain.
func TestCountFollower(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(1, 3)
	for name, c := range map[string]struct {
		change func(*Member, *Announcement)
		stored uint64
	}{
		"follows":         {func(*Member, *Announcement) {}, 7},
		"stored more":     {func(_ *Member, a *Announcement) { a.Heights.Stored = 12 }, 8},
		"follows another": {func(_ *Member, a *Announcement) { a.Follows++ }, 0},
		"a learner":       {func(_ *Member, a *Announcement) { a.Learner = true }, 0},
		"another disk": {func(m *Member, a *Announcement) {
			m.group.Shard.Disks = []generation.DiskID{{}, diskOf(9), {}}
		}, 0},
		"at this one's tip": {func(_ *Member, a *Announcement) {
			a.Heights.Ordered, a.Tip = 9, hashAt(9, 0)
		}, 7},
		"further": {func(_ *Member, a *Announcement) {
			a.Heights.Ordered, a.Tip = 10, hashAt(10, 0)
		}, 0},
		"another chain":      {func(_ *Member, a *Announcement) { a.Tip = hashAt(8, 1) }, 0},
		"this does not work": {func(m *Member, _ *Announcement) { m.group = nil }, 0},
	} {
		m, _ := newTestMember(t, 3)
		m.group = groupOf(3, run)
		a := Announcement{Heights: Heights{8, 7, 0}, Tip: hashAt(8, 0), Follows: run,
			Disk: diskOf(1)}
		c.change(m, &a)
		m.countFollower(1, &a)
		var stored uint64
		for _, e := range m.effects {
			if s, is := e.(Stored); is {
				if stored = s.Height; s.Run != run || s.Server != 1 {
					t.Errorf("%s: %+v", name, s)
				}
			}
		}
		if stored != c.stored {
			t.Errorf("%s: stored %d, want %d", name, stored, c.stored)
		}
	}
}

// A disk counts outside of the group only in the generation that it took part in, as long as it
// promised no later one and nothing changes its chain.
func TestCountsOutside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Member)
		counts bool
	}{
		"took part":             {func(*Member) {}, true},
		"fetches":               {func(m *Member) { m.job = fetching }, false},
		"another generation":    {func(m *Member) { m.follows = generation.NewRun(2, 0) }, false},
		"an earlier generation": {func(m *Member) { m.follows = 9 }, false},
		"promised the next": {func(m *Member) {
			m.synod.Idle(m.holdings(), 0)
			m.synod.Receive(1, generation.Message{Kind: generation.KindPrepare, Generation: 2,
				Ballot: generation.Ballot{Number: 1, Proposer: 1}, Known: m.synod.Decided()})
		}, false},
	} {
		m, _ := newTestMember(t, 3)
		m.work(3, generation.NewRun(1, 3))
		m.group, m.follows = nil, generation.NewRun(1, 4)
		c.change(m)
		if m.countsOutside() != c.counts {
			t.Errorf("%s: counts %v", name, !c.counts)
		}
		m.announced = m.now - m.config.Timing.Announce
		for _, a := range effectsOf[Announce](m) {
			if (a.Announcement.Follows != 0) != c.counts {
				t.Errorf("%s: follows %d", name, a.Announcement.Follows)
			}
		}
	}
}

// An announcement goes to all members from time to time. In between it goes to the linked ones if
// there is news.
func TestAnnounces(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 3)
	m.announced, m.news = m.now, false
	for ticks, want := range map[int]int{0: 0, m.config.Timing.Announce - 1: 0,
		m.config.Timing.Announce: 1} {
		m.announced, m.news = m.now-ticks, false
		got := effectsOf[Announce](m)
		if len(got) != want || want == 1 && (!got[0].All || m.announced != m.now) {
			t.Errorf("after %d ticks: %+v", ticks, got)
		}
	}
	m.announced, m.news = m.now-1, true
	if got := effectsOf[Announce](m); len(got) != 1 || got[0].All || m.announced != m.now-1 ||
		m.news {
		t.Errorf("news: %+v", got)
	}
	for name, c := range map[string]struct {
		change func(*Member)
		full   bool
		mode   Mode
	}{
		"nothing": {func(*Member) {}, false, Starting}, "full": {func(m *Member) {
			m.full = "full"
		}, true, Starting},
		"unsaved": {func(m *Member) {
			m.unsaved = true
		}, true, Starting}, "stopping": {func(m *Member) { m.stopping = true }, false, Leaving},
	} {
		m, _ := newTestMember(t, 3)
		m.news = true
		c.change(m)
		got := effectsOf[Announce](m)
		if len(got) != 1 || got[0].Announcement.Full != c.full ||
			got[0].Announcement.Mode != c.mode || got[0].Announcement.Decided != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The content and the time of a server's announcements decide whether it counts and since when it
// is steady.
func TestHears(t *testing.T) {
	t.Parallel()
	gap := DefaultTiming().Gap
	run := generation.NewRun(1, 3)
	for name, c := range map[string]struct {
		change    func(*Member, *peer)
		a         Announcement
		since     int
		suspected bool
	}{
		"regularly": {func(m *Member, p *peer) {
			p.at = m.now - gap
		}, Announcement{}, 900, false},
		"after a gap": {func(m *Member, p *peer) {
			p.at = m.now - gap - 1
		}, Announcement{}, 1000, false},
		"for the first": {func(m *Member, p *peer) {
			p.heard, p.at = false, m.now
		}, Announcement{}, 1000, false},
		"it left the run": {func(_ *Member, p *peer) {
			p.Group.Run = run
		}, Announcement{Mode: Starting}, 900, true},
		"it ends": {func(_ *Member, p *peer) {
			p.Group.Run = run
		}, Announcement{Mode: Leaving}, 900, false},
		"it left another": {func(_ *Member, p *peer) {
			p.Group.Run = run - 1
		}, Announcement{Mode: Starting}, 900, false},
		"it works": {func(_ *Member, p *peer) {
			p.Group.Run = run
		}, Announcement{Mode: Ordering, Group: Group{Run: run}}, 900, false},
		"this does not work": {func(m *Member, p *peer) {
			m.group, p.Group.Run = nil, run
		}, Announcement{Mode: Starting}, 900, false},
	} {
		m, _ := newTestMember(t, 3)
		m.group = groupOf(3, run)
		p := m.peer(1)
		p.steadySince, p.at, p.linked = 900, m.now-1, false
		c.change(m, p)
		m.onAnnouncement(AnnouncementReceived{From: 1, Announcement: c.a})
		suspected := slices.ContainsFunc(m.effects, func(e Effect) bool {
			return e == Suspect{Run: run, Server: 1}
		})
		if p.steadySince != c.since || suspected != c.suspected || p.at != m.now || !p.linked ||
			!p.heard {
			t.Errorf("%s: steady since %d, suspected %v", name, p.steadySince, suspected)
		}
	}
	m, chain := newTestMember(t, 3)
	for _, c := range []struct {
		stored, durable, goal uint64
		disk                  int
		caughtUp              bool
	}{
		{8, 9, 9, 1, false}, {8, 12, 9, 1, false}, {9, 12, 12, 1, true}, {9, 13, 12, 1, true},
		{20, 13, 13, 1, true}, {12, 13, 13, 2, false}, {13, 14, 14, 2, true},
	} {
		p := m.peer(1)
		if c.stored == 8 && c.durable == 9 {
			p.disk = generation.DiskID{}
		}
		m.now++
		chain.durable, p.Heights.Stored, p.Disk = c.durable, c.stored, diskOf(c.disk)
		was := p.caughtAt
		m.chase(p)
		if p.goal != c.goal || p.caughtUp != c.caughtUp ||
			(p.caughtAt == m.now) != (c.caughtUp && p.caughtAt != was) {
			t.Errorf("%+v: goal %d, caught up %v at tick %d", c, p.goal, p.caughtUp, p.caughtAt)
		}
	}
	// Links.
	m, _ = newTestMember(t, 3)
	p := m.peer(1)
	p.Group.Run, p.troubles, m.news = run, []int{1}, false
	m.onLinked(Linked{Server: 1})
	if p.linked || p.Group.Run != 0 || m.news || m.recent(p) || len(p.troubles) != 1 {
		t.Errorf("unlinked: %+v", p)
	}
	m.onLinked(Linked{Server: 1, Up: true})
	if !p.linked || !m.news || !m.recent(p) {
		t.Errorf("linked: %+v", p)
	}
	m.onLinked(Linked{Server: 1, Up: true, Restarted: true})
	if !p.linked || p.heard || len(p.troubles) != 0 {
		t.Errorf("restarted: %+v", p)
	}
	if _, ago, linked := m.Heard(1); ago != -1 || !linked {
		t.Errorf("heard %d ticks ago, linked %v", ago, linked)
	}
	m.now += 3
	if said, ago, linked := m.Heard(2); ago != 3 || !linked || said.Heights.Ordered != 9 {
		t.Errorf("heard %d ticks ago, linked %v", ago, linked)
	}
	if _, ago, linked := m.Heard(9); ago != -1 || linked {
		t.Errorf("heard %d ticks ago, linked %v", ago, linked)
	}
}

// Others order if one of them makes progress in the last decided generation, in this run or a later
// one.
func TestOthersOrder(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(1, 3)
	for name, c := range map[string]struct {
		change func(*Member, *peer)
		orders bool
	}{
		"orders":        {func(*Member, *peer) {}, true},
		"stalls":        {func(_ *Member, p *peer) { p.Stalled = true }, false},
		"was not heard": {func(_ *Member, p *peer) { p.at = 0 }, false},
		"in another generation": {func(_ *Member, p *peer) {
			p.Group.Run = generation.NewRun(2, 0)
		}, false},
		"in this run":       {func(m *Member, _ *peer) { m.group = groupOf(3, run) }, true},
		"in a later one":    {func(m *Member, _ *peer) { m.group = groupOf(3, run-1) }, true},
		"in an earlier one": {func(m *Member, _ *peer) { m.group = groupOf(3, run+1) }, false},
		"hangs": {func(m *Member, p *peer) {
			m.absent, m.absentAt = []order.ServerID{1}, p.at
		}, false},
		"hung, and is back": {func(m *Member, p *peer) {
			m.absent, m.absentAt = []order.ServerID{1}, p.at-1
		}, true},
		"while another hangs": {func(m *Member, p *peer) {
			m.absent, m.absentAt = []order.ServerID{2}, p.at
		}, true},
	} {
		m, _ := newTestMember(t, 3)
		p := m.peer(1)
		p.Group = *groupOf(3, run)
		c.change(m, p)
		if m.othersOrder() != c.orders {
			t.Errorf("%s: %v", name, !c.orders)
		}
	}
}

// A member that makes no progress, while others of its run do, asks one of them to start anew. It
// does so after twice the time that a run may make no progress, and not again before a mark could
// have been made.
func TestAsksForRegroup(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	for name, c := range map[string]struct {
		change func(*Member)
		asks   bool
	}{
		"long enough":       {func(*Member) {}, true},
		"not long enough":   {func(m *Member) { m.stalledAt++ }, false},
		"it does not stall": {func(m *Member) { m.stalled = false }, false},
		"it is to begin": {func(m *Member) {
			m.starting = groupOf(3, generation.NewRun(1, 1))
		}, false},
		"it does not work": {func(m *Member) { m.group = nil }, false},
		"it just asked":    {func(m *Member) { m.wishedAt = m.now - timing.Mark + 1 }, false},
		"it asked before":  {func(m *Member) { m.wishedAt = m.now - timing.Mark }, true},
		"nobody gets on":   {func(m *Member) { m.peer(1).Stalled = true }, false},
	} {
		m, _ := newTestMember(t, 3)
		m.work(3, generation.NewRun(1, 0))
		p := m.peer(1)
		p.Mode, p.Group = Ordering, *groupOf(3, generation.NewRun(1, 0))
		m.stalled, m.stalledAt, m.wishedAt = true, m.now-2*timing.Stall, m.now-timing.Mark
		c.change(m)
		m.effects = nil
		m.askForRegroup()
		asks := slices.ContainsFunc(m.effects, func(e Effect) bool {
			wish, is := e.(SendWish)
			return is && wish.To == 1 && wish.Wish.Kind == WishRegroup
		})
		if asks != c.asks {
			t.Errorf("%s: asks %v", name, asks)
		}
	}
}
