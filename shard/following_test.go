package shard

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

func TestNoneHas(t *testing.T) {
	t.Parallel()
	at := func(ordered, absent uint64) peer {
		return peer{Announcement: Announcement{Heights: Heights{Ordered: ordered}, Absent: absent}}
	}
	for name, c := range map[string]struct {
		peers []peer
		none  bool
	}{
		"nobody": {nil, false}, "lacks it": {[]peer{at(10, 10)}, true},
		"has it":                         {[]peer{at(10, 9)}, false},
		"is not there yet":               {[]peer{at(9, 0)}, false},
		"one is not there, one lacks it": {[]peer{at(9, 0), at(12, 11)}, true},
		"one lacks it, one has it":       {[]peer{at(12, 11), at(10, 0)}, false},
	} {
		if got := noneHas(c.peers, 10); got != c.none {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A member that halted for lack of space comes back when there is space, and only then.
func TestSpaceAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Member)
		mode   Mode
		waits  bool
	}{
		"space":          {func(*Member) {}, Starting, false},
		"none":           {func(m *Member) { m.full = "full" }, Halted, true},
		"none to save":   {func(m *Member) { m.unsaved = true }, Halted, true},
		"another reason": {func(m *Member) { m.noSpace = false }, Halted, false},
		"not halted":     {func(m *Member) { m.view.Mode = Following }, Starting, false},
		"none to move": {func(m *Member) {
			m.asideRefused, m.settleAt = true, m.now
		}, Halted, true},
		"moved since": {func(m *Member) {
			m.asideRefused, m.settleAt = true, m.now-m.config.Timing.Announce-1
		}, Starting, false},
		"none to fetch": {func(m *Member) { m.roundRefused = true }, Halted, true},
		"leaves":        {func(m *Member) { m.leavingSince = 1 }, Halted, false},
		"leaves, none":  {func(m *Member) { m.leavingSince, m.full = 1, "full" }, Halted, true},
	} {
		m, _ := newTestMember(t, 3)
		m.noSpace, m.view.Mode = true, Halted
		c.change(m)
		if m.explainSpace(); m.view.Mode != c.mode || m.noSpace != c.waits {
			t.Errorf("%s: %v: %s; waits for space: %v", name, m.view.Mode, m.view.Why, m.noSpace)
		}
	}
}

// Peers to follow order in the latest generation, have the wanted base, or are past a chain that
// does not know this member yet. Workers work in the newest run of these.
func TestPeersToFollow(t *testing.T) {
	t.Parallel()
	begin := func() (*Member, *bookChain) {
		m, chain := newTestMember(t, 6)
		for server, run := range map[order.ServerID]generation.Run{
			1: generation.NewRun(1, 0), 2: generation.NewRun(1, 1), 3: generation.NewRun(0, 9),
			4: generation.NewRun(1, 2),
		} {
			m.peer(server).Group = *groupOf(6, run)
		}
		m.peer(4).Stalled = true
		m.peer(5).Heights.Ordered = 10
		return m, chain
	}
	for name, c := range map[string]struct {
		change         func(*Member, *bookChain)
		ahead, workers []order.ServerID
	}{
		"by their runs": {func(*Member, *bookChain) {}, []order.ServerID{2, 1},
			[]order.ServerID{2}},
		"by their heights": {func(m *Member, _ *bookChain) {
			m.peer(1).Group.Run++
			m.peer(1).Heights.Ordered = 10
		}, []order.ServerID{1, 2}, []order.ServerID{1, 2}},
		"one was not heard": {func(m *Member, _ *bookChain) {
			m.peer(2).at = 0
		}, []order.ServerID{1}, []order.ServerID{1}},
		"nobody was":         {func(m *Member, _ *bookChain) { m.now += 1000 }, nil, nil},
		"a later generation": {func(m *Member, _ *bookChain) { m.followed = 2 }, nil, nil},
		"a base": {func(m *Member, _ *bookChain) {
			m.pending = &generation.Decision{Base: generation.Head{Height: 10}}
		}, []order.ServerID{2, 1, 5}, []order.ServerID{2}},
		"a base that all have": {func(m *Member, _ *bookChain) {
			m.pending = &generation.Decision{Base: generation.Head{Height: 9}}
			m.followed = 2
		}, []order.ServerID{4 - 2, 1, 3, 5, 4}, []order.ServerID{2}},
		"it is no member": {func(_ *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{1, 2, 3, 4, 5}
		}, []order.ServerID{2, 1, 5}, []order.ServerID{2}},
		"it is none, and took part": {func(m *Member, c *bookChain) {
			c.membership.Members, m.followed = []order.ServerID{1, 2, 3, 4, 5}, 1
		}, []order.ServerID{2, 1}, []order.ServerID{2}},
		"it is, and one further": {func(m *Member, _ *bookChain) {
			m.peer(2).Group.Run = 0
			m.peer(2).Heights.Ordered = 12
		}, []order.ServerID{1}, []order.ServerID{1}},
	} {
		m, chain := begin()
		c.change(m, chain)
		list := func(peers []peer) (servers []order.ServerID) {
			for _, p := range peers {
				servers = append(servers, p.server)
			}
			return servers
		}
		ahead := m.ahead()
		if got := list(ahead); !slices.Equal(got, c.ahead) {
			t.Errorf("%s: follows %v, want %v", name, got, c.ahead)
		}
		if got := list(workersOf(ahead)); !slices.Equal(got, c.workers) {
			t.Errorf("%s: workers %v, want %v", name, got, c.workers)
		}
	}
	idle := []peer{{server: 1}, {server: 2, Announcement: Announcement{Group: Group{Run: 3},
		Stalled: true}}}
	if got := workersOf(idle); got != nil {
		t.Errorf("workers %v, and nobody works", got)
	}
}

