package search

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

const (
	// RingInvariants: what trains.Engine.Check checks in each server.
	RingInvariants order.Property = "invariants of rings"
	// RingVotes: under ◇P, each server that did not crash A-delivered or votes for every round that
	// any server A-delivered, with the same content. So a new generation may start from the votes
	// of any of them.
	RingVotes order.Property = "votes of rings"
)

// ringGroup returns a ring of package trains. Every server learns of every failure. Under P a ring
// goes on down to one server. Under ◇P it stands still with the first crash.
func ringGroup(o Options) (*model, error) {
	switch {
	case o.NonUniform || o.Prompt || o.Records || o.InFlight > 1:
		return nil, fmt.Errorf("%w: %s has no non-uniform or prompt delivery, no records, and no "+
			"rounds in flight but its trains", ErrOptions, trains.EngineName)
	case o.Fault != allconcur.FaultNone || o.InterleaveFault != interleave.FaultNone:
		return nil, fmt.Errorf("%w: %s has no bugs of AllConcur", ErrOptions, trains.EngineName)
	}
	config := trains.Config{Servers: o.Servers, Trains: o.Trains, Fault: o.TrainsFault}
	tolerated := 0
	switch o.Detector {
	case allconcur.DetectorPerfect:
		config.Detector, tolerated = trains.DetectorPerfect, o.Servers-1
	case allconcur.DetectorEventual:
		config.Detector = trains.DetectorEventual
	default:
		return nil, fmt.Errorf("%w: %s needs a perfect detector or an eventually perfect one",
			ErrOptions, trains.EngineName)
	}
	if o.WagonFrames {
		config.WagonFrameMin = 1
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	complete, err := digraph.Complete(o.Servers)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if o.EonEnds {
		config.Change = func(order.Delivery) bool { return true }
	}
	g := &model{
		watch: complete, tolerated: tolerated,
		votes:    config.Detector == trains.DetectorEventual,
		sends:    func(int, int) bool { return true },
		describe: trains.Describe,
		copyOf:   cloned[*trains.Engine],
		make: func(self order.ServerID) (machine, error) {
			own := config
			own.Self = self
			return trains.New(own)
		},
	}
	if !o.WithoutTracking {
		g.inspect = inspectRing
	}
	return g, nil
}

// inspectRing checks the state of a server of a ring.
func inspectRing(id order.ServerID, engine machine) *order.Violation {
	wrong := engine.(*trains.Engine).Check()
	if wrong == nil {
		return nil
	}
	return &order.Violation{Property: RingInvariants,
		Evidence: []string{fmt.Sprintf("server %d: %v", id, wrong)}}
}

// judgeVotes judges the votes of every server that did not crash against the server that
// A-delivered most.
func (j *judge) judgeVotes(outcomes []uint32) *order.Violation {
	var furthest outcome
	for _, id := range outcomes {
		if o := j.outcomes[id]; j.roundOf(o) > j.roundOf(furthest) {
			furthest = o
		}
	}
	rounds := j.deliveries(furthest.delivered)
	for _, id := range outcomes {
		o := j.outcomes[id]
		if o.crashed {
			continue
		}
		votes := map[order.Round]order.Delivery{}
		for _, v := range j.promises[o.promise].votes {
			votes[v.Round] = v.Delivery
		}
		for _, d := range rounds[j.roundOf(o):] {
			if vote, has := votes[d.Round]; !has ||
				string(appendContent(nil, vote)) != string(appendContent(nil, d)) {
				return &order.Violation{Property: RingVotes, Evidence: []string{
					fmt.Sprintf("server %d A-delivers %s", furthest.id, describeDelivery(d)),
					fmt.Sprintf("server %d has neither A-delivered that nor votes for it", o.id),
				}}
			}
		}
	}
	return nil
}
