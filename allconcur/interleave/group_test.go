package interleave

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// group drives a whole group in one goroutine: reliable FIFO channels, random interleaving, servers
// that crash in the middle of sending, detectors that err under ◇P. It judges every A-delivery.
type group struct {
	rng     *rand.Rand
	config  Config
	engines []*Engine
	history *order.RoundHistory
	// channels[from*n+to] are the frames under way.
	channels [][][]byte
	crashed  []bool
	// silenced[p*n+q] says that p takes nothing from q any more, which it removed.
	silenced []bool
	// suspects[p*n+q] says that p's detector suspects q.
	suspects []bool
	// sendsLeft is how many more frames a server sends before it crashes, -1 if it does not.
	sendsLeft []int
	// lies is how many false suspicions are left.
	lies int
	// said counts what each server A-broadcast, and order checks that it is A-delivered in order.
	said   []int
	heard  [][]int
	broken []*order.Violation
	rounds int
	// waited is the largest number of rounds of an engine that waited for their turn.
	waited int
	// loans are the frames that are lent to each server, nil if it may keep them.
	loans []loans
}

// loans are frames that came lately, and frames that are taken back once a round is A-delivered.
type loans struct {
	open, waiting [][]byte
	until         order.Round
}

// lend lends frames to the servers from now on, and the memory of their own messages.
func (g *group) lend() {
	g.loans = make([]loans, g.n())
	for p, e := range g.engines {
		e.UseMemory(func(size int) []byte { return g.lent(make([]byte, size), p) })
	}
}

// lent returns a copy of a frame that a server has to give back.
func (g *group) lent(frame []byte, p int) []byte {
	if g.loans == nil {
		return frame
	}
	frame = bytes.Clone(frame)
	g.loans[p].open = append(g.loans[p].open, frame)
	return frame
}

// takeBack overwrites the frames for which a server says that it has no further use.
func (g *group) takeBack(p int) {
	if g.loans == nil {
		return
	}
	l := &g.loans[p]
	if len(l.waiting) > 0 && g.engines[p].Delivered() < l.until {
		return
	}
	for _, frame := range l.waiting {
		for i := range frame {
			frame[i] = 0xdb
		}
	}
	l.waiting = nil
	if horizon := g.engines[p].Horizon(); horizon > 0 {
		l.open, l.waiting, l.until = nil, l.open, horizon
	}
}

// newGroup returns a group over complete digraphs.
func newGroup(tb testing.TB, seed uint64, config Config) *group {
	tb.Helper()
	n := config.Engine.Servers
	reliable, err := digraph.Complete(n)
	if err != nil {
		tb.Fatal(err)
	}
	config.Engine.Reliable = reliable
	g := &group{rng: rand.New(rand.NewPCG(seed, 7)), config: config,
		history: order.NewRoundHistory(n), channels: make([][][]byte, n*n),
		crashed: make([]bool, n), silenced: make([]bool, n*n), suspects: make([]bool, n*n),
		sendsLeft: slices.Repeat([]int{-1}, n), said: make([]int, n), heard: make([][]int, n)}
	for p := range n {
		config.Engine.Self = order.ServerID(p)
		engine, err := New(config)
		if err != nil {
			tb.Fatal(err)
		}
		g.engines = append(g.engines, engine)
		g.heard[p] = make([]int, n)
	}
	return g
}

func (g *group) n() int { return len(g.engines) }

// works reports whether a server has neither crashed nor halted.
func (g *group) works(p int) bool { return !g.crashed[p] && g.engines[p].Status().Halted == "" }

// crash stops a server. Its frames under way still arrive.
func (g *group) crash(p int) {
	g.crashed[p] = true
	g.history.Fail(order.ServerID(p))
}

