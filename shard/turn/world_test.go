package turn_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// world is a group of servers, each with a gate, a machine and an engine, over lanes that break.
type world struct {
	t       testing.TB
	config  allconcur.Config
	fault   turn.Fault
	run     uint64
	servers []*server
	lanes   [][][][]byte // frames under way, by sender and receiver
	history *order.RoundHistory
	broken  []*order.Violation
	trace   strings.Builder
}

// server is one server of a world. A crashed server takes no more turns. crashing says that it
// crashes with its next delivery.
type server struct {
	gate     *turn.Gate
	machine  *turn.Machine
	pool     [][]byte
	lingers  bool
	crashing bool
	crashed  bool
	// incarnations are those of the frames that a server receives, by sender.
	incarnations []turn.Incarnation
}

func newWorld(t testing.TB, config allconcur.Config, fault turn.Fault, held int) *world {
	t.Helper()
	var err error
	if config.Reliable, err = digraph.Complete(config.Servers); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, config: config, fault: fault, history: order.NewRoundHistory(config.Servers)}
	for range config.Servers {
		s := &server{gate: turn.NewGate(turn.GateConfig{
			Frames: math.MaxInt, Bytes: math.MaxInt, Held: held, Fault: fault,
		})}
		senders := make([]*turn.Sender, config.Servers)
		for i := range senders {
			senders[i] = turn.NewSender()
			s.incarnations = append(s.incarnations, 1)
		}
		s.gate.SetSenders(senders)
		w.servers = append(w.servers, s)
		w.lanes = append(w.lanes, make([][][]byte, config.Servers))
	}
	for id := range w.servers {
		w.activate(order.ServerID(id), 1)
	}
	return w
}

// activate begins a run at one server.
func (w *world) activate(id order.ServerID, run uint64) {
	w.t.Helper()
	config := w.config
	config.Self, config.Generation = id, run
	engine, err := allconcur.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	members := make([]order.ServerID, config.Servers)
	for i := range members {
		members[i] = order.ServerID(i)
	}
	w.run = run
	s := w.servers[id]
	s.machine = turn.New(turn.Config{
		Engine: engine, Self: id, Servers: len(members), Fault: w.fault,
	})
	s.gate.Activate(run, members)
}

func (w *world) say(format string, arguments ...any) {
	fmt.Fprintf(&w.trace, format+"\n", arguments...)
}

// turn makes a server take one turn, and reports whether anything happened.
func (w *world) turn(id order.ServerID) bool {
	s := w.servers[id]
	if s.crashed || s.machine.Over() {
		return false
	}
	s.machine.Step(s.gate.Take(nil))
	w.broadcast(id)
	for do := s.machine.Next(); do.Kind != turn.Done && !s.crashed; do = s.machine.Next() {
		w.carryOut(id, do)
	}
	if reason := s.machine.Halted(); reason != "" {
		w.say("%d halts: %s", id, reason)
	}
	return s.machine.Again()
}

func (w *world) broadcast(id order.ServerID) {
	s := w.servers[id]
	if !s.machine.MayBroadcast() {
		return
	}
	var payload []byte
	if len(s.pool) > 0 {
		payload = s.pool[0]
	}
	if !s.machine.Broadcast(payload) {
		return
	}
	w.history.Broadcast(id, payload)
	if payload == nil {
		w.say("%d A-broadcasts an empty message", id)
		return
	}
	s.pool = s.pool[1:]
	w.say("%d A-broadcasts %q", id, payload)
}

