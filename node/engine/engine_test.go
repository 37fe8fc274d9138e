package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/trains"
)

// TestRows makes three servers with each engine, and has them A-deliver a round. Readers of frames
// understand every frame on the way.
func TestRows(t *testing.T) {
	t.Parallel()
	g, err := digraph.Reliable(3, digraph.Target{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range All().With(Engine.TakesFrames) {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			servers := make([]order.Broadcaster, 3)
			for i := range servers {
				var err error
				servers[i], err = row.New(Config{Self: order.ServerID(i), Servers: 3, Reliable: g,
					Run: 7, FirstRound: 1, MaxPayload: 1024, Prompt: row.Prompt})
				if err != nil {
					t.Fatal(err)
				}
			}
			if delivered := deliver(t, row, servers); delivered < len(servers) {
				t.Errorf("%d A-deliveries", delivered)
			}
			if e, err := row.New(Config{Servers: 3, Self: 3, Reliable: g}); err == nil || e != nil {
				t.Errorf("a server that is not in the group: %v, %v", e, err)
			}
		})
	}
}

// deliver lets the servers A-broadcast rounds until each has A-delivered some, and counts the
// A-deliveries. It checks the readers of frames.
func deliver(t *testing.T, row Engine, servers []order.Broadcaster) (delivered int) {
	t.Helper()
	messages := 0
	for turn := 0; turn < 4 || turn < 64 && delivered < 4*len(servers); turn++ {
		for _, s := range servers {
			if s.CanBroadcast() {
				if err := s.Broadcast([]byte("payload")); err != nil {
					t.Fatal(err)
				}
			}
		}
		for moved := true; moved; {
			moved = false
			for from, s := range servers {
				ready := s.Ready()
				delivered += len(ready.Deliveries)
				for _, send := range ready.Sends {
					moved = true
					if run, err := row.FrameRun(send.Frame); err != nil || run != 7 {
						t.Errorf("a frame of run %d: %v", run, err)
					}
					for _, other := range All().With(Engine.TakesFrames) {
						run, err := other.FrameRun(send.Frame)
						family := strings.TrimSuffix(row.Name, "+")
						if strings.TrimSuffix(other.Name, "+") != family && err == nil {
							t.Errorf("%s takes it for a frame of its run %d", other.Name, run)
						}
					}
					if row.InNode {
						messages += messagesIn(t, row, send.Frame)
					}
					for _, to := range send.To {
						err := servers[to].Receive(order.ServerID(from), send.Frame)
						if err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
	}
	if row.InNode && messages == 0 {
		t.Error("no frame has a message")
	}
	return delivered
}

// TestReadersOfFramesAllocateNothing: whatever engine a frame is of, and if it is of none, to find
// out which one allocates nothing.
func TestReadersOfFramesAllocateNothing(t *testing.T) {
	frames := [][]byte{nil, make([]byte, 64)}
	for _, row := range All().With(Engine.TakesFrames) {
		reliable, err := digraph.Complete(3)
		if err != nil {
			t.Fatal(err)
		}
		e, err := row.New(Config{Servers: 3, Shard: 3, Self: 2, Reliable: reliable, Run: 7,
			FirstRound: 1})
		if err != nil {
			t.Fatal(err)
		}
		if e.CanBroadcast() {
			if err := e.Broadcast([]byte("payload")); err != nil {
				t.Fatal(err)
			}
		}
		frames = append(frames, e.Ready().Sends[0].Frame)
	}
	read := func(Message) {}
	if allocations := testing.AllocsPerRun(100, func() {
		for _, frame := range frames {
			_, _ = FrameRun(frame)
			FrameMessages(frame, read)
		}
	}); allocations != 0 {
		t.Errorf("%v allocations for %d frames", allocations, len(frames))
	}
}

// messagesIn counts the messages in a frame. Readers of frames read them from the frame alone.
func messagesIn(t *testing.T, row Engine, frame []byte) (count int) {
	t.Helper()
	if _, is := row.FrameHead(frame); !is {
		t.Error("a frame without a head")
	}
	row.FrameMessages(frame, func(m Message) {
		count++
		if m.Run != 7 || string(m.Payload) != "payload" {
			t.Errorf("%+v in a frame", m)
		}
	})
	for size := range len(frame) {
		row.FrameHead(frame[:size])
		row.FrameMessages(frame[:size], func(m Message) {
			if m.Run != 7 || !strings.HasPrefix("payload", string(m.Payload)) {
				t.Errorf("%+v in a part of a frame", m)
			}
		})
	}
	return count
}

// TestMachines makes three servers with each polled engine, and polls them until each has
// A-delivered a message of each.
func TestMachines(t *testing.T) {
	t.Parallel()
	for _, row := range All() {
		if row.TakesFrames() {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			network, servers := memory.NewNetwork(), make([]Machine, 3)
			hosts, peers := make([]rdmanet.RegionHost, 3), make([]rdmanet.Peer, 3)
			for i := range hosts {
				host, err := network.Host(rdmanet.PeerID(fmt.Sprint(i)))
				if err != nil {
					t.Fatal(err)
				}
				hosts[i] = host
				peers[i] = rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()}
			}
			for i, host := range hosts {
				var err error
				if servers[i], err = row.NewMachine(Config{Self: order.ServerID(i), Servers: 3,
					Run: 7, FirstRound: 1, MaxPayload: 1024}, peers, host); err != nil {
					t.Fatal(err)
				}
			}
			heard := map[int]map[order.ServerID]bool{0: {}, 1: {}, 2: {}}
			began := time.Now()
			for whole := 0; whole < 3; {
				if time.Since(began) > time.Minute {
					t.Fatalf("delivered after a minute: %v; %v", heard, servers)
				}
				whole = 0
				for i, s := range servers {
					if s.CanBroadcast() {
						if err := s.Broadcast([]byte("payload")); err != nil {
							t.Fatal(err)
						}
					}
					s.Poll(time.Since(began))
					for _, want := range s.Wanted() {
						attachment, err := hosts[i].Attach(t.Context(), want.Peer, want.Region)
						s.Attached(want.Number, attachment, err)
					}
					for _, delivery := range s.Deliveries() {
						for _, message := range delivery.Messages {
							if len(message.Payload) > 0 {
								heard[i][message.Origin] = true
							}
						}
					}
					if len(heard[i]) == 3 {
						whole++
					}
				}
			}
			for i, s := range servers {
				if halted := s.Halted(); halted != "" {
					t.Errorf("server %d: %s", i, halted)
				}
				if err := errors.Join(s.Close(), hosts[i].Close(t.Context())); err != nil {
					t.Error(err)
				}
			}
			if m, err := row.NewMachine(Config{Self: 3}, peers, hosts[0]); err == nil || m != nil {
				t.Errorf("a server that is not in the group: %v, %v", m, err)
			}
		})
	}
}

// The paper's layout of trains has no room for the number of a run, so a run with a number refuses
// it.
func TestLayoutWithoutRun(t *testing.T) {
	t.Parallel()
	row, err := Of(trains.EngineName)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		run     uint64
		layout  trains.Layout
		refused bool
	}{{7, trains.LayoutHouse, false}, {0, trains.LayoutPaper, false}, {7, trains.LayoutPaper,
		true}} {
		_, err := row.New(Config{Servers: 3, Run: c.run, FirstRound: 1, Layout: c.layout})
		if errors.Is(err, trains.ErrConfig) != c.refused {
			t.Errorf("run %d in the layout %v: %v", c.run, c.layout, err)
		}
	}
}

// TestTailsOfRuns: the table says how many votes a server has, as its engine does. The rounds in
// which no second change of the group may take effect are those that a run may have.
func TestTailsOfRuns(t *testing.T) {
	t.Parallel()
	g, err := digraph.Reliable(3, digraph.Target{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range All().With(Engine.RunsInNode).With(Engine.TakesFrames) {
		for _, count := range []int{0, 1, 3, 4, 8, trains.TrainsMax} {
			config := Config{Servers: 3, Reliable: g, Run: 7, FirstRound: 1, Trains: count}
			made, err := row.New(config)
			if err != nil {
				t.Fatal(err)
			}
			votes := made.(order.Voter).VotesMax()
			if votes != row.VotesMax(config) {
				t.Errorf("%s with %d trains: %d votes, the table says %d", row.Name, count, votes,
					row.VotesMax(config))
			}
			want := order.Round(ledger.ChangeRounds)
			if row.Trains {
				want = max(want, trains.ChangeRounds(count))
			}
			if got := generation.BoundOf(votes).ChangeRounds(); got != want {
				t.Errorf("%s with %d trains: %d rounds from a change on, want %d", row.Name, count,
					got, want)
			}
		}
	}
}

// TestNumbersOfTrainsDiffer: a server takes no frame of another one that counts on other trains.
func TestNumbersOfTrainsDiffer(t *testing.T) {
	t.Parallel()
	row, err := Of(trains.EngineName)
	if err != nil {
		t.Fatal(err)
	}
	make := func(self order.ServerID, run uint64, count int) (order.Broadcaster, error) {
		return row.New(Config{Self: self, Servers: 2, Run: run, FirstRound: 1, Trains: count})
	}
	maker, err := make(1, 7, 4)
	if err != nil {
		t.Fatal(err)
	}
	sends := maker.Ready().Sends
	for count, takes := range map[int]bool{0: true, 3: false, 4: true, 8: false} {
		other, err := make(0, 7, count)
		if err != nil {
			t.Fatal(err)
		}
		for _, send := range sends {
			if err := other.Receive(1, send.Frame); err != nil {
				t.Error(err)
			}
		}
		if err := other.Broadcast([]byte("payload")); err != nil {
			t.Fatal(err)
		}
		took := false // a train that it has, it sends on
		for _, send := range other.Ready().Sends {
			head, _ := row.FrameHead(send.Frame)
			took = took || head.Name == "TRAIN"
		}
		if took != takes {
			t.Errorf("a server with %d trains takes those of one with 4: %v", count, took)
		}
	}
	if e, err := make(0, 1<<56, 4); !errors.Is(err, trains.ErrConfig) || e != nil {
		t.Errorf("a run without room in the frames: %v", err)
	}
}

// TestGroups: an engine has its bound on groups, and says who watches whom.
func TestGroups(t *testing.T) {
	t.Parallel()
	sparse, err := digraph.Reliable(12, digraph.Target{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range All() {
		for servers, takes := range map[int]bool{1: true, trains.ServersMax: true,
			trains.ServersMax + 1: row.ServersMax == 0} {
			if err := row.Takes(servers); (err == nil) != takes ||
				err != nil && !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s of %d: %v", row.Name, servers, err)
			}
		}
		watches, err := row.Watches(sparse)
		if err != nil || (watches.Degree() == 11) != row.WatchAll ||
			!row.WatchAll && watches != sparse {
			t.Errorf("%s: %d watch each, %v", row.Name, watches.Degree(), err)
		}
	}
}

// TestList: the table is what help texts, completions and errors say.
func TestList(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, e := range All() {
		if e.Name == "" || seen[e.Name] || e.Story == "" || e.Kind != Frames && e.Kind != Polled ||
			e.InFlightMax < 1 {
			t.Errorf("%+v", e)
		}
		polled := e.InNode && !e.TakesFrames()
		if polled != (e.NodeInFlight > 0) || e.NodeInFlight > e.InFlightMax {
			t.Errorf("a node has %d in flight of %+v", e.NodeInFlight, e)
		}
		seen[e.Name] = true
	}
	if All()[0].Name != Default || !All()[0].RunsInNode() {
		t.Errorf("the first engine is %s", All()[0].Name)
	}
	_, err := Of("raft")
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), All().String()) {
		t.Error(err)
	}
	for want, list := range map[string]List{"": {}, "a": {{Name: "a"}},
		"a or b":    {{Name: "a"}, {Name: "b"}},
		"a, b or c": {{Name: "a"}, {Name: "b"}, {Name: "c"}}} {
		if list.String() != want {
			t.Errorf("%q, want %q", list, want)
		}
	}
	for kind, want := range map[Kind]string{Frames: "lanes", Polled: "regions", 9: "kind(9)"} {
		if kind.String() != want {
			t.Errorf("%v, want %s", kind, want)
		}
	}
}

// TestSizesOfLogs: in full rounds, an entry has room for the largest message of each member of the
// largest group, and the log for several entries for each message in flight. A message has the room
// that a node needs.
func TestSizesOfLogs(t *testing.T) {
	t.Parallel()
	made, err := Of(dare.EngineName)
	if err != nil {
		t.Fatal(err)
	}
	const least = ledger.MaxBundleBytes + 4096
	for _, most := range []int{least, 2 << 20, 8 << 20} {
		for servers := 1; servers <= made.ServersMax; servers++ {
			c := Config{MaxPayload: most, MinPayload: least, InFlight: made.NodeInFlight}
			for _, c.FullRounds = range []bool{false, true} {
				payload, messages, slots := dareSizes(&c, servers)
				size, bound := (slots+1)*messages, max(64<<20, 16*most)
				if c.FullRounds {
					bound = max(64<<20, 8*servers*least)
				}
				if payload < least || payload > most || messages < payload || size > bound ||
					size > rdmanet.RegionSizeMax*9/10 || slots < 3*made.NodeInFlight ||
					c.FullRounds && messages < servers*payload {
					t.Errorf("%d servers, messages of %d bytes, full rounds %v: %d bytes each, "+
						"%d in an entry, %d entries", servers, most, c.FullRounds, payload,
						messages, slots)
				}
			}
		}
	}
}
