package trains

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ledgerd/ledgerd/order"
)

// network drives a whole ring in one goroutine: reliable FIFO channels between all servers and an
// interleaving that choose determines. Servers crash at any step, also in the middle of their
// sends. The perfect failure detector suspects a crashed server only when everything that it sent
// to the server that suspects it has arrived.
type network struct {
	choose  func(n int) int
	config  Config
	engines []*Engine
	// channels[from*n+to] are the frames under way.
	channels [][][]byte
	crashed  []bool
	// suspected[p*n+q] says that p's detector suspects q.
	suspected []bool
	// crashAfter is how many more frames a server sends before it crashes, -1 if it does not.
	crashAfter []int
	// pools are the payloads that each server has yet to A-broadcast.
	pools   [][]string
	history *order.RoundHistory
	rounds  [][]order.Delivery
	// losesTail makes a crash also lose the last frames of each of the server's channels.
	losesTail bool
	// errless keeps the detector from erring under ◇P.
	errless bool
	// steps counts, and stepsMax bounds, what happens.
	steps int
	// enough is the number of steps after which a run stops, 0 for none.
	enough int
	broken error
	trace  *strings.Builder
}

// stepsMax bounds the steps of a run. None of the runs here comes near.
const stepsMax = 40_000

// seeded returns choices that follow from a seed.
func seeded(seed uint64) func(n int) int {
	random := rand.New(rand.NewPCG(seed, 1))
	return random.IntN
}

// newMixedNetwork returns a ring in which some servers give each wagon with a payload a frame of
// its own, and the others none.
func newMixedNetwork(config Config, choose func(n int) int) (*network, error) {
	w, err := newNetwork(config, choose)
	if err != nil {
		return nil, err
	}
	for p := range w.n() {
		config.Self, config.WagonFrameMin = order.ServerID(p), choose(2)
		if w.engines[p], err = New(config); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func newNetwork(config Config, choose func(n int) int) (*network, error) {
	n := config.Servers
	w := &network{
		choose: choose, config: config, engines: make([]*Engine, n),
		channels: make([][][]byte, n*n), crashed: make([]bool, n), suspected: make([]bool, n*n),
		crashAfter: make([]int, n), pools: make([][]string, n), rounds: make([][]order.Delivery, n),
		history: order.NewRoundHistory(n),
	}
	for p := range n {
		config.Self = order.ServerID(p)
		engine, err := New(config)
		if err != nil {
			return nil, err
		}
		w.engines[p], w.crashAfter[p] = engine, -1
	}
	return w, nil
}

func (w *network) n() int { return len(w.engines) }

func (w *network) note(format string, arguments ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, format+"\n", arguments...)
	}
}

func (w *network) fail(format string, arguments ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, arguments...)
	}
}

// submit gives a server payloads to A-broadcast.
func (w *network) submit(p, payloads int) {
	for range payloads {
		w.pools[p] = append(w.pools[p], fmt.Sprintf("%d.%d", p, len(w.pools[p])+1))
	}
}

// pump carries out what an engine wants.
func (w *network) pump(p int) {
	if w.crashed[p] {
		return
	}
	ready := w.engines[p].Ready()
	for _, send := range ready.Sends {
		for _, to := range send.To {
			if w.crashAfter[p] == 0 {
				w.crash(p)
				return
			}
			if w.crashAfter[p] > 0 {
				w.crashAfter[p]--
			}
			w.note("%d sends %s to %d", p, Describe(send.Frame), to)
			at := p*w.n() + int(to)
			w.channels[at] = append(w.channels[at], send.Frame)
		}
	}
	for _, d := range ready.Deliveries {
		w.note("%d A-delivers %s", p, describeDelivery(d))
		for _, removed := range d.Removed {
			if !w.crashed[removed] {
				w.fail("%d removes %d, which works", p, removed)
			}
		}
		if v := w.history.Deliver(order.ServerID(p), d); v != nil {
			w.fail("%w", v)
		}
		d.Messages = append([]order.Message(nil), d.Messages...)
		w.rounds[p] = append(w.rounds[p], d)
	}
	if reason := w.engines[p].Status().Halted; reason != "" {
		w.fail("%d halts: %s", p, reason)
	}
}

func describeDelivery(d order.Delivery) string {
	text := fmt.Sprintf("[%d,%d]", d.Epoch, d.Round)
	for _, m := range d.Messages {
		if len(m.Payload) > 0 {
			text += fmt.Sprintf(" %d:%s", m.Origin, m.Payload)
		}
	}
	if len(d.Removed) > 0 {
		text += fmt.Sprintf(" removes %v", d.Removed)
	}
	return text
}

// crash stops a server.
func (w *network) crash(p int) {
	if w.crashed[p] {
		return
	}
	w.note("%d crashes", p)
	w.crashed[p] = true
	w.history.Fail(order.ServerID(p))
	if !w.losesTail {
		return
	}
	for to := range w.n() {
		at := p*w.n() + to
		w.channels[at] = w.channels[at][:w.choose(len(w.channels[at])+1)]
	}
}

// step is one thing that can happen.
type step struct {
	name     string
	from, to int
}

// steps lists what can happen now.
func (w *network) possible() []step {
	var all []step
	for from := range w.n() {
		for to := range w.n() {
			at := from*w.n() + to
			if len(w.channels[at]) > 0 {
				all = append(all, step{"frame", from, to})
			} else if w.crashed[from] && !w.crashed[to] && !w.suspected[to*w.n()+from] {
				all = append(all, step{"suspect", to, from})
			}
		}
	}
	for p, engine := range w.engines {
		if !w.crashed[p] && engine.CanBroadcast() && (len(w.pools[p]) > 0 || engine.Solicited()) {
			all = append(all, step{"broadcast", p, p})
		}
	}
	return all
}