func (w *world) carryOut(id order.ServerID, do *turn.Action) {
	s := w.servers[id]
	switch do.Kind {
	case turn.Send:
		for _, send := range do.Sends {
			w.say("%d sends %s to %v", id, allconcur.Describe(send.Frame), send.To)
			for _, to := range send.To {
				if !s.machine.Lost(to) {
					w.lanes[id][to] = append(w.lanes[id][to], send.Frame)
				}
			}
		}
	case turn.Deliver:
		for _, d := range do.Deliveries {
			w.say("%d A-delivers %s", id, describe(d))
			if v := w.history.Deliver(id, d); v != nil {
				w.broken = append(w.broken, v)
			}
		}
		if s.crashing {
			w.crash(id)
		}
	case turn.Linger:
		s.lingers = true
		w.say("%d lingers", id)
	case turn.Removed:
		for _, server := range do.Deliveries[0].Removed {
			s.gate.Silence(server)
		}
		w.say("%d sees %v removed", id, do.Deliveries[0].Removed)
	case turn.Silenced:
		s.gate.Silence(do.Server)
		w.say("%d takes nothing more from %d: %v", id, do.Server, do.Cause)
	case turn.Lost:
		w.say("%d sends nothing more to %d: %v", id, do.Server, do.Cause)
	case turn.Suspected:
		w.say("%d suspects %d: %v", id, do.Server, do.Cause)
	case turn.Trusted:
		w.say("%d trusts %d again", id, do.Server)
	}
}

func describe(d order.Delivery) string {
	var text bytes.Buffer
	fmt.Fprintf(&text, "[%d,%d]", d.Epoch, d.Round)
	for _, m := range d.Messages {
		fmt.Fprintf(&text, " %d=%q", m.Origin, m.Payload)
	}
	if len(d.Removed) > 0 {
		fmt.Fprintf(&text, " removed %v", d.Removed)
	}
	return text.String()
}

// crash ends a server. Frames that it put on its lanes arrive.
func (w *world) crash(id order.ServerID) {
	if !w.servers[id].crashed {
		w.servers[id].crashed = true
		w.history.Fail(id)
		w.say("%d crashes", id)
	}
}

// deliver gives the first frames of a lane to the receiver's gate, until a frame has to wait.
func (w *world) deliver(from, to order.ServerID, frames int) {
	for ; frames > 0 && len(w.lanes[from][to]) > 0; frames-- {
		frame := w.lanes[from][to][0]
		verdict := w.admit(from, to, frame)
		if verdict != "taken" {
			w.say("%s from %d at %d: %s", allconcur.Describe(frame), from, to, verdict)
		}
		if verdict == "waits" {
			return
		}
		w.lanes[from][to] = w.lanes[from][to][1:]
	}
}

// admit gives a frame to a gate, as a driver does.
func (w *world) admit(from, to order.ServerID, frame []byte) string {
	s := w.servers[to]
	sender := s.gate.Sender(from)
	run, err := allconcur.FrameGeneration(frame)
	if err != nil {
		if s.gate.Malformed(sender, err) {
			return "malformed"
		}
		return "malformed again"
	}
	if s.gate.Full(sender, run) {
		return "waits"
	}
	verdict := s.gate.Admit(sender, s.incarnations[from], run, frame)
	return [...]string{"dropped", "taken", "held", "refused"}[verdict]
}

// cut breaks the connection of two servers: frames under way are lost, and lanes and detectors at
// both ends notice.
func (w *world) cut(a, b order.ServerID) {
	for _, pair := range [][2]order.ServerID{{a, b}, {b, a}} {
		w.lanes[pair[0]][pair[1]] = nil
		w.servers[pair[0]].machine.Break(pair[1], errCut)
		w.servers[pair[0]].gate.Suspect(w.run, pair[1], errCut)
	}
}

var errCut = fmt.Errorf("the connection broke")

// flow takes turns and delivers until nothing moves, with lingers if asked for. It reports whether
// the group came to rest.
func (w *world) flow(linger bool) bool {
	for range 10_000 {
		moved := false
		for id, s := range w.servers {
			if linger && s.lingers {
				s.lingers = false
				s.machine.LingerOver()
			}
			moved = w.turn(order.ServerID(id)) || moved
		}
		for from := range w.lanes {
			for to, lane := range w.lanes[from] {
				moved = moved || len(lane) > 0
				w.deliver(order.ServerID(from), order.ServerID(to), len(lane))
			}
		}
		if !moved && !(linger && w.lingers()) {
			return true
		}
	}
	return false
}

func (w *world) lingers() bool {
	for _, s := range w.servers {
		if s.lingers && !s.crashed {
			return true
		}
	}
	return false
}

