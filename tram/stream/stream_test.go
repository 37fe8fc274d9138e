package stream

import (
	"flag"
	"testing"
)

// seedsFlag widens the sweep.
var seedsFlag = flag.Uint64("seeds", 300, "how many seeds the stream is run with")

// TestStream: the stream arrives complete, once and in order, whatever happens to members and
// wires.
func TestStream(t *testing.T) {
	t.Parallel()
	rescues, backs := 0, 0
	for seed := range *seedsFlag {
		w := newWorld(seed, FaultNone)
		if wrong := w.run(); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
		rescues += w.rescues
		backs += w.backs
	}
	if rescues == 0 || backs == 0 {
		t.Errorf("%d rings were taken away with something in them, and %d logs went back", rescues,
			backs)
	}
}

// TestPlanted: each planted bug is found. The forgotten ring has a story of its own.
func TestPlanted(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultLoneWriter, FaultNoTakeover, FaultEarlyReuse,
		FaultGreedyRing} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(1000) {
				if wrong := newWorld(seed, fault).run(); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}
