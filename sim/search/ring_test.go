package search

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

func ring(detector allconcur.Detector, servers, count, rounds, crashes int) Options {
	return Options{Engine: trains.EngineName, Servers: servers, Trains: count, Rounds: rounds,
		Crashes: crashes, Detector: detector}
}

// TestRings visits everything that small rings can do under P, with every crash point, down to one
// server and beyond.
func TestRings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers, trains, rounds, crashes int
		// states are those visited without and with the end of the eon.
		states [2]int
	}{
		{1, 1, 2, 1, [2]int{9, 9}}, {2, 1, 1, 1, [2]int{150, 148}}, {2, 2, 2, 1, [2]int{446, 368}},
		{2, 2, 1, 2, [2]int{708, 684}}, {3, 1, 1, 0, [2]int{68, 67}},
		{3, 1, 1, 1, [2]int{1734, 1389}}, {3, 1, 2, 2, [2]int{9847, 5944}},
		{3, 2, 2, 0, [2]int{235, 195}}, {3, 2, 2, 1, [2]int{14341, 7158}},
		{3, 2, 1, 2, [2]int{50842, 29099}}, {4, 1, 1, 1, [2]int{12136, 10763}},
		{4, 2, 1, 1, [2]int{128542, 79636}}, {4, 1, 1, 2, [2]int{135643, 90391}},
	} {
		if c.servers > 3 && (testing.Short() || raceEnabled) {
			continue
		}
		for i, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d servers/%d trains/%d rounds/%d crashes/eon ends %t", c.servers,
				c.trains, c.rounds, c.crashes, ends), func(t *testing.T) {
				t.Parallel()
				options := ring(allconcur.DetectorPerfect, c.servers, c.trains, c.rounds, c.crashes)
				options.EonEnds = ends
				result := mustHold(t, options)
				if result.Ends == 0 || result.Stalled > 0 && c.crashes < c.servers {
					t.Errorf("%+v", result)
				}
				if result.States != c.states[i] {
					t.Errorf("%d states, want %d: the search looks at more or less than before",
						result.States, c.states[i])
				}
			})
		}
	}
}

// TestRingsWithWagonFrames visits everything that small rings can do in which each wagon with a
// payload has a frame of its own. A server may crash between the frames of a train.
func TestRingsWithWagonFrames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		detector                         allconcur.Detector
		servers, trains, rounds, crashes int
	}{
		{allconcur.DetectorPerfect, 2, 1, 1, 1}, {allconcur.DetectorPerfect, 2, 2, 2, 1},
		{allconcur.DetectorPerfect, 3, 1, 1, 1}, {allconcur.DetectorPerfect, 3, 1, 2, 2},
		{allconcur.DetectorPerfect, 3, 2, 1, 1}, {allconcur.DetectorEventual, 3, 1, 2, 1},
	} {
		t.Run(fmt.Sprintf("%v/%d servers/%d trains/%d rounds/%d crashes", c.detector, c.servers,
			c.trains, c.rounds, c.crashes), func(t *testing.T) {
			t.Parallel()
			options := ring(c.detector, c.servers, c.trains, c.rounds, c.crashes)
			without := mustHold(t, options)
			options.WagonFrames = true
			if result := mustHold(t, options); result.Ends == 0 ||
				result.Stalled > 0 != (without.Stalled > 0) || result.States <= without.States {
				t.Errorf("%+v, and with wagons in their trains %+v", result, without)
			}
		})
	}
}

// TestRingsUnderEventualDetector visits everything that three servers can do under ◇P. Every
// interleaving is taken separately, since the votes that are judged are those of several servers at
// a time. False suspicions alone stop nothing.
func TestRingsUnderEventualDetector(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ trains, rounds, crashes, suspicions int }{
		{1, 1, 0, 1}, {1, 2, 0, 1}, {1, 2, 1, 0}, {2, 2, 1, 0}, {1, 1, 1, 1}, {2, 1, 0, 1},
	} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d trains/%d rounds/%d crashes/%d suspicions/eon ends %t", c.trains,
				c.rounds, c.crashes, c.suspicions, ends), func(t *testing.T) {
				t.Parallel()
				options := ring(allconcur.DetectorEventual, 3, c.trains, c.rounds, c.crashes)
				options.Suspicions, options.EonEnds, options.Unreduced = c.suspicions, ends, true
				if result := mustHold(t, options); (result.Stalled > 0) != (c.crashes > 0) {
					t.Errorf("it stands still in %d ends", result.Stalled)
				}
			})
		}
	}
}

