package interleave

import (
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
)

// TestPlantedBugsAreCaught plants each bug and expects the judges to find it, in groups in which
// nothing else is wrong. In AllConcur, messages of a server that crashes are lost in the order of
// its rounds, so nothing is left of it to leave out.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	for _, fault := range Faults() {
		for _, engine := range []string{allconcur.EngineAllConcur, allconcur.EngineAllConcurPlus} {
			if fault == FaultRemovedSpeaks && engine == allconcur.EngineAllConcur {
				continue
			}
			t.Run(fault.String()+"/"+engine, func(t *testing.T) {
				t.Parallel()
				w := world{crashes: 1, config: Config{InFlight: 3, Fault: fault,
					Engine: allconcur.Config{Engine: engine, Servers: 4}}}
				v, seed := w.caught(t, 2000)
				if v == nil {
					t.Fatal("not caught")
				}
				t.Logf("seed %d: %v", seed, v)
				w.config.Fault = FaultNone
				if v, seed := w.caught(t, 5); v != nil {
					t.Fatalf("without it, seed %d: %v", seed, v)
				}
			})
		}
	}
}

// TestFaultsHaveNames: the command line knows them by their names.
func TestFaultsHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{FaultNone.String(): true, faultEnd.String(): true}
	for _, fault := range Faults() {
		if seen[fault.String()] {
			t.Errorf("%v twice", fault)
		}
		seen[fault.String()] = true
	}
	if len(seen) != int(faultEnd)+1 {
		t.Errorf("%d names for %d faults", len(seen), faultEnd)
	}
}
