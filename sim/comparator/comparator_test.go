package comparator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// algorithm is one of the four, as the tests create it.
type algorithm struct {
	name   string
	make   func(Config) (order.Broadcaster, error)
	faults []Fault
	blocks int
	// outstanding is Config.Outstanding.
	outstanding int
}

func maker[Engine order.Broadcaster](make func(Config) (Engine,
	error)) func(Config) (order.Broadcaster, error) {
	return func(c Config) (order.Broadcaster, error) {
		engine, err := make(c)
		if err != nil {
			return nil, err
		}
		return engine, nil
	}
}

var algorithms = []algorithm{
	{"allgather", maker(NewAllGather), []Fault{FaultDroppedRelay, FaultEarlyDelivery}, 0, 0},
	{"unreliable, small blocks", maker(NewUnreliable),
		[]Fault{FaultDroppedRelay, FaultEarlyDelivery}, 8, 0},
	{"unreliable, large blocks", maker(NewUnreliable),
		[]Fault{FaultDroppedRelay, FaultEarlyDelivery}, allgatherSwitch, 0},
	{"lcr", maker(NewLCR), []Fault{FaultDroppedRelay, FaultEarlyDelivery, FaultUnordered}, 0, 0},
	{"paxos", maker(NewPaxos), []Fault{FaultDroppedRelay, FaultEarlyDelivery}, 0, 0},
	{"lcr, several outstanding", maker(NewLCR),
		[]Fault{FaultDroppedRelay, FaultEarlyDelivery, FaultUnordered}, 0, 5},
}

// network runs a group in one goroutine over reliable FIFO channels, with the interleaving of a
// seed.
type network struct {
	random   *rand.Rand
	engines  []order.Broadcaster
	channels [][][]byte // from*n+to
	busy     []int      // channels that are not empty
	rounds   *order.RoundHistory
	stream   *order.History
	submits  []int
	sequence []map[order.ServerID]uint64
	frames   int
	bytes    int
	broken   []*order.Violation
}

func newNetwork(t testing.TB, a algorithm, config Config, seed uint64) *network {
	t.Helper()
	n := config.Servers
	w := &network{
		random: rand.New(rand.NewPCG(seed, 7)), channels: make([][][]byte, n*n),
		rounds: order.NewRoundHistory(n), stream: order.NewHistory(n),
		submits: make([]int, n), sequence: make([]map[order.ServerID]uint64, n),
	}
	config.BlockSize, config.Outstanding = a.blocks, a.outstanding
	for s := range n {
		config.Self = order.ServerID(s)
		engine, err := a.make(config)
		if err != nil {
			t.Fatal(err)
		}
		w.engines = append(w.engines, engine)
		w.sequence[s] = map[order.ServerID]uint64{}
	}
	return w
}

func (w *network) n() int { return len(w.engines) }

func (w *network) broadcast(s int, payload string) error {
	id := order.ServerID(s)
	w.rounds.Broadcast(id, []byte(payload))
	w.submits[s]++
	w.stream.Submit(order.MessageID{Sender: order.Replica{Server: id},
		Sequence: uint64(w.submits[s])}, 0)
	slice := []byte(payload)
	if err := w.engines[s].Broadcast(slice); err != nil {
		return fmt.Errorf("server %d A-broadcasts: %w", s, err)
	}
	clear(slice) // the engine has copied it
	w.pump(s)
	return nil
}

func (w *network) pump(s int) {
	ready := w.engines[s].Ready()
	for _, send := range ready.Sends {
		for _, to := range send.To {
			at := s*w.n() + int(to)
			if len(w.channels[at]) == 0 {
				w.busy = append(w.busy, at)
			}
			w.channels[at] = append(w.channels[at], send.Frame)
			w.frames++
			w.bytes += len(send.Frame)
		}
	}
	for _, d := range ready.Deliveries {
		if v := w.rounds.Deliver(order.ServerID(s), d); v != nil {
			w.broken = append(w.broken, v)
		}
	}
	if sequencer, is := w.engines[s].(Sequencer); is {
		for _, origin := range sequencer.Sequence() {
			w.sequence[s][origin]++
			w.stream.Deliver(order.Replica{Server: order.ServerID(s)},
				order.MessageID{Sender: order.Replica{Server: origin},
					Sequence: w.sequence[s][origin]})
		}
	}
}

