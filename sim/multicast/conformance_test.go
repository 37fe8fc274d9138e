package multicast

import (
	"context"
	"testing"
)

func TestQuick(t *testing.T) {
	count, bad, del, faults := 0, 0, 0, 0
	err := Sweep(context.Background(), Options{Engine: EngineSequencer, Faults: FaultsAll}, 1, 1000, func(r Result) bool {
		count++
		del += r.Deliveries
		faults += r.Faults
		if len(r.Violations) > 0 {
			bad++
			t.Errorf("seed %d: %s\n%v", r.Seed, r.Plan, r.Violations[0])
		}
		return bad < 3
	})
	t.Log(err, count, bad, del, faults)
}
