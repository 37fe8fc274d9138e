package allconcur

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	good := Config{Detector: DetectorPerfect, Engine: EngineAllConcur, Servers: 3, Self: 2,
		Reliable: overlays(t, 3)[0]}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	split, err := digraph.New(3, [][2]int{{0, 1}, {1, 0}})
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"engine":      func(c *Config) { c.Engine = "raft" },
		"no servers":  func(c *Config) { c.Servers = 0 },
		"self":        func(c *Config) { c.Self = 3 },
		"no digraph":  func(c *Config) { c.Reliable = nil },
		"order":       func(c *Config) { c.Servers = 4 },
		"unconnected": func(c *Config) { c.Reliable = split },
		"payload":     func(c *Config) { c.MaxPayload = MaxPayloadLimit + 1 },
		"negative":    func(c *Config) { c.MaxPayload = -1 },
		"detector":    func(c *Config) { c.Detector = detectorEnd },
		"shard":       func(c *Config) { c.Shard = 2 },
		"minority":    func(c *Config) { c.Shard, c.Detector = 6, DetectorEventual },
		"non-uniform": func(c *Config) { c.NonUniform, c.Detector = true, DetectorEventual },
		"fault":       func(c *Config) { c.Fault = faultEnd },
	} {
		config := good
		spoil(&config)
		if _, err := New(config); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)
		}
	}
}

func TestBroadcastErrors(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Detector: DetectorPerfect, Engine: EngineAllConcurPlus, Servers: 3,
		Reliable: overlays(t, 3)[0], MaxPayload: 4, FirstRound: 12})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Broadcast([]byte("too large")); !errors.Is(err, order.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	if err := e.Broadcast([]byte("fits")); err != nil {
		t.Error(err)
	}
	if err := e.Broadcast(nil); !errors.Is(err, order.ErrNotNow) {
		t.Errorf("%v, want ErrNotNow", err)
	}
	if s := e.Status(); s.Round != 12 || e.Tolerated() != 1 {
		t.Errorf("round %d, f %d", s.Round, e.Tolerated())
	}
}

// TestClone: a copy is independent, and equal states have equal bytes.
func TestClone(t *testing.T) {
	t.Parallel()
	for _, config := range []Config{
		{Engine: EngineAllConcur, Detector: DetectorPerfect},
		{Engine: EngineAllConcurPlus, Detector: DetectorPerfect},
		{Engine: EngineAllConcur}, {Engine: EngineAllConcurPlus},
		{Engine: EngineAllConcurPlus, Detector: DetectorEventualPaper},
	} {
		config.Servers, config.Reliable = 6, overlays(t, 6)[1]
		w, err := newChaos(3, config)
		if err != nil {
			t.Fatal(err)
		}
		if config.Detector == DetectorPerfect {
			err = w.run(300, 2)
		} else {
			w.mistrust, w.stall, w.mistakes = 20, 30, -1
			err = w.storm(400, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		for p, e := range w.engines {
			before := string(e.AppendState(nil))
			c := e.Clone()
			if string(c.AppendState(nil)) != before {
				t.Fatalf("server %d: the copy differs", p)
			}
			for _, q := range w.reliable.Predecessors(p) {
				_ = c.Suspect(order.ServerID(q))
			}
			_ = c.Broadcast([]byte("more"))
			if string(c.AppendState(nil)) == before || string(e.AppendState(nil)) != before {
				t.Fatalf("server %d: the copy and the original are not apart", p)
			}
		}
	}
}
