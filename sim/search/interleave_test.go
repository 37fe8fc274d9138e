package search

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
)

// inFlight is a group of three with two rounds in flight, one crash and no false suspicion.
func inFlight(engine string, detector allconcur.Detector, rounds int) Options {
	return Options{Engine: engine, Servers: 3, Rounds: rounds, Crashes: 1, Detector: detector,
		InFlight: 2}
}

// TestSeveralInFlight visits everything that three servers with two rounds in flight can do, with
// every crash point.
func TestSeveralInFlight(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for _, detector := range []allconcur.Detector{allconcur.DetectorPerfect,
			allconcur.DetectorEventual} {
			t.Run(fmt.Sprintf("%s/%v", engine, detector), func(t *testing.T) {
				t.Parallel()
				if engine == allconcur.EngineAllConcurPlus && (testing.Short() || raceEnabled) {
					t.Skip("takes many seconds")
				}
				mustHold(t, inFlight(engine, detector, 1))
			})
		}
	}
}

// TestInterleavingCatches plants the bugs in how engines work together. Messages of a removed
// server are left over only where unreliable rounds are rerun.
func TestInterleavingCatches(t *testing.T) {
	t.Parallel()
	for _, fault := range []interleave.Fault{interleave.FaultArrivalOrder,
		interleave.FaultOneEngineSuspects, interleave.FaultRemovedSpeaks} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			options := inFlight(allconcur.EngineAllConcur, allconcur.DetectorPerfect, 2)
			options.InterleaveFault = fault
			if fault == interleave.FaultRemovedSpeaks {
				if testing.Short() || raceEnabled {
					t.Skip("takes many seconds")
				}
				options.Engine = allconcur.EngineAllConcurPlus
			}
			if result := run(t, options); len(result.Violations) == 0 {
				t.Error("not found")
			}
		})
	}
}

// TestSeveralInFlightExclude: what needs the votes of one engine.
func TestSeveralInFlightExclude(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Options){
		"prompt":   func(o *Options) { o.Prompt = true },
		"records":  func(o *Options) { o.Records = true },
		"too many": func(o *Options) { o.InFlight = InFlightMax + 1 },
	} {
		options := inFlight(allconcur.EngineAllConcurPlus, allconcur.DetectorEventual, 1)
		spoil(&options)
		if _, err := Run(t.Context(), options, nil); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
