package trains

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ledgerd/ledgerd/order"
)

// TestStories runs the traces in testdata/stories, which read as stories. After an intended change,
// rewrite them with -rewrite and read the difference.
//
//	ring servers=3 trains=1           a new ring under P, or under ◇P with eventual; with apart each
//	                                  wagon with a payload has a frame of its own
//	broadcast server=0 [payload=x]    A-broadcast
//	deliver from=0 to=1 [frames=2]    deliver the next frames of a channel, all without a number
//	go                                deliver all frames, A-broadcast empty messages when due
//	crash server=0                    at once; what it sent arrives
//	break server=0 frames=2           it crashes after so many more frames
//	suspect server=1 of=0             server 1's detector suspects server 0
//	status                            every server's state
//
// A train is shown with its wagons, each by origin, rotation and bytes: w2.1(5).
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var w *network
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "ring" {
				var err error
				config := Config{Servers: number(t, d, "servers", 3), Generation: 1,
					Trains: number(t, d, "trains", 1), Detector: DetectorPerfect}
				if d.HasArg("eventual") {
					config.Detector = DetectorEventual
				}
				if d.HasArg("apart") {
					config.WagonFrameMin = 1
				}
				w, err = newNetwork(config, seeded(1))
				if err != nil {
					return err.Error() + "\n"
				}
				w.trace = &strings.Builder{}
				w.start()
			} else {
				w.trace.Reset()
				w.tell(t, d)
			}
			if w.broken != nil {
				return w.broken.Error() + "\n"
			}
			if w.trace.Len() == 0 {
				return "nothing happens\n"
			}
			return w.trace.String()
		})
	})
}

func number(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	t.Helper()
	if d.HasArg(key) {
		d.ScanArgs(t, key, &otherwise)
	}
	return otherwise
}

// tell does what a line of a story says.
func (w *network) tell(t *testing.T, d *datadriven.TestData) {
	server := number(t, d, "server", 0)
	switch d.Cmd {
	case "broadcast":
		payload := ""
		if d.HasArg("payload") {
			d.ScanArgs(t, "payload", &payload)
			w.pools[server] = append(w.pools[server], payload)
		}
		w.broadcast(server)
	case "deliver":
		from, to := number(t, d, "from", 0), number(t, d, "to", 0)
		for range number(t, d, "frames", len(w.channels[from*w.n()+to])) {
			w.take(step{"frame", from, to})
		}
	case "go":
		for all := w.frames(); len(all) > 0 && w.broken == nil; all = w.frames() {
			w.take(all[0])
		}
	case "crash":
		w.crash(server)
	case "break":
		w.crashAfter[server] = number(t, d, "frames", 0)
	case "suspect":
		w.take(step{"suspect", server, number(t, d, "of", 0)})
	case "status":
		for p, engine := range w.engines {
			if s := engine.Status(); !w.crashed[p] {
				w.note("%d: round %d, members %v, awaits %v, A-delivered %d", p, s.Round, s.Members,
					s.Awaited, engine.Delivered())
				if w.config.Detector == DetectorEventual {
					w.note("   suspects %v, may A-broadcast: %t", s.Suspected,
						engine.CanBroadcast())
				}
			}
		}
	default:
		w.fail("there is no %q", d.Cmd)
	}
}

// frames lists what can happen without the detector.
func (w *network) frames() []step {
	var all []step
	for _, s := range w.possible() {
		if s.name != "suspect" {
			all = append(all, s)
		}
	}
	return all
}

// rotate lets a ring go round without a pause. say returns a server's next payload.
type rotator struct {
	engines []*Engine
	queue   [][]order.Send
	say     func(server int) []byte
	// bytes counts what was sent.
	bytes int
}

func newRotator(tb testing.TB, config Config, say func(server int) []byte) *rotator {
	tb.Helper()
	r := &rotator{say: say, queue: make([][]order.Send, config.Servers)}
	for p := range config.Servers {
		config.Self = order.ServerID(p)
		e, err := New(config)
		if err != nil {
			tb.Fatal(err)
		}
		r.engines = append(r.engines, e)
		r.queue[p] = make([]order.Send, 0, 2*TrainsMax)
	}
	r.take(config.Servers - 1)
	return r
}

// take puts what an engine sends into the queue of its successor.
func (r *rotator) take(p int) {
	to := (p + 1) % len(r.engines)
	for _, send := range r.engines[p].Ready().Sends {
		r.bytes += len(send.Frame)
		r.queue[to] = append(r.queue[to], send)
	}
}

// turn lets every server take one train, and returns how many did.
func (r *rotator) turn(tb testing.TB) (trains int) {
	for p := range r.engines {
		if len(r.queue[p]) > 0 {
			r.hop(tb, p)
			trains++
		}
	}
	return trains
}

// hop lets one server take a train and send it on.
func (r *rotator) hop(tb testing.TB, p int) {
	n := len(r.engines)
	for comes := kindWagon; comes == kindWagon; {
		frame := r.queue[p][0].Frame
		if comes = kindTrain; r.engines[p].config.Layout == LayoutHouse {
			comes = frameKind(frame[0])
		}
		r.queue[p] = r.queue[p][:copy(r.queue[p], r.queue[p][1:])]
		if err := r.engines[p].Receive(order.ServerID((p+n-1)%n), frame); err != nil {
			tb.Fatal(err)
		}
	}
	if err := r.engines[p].Broadcast(r.say(p)); err != nil {
		tb.Fatal(fmt.Errorf("server %d: %w", p, err))
	}
	r.take(p)
}
