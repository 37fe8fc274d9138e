package shard

import (
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// followsOf gives inputs to a member. It returns the run that the member announced last in Follows,
// and the state that it saved last. Everything that the member saves is on the disk at once.
func followsOf(m *Member, state generation.State, inputs ...Input) (generation.Run,
	generation.State) {
	follows := generation.Run(0)
	for ; len(inputs) > 0; inputs = inputs[1:] {
		m.Step(inputs[0])
		for effects := m.Ready(); len(effects) > 0; effects = m.Ready() {
			for _, e := range effects {
				switch e := e.(type) {
				case Announce:
					follows = e.Announcement.Follows
				case Save:
					state = e.State
					m.Step(Saved{})
				}
			}
		}
	}
	return follows, state
}

// promisedHead restarts a member from a state and returns the head of its promise for generation 3.
func promisedHead(t *testing.T, config Config, state generation.State) generation.Head {
	t.Helper()
	config.Disk.State = state
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	m.Step(SynodReceived{From: 1, Message: generation.Message{
		Kind: generation.KindPrepare, Generation: 3, Known: state.Decided,
		Ballot: generation.Ballot{Number: 9, Proposer: 1},
	}})
	for effects := m.Ready(); len(effects) > 0; effects = m.Ready() {
		for _, e := range effects {
			switch e := e.(type) {
			case Save:
				m.Step(Saved{})
			case SendSynod:
				if e.Message.Kind == generation.KindPromise {
					return e.Message.Report.Head
				}
			}
		}
	}
	t.Fatal("no promise")
	return generation.Head{}
}

// TestFollowerCountsOnlyWithItsHeadsGeneration: a follower of generation 2 restarts, as all members
// do after a loss of power, and promises generation 3. Heads are compared by generation. So a
// follower whose disk counts in generation 2 has to promise a head of generation 2. With an older
// head, the blocks that are durable because of it are given up for a shorter chain of a member of
// that generation.
func TestFollowerCountsOnlyWithItsHeadsGeneration(t *testing.T) {
	t.Parallel()
	for name, activated := range map[string]generation.Run{
		"took part in generation 1": generation.NewRun(1, 0),
		"took part in generation 2": generation.NewRun(2, 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain := &bookChain{height: 4, stored: 4}
			for server := range order.ServerID(3) {
				chain.membership.Members = append(chain.membership.Members, server)
			}
			config := Config{
				Self: 2, Disk: Disk{ID: diskOf(2), Original: true}, Chain: chain,
				Timing: DefaultTiming(), Ticket: 7,
			}
			config.Disk.State = generation.State{
				Activated: activated, Shard: chain.membership, Instance: 2,
				Decided: &generation.Decision{
					Generation: 2, Members: []order.ServerID{0, 1},
					Disks: []generation.DiskID{diskOf(0), diskOf(1)},
				},
			}
			m, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			working := Announcement{
				Mode: Ordering, Heights: Heights{Ordered: 4, Stored: 4}, Tip: hashAt(4, 0),
				Disk: diskOf(0), Decided: 2,
				Group: Group{Run: generation.NewRun(2, 1), First: 1,
					Members: []order.ServerID{0, 1}},
			}
			follows, state := followsOf(m, config.Disk.State,
				AnnouncementReceived{From: 0, Announcement: working}, Tick{}, Tick{}, Tick{},
				Tick{}, Tick{}, Tick{})
			head := promisedHead(t, config, state)
			if follows != 0 && head.Generation < follows.Generation() {
				t.Errorf("it counts in generation %d, and promises head %+v", follows.Generation(),
					head)
			}
			if counts := activated.Generation() == 2; counts != (follows != 0) {
				t.Errorf("it follows run %v; want it to count: %v", runText(follows), counts)
			}
		})
	}
}

// TestOrders: the last two members of a group make no progress while one of their disks is full.
func TestOrders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		members, removed int
		full, stalled    bool
		orders           bool
	}{
		"no group":                        {0, 0, false, false, false},
		"two":                             {2, 0, false, false, true},
		"two, and stalled":                {2, 0, false, true, false},
		"two, with a full disk":           {2, 0, true, false, false},
		"three, with a full disk":         {3, 0, true, false, true},
		"two of three, with a full disk":  {3, 1, true, false, false},
		"two of three":                    {3, 1, false, false, true},
		"three of four, with a full disk": {4, 1, true, false, true},
	} {
		a := Announcement{Full: c.full, Stalled: c.stalled, Removed: serversTo(c.removed)}
		if c.members > 0 {
			a.Group = *groupOf(c.members, 1)
		}
		if a.orders() != c.orders {
			t.Errorf("%s: orders %v", name, !c.orders)
		}
	}
}

// A follower's disk counts in a generation only once the disk says that it took part in it.
func TestFollowerCountsWithWhatItSaved(t *testing.T) {
	t.Parallel()
	chain := &bookChain{height: 4, stored: 4,
		membership: generation.Membership{Members: serversTo(3)}}
	config := Config{Self: 2, Disk: Disk{ID: diskOf(2), Original: true}, Chain: chain,
		Timing: DefaultTiming(), Ticket: 7}
	state := generation.State{
		Activated: generation.NewRun(1, 0), Shard: chain.membership, Instance: 2,
		Decided: &generation.Decision{
			Generation: 2, Members: []order.ServerID{0, 1},
			Disks: []generation.DiskID{diskOf(0), diskOf(1)},
		},
	}
	config.Disk.State = state
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	follows := generation.Run(0)
	step := func(in Input) {
		m.Step(in)
		for effects := m.Ready(); len(effects) > 0; effects = m.Ready() {
			failed := false
			for _, e := range effects {
				switch e := e.(type) {
				case Announce:
					if follows = e.Announcement.Follows; follows.Generation() >
						state.Activated.Generation() {
						t.Fatalf("tick %d: counts in run %s; its disk says that it took part in "+
							"%s, and holds block %d",
							m.now, runText(follows), runText(state.Activated), chain.stored)
					}
				case Save: // the home's file system is full from here on
					failed = true
				case Fetch:
					chain.height, chain.stored = 5, 5
					m.Step(Fetched{Reached: 0})
				}
			}
			if failed {
				m.Step(SaveFailed{Reason: "full"})
			}
		}
	}
	working := Announcement{
		Mode: Ordering, Heights: Heights{Ordered: 4, Stored: 4}, Tip: hashAt(4, 0), Disk: diskOf(0),
		Decided: 2,
		Group: Group{Run: generation.NewRun(2, 1), First: 5, Base: 4, BaseHash: hashAt(4, 0),
			Members:  serversTo(3),
			Entrants: []Entrant{{Server: 2, Ticket: 7, Disk: diskOf(2)}}},
	}
	step(AnnouncementReceived{From: 0, Announcement: working})
	step(Tick{})
	working.Group.Run, working.Group.Entrants = generation.NewRun(2, 2), nil
	working.Group.Members = serversTo(2)
	working.Heights.Ordered, working.Tip = 5, hashAt(5, 0)
	for range 8 {
		step(AnnouncementReceived{From: 0, Announcement: working})
		step(Tick{})
	}
}