// pump carries out an engine's output, up to the crash of its server.
func (g *group) pump(p int) {
	ready := g.engines[p].Ready()
	for _, send := range ready.Sends {
		for _, to := range send.To {
			if g.sendsLeft[p] == 0 {
				g.crash(p)
				return
			}
			if g.sendsLeft[p] > 0 {
				g.sendsLeft[p]--
			}
			c := &g.channels[p*g.n()+int(to)]
			*c = append(*c, bytes.Clone(send.Frame))
		}
	}
	for _, d := range ready.Deliveries {
		d.Messages = slices.Clone(d.Messages)
		for i := range d.Messages {
			d.Messages[i].Payload = bytes.Clone(d.Messages[i].Payload)
		}
		if v := g.history.Deliver(order.ServerID(p), d); v != nil {
			g.broken = append(g.broken, v)
		}
		for _, removed := range d.Removed {
			g.silenced[p*g.n()+int(removed)] = true
		}
		g.hear(p, d)
	}
	for _, rounds := range g.engines[p].waiting {
		g.waited = max(g.waited, len(rounds))
	}
	g.takeBack(p)
}

// hear checks that messages of a server come in the order of its A-broadcasts.
func (g *group) hear(p int, d order.Delivery) {
	for _, m := range d.Messages {
		var number int
		if _, err := fmt.Sscanf(string(m.Payload), "m%d", &number); err != nil {
			continue
		}
		if number <= g.heard[p][m.Origin] {
			g.broken = append(g.broken, &order.Violation{Property: "order of one server"})
		}
		g.heard[p][m.Origin] = number
	}
}

// say A-broadcasts if the server may: a payload, or an empty message if one is due.
func (g *group) say(p int, filled bool) bool {
	e := g.engines[p]
	switch {
	case !g.works(p) || !e.CanBroadcast():
		if e.Solicited() && !e.CanBroadcast() {
			g.broken = append(g.broken, &order.Violation{Property: "solicited though it cannot"})
		}
		return false
	case filled:
		g.said[p]++
		payload := fmt.Appendf(nil, "m%d of %d", g.said[p], p)
		g.history.Broadcast(order.ServerID(p), payload)
		g.must(e.Broadcast(payload))
	case e.Solicited() || e.Undelivered():
		g.must(e.Broadcast(nil))
	default:
		return false
	}
	g.pump(p)
	return true
}

// must records an error that an engine must not return.
func (g *group) must(err error) {
	if err != nil && !errors.Is(err, order.ErrHalted) {
		g.broken = append(g.broken, &order.Violation{Property: "contract",
			Evidence: []string{err.Error()}})
	}
}

// take lets a server take the first frame of a channel.
func (g *group) take(from, to int) {
	c := &g.channels[from*g.n()+to]
	frame := (*c)[0]
	*c = (*c)[1:]
	if !g.works(to) || g.silenced[to*g.n()+from] {
		return
	}
	before := frame
	frame = g.lent(bytes.Clone(frame), to)
	g.must(g.engines[to].Receive(order.ServerID(from), frame))
	if g.loans == nil && !bytes.Equal(before, frame) {
		g.broken = append(g.broken, &order.Violation{Property: "contract",
			Evidence: []string{"a frame changed"}})
	}
	g.pump(to)
}

// suspect makes a server's detector suspect another one, or trust it again.
func (g *group) suspect(p, q int, suspects bool) {
	if !g.works(p) || g.suspects[p*g.n()+q] == suspects {
		return
	}
	g.suspects[p*g.n()+q] = suspects
	if suspects {
		g.must(g.engines[p].Suspect(order.ServerID(q)))
	} else if !g.silenced[p*g.n()+q] {
		g.must(g.engines[p].Trust(order.ServerID(q)))
	}
	g.pump(p)
}

// step takes a random step.
func (g *group) step(talks bool) {
	p, q := g.rng.IntN(g.n()), g.rng.IntN(g.n())
	switch choice := g.rng.IntN(20); {
	case choice < 3:
		g.say(p, talks && g.rng.IntN(2) == 0)
	case p == q:
	case choice == 3 && g.lies > 0:
		g.lies--
		g.suspect(p, q, true)
	case choice == 4 && g.works(q) && g.suspects[p*g.n()+q]:
		g.suspect(p, q, false)
	case len(g.channels[p*g.n()+q]) > 0:
		g.take(p, q)
	case !g.works(p): // a detector suspects only after the last frame
		g.suspect(q, p, true)
	}
}