// A member remembers which blocks it fetched, and from which peers.
func TestFetched(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(4, 1)
	for name, c := range map[string]struct {
		began   uint64
		in      Fetched
		to      uint64
		follows generation.Run
	}{
		"nothing new":      {9, Fetched{Reached: -1}, 0, 0},
		"something":        {8, Fetched{Reached: -1}, 9, 0},
		"up to the first":  {8, Fetched{Reached: 0}, 9, run},
		"up to the second": {8, Fetched{Reached: 1}, 9, 0},
		"up to no peer":    {8, Fetched{Reached: 2}, 9, 0},
		"forked":           {9, Fetched{Reached: -1, Forked: true, Common: 3}, 0, 0},
		"forked from the second": {9, Fetched{Reached: -1, Forked: true, Common: 3, Parted: 1}, 0,
			0},
	} {
		m, _ := newTestMember(t, 3)
		m.onFetched(c.in) // it does not fetch
		if m.fetchedTo != 0 || m.forked {
			t.Errorf("%s: taken, although nothing is fetched", name)
		}
		m.job, m.began, m.from, m.perhaps = fetching, c.began, []peer{*m.peer(1), *m.peer(2)}, true
		m.from[0].Group.Run = run
		if c.in.Parted == 1 { // only a peer that works is believed
			m.from[1].Mode, m.from[1].Group.Run = Ordering, run
		}
		m.onFetched(c.in)
		if m.fetchedTo != c.to || m.follows != c.follows || m.followed != c.follows.Generation() ||
			m.perhaps != (c.follows == 0) ||
			m.forked != c.in.Forked || m.common != c.in.Common || m.job != idle || m.from != nil {
			t.Errorf("%s: to %d, follows %d in generation %d, perhaps %v, forked %v",
				name, m.fetchedTo, m.follows, m.followed, m.perhaps, m.forked)
		}
		if by := order.ServerID(1 + c.in.Parted); m.forked &&
			(m.forkedBy != by || m.forkedAt != m.now) {
			t.Errorf("%s: by %d at %d, want %d at %d", name, m.forkedBy, m.forkedAt, by, m.now)
		}
	}
	working := peer{Announcement: Announcement{Group: Group{Run: run}}}
	later := peer{Announcement: Announcement{Group: Group{Run: generation.NewRun(5, 0)}}}
	if oldestOf([]peer{later, working, later}) != 4 || oldestOf([]peer{working, {}}) != 0 {
		t.Error("the oldest generation is another")
	}
}