// TestRandomTurns runs hostile schedules and catches planted bugs: connections break, detectors err
// and change their minds, inputs gather between turns, a server crashes during a turn. Then all
// servers come to rest.
func TestRandomTurns(t *testing.T) {
	t.Parallel()
	seeds := uint64(500)
	if testing.Short() {
		seeds = 200
	}
	for seed := range seeds {
		if broken := randomTurns(t, seed, turn.FaultNone); broken != "" {
			t.Fatalf("seed %d: %s", seed, broken)
		}
	}
	for _, fault := range []turn.Fault{
		turn.FaultDeliverFirst, turn.FaultOpinionsFirst, turn.FaultSilencedTrusted,
	} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(5000) {
				if broken := randomTurns(t, seed, fault); broken != "" {
					t.Logf("caught by seed %d: %s", seed, broken)
					return
				}
			}
			t.Error("not caught")
		})
	}
}

// randomTurns runs one schedule and returns what it broke.
func randomTurns(t testing.TB, seed uint64, fault turn.Fault) string {
	random := rand.New(rand.NewPCG(seed, 1))
	n := 3 + random.IntN(3)
	config := allconcur.Config{
		Servers: n, Engine: allconcur.EngineAllConcurPlus, Detector: allconcur.DetectorEventual,
	}
	// Under P there are crashes, and suspicions that come after a crashed server's last frame.
	perfect := random.IntN(2) == 0
	if perfect {
		config.Detector = allconcur.DetectorPerfect
		if random.IntN(2) == 0 {
			config.Engine = allconcur.EngineAllConcur
		}
	}
	w := newWorld(t, config, fault, math.MaxInt)
	pick := func() order.ServerID { return order.ServerID(random.IntN(n)) }
	// Under ◇P one server errs about another, and their connection may break. More than that would
	// require a new generation.
	victim, judge, cuts := pick(), pick(), 0
	for step := range 60 * n {
		a, b := pick(), pick()
		switch random.IntN(12) {
		case 0:
			w.servers[a].pool = append(w.servers[a].pool, fmt.Appendf(nil, "%d.%d", a, step))
		case 1:
			if perfect && step > 20*n {
				w.servers[victim].crashing = true
			}
		case 2, 3:
			switch {
			case perfect || judge == victim:
			case random.IntN(2) == 0:
				w.servers[judge].gate.Suspect(w.run, victim, errCut)
			default:
				w.servers[judge].gate.Trust(w.run, victim)
			}
		case 4:
			if !perfect && judge != victim && cuts == 0 && random.IntN(6) == 0 {
				cuts++
				w.cut(judge, victim)
			}
		case 5, 6, 7:
			w.turn(a)
		default:
			if lane := w.lanes[a][b]; len(lane) > 0 {
				w.deliver(a, b, 1+random.IntN(len(lane)))
			}
		}
		w.noticeCrash(victim)
	}
	return w.rest(victim)
}

// noticeCrash makes the successors of a crashed server suspect it, once they have its last frame.
func (w *world) noticeCrash(victim order.ServerID) {
	if !w.servers[victim].crashed {
		return
	}
	for id, s := range w.servers {
		if len(w.lanes[victim][id]) == 0 {
			s.gate.Suspect(w.run, victim, errCut)
		}
	}
}

// rest ends the faults and judges. The detectors hear all servers again, including those whose
// connection broke.
func (w *world) rest(victim order.ServerID) string {
	for a := range w.servers {
		for b := range w.servers {
			if order.ServerID(b) != victim || !w.servers[victim].crashed {
				w.servers[a].gate.Trust(w.run, order.ServerID(b))
			}
		}
	}
	for id, s := range w.servers {
		s.pool = append(s.pool, fmt.Appendf(nil, "last of %d", id))
	}
	for range 3 {
		if !w.flow(true) {
			return "there is no rest"
		}
		w.noticeCrash(victim)
	}
	if !w.flow(true) {
		return "there is no rest"
	}
	for id, s := range w.servers {
		if reason := s.machine.Halted(); reason != "" {
			return fmt.Sprintf("server %d halts: %s", id, reason)
		}
	}
	if len(w.broken) == 0 {
		w.broken = w.history.Judge(order.AtRest)
	}
	if len(w.broken) > 0 {
		return w.broken[0].Error()
	}
	return ""
}