// TestRingReductionLosesNothing compares the search with one that takes every interleaving.
func TestRingReductionLosesNothing(t *testing.T) {
	t.Parallel()
	for _, options := range []Options{
		ring(allconcur.DetectorPerfect, 2, 2, 2, 1), ring(allconcur.DetectorPerfect, 3, 1, 1, 2),
		ring(allconcur.DetectorPerfect, 3, 2, 1, 1), ring(allconcur.DetectorEventual, 3, 2, 1, 1),
	} {
		t.Run(fmt.Sprintf("%d servers/%d trains/%d crashes/%v", options.Servers, options.Trains,
			options.Crashes, options.Detector), func(t *testing.T) {
			t.Parallel()
			compareUnreduced(t, options)
		})
	}
}

// TestRingsCatch plants the bugs of package trains. Each is found by what the group A-delivers,
// without a look into the servers. stale-answered is missing: its trains go round for ever, and a
// search looks at states, not at runs without an end.
func TestRingsCatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault                    trains.Fault
		servers, trains, crashes int
		property                 order.Property
	}{
		{trains.FaultFilterByView, 3, 1, 1, order.SetAgreement},
		{trains.FaultClockNotStrict, 3, 1, 1, Contract},
		{trains.FaultDeadHeard, 4, 1, 2, Contract},
		{trains.FaultJoinerDelivers, 2, 1, 0, order.SetAgreement},
		{trains.FaultOneMaker, 3, 1, 1, order.Validity},
		{trains.FaultEmptyUnmarked, 3, 1, 1, order.SetAgreement},
		{trains.FaultOneRotation, 3, 1, 2, order.SetAgreement},
		{trains.FaultWagonUnderTrain, 2, 1, 0, Accuracy},
		{trains.FaultResendSome, 3, 1, 1, order.Validity},
		{trains.FaultRestsEarly, 3, 1, 1, order.Validity},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			t.Parallel()
			options := ring(allconcur.DetectorPerfect, c.servers, c.trains, 1, c.crashes)
			options.TrainsFault, options.WithoutTracking = c.fault, true
			mustBreak(t, options, c.property)
		})
	}
}

// TestRingInvariantsCatch plants bugs that show within a server before the group notices, or in a
// smaller group.
func TestRingInvariantsCatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault                    trains.Fault
		servers, trains, crashes int
		eonEnds                  bool
	}{
		{trains.FaultDeadHeard, 3, 2, 1, false}, {trains.FaultEmptyUnmarked, 2, 1, 0, false},
		{trains.FaultWagonUnderTrain, 2, 1, 0, false}, {trains.FaultLastRoundShort, 2, 1, 0, true},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			t.Parallel()
			options := ring(allconcur.DetectorPerfect, c.servers, c.trains, 1, c.crashes)
			options.TrainsFault, options.EonEnds = c.fault, c.eonEnds
			mustBreak(t, options, RingInvariants)
		})
	}
}

// TestRingVotesCatch plants the bugs that make a server's votes worthless to a new generation.
func TestRingVotesCatch(t *testing.T) {
	t.Parallel()
	for _, fault := range []trains.Fault{trains.FaultOneRotation, trains.FaultJoinerDelivers,
		trains.FaultEmptyUnmarked, trains.FaultVotesShort} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			options := ring(allconcur.DetectorEventual, 3, 2, 1, 1)
			options.TrainsFault, options.WithoutTracking, options.Unreduced = fault, true, true
			mustBreak(t, options, RingVotes)
		})
	}
}

// TestRingSuspicionsCatch plants a ring that goes on without a server that its detector suspects
// falsely.
func TestRingSuspicionsCatch(t *testing.T) {
	t.Parallel()
	options := ring(allconcur.DetectorEventual, 3, 1, 1, 0)
	options.TrainsFault, options.Suspicions = trains.FaultSuspicionBelieved, 1
	options.WithoutTracking, options.Unreduced = true, true
	result := run(t, options)
	if len(result.Violations) != 1 {
		t.Fatalf("%+v", result)
	}
	t.Log(result.Violations[0].Property, result.Violations[0].Evidence)
}

func TestRingOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"trains":      func(o *Options) { o.Trains = trains.TrainsMax + 1 },
		"prompt":      func(o *Options) { o.Prompt = true },
		"records":     func(o *Options) { o.Records = true },
		"non-uniform": func(o *Options) { o.NonUniform = true },
		"in flight":   func(o *Options) { o.InFlight = 2 },
		"detector":    func(o *Options) { o.Detector = allconcur.DetectorEventualPaper },
		"no ring": func(o *Options) {
			o.Engine, o.Trains = allconcur.EngineAllConcur, 1
		},
		"its bug": func(o *Options) {
			o.Engine, o.Trains = allconcur.EngineAllConcur, 0
			o.TrainsFault = trains.FaultOneRotation
		},
		"another's bug": func(o *Options) { o.Fault = allconcur.FaultDroppedForward },
	} {
		options := ring(allconcur.DetectorPerfect, 3, 1, 1, 1)
		change(&options)
		if _, err := Run(t.Context(), options, nil); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
