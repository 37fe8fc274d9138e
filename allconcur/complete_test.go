package allconcur

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestComplete: a server lists its complete unreliable rounds if one of them is new. The group is
// whole if it is its shard, and nothing changed or changes it.
func TestComplete(t *testing.T) {
	t.Parallel()
	changing := func(is order.Round) func(*Engine) {
		return func(e *Engine) {
			e.config.Change = func(d order.Delivery) bool { return d.Round == is }
		}
	}
	both := []order.Round{1, 2}
	for name, c := range map[string]struct {
		after  order.Round
		change func(*Engine)
		want   []order.Round
		whole  bool
	}{
		"both are new":            {0, func(*Engine) {}, both, true},
		"one is new":              {1, func(*Engine) {}, both, true},
		"none is new":             {2, func(*Engine) {}, nil, false},
		"one is A-delivered":      {0, func(e *Engine) { e.delivered = 1 }, both[1:], true},
		"both are A-delivered":    {0, func(e *Engine) { e.delivered = 2 }, nil, false},
		"the second is reliable":  {0, func(e *Engine) { e.newer.reliable = true }, both[:1], true},
		"that one alone is new":   {1, func(e *Engine) { e.newer.reliable = true }, nil, false},
		"the first is not there":  {0, func(e *Engine) { e.older.filled = false }, both[1:], true},
		"the second is not there": {0, func(e *Engine) { e.newer.filled = false }, both[:1], true},
		"under P": {0, func(e *Engine) {
			e.config.Detector = DetectorPerfect
		}, both, false},
		"part of a shard":           {0, func(e *Engine) { e.config.Shard = 4 }, both, false},
		"one was removed":           {0, func(e *Engine) { e.removedCount = 1 }, both, false},
		"the eon ends":              {0, func(e *Engine) { e.last = 9 }, both, false},
		"neither changes it":        {0, changing(9), both, true},
		"the first changes it":      {0, changing(1), both, false},
		"the second changes it":     {0, changing(2), both, false},
		"both changed, and no news": {2, changing(2), nil, false},
	} {
		engines := threeServers(t, Config{Engine: EngineAllConcurPlus})
		e := engines[0]
		e.round = 3
		e.older.begin(1, 1, false)
		e.newer.begin(1, 2, false)
		c.change(e)
		deliveries, whole := e.Complete(c.after)
		var rounds []order.Round
		for _, d := range deliveries {
			rounds = append(rounds, d.Round)
		}
		if !slices.Equal(rounds, c.want) || whole != c.whole {
			t.Errorf("%s: rounds %v, whole %v, want %v, %v", name, rounds, whole, c.want, c.whole)
		}
	}
}
