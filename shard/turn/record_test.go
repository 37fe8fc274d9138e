package turn_test

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// completing is a scripted engine that reports complete rounds.
type completing struct {
	scripted
	rounds []order.Delivery
	whole  bool
}

func (c *completing) Complete(after order.Round) ([]order.Delivery, bool) {
	if len(c.rounds) == 0 || c.rounds[len(c.rounds)-1].Round <= after {
		return nil, false
	}
	return c.rounds, c.whole
}

// A turn offers complete rounds of a whole group once, after it delivered the rounds before them.
func TestRecords(t *testing.T) {
	t.Parallel()
	filled := order.Delivery{Round: 5, Messages: []order.Message{{Origin: 2, Payload: []byte("a")}}}
	for name, c := range map[string]struct {
		rounds  []order.Delivery
		whole   bool
		records bool
		fault   turn.Fault
		offered bool
	}{
		"offered":                {[]order.Delivery{{Round: 4}, filled}, true, true, 0, true},
		"the group is not whole": {[]order.Delivery{filled}, false, true, 0, false},
		"nothing to execute": {[]order.Delivery{{Round: 5, Messages: []order.Message{{Origin: 2}}}},
			true, true, 0, false},
		"records are not wanted": {[]order.Delivery{filled}, true, false, 0, false},
		"the planted bug": {[]order.Delivery{filled}, false, true,
			turn.FaultRecordsAnyGroup, true},
		"with deliveries before sends": {[]order.Delivery{filled}, true, true,
			turn.FaultDeliverFirst, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := &completing{rounds: c.rounds, whole: c.whole}
			m := turn.New(turn.Config{Engine: engine, Self: 1, Servers: 4, Records: c.records,
				Fault: c.fault})
			engine.deliver(1, order.Message{Origin: 0, Payload: []byte("b")})
			want := []turn.Kind{turn.Deliver}
			if c.offered {
				want = append(want, turn.Record)
			}
			if got := kinds(m); !slices.Equal(got, want) {
				t.Errorf("actions %v, want %v", got, want)
			}
			if got := kinds(m); len(got) != 0 {
				t.Errorf("the next turn has %v", got)
			}
		})
	}
}