func (w *network) receive(pick int) error {
	at := w.busy[pick]
	frame := w.channels[at][0]
	w.channels[at] = w.channels[at][1:]
	if len(w.channels[at]) == 0 {
		w.busy = slices.Delete(w.busy, pick, pick+1)
	}
	from, to := at/w.n(), at%w.n()
	if err := w.engines[to].Receive(order.ServerID(from), frame); err != nil {
		return fmt.Errorf("server %d from %d: %w", to, from, err)
	}
	w.pump(to)
	return nil
}

// run makes random steps until every server has A-broadcast the given number of payloads, with
// empty ones where only those are requested, and everything is quiet.
func (w *network) run(messages int) error {
	left := slices.Repeat([]int{messages}, w.n())
	for {
		var able []int
		for s, engine := range w.engines {
			if engine.CanBroadcast() && (left[s] > 0 || engine.Solicited()) {
				able = append(able, s)
			}
		}
		choice := len(w.busy) + len(able)
		if choice == 0 {
			return nil
		}
		pick := w.random.IntN(choice)
		if pick < len(w.busy) {
			if err := w.receive(pick); err != nil {
				return err
			}
			continue
		}
		s := able[pick-len(w.busy)]
		payload := ""
		if left[s] > 0 {
			payload = fmt.Sprintf("m%d.%d", s, left[s])
			left[s]--
		}
		if err := w.broadcast(s, payload); err != nil {
			return err
		}
	}
}

// judge returns what is broken.
func (w *network) judge() []*order.Violation {
	broken := append(w.broken, w.rounds.Judge(order.AtRest)...)
	if _, is := w.engines[0].(Sequencer); is {
		broken = append(broken, w.stream.Judge(order.AtRest)...)
	}
	return broken
}

func TestAllDeliverTheSame(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 21} {
				for seed := range uint64(20) {
					w := newNetwork(t, a, Config{Servers: n}, seed)
					if err := w.run(6); err != nil {
						t.Fatalf("n=%d, seed %d: %v", n, seed, err)
					}
					for _, v := range w.judge() {
						t.Fatalf("n=%d, seed %d: %v", n, seed, v)
					}
					for s := range n {
						if got := w.rounds.Rounds(order.ServerID(s)); got < 6 {
							t.Fatalf("n=%d, seed %d: server %d delivered %d rounds", n, seed,
								s, got)
						}
					}
				}
			}
		})
	}
}

// TestPlantedBugs shows that the judge of this package can reject a run.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		for _, fault := range a.faults {
			t.Run(a.name+" with "+fault.String(), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(50) {
					w := newNetwork(t, a, Config{Servers: 7, Fault: fault}, seed)
					if err := w.run(4); err != nil || len(w.judge()) > 0 {
						t.Logf("caught by seed %d", seed)
						return
					}
				}
				t.Error("not caught by 50 seeds")
			})
		}
	}
}

// round runs one full round in the order of sending, with payloads of a size.
func (w *network) round(payload []byte) error {
	for s := range w.n() {
		if err := w.engines[s].Broadcast(payload); err != nil {
			return err
		}
		w.quickPump(s)
	}
	for len(w.busy) > 0 {
		busy := w.busy
		w.busy = nil
		for _, at := range busy {
			frames := w.channels[at]
			w.channels[at] = nil
			for _, frame := range frames {
				if err := w.engines[at%w.n()].Receive(order.ServerID(at/w.n()), frame); err != nil {
					return err
				}
			}
			w.quickPump(at % w.n())
		}
	}
	return nil
}

// quickPump is like pump without a judge. It counts rounds in submits.
func (w *network) quickPump(s int) {
	ready := w.engines[s].Ready()
	for _, send := range ready.Sends {
		for _, to := range send.To {
			at := s*w.n() + int(to)
			if len(w.channels[at]) == 0 {
				w.busy = append(w.busy, at)
			}
			w.channels[at] = append(w.channels[at], send.Frame)
			w.frames++
			w.bytes += len(send.Frame)
		}
	}
	w.submits[s] += len(ready.Deliveries)
}

