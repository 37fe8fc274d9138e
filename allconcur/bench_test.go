package allconcur

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// relayer is one server in the middle of a group. All messages of the other servers reach it from
// its predecessors (or parents), round after round.
type relayer struct {
	engine *Engine
	from   []order.ServerID
	frames [][]byte
	kind   frameKind
}

func newRelayer(tb testing.TB, engine string, n int) *relayer {
	tb.Helper()
	g, err := digraph.GS(n, 3)
	if err != nil {
		tb.Fatal(err)
	}
	config := Config{Engine: engine, Servers: n, Reliable: g}
	if engine == EngineAllConcur {
		config.Detector = DetectorPerfect // otherwise a round waits for votes, too
	}
	e, err := New(config)
	if err != nil {
		tb.Fatal(err)
	}
	r := &relayer{engine: e, kind: kindReliable, frames: make([][]byte, n)}
	if engine == EngineAllConcurPlus {
		r.kind = kindUnreliable
	}
	for _, p := range g.Predecessors(0) {
		r.from = append(r.from, order.ServerID(p))
	}
	return r
}

// encode prepares the frames of the current round.
func (r *relayer) encode(payload []byte) {
	s := r.engine
	for p := 1; p < len(r.frames); p++ {
		r.frames[p] = encodeMessage(r.kind, 0, s.epoch, s.round, order.ServerID(p), payload)
	}
}

// relay gives the engine one message and takes its sends.
func (r *relayer) relay(tb testing.TB, p int) int {
	if err := r.engine.Receive(r.from[p%len(r.from)], r.frames[p]); err != nil {
		tb.Fatal(err)
	}
	return len(r.engine.Ready().Sends)
}

// round runs a whole round.
func (r *relayer) round(tb testing.TB, payload []byte) {
	r.encode(payload)
	for p := 1; p < len(r.frames); p++ {
		r.relay(tb, p)
	}
	if err := r.engine.Broadcast(payload); err != nil {
		tb.Fatal(err)
	}
	r.engine.Ready()
}

// TestRelayAllocatesNothing counts the allocations of a whole round of messages that are received,
// relayed and A-delivered.
func TestRelayAllocatesNothing(t *testing.T) {
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		r := newRelayer(t, engine, 64)
		payload := make([]byte, 64)
		for range 4 {
			r.round(t, payload)
		}
		const rounds = 8
		relayed := 0
		perRound := testing.AllocsPerRun(rounds, func() {
			r.encode(payload) // one allocation for each frame
			for p := 1; p < len(r.frames); p++ {
				relayed += r.relay(t, p)
			}
			if err := r.engine.Broadcast(payload); err != nil { // one for its own frame
				t.Fatal(err)
			}
			r.engine.Ready()
		})
		if own := float64(len(r.frames)); perRound != own {
			t.Errorf("%s: %.0f allocations a round of %d messages, want the %.0f of making the "+
				"frames", engine, perRound, len(r.frames), own)
		}
		if relayed == 0 {
			t.Errorf("%s: nothing was relayed", engine)
		}
	}
}

// BenchmarkRelay measures the cost of one message that is received, relayed and, with its round,
// A-delivered.
func BenchmarkRelay(b *testing.B) {
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{8, 64, 1024} {
			b.Run(fmt.Sprintf("%s/%d", engine, n), func(b *testing.B) {
				r := newRelayer(b, engine, n)
				payload := make([]byte, 64)
				for range 4 {
					r.round(b, payload)
				}
				b.ReportAllocs()
				b.ResetTimer()
				p := 0
				for range b.N {
					if p == 0 {
						b.StopTimer()
						r.encode(payload)
						b.StartTimer()
						p = 1
					}
					r.relay(b, p)
					if p++; p == len(r.frames) {
						p = 0
						b.StopTimer()
						if err := r.engine.Broadcast(payload); err != nil {
							b.Fatal(err)
						}
						r.engine.Ready()
						b.StartTimer()
					}
				}
			})
		}
	}
}

// BenchmarkNotifications measures the work of a server with all notifications of two failures.
func BenchmarkNotifications(b *testing.B) {
	for _, n := range []int{9, 64, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g, err := digraph.GS(n, 3)
			if err != nil {
				b.Fatal(err)
			}
			fresh, err := New(Config{Detector: DetectorPerfect, Engine: EngineAllConcur, Servers: n,
				Self: order.ServerID(n - 1), Reliable: g})
			if err != nil {
				b.Fatal(err)
			}
			from := order.ServerID(g.Predecessors(n - 1)[0])
			var frames [][]byte
			for target := range order.ServerID(2) {
				for _, owner := range g.Successors(int(target)) {
					frames = append(frames, encodeFailure(0, target, order.ServerID(owner), 0))
				}
			}
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				e := fresh.Clone()
				b.StartTimer()
				for _, frame := range frames {
					if err := e.Receive(from, frame); err != nil {
						b.Fatal(err)
					}
				}
				e.Ready()
			}
		})
	}
}
