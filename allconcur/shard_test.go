package allconcur

import (
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// TestMinorityOfTheShardHalts: a group that is part of a shard goes on only with a majority of the
// shard, whatever the detector. The others of the shard may form their own group from a majority.
// If both groups went on, they would fork.
func TestMinorityOfTheShardHalts(t *testing.T) {
	t.Parallel()
	g, err := digraph.Complete(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		engines := make([]*Engine, 3)
		for i := range engines {
			if engines[i], err = New(Config{Engine: engine, Self: order.ServerID(i), Servers: 3,
				Reliable: g, Detector: DetectorPerfect, Shard: 5}); err != nil {
				t.Fatal(err)
			}
		}
		// Server 2 crashed before it A-broadcast.
		for i := range 2 {
			if err := engines[i].Broadcast([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
			if err := engines[i].Suspect(2); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			for i := range 2 {
				ready := engines[i].Ready()
				if len(ready.Deliveries) > 0 {
					t.Errorf("%s: server %d A-delivers round %d with 2 of 5 servers", engine,
						i, ready.Deliveries[0].Round)
				}
				for _, send := range ready.Sends {
					for _, to := range send.To {
						if to < 2 {
							// A halted server refuses it.
							_ = engines[to].Receive(order.ServerID(i), send.Frame)
						}
					}
				}
			}
		}
		for i := range 2 {
			if engines[i].Status().Halted == "" {
				t.Errorf("%s: server %d has not halted", engine, i)
			}
		}
	}
}