// TestTraffic compares the frames and bytes of a round with the algorithms' own arithmetic.
func TestTraffic(t *testing.T) {
	t.Parallel()
	const size = 1000
	for _, test := range []struct {
		name          string
		algorithm     algorithm
		n             int
		frames, bytes int
	}{
		{"allgather: every server gets every message once", algorithms[0], 16, 16 * 15,
			16 * 15 * (16 + size)},
		{"recursive doubling: log2 n steps", algorithms[1], 16, 16 * 4, 16 * (4*16 + 15*(4+size))},
		{"bruck: log2 n steps, rounded up", algorithms[1], 12, 12 * 4, 12 * (4*16 + 11*(4+size))},
		{"neighbour exchange: n/2 steps", algorithms[2], 16, 16 * 8, 16 * (8*16 + 15*(4+size))},
		{"ring: n-1 steps", algorithms[2], 15, 15 * 14, 15 * 14 * (16 + 4 + size)},
		{"lcr: n-1 hops of a message with its clock, n-1 of its acknowledgement", algorithms[3], 16,
			16 * (15 + 15), 16 * 15 * (8 + 4*16 + size + 16)},
		// The first round's phase 1 covers its 16 instances and the 128 of the window.
		{"paxos: submit, accept, and five times accepted to all", algorithms[4], 16,
			15 + 16*(4+5*15) + 2*4*(128+16),
			(15+16*(4+5*15))*(32+size) + 2*4*(128+16)*16},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t, test.algorithm, Config{Servers: test.n}, 0)
			if err := w.round(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if w.frames != test.frames || w.bytes != test.bytes {
				t.Errorf("%d frames of %d bytes, want %d of %d", w.frames, w.bytes, test.frames,
					test.bytes)
			}
		})
	}
}

// TestLargeGroups runs rounds among many servers and bounds the memory that a message costs.
func TestLargeGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("large groups take a second or two each")
	}
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			n := 1024
			if a.name == "paxos" || a.name == "unreliable, large blocks" || raceEnabled {
				n = 128 // n² frames, five times over, or n²/2 steps
			}
			w := newNetwork(t, a, Config{Servers: n}, 0)
			const rounds = 3
			for range rounds {
				if err := w.round([]byte("payload")); err != nil {
					t.Fatal(err)
				}
			}
			for s, got := range w.submits {
				if got != rounds {
					t.Fatalf("server %d delivered %d rounds, want %d", s, got, rounds)
				}
			}
		})
	}
}

func BenchmarkRound(b *testing.B) {
	for _, a := range algorithms {
		for _, n := range []int{32, 256} {
			b.Run(fmt.Sprintf("%s/n=%d", a.name, n), func(b *testing.B) {
				w := newNetwork(b, a, Config{Servers: n}, 0)
				payload := make([]byte, 1000)
				b.ReportAllocs()
				for b.Loop() {
					if err := w.round(payload); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(w.frames)/float64(b.N), "frames/op")
			})
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{}, "0 servers"},
		{Config{Servers: ServersMax + 1}, "servers"},
		{Config{Servers: 3, Self: 3}, "none of 0 to 2"},
		{Config{Servers: 3, MaxPayload: -1}, "payload bound"},
		{Config{Servers: 3, Acceptors: 4}, "acceptors"},
		{Config{Servers: 3, BlockSize: -1}, "blocks"},
		{Config{Servers: 3, Fault: faultEnd}, "no such fault"},
		{Config{Servers: 3, Ring: []order.ServerID{0, 1}}, "a ring of 2"},
		{Config{Servers: 3, Ring: []order.ServerID{0, 1, 1}}, "twice in the ring"},
		{Config{Servers: 3, Ring: []order.ServerID{0, 1, 3}}, "twice in the ring, or is none"},
	} {
		for _, a := range algorithms {
			if _, err := a.make(test.config); !errors.Is(err, ErrConfig) ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %+v: %v, want %q", a.name, test.config, err, test.want)
			}
		}
	}
	if _, err := NewAllGather(Config{Servers: 3, Fault: FaultUnordered}); !errors.Is(err,
		ErrConfig) {
		t.Errorf("AllGather takes a fault that it cannot have: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		engine, err := a.make(Config{Servers: 4, Self: 1, MaxPayload: 8, BlockSize: a.blocks})
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Broadcast(make([]byte, 9)); !errors.Is(err, order.ErrTooLarge) ||
			!engine.CanBroadcast() {
			t.Errorf("%s: a payload over the bound: %v", a.name, err)
		}
		if err := engine.Broadcast(nil); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
		if err := engine.Broadcast(nil); !errors.Is(err, order.ErrNotNow) ||
			engine.CanBroadcast() || engine.Solicited() || engine.Undelivered() {
			t.Errorf("%s: a second message at once: %v", a.name, err)
		}
		if err := engine.Suspect(9); err == nil {
			t.Errorf("%s: suspects nobody", a.name)
		}
		if err := engine.Suspect(2); err != nil || !slices.Equal(engine.Status().Suspected,
			[]order.ServerID{2}) {
			t.Errorf("%s: %v, %+v", a.name, err, engine.Status())
		}
		if err := engine.Trust(2); err != nil || engine.Status().Suspected != nil ||
			len(engine.Status().Members) != 4 {
			t.Errorf("%s: %v, %+v", a.name, err, engine.Status())
		}
	}
}

