package trains

import (
	"errors"
	"fmt"
	"testing"
)

// TestRandomSchedules judges random schedules of rings under P: of any number of servers, all but
// one may crash.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5, 7, 16} {
		for _, count := range []int{1, 2, 3, 5, 8} {
			for _, losesTail := range []bool{false, true} {
				s := schedule{config: Config{Servers: n, Trains: count, Detector: DetectorPerfect},
					payloads: 5, crashes: n - 1, losesTail: losesTail}
				t.Run(fmt.Sprintf("%d/%d/%t", n, count, losesTail), func(t *testing.T) {
					t.Parallel()
					if err := s.seeds(1, 1200/n); err != nil {
						t.Fatalf("%v\n%s", err, s.explain(err))
					}
				})
			}
		}
	}
}

// TestPlantedBugsAreCaught plants each bug that shows under P in a ring that can show it, and
// bounds the seeds until a property breaks. The same seeds pass without the bug.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault           Fault
		servers, trains int
		limit           int
	}{
		{FaultFilterByView, 3, 1, 400}, {FaultStaleAnswered, 3, 1, 50},
		{FaultClockNotStrict, 3, 1, 4000}, {FaultDeadHeard, 5, 2, 4000},
		{FaultJoinerDelivers, 3, 1, 50}, {FaultJoinerDelivers, 3, 2, 50},
		{FaultOneMaker, 5, 3, 200}, {FaultEmptyUnmarked, 3, 2, 200},
		{FaultOneRotation, 3, 2, 1000}, {FaultWagonUnderTrain, 3, 2, 50},
		{FaultResendSome, 3, 1, 200}, {FaultRestsEarly, 2, 1, 50},
	} {
		t.Run(fmt.Sprintf("%v/%d/%d", c.fault, c.servers, c.trains), func(t *testing.T) {
			t.Parallel()
			s := schedule{config: Config{Servers: c.servers, Trains: c.trains,
				Detector: DetectorPerfect, Fault: c.fault}, payloads: 5, crashes: c.servers - 1}
			var caught *errSeeds
			if err := s.seeds(1, c.limit); !errors.As(err, &caught) {
				t.Fatalf("not caught by %d seeds", c.limit)
			}
			t.Logf("caught: %v", caught)
			s.config.Fault = FaultNone
			if err := s.seeds(1, int(caught.seed)); err != nil {
				t.Errorf("without the bug: %v\n%s", err, s.explain(err))
			}
		})
	}
}
