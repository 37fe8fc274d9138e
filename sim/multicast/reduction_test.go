package multicast

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestReductionLeavesOutNothing checks that searches with and without the reduction reach the same
// states at rest and the same verdict.
func TestReductionLeavesOutNothing(t *testing.T) {
	t.Parallel()
	cases := []SearchOptions{
		{Engine: EngineTRAM, Groups: 2, Replicas: 1, Messages: 1},
		{Engine: EngineTRAM, Groups: 2, Replicas: 1, Messages: 1, Crashes: 1},
		{Engine: EngineTRAM, Groups: 2, Replicas: 1, Messages: 2},
		{Engine: EngineTRAM, Groups: 1, Replicas: 2, Messages: 1},
	}
	if raceEnabled || testing.Short() {
		cases = cases[:2]
	}
	for _, options := range cases {
		var results [2]SearchResult
		var rests [2]map[fingerprint]bool
		for i := range results {
			options.Unreduced, options.rests = i == 1, map[fingerprint]bool{}
			result, err := Search(context.Background(), options)
			if err != nil || !result.Complete && result.Violation == nil {
				t.Fatalf("%+v: %+v, %v", options, result, err)
			}
			results[i], rests[i] = result, options.rests
		}
		options.rests = nil
		reduced, whole := results[0], results[1]
		t.Logf("%+v: %d states of %d, %d transitions of %d, %d at rest", options, reduced.States,
			whole.States, reduced.Transitions, whole.Transitions, len(rests[1]))
		switch {
		case (reduced.Violation == nil) != (whole.Violation == nil):
			t.Errorf("%+v: reduced %v, whole %v", options, reduced.Violation, whole.Violation)
		case whole.Violation == nil && (len(rests[1]) == 0 || !maps.Equal(rests[0], rests[1])):
			t.Errorf("%+v: %d states at rest, without reduction %d", options, len(rests[0]),
				len(rests[1]))
		}
	}
}

// racy is the paper's form with a bug that shows if the memory and the machines are in a certain
// state when a replica is about to work.
type racy struct {
	*tramReplicas
	at    order.Replica
	shows func(f *tramReplicas) bool
}

func (r racy) Poll(at order.Replica) {
	if at == r.at && r.shows(r.tramReplicas) {
		r.world.Deliver(at, order.Multicast{})
	}
	r.tramReplicas.Poll(at)
}

// TestReductionKeepsRaces plants bugs that show in few schedules. Both searches must find them, or
// agree that there is no such schedule.
func TestReductionKeepsRaces(t *testing.T) {
	t.Parallel()
	upper, lower := order.Replica{Group: 0}, order.Replica{Group: 1}
	// came reports which clients' first message is in the upper replica's memory.
	came := func(f *tramReplicas) (clients []bool) {
		for _, r := range f.world.stage.(*chosen).hosts[f.world.number(upper)].regions {
			if r.name == "tram/client/0" || r.name == "tram/client/1" {
				slots := (r.Size() - 64) / f.world.Deployment().Slots
				clients = append(clients, r.Load(64+slots-8) != 0)
			}
		}
		return clients
	}
	cases := map[string]struct {
		at    order.Replica
		shows func(f *tramReplicas) bool
		found bool
	}{
		"both messages come before any is ordered": {upper, func(f *tramReplicas) bool {
			return slices.Equal(came(f), []bool{true, true}) && f.servers[upper].Status().End == 0
		}, true},
		"the second comes alone": {upper, func(f *tramReplicas) bool {
			return slices.Equal(came(f), []bool{false, true})
		}, true},
		"one is handed on, and nobody leads below": {lower, func(f *tramReplicas) bool {
			return f.servers[upper].Status().Forwarded[0].Due > 0 &&
				!f.servers[lower].Status().Leading
		}, true},
		"both are handed on, and one is taken": {lower, func(f *tramReplicas) bool {
			return f.servers[upper].Status().Forwarded[0].Due == 2 &&
				f.servers[lower].Status().Applied == 1
		}, true},
		"something is taken that was not handed on": {lower, func(f *tramReplicas) bool {
			return f.servers[upper].Status().Forwarded[0].Due == 0 &&
				f.servers[lower].Status().Applied > 0
		}, false},
	}
	for name, c := range cases {
		for _, unreduced := range []bool{false, true} {
			if raceEnabled && (unreduced || !c.found) {
				continue
			}
			maker := func(world *World, plant string) (Form, error) {
				f, err := newTRAMReplicas(world, plant)
				if err != nil {
					return nil, err
				}
				return racy{f.(*tramReplicas), c.at, c.shows}, nil
			}
			result, err := Search(context.Background(), SearchOptions{Groups: 2, Replicas: 1,
				Messages: 2, Unreduced: unreduced, form: maker})
			if err != nil || c.found != (result.Violation != nil) || result.Complete == c.found {
				t.Errorf("%s, unreduced %v: %+v, %v", name, unreduced, result, err)
			}
			t.Logf("%s, unreduced %v: %d states", name, unreduced, result.States)
		}
	}
}