// A member enters a run if its chain ends right before the run.
func TestEnter(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(1, 1)
	for name, c := range map[string]struct {
		change         func(*Member, *bookChain)
		done, starting bool
		aside          bool
		ticket         uint64
	}{
		"right before it": {func(*Member, *bookChain) {}, true, true, false, 7},
		"blocks to fetch": {func(_ *Member, c *bookChain) {
			c.height = 8
		}, false, false, false, 7},
		"more, of an unknown source": {func(_ *Member, c *bookChain) {
			c.height = 10
		}, true, false, true, 7},
		"more, up to its base from peers": {func(m *Member, c *bookChain) {
			c.height, m.fetchedTo = 10, 9
		}, true, false, true, 7},
		"more, of the group": {func(m *Member, c *bookChain) {
			c.height, m.fetchedTo, m.fetchedIn = 10, 10, 1
		}, false, false, false, 8},
		"more, of one that does not work": {func(m *Member, c *bookChain) {
			c.height, m.fetchedTo = 10, 10
		}, true, false, true, 7},
		"more, of an older generation": {func(m *Member, c *bookChain) {
			c.height, m.fetchedTo, m.fetchedIn = 10, 10, 1
			run = generation.NewRun(2, 1)
		}, true, false, true, 7},
		"more, and it took part": {func(m *Member, c *bookChain) {
			m.synod.Working(generation.NewRun(1, 0), c.membership)
			m.synod.Idle(m.holdings(), 0)
			c.height, m.fetchedTo = 10, 10
		}, false, false, false, 8},
		"another block": {func(_ *Member, c *bookChain) { c.branch = 1 }, false, false, false, 8},
		"not a member": {func(_ *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{1, 2}
		}, false, false, false, 7},
		"a learner": {func(_ *Member, c *bookChain) {
			c.membership.Disks = []generation.DiskID{diskOf(9), {}, {}}
		}, false, false, false, 7},
	} {
		m, chain := newTestMember(t, 3)
		run = generation.NewRun(1, 1)
		c.change(m, chain)
		done := m.enter(1, groupOf(3, run))
		aside := slices.ContainsFunc(m.effects, func(e Effect) bool {
			return e == SetAside{Keep: 9}
		})
		if done != c.done || (m.starting != nil) != c.starting || aside != c.aside ||
			m.ticket != c.ticket {
			t.Errorf("%s: done %v, starts %+v, ticket %d, %+v", name, done, m.starting, m.ticket,
				m.effects)
		}
	}
}

// A member asks a working member from time to time, and another one each time.
func TestAsking(t *testing.T) {
	t.Parallel()
	enter := DefaultTiming().Enter
	own := Entrant{Server: 0, Ticket: 7, Disk: diskOf(0)}
	for name, c := range map[string]struct {
		change func(*Member, *bookChain)
		want   *SendWish
	}{
		"enter":   {func(*Member, *bookChain) {}, &SendWish{2, Wish{WishEnter, 7, diskOf(0)}}},
		"not yet": {func(m *Member, _ *bookChain) { m.wishedAt = m.now - enter + 1 }, nil},
		"again": {func(m *Member, _ *bookChain) {
			m.wishedAt = m.now - enter
			m.wishes = 1
		}, &SendWish{1, Wish{WishEnter, 7, diskOf(0)}}},
		"stopping": {func(m *Member, _ *bookChain) { m.stopping = true }, nil},
		"full":     {func(m *Member, _ *bookChain) { m.full = "full" }, nil},
		"low":      {func(m *Member, _ *bookChain) { m.low = true }, nil},
		"unsaved":  {func(m *Member, _ *bookChain) { m.unsaved = true }, nil},
		"not a member": {func(_ *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{1, 2}
		}, nil},
		"decision not known": {func(m *Member, _ *bookChain) {
			m.peer(1).Group.Run, m.peer(2).Group.Run = generation.NewRun(2, 0),
				generation.NewRun(2, 0)
		}, nil},
		"was removed again": {func(m *Member, _ *bookChain) {
			m.peer(1).Group.Entrants, m.peer(1).Removed = []Entrant{own}, []order.ServerID{0}
		}, &SendWish{2, Wish{WishEnter, 8, diskOf(0)}}},
		"is in already": {func(m *Member, _ *bookChain) {
			m.peer(1).Group.Entrants = []Entrant{own}
		}, &SendWish{2, Wish{WishEnter, 7, diskOf(0)}}},
		"promised the next": {func(m *Member, _ *bookChain) {
			m.synod.Receive(1, generation.Message{Kind: generation.KindPrepare, Generation: 2,
				Ballot: generation.Ballot{Number: 1, Proposer: 1}, Known: m.synod.Decided()})
		}, &SendWish{2, Wish{WishRegroup, 1, diskOf(0)}}},
		"a learner": {func(_ *Member, c *bookChain) {
			c.membership.Disks = []generation.DiskID{diskOf(9), {}, {}}
		},
			&SendWish{2, Wish{WishAdmit, 0, diskOf(0)}}},
		"a learner that lacks a durable block": {func(_ *Member, c *bookChain) {
			c.membership.Disks, c.stored = []generation.DiskID{diskOf(9), {}, {}}, 8
		}, nil},
	} {
		m, chain := newTestMember(t, 3)
		for _, server := range []order.ServerID{1, 2} {
			m.peer(server).Group = *groupOf(3, generation.NewRun(1, 0))
		}
		m.wishedAt = 0
		c.change(m, chain)
		wishes := m.wishes
		m.wish([]peer{*m.peer(1), *m.peer(2)})
		var got *SendWish
		for _, e := range m.effects {
			if wish, is := e.(SendWish); is {
				got = &wish
			}
		}
		switch {
		case c.want == nil:
			if got != nil || m.wishes != wishes {
				t.Errorf("%s: asks %+v", name, got)
			}
		case got == nil || *got != *c.want || m.wishedAt != m.now || m.wishes != wishes+1:
			t.Errorf("%s: asks %+v, want %+v", name, got, c.want)
		}
	}
}

