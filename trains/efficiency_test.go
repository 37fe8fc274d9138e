package trains

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestThroughputEfficiency counts bytes over a ring of five servers with full wagons. The share of
// them that are messages is POTE of [TRAINS, Table II]: exactly so in the paper's layout, and
// within a hundredth of it in the house's.
func TestThroughputEfficiency(t *testing.T) {
	t.Parallel()
	const servers, optimal = 5, 1014 // bytes of messages in a wagon of a train of 4 KiB
	for _, c := range []struct {
		size      int
		published float64
	}{{10, 66.0}, {100, 94.3}, {1000, 98.6}, {10000, 99.9}} {
		for layout := range layoutEnd {
			t.Run(fmt.Sprintf("%d bytes, %v", c.size, layout), func(t *testing.T) {
				t.Parallel()
				// A wagon has a whole number of messages, on average as many as the paper's.
				each := math.Max(1, float64(optimal)/float64(messageHeaderSize+c.size))
				said, message := make([]int, servers), make([]byte, c.size)
				messages := 0
				say := func(server int) []byte {
					payload := []byte(nil)
					said[server]++
					number := int(each*float64(said[server])) - int(each*float64(said[server]-1))
					for range number {
						payload = AppendMessage(payload, 1, message)
					}
					messages += number
					return payload
				}
				r := newRotator(t, Config{Servers: servers, Trains: 10, TrainSize: 4 << 10,
					Layout: layout}, say)
				trains := 0
				for trains < 200 {
					trains += r.turn(t) // until every train has all its wagons
				}
				r.bytes, messages = 0, 0
				for trains < 40_000 {
					trains += r.turn(t)
				}
				got := 100 * float64((servers-1)*messages*c.size) / float64(r.bytes)
				u := each
				n, s := float64(servers), float64(c.size)
				exact := 100 * (n - 1) * u * s / (10 + (n-1)*(7+u*(5+s)))
				allowed := 0.1
				if layout == LayoutHouse {
					allowed = 1
				}
				if math.Abs(got-exact) > exact*allowed/100 {
					t.Errorf("POTE is %.2f %%, want %.2f %%", got, exact)
				}
				if layout == LayoutPaper && math.Abs(got-c.published) > 0.1 {
					t.Errorf("POTE is %.2f %%, published are %.1f %%", got, c.published)
				}
			})
		}
	}
}

// TestLatency counts the hops from an A-broadcast to the last A-delivery where a train is at hand:
// n-i-1+2n for the server at place i, (5n-1)/2 on average [TRAINS, Table III, appendix C].
func TestLatency(t *testing.T) {
	t.Parallel()
	for n, published := range map[int]float64{2: 4.5, 4: 9.5, 6: 14.5, 8: 19.5} {
		sum := 0
		for place := range n {
			r := newRotator(t, Config{Servers: n, Trains: 1}, func(int) []byte { return nil })
			for p := range place + 1 {
				r.hop(t, p) // up to the wagon of that server
			}
			hops := 0
			for at := (place + 1) % n; r.engines[n-1].Delivered() < 1; at = (at + 1) % n {
				r.hop(t, at)
				hops++
			}
			sum += hops
			if want := n - place - 1 + 2*n; hops != want {
				t.Errorf("%d servers, place %d: %d hops, want %d", n, place, hops, want)
			}
		}
		if got := float64(sum) / float64(n); got != published {
			t.Errorf("%d servers: %v hops, published are %v", n, got, published)
		}
	}
}

// TestNoAllocation lets a full ring go round with memory of the driver's: passing a train on, with
// all its wagons, allocates nothing, whether they have frames of their own or not.
func TestNoAllocation(t *testing.T) {
	for _, apart := range []int{0, 1} {
		payload := make([]byte, 500)
		r := newRotator(t, Config{Servers: 5, Trains: 4, WagonFrameMin: apart},
			func(int) []byte { return payload })
		buffers, next := make([][]byte, 512), 0
		for i := range buffers {
			buffers[i] = make([]byte, 4<<10)
		}
		for _, e := range r.engines {
			e.UseMemory(func(size int) []byte {
				next = (next + 1) % len(buffers)
				return buffers[next][:size]
			})
		}
		for range 200 {
			r.turn(t)
		}
		if allocations := testing.AllocsPerRun(200, func() { r.turn(t) }); allocations != 0 {
			t.Errorf("%v allocations a turn, apart: %d", allocations, apart)
		}
	}
}