// TestRing runs LCR along a given ring.
func TestRing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		w := newNetwork(t, algorithms[3], Config{Servers: 6,
			Ring: []order.ServerID{3, 1, 5, 0, 4, 2}}, seed)
		if err := w.run(5); err != nil {
			t.Fatal(err)
		}
		for _, v := range w.judge() {
			t.Fatalf("seed %d: %v", seed, v)
		}
		if len(w.channels[3*6+1]) != 0 || w.channels[3*6+1] == nil || w.channels[0*6+1] != nil {
			t.Fatal("frames do not go along the ring")
		}
	}
}

// TestScheduleMatches pairs all sends and receives of MPI_Allgather, and follows every block to
// every rank.
func TestScheduleMatches(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 40; n++ {
		for _, name := range []string{algorithmRecursiveDoubling, algorithmBruck,
			algorithmNeighbourExchange, algorithmRing} {
			if name == algorithmRecursiveDoubling && n&(n-1) != 0 ||
				name == algorithmNeighbourExchange && n%2 == 1 {
				continue
			}
			all := make([][]step, n)
			have := make([]map[order.ServerID]bool, n)
			for rank := range n {
				all[rank] = schedule(n, rank, name)
				have[rank] = map[order.ServerID]bool{order.ServerID(rank): true}
			}
			for k := range all[0] {
				for rank := range n {
					s := all[rank][k]
					back := all[s.from][k]
					if int(back.to[0]) != rank || !slices.Equal(back.send, s.receive) {
						t.Fatalf("%s, n=%d: step %d of rank %d awaits %v from %d, which sends "+
							"%v to %v", name, n, k, rank, s.receive, s.from, back.send, back.to)
					}
					for _, block := range s.send {
						if !have[rank][block] {
							t.Fatalf(
								"%s, n=%d: rank %d sends block %d in step %d, which it has not",
								name, n, rank, block, k)
						}
					}
				}
				for rank := range n {
					for _, block := range all[rank][k].receive {
						if have[rank][block] {
							t.Fatalf("%s, n=%d: rank %d gets block %d twice", name, n, rank, block)
						}
						have[rank][block] = true
					}
				}
			}
			for rank := range n {
				if len(have[rank]) != n {
					t.Fatalf("%s, n=%d: rank %d has %d blocks", name, n, rank, len(have[rank]))
				}
			}
		}
	}
}

func TestAlgorithmOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n, size int
		want    string
	}{
		{8, 64, algorithmRecursiveDoubling}, {12, 64, algorithmBruck},
		{8, 6250, algorithmNeighbourExchange}, {8, 6249, algorithmRecursiveDoubling},
		{9, 64_000, algorithmRing}, {1024, 8, algorithmRecursiveDoubling},
		{1024, 64, algorithmNeighbourExchange},
	} {
		engine, err := NewUnreliable(Config{Servers: test.n, BlockSize: test.size})
		if err != nil || engine.Algorithm() != test.want {
			t.Errorf("%d blocks of %d bytes: %v, want %s", test.n, test.size, engine.Algorithm(),
				test.want)
		}
	}
}

// FuzzReceive feeds bytes to all four. They do not panic, and accepted frames do not use unbounded
// memory.
func FuzzReceive(f *testing.F) {
	for _, a := range algorithms {
		w := newNetwork(f, a, Config{Servers: 4, MaxPayload: 64}, 1)
		for s := range 4 {
			if err := w.broadcast(s, "payload"); err != nil {
				f.Fatal(err)
			}
		}
		for range 30 {
			if len(w.busy) == 0 {
				break
			}
			at := w.busy[0]
			f.Add(uint8(at/4), w.channels[at][0])
			if err := w.receive(0); err != nil {
				f.Fatal(err)
			}
		}
	}
	f.Add(uint8(0), []byte{})
	// the head of a clock and no more
	f.Add(uint8(0), []byte{frameVersion, byte(kindLinked), 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, from uint8, frame []byte) {
		for _, a := range algorithms {
			for self := range order.ServerID(2) {
				engine, err := a.make(Config{Servers: 4, Self: self, MaxPayload: 64,
					BlockSize: a.blocks})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := engine.Receive(order.ServerID(from), frame); err != nil &&
						!errors.Is(err, order.ErrFrame) {
						t.Fatal(err)
					}
				}
				if err := engine.Broadcast([]byte("own")); err != nil {
					t.Fatal(err)
				}
				engine.Ready()
			}
		}
	})
}