// take takes one step.
func (w *network) take(s step) {
	if w.steps++; w.steps > stepsMax {
		w.fail("there is no rest after %d steps", stepsMax)
		return
	}
	switch s.name {
	case "frame":
		at := s.from*w.n() + s.to
		frame := w.channels[at][0]
		w.channels[at] = w.channels[at][1:]
		if w.crashed[s.to] {
			return
		}
		w.note("%d receives %s from %d", s.to, Describe(frame), s.from)
		if err := w.engines[s.to].Receive(order.ServerID(s.from), frame); err != nil {
			w.fail("%d refuses a frame of %d: %w", s.to, s.from, err)
		}
		w.pump(s.to)
	case "suspect":
		w.note("%d suspects %d", s.from, s.to)
		w.suspected[s.from*w.n()+s.to] = true
		if err := w.engines[s.from].Suspect(order.ServerID(s.to)); err != nil {
			w.fail("%d refuses to suspect %d: %w", s.from, s.to, err)
		}
		w.pump(s.from)
	case "broadcast":
		w.broadcast(s.from)
	}
}

// broadcast A-broadcasts a server's next payload or, if it has none, an empty message.
func (w *network) broadcast(p int) {
	payload := []byte(nil)
	if len(w.pools[p]) > 0 {
		payload, w.pools[p] = []byte(w.pools[p][0]), w.pools[p][1:]
	}
	w.note("%d A-broadcasts %q", p, payload)
	w.history.Broadcast(order.ServerID(p), payload)
	if err := w.engines[p].Broadcast(payload); err != nil {
		w.fail("%d refuses a payload: %w", p, err)
	}
	w.pump(p)
}

// start carries out what the engines want before any input.
func (w *network) start() {
	for p := range w.n() {
		w.pump(p)
	}
}

// run takes steps until nothing can happen, with some crashes on the way, and judges.
func (w *network) run(crashes int) error {
	if err := w.play(crashes); err != nil {
		return err
	}
	return w.judge()
}

// play takes steps until nothing can happen, or until there were enough of them.
func (w *network) play(crashes int) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	w.start()
	for w.broken == nil && (w.enough == 0 || w.steps < w.enough) {
		if crashes > 0 && w.choose(12) == 0 {
			crashes--
			if p := w.choose(w.n()); w.choose(2) == 0 {
				w.crash(p)
			} else {
				w.crashAfter[p] = w.choose(4)
			}
			continue
		}
		if w.config.Detector == DetectorEventual && !w.errless && w.choose(9) == 0 {
			w.err()
		}
		all := w.possible()
		if len(all) == 0 {
			break
		}
		w.take(all[w.choose(len(all))])
	}
	return w.broken
}

// err makes a detector err, or correct itself.
func (w *network) err() {
	observer, other := w.choose(w.n()), order.ServerID(w.choose(w.n()))
	if observer == int(other) {
		return
	}
	opinion := w.engines[observer].Suspect
	if w.choose(2) == 0 {
		opinion = w.engines[observer].Trust
	}
	if err := opinion(other); err != nil {
		w.fail("%d refuses an opinion of %d: %w", observer, other, err)
	}
	w.pump(observer)
}

// judge judges a group at rest.
func (w *network) judge() error {
	if w.broken != nil {
		return w.broken
	}
	for _, v := range w.history.Judge(order.AtRest) {
		return v
	}
	for p, engine := range w.engines {
		if !w.crashed[p] && (engine.Undelivered() || len(w.pools[p]) > 0) {
			return fmt.Errorf("%d rests with work left: %+v", p, engine.Status())
		}
		if !w.crashed[p] && len(w.rounds[p]) > 0 && w.config.Detector == DetectorPerfect {
			for _, q := range engine.Status().Members {
				if w.crashed[q] {
					return fmt.Errorf("%d rests with the crashed %d as a member", p, q)
				}
			}
		}
	}
	return nil
}

// schedule is a family of random runs.
type schedule struct {
	config    Config
	payloads  int
	crashes   int
	losesTail bool
}

// run runs one of them.
func (s schedule) run(choose func(n int) int, trace *strings.Builder) error {
	w, err := newMixedNetwork(s.config, choose)
	if err != nil {
		return err
	}
	w.trace, w.losesTail = trace, s.losesTail
	if s.losesTail {
		w.history.NonUniform()
	}
	for p := range w.n() {
		w.submit(p, w.choose(s.payloads+1))
	}
	return w.run(w.choose(s.crashes + 1))
}

// errSeeds says which seed failed first.
type errSeeds struct {
	seed  uint64
	cause error
}

func (e *errSeeds) Error() string { return fmt.Sprintf("seed %d: %v", e.seed, e.cause) }

// seeds runs a number of seeds and returns the error of the first that fails.
func (s schedule) seeds(first uint64, count int) error {
	for seed := first; seed < first+uint64(count); seed++ {
		if err := s.run(seeded(seed), nil); err != nil {
			return &errSeeds{seed, err}
		}
	}
	return nil
}

// explain returns the end of the trace of the seed that failed.
func (s schedule) explain(err error) string {
	var failed *errSeeds
	if !errors.As(err, &failed) {
		return ""
	}
	trace := &strings.Builder{}
	_ = s.run(seeded(failed.seed), trace)
	lines := strings.Split(trace.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-150):], "\n")
}