// rest lets everything that is under way arrive, and everything that is due be said.
func (g *group) rest(steps int) {
	for range steps {
		moved := false
		for p := range g.n() {
			for q := range g.n() {
				switch {
				case p == q:
				case len(g.channels[p*g.n()+q]) > 0:
					g.take(p, q)
					moved = true
				case g.works(q) && g.works(p) == g.suspects[q*g.n()+p]:
					g.suspect(q, p, !g.works(p))
					moved = true
				}
			}
			moved = g.say(p, false) || moved
		}
		if !moved {
			return
		}
	}
}

// run runs a random schedule and returns what it broke.
func (g *group) run(crashes, lies, steps int) []*order.Violation {
	g.lies = lies
	for _, p := range g.rng.Perm(g.n())[:crashes] {
		g.sendsLeft[p] = g.rng.IntN(30 * g.config.InFlight)
	}
	for range steps {
		if g.step(true); len(g.broken) > 0 {
			return g.broken
		}
	}
	g.rest(10_000)
	for p := range g.n() {
		g.rounds = max(g.rounds, g.history.Rounds(order.ServerID(p)))
	}
	if lies > 0 {
		return append(g.broken, g.history.Judge(order.UnderWay)...)
	}
	for p := range g.n() {
		if e := g.engines[p]; g.works(p) && (e.Undelivered() || e.Solicited()) {
			g.broken = append(g.broken, &order.Violation{Property: "progress",
				Evidence: []string{fmt.Sprintf("server %d: %+v", p, e.Status())}})
		}
	}
	return append(g.broken, g.history.Judge(order.AtRest)...)
}

// waitingMax is the number of rounds of an engine that wait for their turn at the most.
const waitingMax = 4

// world is a kind of group to run.
type world struct {
	config        Config
	crashes, lies int
	lends         bool
}

// caught runs random schedules and returns the first violation, with its seed.
func (w world) caught(t *testing.T, seeds int) (violation *order.Violation, seed uint64) {
	t.Helper()
	for seed := range uint64(seeds) {
		g := newGroup(t, seed, w.config)
		if w.lends {
			g.lend()
		}
		if broken := g.run(w.crashes, w.lies, 150*g.n()); len(broken) > 0 {
			return broken[0], seed
		}
		if w.crashes+w.lies == 0 && g.rounds < 2 || g.waited > waitingMax {
			t.Fatalf("seed %d: %d rounds were A-delivered, of one engine %d waited", seed, g.rounds,
				g.waited)
		}
	}
	return nil, 0
}

// seeds returns how many schedules to run.
func seeds(many int) int {
	if testing.Short() {
		return max(2, many/10)
	}
	return many
}

// TestRandomSchedules judges random schedules of groups of all kinds.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{allconcur.EngineAllConcur, allconcur.EngineAllConcurPlus} {
		for _, detector := range []allconcur.Detector{allconcur.DetectorEventual,
			allconcur.DetectorPerfect} {
			for n := 1; n <= 5; n++ {
				for _, k := range []int{1, 2, 3, 8} {
					t.Run(fmt.Sprintf("%s/%v/%d/%d", engine, detector, n, k), func(t *testing.T) {
						t.Parallel()
						config := Config{InFlight: k, Engine: allconcur.Config{Engine: engine,
							Servers: n, Detector: detector, Generation: 3, FirstRound: 5}}
						worlds := []world{{config: config}, {config: config, lends: true}}
						if n > 2 {
							worlds = append(worlds, world{config: config, crashes: (n - 1) / 2},
								world{config: config, crashes: 1, lends: true})
						}
						if n > 2 && detector == allconcur.DetectorEventual {
							worlds = append(worlds, world{config: config, lies: 3},
								world{config: config, lies: 2, crashes: 1})
						}
						for _, w := range worlds {
							if v, seed := w.caught(t, seeds(12)); v != nil {
								t.Fatalf("%d crashes, %d lies, seed %d: %v", w.crashes, w.lies,
									seed, v)
							}
						}
					})
				}
			}
		}
	}
}
