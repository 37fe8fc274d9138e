package allconcur

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// early is a frame of an eon that has yet to begin where the frame arrived.
type early struct {
	from  int
	frame []byte
}

// keepsOrDrops handles frames of other runs as a driver does: it keeps those of later runs and
// drops those of earlier ones.
func (c *chaos) keepsOrDrops(from, to int) bool {
	channel := &c.channels[from*c.n()+to]
	frame := (*channel)[0]
	generation, err := FrameGeneration(frame)
	own := c.engines[to].config.Generation
	if err != nil || generation == own || c.crashed[to] || generation < own &&
		c.config.Fault == FaultStaleEon {
		return false
	}
	*channel = (*channel)[1:]
	if generation > own {
		c.early[to] = append(c.early[to], early{from, frame})
	}
	return true
}

// turn makes the next eon's engine for each server whose engine ended, over the next digraph, with
// all servers in it again. It gives each new engine the frames that came early.
func (c *chaos) turn() error {
	for p := range c.n() {
		for !c.crashed[p] && c.engines[p].ended {
			old := c.engines[p]
			config := c.config
			config.Self, config.FirstRound, config.Generation = old.self, old.delivered+1,
				old.config.Generation+1
			config.Reliable = c.groups[int(config.Generation-c.config.Generation)%len(c.groups)]
			engine, err := New(config)
			if err != nil {
				return err
			}
			c.note("%d begins eon %d with round %d", p, config.Generation, config.FirstRound)
			c.eons = max(c.eons, int(config.Generation-c.config.Generation))
			c.engines[p] = engine
			for q := range c.n() {
				c.suspected[p*c.n()+q] = false
			}
			if err := c.replay(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// replay gives a server's new engine the frames of its eon that came early.
func (c *chaos) replay(p int) error {
	frames := c.early[p]
	c.early[p] = nil
	for _, f := range frames {
		if generation, _ := FrameGeneration(f.frame); generation > c.engines[p].config.Generation {
			c.early[p] = append(c.early[p], f)
			continue
		}
		if err := c.engines[p].Receive(order.ServerID(f.from), f.frame); err != nil {
			return err
		}
		c.note("%d -> %d early %s", f.from, p, f.frame)
		c.pump(p)
	}
	return nil
}

// changes reports whether a round changes the group: it does if it has a server's second, fifth or
// eighth message, and so on.
func changes(d order.Delivery) bool {
	for _, m := range d.Messages {
		var server, number int
		if _, err := fmt.Sscanf(string(m.Payload), "m%d.%d", &server, &number); err == nil &&
			number%3 == 2 {
			return true
		}
	}
	return false
}

// TestEons runs random schedules with changes of the group. A server that ended goes on in the next
// eon. Crashes and false suspicions occur at any time, also in the transitional round.
func TestEons(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{1, 2, 3, 4, 5, 6, 8, 9} {
			groups := overlays(t, n)
			f := digraph.Tolerated(groups[0])
			if len(groups) > 1 {
				f = digraph.Tolerated(groups[1])
			}
			for name, s := range map[string]storms{
				"accurate":          {wantLive: true, oneStorm: true},
				"accurate, crashes": {wantLive: true, oneStorm: true, crashes: f},
				"perfect": {wantLive: true, oneStorm: true,
					config: Config{Detector: DetectorPerfect}},
				"perfect, crashes": {wantLive: true, oneStorm: true, crashes: f,
					config: Config{Detector: DetectorPerfect}},
				"one mistake":         {wantLive: true, oneStorm: true, mistrust: 20, mistakes: 2},
				"mistrust, and stall": {mistrust: 30, stall: 30, crashes: 1},
			} {
				t.Run(fmt.Sprintf("%s/%d/%s", engine, n, name), func(t *testing.T) {
					t.Parallel()
					s.seed, s.groups = *firstSeed, groups
					s.config.Engine, s.config.Servers, s.config.Reliable, s.config.Change, s.config.
						Generation = engine, n, groups[0], changes, 7<<16
					s.config.AssertPropositions = s.mistrust == 0
					s.long = true
					out := s.check(t, seedsFor(n)/6+1)
					if name == "accurate" && n <= 6 && out.eons < 1 {
						t.Fatal("no eon in any run")
					}
					few := seeds() < seedsDefault
					if !few && (s.stall == 0 && out.eons < 1 || n <= 4 && out.eons < 2) {
						t.Fatalf("only %d eons in any run", out.eons)
					}
				})
			}
		}
	}
}

// TestEonsCatch proves that the judge of TestEons finds frames of an earlier eon that count in a
// later one.
func TestEonsCatch(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{3, 5, 8} {
			if engine == EngineAllConcur && n < 8 {
				// Over complete digraphs, old frames do no harm if all rounds are reliable.
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", engine, n), func(t *testing.T) {
				t.Parallel()
				s := storms{seed: 1, groups: overlays(t, n), long: true, oneStorm: true,
					wantLive: true, mistrust: 20, mistakes: 2}
				s.config = Config{Engine: engine, Servers: n, Reliable: s.groups[0],
					Change: changes, Generation: 7 << 16}
				s.catches(t, FaultStaleEon, 1500)
			})
		}
	}
}
