package allconcur

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

var searchFlag = flag.Int("allconcur.states", statesDefault,
	"the most states that TestExhaustiveSearch looks at for a group of up to three, and a tenth "+
		"of that for larger searches")

// search explores every interleaving of a small group with at most one crash, at any step and in
// the middle of any send. It does not explore a state twice.
type search struct {
	seen map[[16]byte]struct{}
	// limit bounds the number of states.
	limit int
	ends  int
	// payloads is how many non-empty messages each server A-broadcasts.
	payloads int
	// mistakes is how many false suspicions there may be. Each may be withdrawn.
	mistakes int
	scratch  []byte
}

// explore explores everything that can follow. path is how the network got here.
func (s *search) explore(w *network, crashes int, path []string) error {
	key := s.key(w, crashes)
	if _, again := s.seen[key]; again || len(s.seen) >= s.limit {
		return nil
	}
	s.seen[key] = struct{}{}
	actions := s.actions(w)
	if len(actions) == 0 {
		s.ends++
		if s.mistakes > 0 {
			// A server that halts, or waits for another generation, is no error. Deliveries were
			// compared on the way.
			return nil
		}
		return w.judge(judgement{uniform: true})
	}
	for _, a := range actions {
		sends, err := s.step(w, a, -1, crashes, path)
		if err != nil {
			return err
		}
		for after := 0; crashes > 0 && after <= sends; after++ {
			if _, err := s.step(w, a, after, crashes, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// step takes an action on a copy and explores on. If crashAfter is not negative, the server crashes
// after that many sends. It returns how many frames the action sends.
func (s *search) step(w *network, a action, crashAfter, crashes int, path []string) (int, error) {
	actor := a.to
	if a.kind == "flush" || a.kind == "submit" {
		actor = a.from
	}
	c := w.clone()
	if crashAfter >= 0 {
		c.crashAfter[actor] = crashAfter
		crashes--
	}
	before := c.sent
	path = append(path, fmt.Sprintf("%s %d>%d crash after %d", a.kind, a.from, a.to, crashAfter))
	if err := c.take(a); err != nil && !(s.mistakes > 0 && errors.Is(err, order.ErrHalted)) {
		return 0, fmt.Errorf("%w\n%s", err, strings.Join(path, "\n"))
	}
	if crashAfter >= 0 {
		c.crashed[actor], c.crashAfter[actor] = true, -1
	}
	for p := range c.n() {
		if c.crashed[p] = c.crashed[p] || c.engines[p].halted != ""; c.crashed[p] {
			for from := range c.n() {
				c.channels[from*c.n()+p] = nil // no server reads it
			}
		}
		for q := range p {
			if err := c.compareBoth(p, q); err != nil {
				return 0, fmt.Errorf("%w\n%s", err, strings.Join(path, "\n"))
			}
		}
	}
	err := s.explore(c, crashes, path)
	return c.sent - before, err
}

// compareBoth compares the rounds that both of two servers A-delivered.
func (w *network) compareBoth(p, q int) error {
	for i := range min(len(w.delivered[p]), len(w.delivered[q])) {
		if a, b := w.delivered[p][i], w.delivered[q][i]; !equalDeliveries(a, b) {
			return fmt.Errorf("set agreement: server %d A-delivers %s, server %d %s",
				p, formatDelivery(a), q, formatDelivery(b))
		}
	}
	return nil
}

// actions lists the enabled steps. A server A-broadcasts its payloads whenever it can, and then
// empty messages when they are due.
func (s *search) actions(w *network) []action {
	all := w.actions(false)
	for p, engine := range w.engines {
		if w.crashed[p] || !engine.CanBroadcast() || len(w.broadcast[p]) >= s.payloads {
			continue
		}
		if i := slices.Index(all, action{"flush", p, p}); i >= 0 {
			all[i].kind = "submit"
		} else {
			all = append(all, action{"submit", p, p})
		}
	}
	for i := range w.suspected {
		to, from := i/w.n(), i%w.n()
		switch {
		case s.mistakes == 0 || w.crashed[to] || w.crashed[from] || !w.reliable.HasEdge(from, to):
		case w.suspected[i]:
			all = append(all, action{"trust", from, to})
		case w.lies > 0:
			all = append(all, action{"mistrust", from, to})
		}
	}
	return all
}

// key returns a fingerprint of everything that matters from here on.
func (s *search) key(w *network, crashes int) [16]byte {
	b := append(s.scratch[:0], byte(crashes), byte(w.lies))
	for p, engine := range w.engines {
		b = appendFlag(b, w.crashed[p])
		b = append(b, byte(len(w.broadcast[p])))
		if !w.crashed[p] {
			b = engine.AppendState(b)
		}
		for _, d := range w.delivered[p] {
			b = append(b, formatDelivery(d)...)
		}
	}
	for i, c := range w.channels {
		b = appendFlag(b, w.suspected[i])
		b = binary.LittleEndian.AppendUint32(b, uint32(len(c)))
		for _, frame := range c {
			b = append(append(b, byte(len(frame))), frame...)
		}
	}
	s.scratch = b
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

func (w *network) clone() *network {
	c := *w
	c.engines = make([]*Engine, w.n())
	c.delivered, c.broadcast = slices.Clone(w.delivered), slices.Clone(w.broadcast)
	for p, engine := range w.engines {
		c.engines[p] = engine.Clone()
		c.delivered[p], c.broadcast[p] = slices.Clip(w.delivered[p]), slices.Clip(w.broadcast[p])
	}
	c.channels = make([][][]byte, len(w.channels))
	for i, channel := range w.channels {
		c.channels[i] = slices.Clip(channel)
	}
	c.crashed, c.crashAfter, c.suspected = slices.Clone(w.crashed), slices.Clone(w.crashAfter),
		slices.Clone(w.suspected)
	return &c
}

func runSearch(t testing.TB, config Config, payloads, mistakes, limit int) (*search, error) {
	t.Helper()
	w, err := newNetwork(1, config)
	if err != nil {
		t.Fatal(err)
	}
	w.rng = rand.New(rand.NewPCG(0, 0)) // not used: the search takes every branch
	w.lies = mistakes
	s := &search{seen: map[[16]byte]struct{}{}, limit: limit, payloads: payloads,
		mistakes: mistakes}
	return s, s.explore(w, min(1, w.engines[0].tolerated), nil)
}

// TestExhaustiveSearch explores groups of two to four servers, in full if the limit allows.
func TestExhaustiveSearch(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for n := 2; n <= 4; n++ {
			for payloads := 1; payloads <= 2; payloads++ {
				t.Run(fmt.Sprintf("%s/%d/%d", engine, n, payloads), func(t *testing.T) {
					t.Parallel()
					limit := states()
					if n == 4 || engine == EngineAllConcur && payloads == 2 {
						limit /= 10
					}
					s, err := runSearch(t, Config{Detector: DetectorPerfect, Engine: engine,
						Servers: n, Reliable: overlays(t, n)[0], AssertPropositions: true},
						payloads, 0, limit)
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%d states, %d ends, complete: %t", len(s.seen), s.ends,
						len(s.seen) < s.limit)
				})
			}
		}
	}
}

// TestSearchCatches proves that the search can fail. With three servers it finds each planted bug,
// and where non-uniform delivery is not uniform.
func TestSearchCatches(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for name, config := range map[string]Config{
		"dropped forward": {Engine: EngineAllConcur, Fault: FaultDroppedForward},
		"pruned too soon": {Engine: EngineAllConcur, Fault: FaultPrunedTooSoon},
		"early delivery":  {Engine: EngineAllConcurPlus, Fault: FaultEarlyDelivery},
		"not uniform":     {Engine: EngineAllConcurPlus, NonUniform: true},
		// TestStormsCatch has the others.
		"no vote": {Engine: EngineAllConcur, Fault: FaultNoForwardBackward,
			Detector: DetectorEventual, Shard: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mistakes := 0
			if config.Detector == DetectorEventual && config.Shard == 0 {
				config.Detector = DetectorPerfect
			} else {
				mistakes = 3
			}
			config.Servers, config.Reliable = 3, overlays(t, 3)[0]
			if s, err := runSearch(t, config, 1, mistakes, *searchFlag); err == nil {
				t.Fatalf("nothing found in %d states", len(s.seen))
			} else {
				t.Log(err)
			}
		})
	}
}

// TestDeliverBeforeSend makes turns A-deliver before they send, and servers crash in between. Under
// P the others A-deliver something else. Under ◇P they never do, in as many states. An A-delivery
// takes the votes of a majority. The voters gave their votes before any server counted them, and a
// server that is not heard counts as one that voted. A server that crashes loses only its own vote.
func TestDeliverBeforeSend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine   string
		detector Detector
	}{
		{EngineAllConcur, DetectorPerfect}, {EngineAllConcur, DetectorEventual},
		{EngineAllConcurPlus, DetectorEventual},
	} {
		t.Run(fmt.Sprintf("%s/%s", c.engine, c.detector), func(t *testing.T) {
			t.Parallel()
			w, err := newNetwork(1, Config{Detector: c.detector, Engine: c.engine, Servers: 3,
				Reliable: overlays(t, 3)[0]})
			must(t, err)
			w.deliversFirst = true
			s := &search{seen: map[[16]byte]struct{}{}, limit: 5_000, payloads: 1}
			if c.detector == DetectorEventual {
				w.lies, s.mistakes = 1, 1
			}
			err = s.explore(w, 1, nil)
			if (err == nil) != (c.detector == DetectorEventual) {
				t.Errorf("%d states: %v", len(s.seen), err)
			}
		})
	}
}

// TestSearchWithSuspicions explores groups of two and three under ◇P, with a crash and false
// suspicions that may be withdrawn, as far as the limit allows. No two servers A-deliver different
// rounds.
func TestSearchWithSuspicions(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for n := 2; n <= 3; n++ {
			for mistakes := 1; mistakes <= 4-n; mistakes++ {
				t.Run(fmt.Sprintf("%s/%d/%d", engine, n, mistakes), func(t *testing.T) {
					t.Parallel()
					s, err := runSearch(t, Config{Engine: engine, Servers: n,
						Reliable: overlays(t, n)[0]}, 1, mistakes, states()/4)
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%d states, %d ends, complete: %t", len(s.seen), s.ends,
						len(s.seen) < s.limit)
				})
			}
		}
	}
}
