package sim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
)

// interleaved is a group with several rounds in flight.
func interleaved(engine string, servers, inFlight int) Group {
	return Group{Detector: perfectly, Faults: FaultCrash, Engine: engine, Servers: servers,
		InFlight: inFlight}
}

// TestSeveralInFlight runs groups with several rounds in flight.
func TestSeveralInFlight(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for _, servers := range []int{1, 2, 3, 5, 8} {
			for _, inFlight := range []int{2, 3, 8} {
				t.Run(fmt.Sprintf("%s/%d/%d", engine, servers, inFlight), func(t *testing.T) {
					t.Parallel()
					passSeeds(t, interleaved(engine, servers, inFlight).options(t), 1, 20)
				})
			}
		}
	}
}

// TestPlantedBugsOfInterleavingAreCaught plants each bug in how the engines work together. What is
// left of a removed server is left out only where unreliable rounds are rerun, which is rare.
func TestPlantedBugsOfInterleavingAreCaught(t *testing.T) {
	t.Parallel()
	limits := map[interleave.Fault]int{interleave.FaultRemovedSpeaks: 2000}
	for _, fault := range interleave.Faults() {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			group := interleaved(allconcur.EngineAllConcurPlus, 5, 3)
			group.InterleaveFault = fault
			limit := max(50, limits[fault])
			seeds := seedsUntilCaught(t, group.options(t), limit)
			if seeds == 0 {
				t.Fatalf("not caught by %d seeds", limit)
			}
			t.Logf("caught by seed %d", seeds)
		})
	}
}

// TestSeveralInFlightExclude: generations take the votes of one engine.
func TestSeveralInFlightExclude(t *testing.T) {
	t.Parallel()
	for _, group := range []Group{
		{Engine: engines[1], Servers: 3, InFlight: 2},
		{Engine: engines[1], Servers: 3, InFlight: -1, Detector: perfectly},
		{Engine: engines[1], Servers: 3, InFlight: interleave.InFlightMax + 1, Detector: perfectly},
	} {
		if _, err := group.Options(); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", group, err)
		}
	}
}