// TestWagonsApart: a train whose wagons have frames of their own is taken only if just those came
// before it on its lane. So a gap in the lane takes no wagon away from a train.
func TestWagonsApart(t *testing.T) {
	t.Parallel()
	wagon := func(origin order.ServerID, round order.Round, payload string) []byte {
		return appendWagonFrame(nil, 0, origin, round, []byte(payload))
	}
	train := func(payloads ...string) []byte {
		frame := appendTrain(nil, LayoutHouse, 0, 0, 9, 1)
		for i, payload := range payloads {
			frame = appendWagon(frame, LayoutHouse, order.ServerID(1+i), 1, 0, []byte(payload),
				true)
		}
		return frame
	}
	large := strings.Repeat("x", 11)
	for name, c := range map[string]struct {
		frames  [][]byte
		refused bool
	}{
		"as listed": {[][]byte{wagon(1, 1, "a"), wagon(2, 1, "bc"), train("a", "bc")},
			false},
		"none came":         {[][]byte{train("a")}, true},
		"one is missing":    {[][]byte{wagon(2, 1, "bc"), train("a", "bc")}, true},
		"the last missing":  {[][]byte{wagon(1, 1, "a"), train("a", "bc")}, true},
		"one more":          {[][]byte{wagon(1, 1, "a"), wagon(2, 1, "bc"), train("a")}, true},
		"of another round":  {[][]byte{wagon(1, 2, "a"), train("a")}, true},
		"of another origin": {[][]byte{wagon(2, 1, "a"), train("a")}, true},
		"of another length": {[][]byte{wagon(1, 1, "abc"), train("a")}, true},
		"in another order": {[][]byte{wagon(2, 1, "bc"), wagon(1, 1, "a"), train("a", "bc")},
			true},
		"of an unknown one": {[][]byte{wagon(3, 1, "a")}, true},
		"too large":         {[][]byte{wagon(1, 1, large)}, true},
		"too many": {[][]byte{wagon(1, 1, "a"), wagon(1, 1, "a"), wagon(1, 1, "a"),
			wagon(1, 1, "a")}, true},
		"of another generation": {[][]byte{appendWagonFrame(nil, 1, 1, 1, []byte("a")),
			train("a")}, true},
	} {
		e, broken := New(Config{Servers: 3, Trains: 1, MaxPayload: 10})
		if broken != nil {
			t.Fatal(broken)
		}
		for i, frame := range c.frames {
			err, want := e.Receive(2, frame), error(nil)
			if c.refused && i == len(c.frames)-1 {
				want = order.ErrFrame
			}
			if !errors.Is(err, want) {
				t.Errorf("%s: frame %d: %v, want %v", name, i, err, want)
			}
		}
		if !c.refused && !e.CanBroadcast() {
			t.Errorf("%s: the train did not come", name)
		}
	}
}

// TestHorizonOfWagons: memory of wagons whose train is still to come is in use until the train's
// round is A-delivered.
func TestHorizonOfWagons(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Servers: 3, Trains: 1, Detector: DetectorPerfect})
	if err != nil {
		t.Fatal(err)
	}
	wagon := appendWagonFrame(nil, 0, 1, 1, []byte("a"))
	for _, c := range []struct {
		from order.ServerID
		want order.Round
	}{{2, 1}, {1, 0}} {
		if err := e.Receive(c.from, wagon); err != nil {
			t.Fatal(err)
		}
		if horizon := e.Horizon(); horizon != c.want {
			t.Errorf("a wagon from %d: the horizon is %d, want %d", c.from, horizon, c.want)
		}
	}
	if err := e.Suspect(1); err != nil {
		t.Fatal(err)
	}
	if horizon := e.Horizon(); horizon != 1 {
		t.Errorf("after its failure the horizon is %d, want 1", horizon)
	}
}

// TestFlowControl loads wagons as flow control says. A busy server gets what sober ones leave, and
// trains keep to their size.
func TestFlowControl(t *testing.T) {
	t.Parallel()
	const servers, target = 5, 4 << 10
	for busy := 1; busy <= servers; busy++ {
		var r *rotator
		largest := 0
		r = newRotator(t, Config{Servers: servers, Trains: 3, TrainSize: target},
			func(server int) []byte {
				if server < busy {
					return make([]byte, r.engines[server].BatchMax())
				}
				return make([]byte, 100)
			})
		for range 300 {
			r.turn(t)
		}
		before := r.bytes
		trains := 0
		for range 300 {
			trains += r.turn(t)
		}
		largest = (r.bytes - before) / trains
		if largest > target+houseTrainSize+servers*wagonHeaderSize || largest < target*6/10 {
			t.Errorf("%d busy servers: trains of %d bytes, want about %d", busy, largest, target)
		}
	}
}

// BenchmarkPass measures what one hop of a train with the wagons of four other servers costs.
func BenchmarkPass(b *testing.B) {
	payload := make([]byte, 1000)
	r := newRotator(b, Config{Servers: 5, Trains: 4}, func(int) []byte { return payload })
	for range 200 {
		r.turn(b)
	}
	before, hops := r.bytes, 0
	b.ResetTimer()
	for hops < b.N {
		hops += r.turn(b)
	}
	b.SetBytes(int64((r.bytes - before) / hops))
}