// follow fetches missing blocks, up to the wanted base, and fetches nothing if no block is missing.
func TestFollow(t *testing.T) {
	t.Parallel()
	base := func(height uint64) func(*Member, *bookChain) {
		return func(m *Member, _ *bookChain) {
			m.pending = &generation.Decision{Base: generation.Head{Height: height}}
			m.peer(1).Heights.Ordered, m.peer(1).Tip = 12, hashAt(12, 0)
		}
	}
	run := generation.NewRun(1, 0)
	at := func(height uint64, branch byte) func(*Member, *bookChain) {
		return func(m *Member, _ *bookChain) {
			m.peer(1).Heights.Ordered, m.peer(1).Tip = height, hashAt(height, branch)
		}
	}
	// proposed makes the synod want a base of another chain, at the height of this one.
	proposed := func(m *Member) {
		d := decisionOf(2)
		d.Base.Hash = hashAt(9, 1)
		m.synod.Receive(1, generation.Message{Kind: generation.KindAccept, Generation: 2,
			Ballot: generation.Ballot{Number: 1, Proposer: 1}, Value: d})
	}
	for name, c := range map[string]struct {
		change  func(*Member, *bookChain)
		fetches bool
		limit   uint64
		follows generation.Run
		asks    bool
		why     string
	}{
		"the same":            {change: func(*Member, *bookChain) {}, follows: run, asks: true},
		"less":                {change: at(8, 0), asks: true},
		"less, another chain": {change: at(8, 1), fetches: true},
		"another chain":       {change: at(9, 1), fetches: true},
		"more":                {change: at(10, 0), fetches: true, asks: true},
		"near":                {change: at(9+entryDistance, 0), fetches: true, asks: true},
		"far":                 {change: at(10+entryDistance, 0), fetches: true},
		"up to a base":        {change: base(11), fetches: true, limit: 11},
		"is at the base":      {change: base(9)},
		"is at the base, another chain": {change: func(m *Member, c *bookChain) {
			base(9)(m, c)
			at(9, 1)(m, c)
		}},
		"a base of another chain, of the peer": {change: func(m *Member, c *bookChain) {
			at(9, 1)(m, c)
			proposed(m)
		}, fetches: true, limit: 9},
		"a base of another chain, and the peer is past it": {change: func(m *Member, c *bookChain) {
			at(12, 1)(m, c)
			proposed(m)
		}},
		"a base of another chain, and the peer is on this one": {change: func(m *Member,
			_ *bookChain) {
			proposed(m)
		}, follows: run},
		"works": {change: func(m *Member, c *bookChain) {
			m.group = groupOf(3, run)
			at(12, 0)(m, c)
		}},
		"starts": {change: func(m *Member, c *bookChain) {
			m.starting = groupOf(3, run)
			at(12, 0)(m, c)
		}},
		"is at something else": {change: func(m *Member, c *bookChain) {
			m.job = replaying
			at(12, 0)(m, c)
		}},
		"is over": {change: func(m *Member, c *bookChain) {
			m.end = ErrFork
			at(12, 0)(m, c)
		}},
		"nobody has it": {change: func(m *Member, c *bookChain) {
			at(12, 0)(m, c)
			m.peer(1).Absent = 10
		},
			why: "no running member has block 10,"},
	} {
		m, chain := newTestMember(t, 3)
		m.peer(1).Group = *groupOf(3, run)
		m.wishedAt = 0
		c.change(m, chain)
		before := m.job
		m.follow()
		var fetch *Fetch
		for _, e := range m.effects {
			if f, is := e.(Fetch); is {
				fetch = &f
			}
		}
		if (fetch != nil) != c.fetches || fetch != nil && fetch.Limit != c.limit ||
			m.follows != c.follows || !strings.HasPrefix(m.view.Why, c.why) {
			t.Errorf("%s: fetches %+v, follows %d: %s", name, fetch, m.follows, m.view.Why)
		}
		asks := slices.ContainsFunc(m.effects, func(e Effect) bool {
			_, is := e.(SendWish)
			return is
		})
		if asks != c.asks {
			t.Errorf("%s: asks to enter: %v", name, asks)
		}
		if c.fetches != (m.job == fetching) || !c.fetches && m.job != before {
			t.Errorf("%s: job %d", name, m.job)
		}
	}
}

