package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// Group is a group of servers with one of the house's engines, as production runs it.
type Group struct {
	// Engine is allconcur.EngineAllConcur or allconcur.EngineAllConcurPlus.
	Engine string
	// Servers is the size of the group.
	Servers int
	// NonUniform asks for non-uniform broadcast.
	NonUniform bool
	// Faults are the kinds of fault that a run may have.
	Faults Faults
	// Detector is what the engines take their detector for; the zero value is an eventually perfect
	// one. With allconcur.DetectorPerfect, which goes with crashes alone, a run is one run of the
	// engines, without generations and eons. allconcur.DetectorEventualPaper goes without
	// generations, and only safety is asked.
	Detector allconcur.Detector
	// EngineAlone asks for a run of the engines without generations, which must come to rest all
	// the same: false suspicions are then of single links, again and again, and no other fault than
	// FaultSuspect is taken.
	EngineAlone bool
	// Fault plants a bug in every engine, TurnFault one in what drives it, Plant one in the life
	// around them.
	Fault     allconcur.Fault
	TurnFault turn.Fault
	Plant     Plant
	// ByConsequence judges a server that says what its disk does not hold only by what comes of it.
	ByConsequence bool
}

// turnFault is the bug that is planted in what drives the engines. One of engines goes with one of
// gates, which would hide it.
func (g *Group) turnFault() turn.Fault {
	if g.Fault == allconcur.FaultStaleEon {
		return turn.FaultStaleFrames
	}
	return g.TurnFault
}

// Options returns the options that run the group, without a seed: as many crashes as it tolerates,
// everything else left to the seed. The reliable digraph is the one that a shard of this size gets.
// The error wraps ErrOptions.
func (g Group) Options() (Options, error) {
	if g.Servers < 1 || g.Servers > ServersMax {
		return Options{}, fmt.Errorf("%w: %d servers, want 1 to %d", ErrOptions, g.Servers,
			ServersMax)
	}
	reliable, err := digraph.Reliable(g.Servers, digraph.Target{})
	if err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	config := allconcur.Config{
		Engine: g.Engine, Servers: g.Servers, Reliable: reliable, NonUniform: g.NonUniform,
		MaxPayload: payloadMaxDefault, Fault: g.Fault,
		Detector: g.Detector,
	}
	if g.Detector == allconcur.DetectorPerfect && g.Faults&^FaultCrash != 0 {
		return Options{}, fmt.Errorf("%w: with a perfect detector servers crash, and nothing "+
			"else: use an eventual one for %v", ErrOptions, g.Faults)
	}
	if err := config.Validate(); err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if g.EngineAlone && (g.Detector != allconcur.DetectorEventual || g.Faults&^FaultSuspect != 0) {
		return Options{}, fmt.Errorf("%w: engines alone take false suspicions only, and an "+
			"eventual detector; not %v, %v", ErrOptions, g.Faults, g.Detector)
	}
	options := Options{
		Servers: g.Servers, Reliable: reliable, NonUniform: g.NonUniform, Crashes: AsTolerated,
		Faults: g.Faults, Detector: g.Detector, group: g,
		New: func(self order.ServerID) (order.Broadcaster, error) {
			own := config
			own.Self = self
			return allconcur.New(own)
		},
	}
	if options.lives() {
		options.reliable = make([]*digraph.Digraph, options.slots()+1)
		for n := 1; n <= options.slots(); n++ {
			if options.reliable[n], err = digraph.Reliable(n, digraph.Target{}); err != nil {
				return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
			}
		}
	}
	return options, nil
}
