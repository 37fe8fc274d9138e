package sim

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/trains"
)

// ring returns the options of a ring under a perfect detector.
func ring(t *testing.T, servers, count int, fault trains.Fault) Options {
	t.Helper()
	return Group{Detector: perfectly, Faults: FaultCrash, Engine: trains.EngineName,
		Servers: servers, Trains: count, TrainsFault: fault}.options(t)
}

// TestRingsConform is the conformance suite of package trains: rings of 1 to 32 servers with 1 to 8
// trains, of which all servers but one may crash.
func TestRingsConform(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32} {
		for _, count := range []int{1, 2, 3, 8} {
			t.Run(fmt.Sprintf("%d servers, %d trains", servers, count), func(t *testing.T) {
				t.Parallel()
				rounds, crashes := passSeeds(t, ring(t, servers, count, trains.FaultNone), 1,
					share(400/servers))
				t.Logf("%d rounds, %d crashes", rounds, crashes)
			})
		}
	}
}

// TestRingsAgreeWhereTailsAreLost makes crashes lose frames under way. The survivors agree all the
// same.
func TestRingsAgreeWhereTailsAreLost(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{2, 3, 4, 5, 8, 16} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			options := ring(t, servers, 3, trains.FaultNone)
			options.LoseTails = true
			passSeeds(t, options, 1, share(600/servers))
		})
	}
}

// TestPlantedBugsOfRingsAreCaught plants each bug of package trains that shows in one run, and
// bounds the seeds until a property breaks. The other bugs need the end of an eon.
func TestPlantedBugsOfRingsAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault          trains.Fault
		servers, count int
		limit          int
	}{
		{trains.FaultFilterByView, 3, 1, 300}, {trains.FaultStaleAnswered, 3, 1, 100},
		{trains.FaultClockNotStrict, 5, 1, 8000}, {trains.FaultDeadHeard, 5, 1, 8000},
		{trains.FaultJoinerDelivers, 3, 1, 50}, {trains.FaultOneMaker, 4, 2, 2000},
		{trains.FaultEmptyUnmarked, 4, 2, 1000}, {trains.FaultOneRotation, 4, 2, 2000},
		{trains.FaultWagonUnderTrain, 3, 2, 50}, {trains.FaultResendSome, 3, 1, 100},
		{trains.FaultRestsEarly, 3, 2, 50},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			t.Parallel()
			seeds := seedsUntilCaught(t, ring(t, c.servers, c.count, c.fault), c.limit)
			if seeds == 0 {
				t.Fatalf("not caught by %d seeds", c.limit)
			}
			t.Logf("caught by seed %d", seeds)
			passSeeds(t, ring(t, c.servers, c.count, trains.FaultNone), uint64(seeds), 1)
		})
	}
}