// The synod takes over what the disk holds: the promise of an earlier process, and contents of
// rounds.
func TestWhatTheDiskHolds(t *testing.T) {
	t.Parallel()
	_, chain := newTestMember(t, 3)
	decided := &generation.Decision{Generation: 2, Members: serversTo(3),
		Base:  generation.Head{Generation: 1, Height: 9, Round: 9, Hash: hashAt(9, 0)},
		Disks: []generation.DiskID{diskOf(0), diskOf(1), diskOf(2)},
		Tail:  []generation.TailRound{{Round: 10, Content: [32]byte{10}}}}
	config := Config{Chain: chain, Timing: DefaultTiming(),
		Disk: Disk{ID: diskOf(0), Original: true,
			State: generation.State{Decided: decided, Instance: 3}}}
	for _, c := range []struct {
		promised uint64
		held     [][32]byte
		before   generation.Generation
		wants    int
	}{{0, nil, 0, 1}, {4, [][32]byte{{10}}, 3, 0}} {
		config.Disk.State.Promised.Number, config.Disk.Held = c.promised, c.held
		m, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		if m.promisedBefore != c.before || len(m.synod.Wanted()) != c.wants {
			t.Errorf("%+v: promised generation %d before, wants %+v", c, m.promisedBefore,
				m.synod.Wanted())
		}
	}
	chain.membership.Members = []order.ServerID{2, 1}
	if _, err := New(config); !errors.Is(err, generation.ErrConfig) {
		t.Errorf("members out of order: %v", err)
	}
	config.Chain = nil
	if _, err := New(config); !errors.Is(err, ErrConfig) {
		t.Errorf("no chain: %v", err)
	}
}

// Time passes in the synod while the next generation may be needed.
func TestTimeInTheSynod(t *testing.T) {
	t.Parallel()
	base := DefaultTiming().Base
	for name, c := range map[string]struct {
		change func(*Member)
		passes bool
	}{
		"nobody works": {func(*Member) {}, true},
		"works":        {func(m *Member) { m.work(3, generation.NewRun(1, 0)) }, false},
		"stalls": {func(m *Member) {
			m.work(3, generation.NewRun(1, 0))
			m.stalled = true
		}, true},
		"settles":      {func(m *Member) { m.job = settling }, false},
		"fetches":      {func(m *Member) { m.job = fetching }, true},
		"starts":       {func(m *Member) { m.starting = groupOf(3, 1) }, false},
		"is a learner": {func(m *Member) { m.view.Learner = true }, false},
		"a decision waits": {func(m *Member) {
			m.pending, m.pendingAt = &generation.Decision{}, m.now-base+1
		}, false},
		"a decision waited": {func(m *Member) {
			m.pending, m.pendingAt = &generation.Decision{}, m.now-base
		}, true},
		"others work": {func(m *Member) {
			m.peer(2).Group = *groupOf(3, generation.NewRun(1, 0))
		}, false},
		"others stall": {func(m *Member) {
			m.peer(2).Group, m.peer(2).Stalled = *groupOf(3, generation.NewRun(1, 0)), true
		}, true},
		"others are unheard": {func(m *Member) {
			m.peer(1).linked, m.peer(2).linked = false, false
		}, false},
		"one of them is heard": {func(m *Member) { m.peer(1).linked = false }, true},
	} {
		m, _ := newTestMember(t, 3)
		c.change(m)
		before := m.synod.AppendState(nil)
		m.tickSynod()
		if passed := !slices.Equal(before, m.synod.AppendState(nil)); passed != c.passes {
			t.Errorf("%s: time passes: %v", name, passed)
		}
	}
}
