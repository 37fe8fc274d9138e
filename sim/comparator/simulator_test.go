package comparator_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim"
	"github.com/ledgerd/ledgerd/sim/comparator"
)

// TestSimulator lets the conformance simulator judge the four, without crashes.
func TestSimulator(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(comparator.Config) (order.Broadcaster, error){
		"allgather": func(c comparator.Config) (order.Broadcaster, error) {
			return comparator.NewAllGather(c)
		},
		"unreliable, small blocks": func(c comparator.Config) (order.Broadcaster, error) {
			return comparator.NewUnreliable(c)
		},
		"unreliable, large blocks": func(c comparator.Config) (order.Broadcaster, error) {
			c.BlockSize = 100_000
			return comparator.NewUnreliable(c)
		},
		"lcr": func(c comparator.Config) (order.Broadcaster, error) {
			return comparator.NewLCR(c)
		},
		"paxos": func(c comparator.Config) (order.Broadcaster, error) {
			return comparator.NewPaxos(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{1, 3, 8, 13} {
				complete, err := digraph.Complete(n)
				if err != nil {
					t.Fatal(err)
				}
				for seed := range uint64(40) {
					result, err := sim.Check(sim.Options{
						Servers: n, Seed: seed, Reliable: complete,
						New: func(self order.ServerID) (order.Broadcaster, error) {
							return make(comparator.Config{Self: self, Servers: n})
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					for _, v := range result.Violations {
						t.Fatalf("n=%d, seed %d: %v", n, seed, v)
					}
				}
			}
		})
	}
}
