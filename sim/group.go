package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
	"github.com/ledgerd/ledgerd/trains"
)

// Group is a group of servers with one of ledgerd's engines, as production runs it.
type Group struct {
	// Engine is one of Engines.
	Engine string
	// Servers is the size of the group.
	Servers int
	// NonUniform selects non-uniform broadcast.
	NonUniform bool
	// Faults are the kinds of fault that a run may have.
	Faults Faults
	// Detector is the class of detector that the engines assume. The zero value is an eventually
	// perfect one. With allconcur.DetectorPerfect, which supports crashes only, a run is one run of
	// the engines, without generations and eons. allconcur.DetectorEventualPaper works without
	// generations, and only safety is required.
	Detector allconcur.Detector
	// EngineAlone selects a run of the engines without generations, which must come to rest all the
	// same. False suspicions are then of single links, again and again, and FaultSuspect is the
	// only supported fault.
	EngineAlone bool
	// Fault plants a bug in every engine, TurnFault in the driver of the engines, and Plant in the
	// life around them.
	Fault     allconcur.Fault
	TurnFault turn.Fault
	Plant     Plant
	// Records lets processes record complete rounds on their disks before these are A-delivered
	// (docs/design/rounds.md). The seed draws which do.
	Records bool
	// Prompt makes the engines deliver promptly (docs/design/prompt.md). It requires AllConcur+ and
	// an eventually perfect detector, and excludes records.
	Prompt bool
	// InFlight is the number of rounds in flight (docs/design/interleaving.md); 0 and 1 are the
	// engine alone. More require a perfect detector: a generation takes the votes of one engine.
	// InterleaveFault plants a bug in how several engines work together.
	InFlight        int
	InterleaveFault interleave.Fault
	// Trains is the number of trains of a ring; 0 is trains.TrainsDefault. TrainsFault plants a bug
	// in its engines.
	Trains      int
	TrainsFault trains.Fault
	// LedFault plants a bug in the engines of package dare.
	LedFault dare.Fault
	// FullRounds makes rounds of package dare hold a message of each member that is not missing, as
	// in a book of several shards.
	FullRounds bool
	// EngineChanges lets the operator change the engine while the shard lives, as often, when and
	// to which engine the seed draws. Engine is then the engine of the servers' settings, with
	// which the chain begins.
	EngineChanges bool
	// ByConsequence judges a server that claims what its disk does not hold only by the
	// consequences.
	ByConsequence bool
}

// records reports whether processes may record rounds. The bugs in records need it.
func (g *Group) records() bool {
	return g.Records || g.Plant >= PlantRecordAnnouncedEarly && g.Plant <= PlantRecordsFirst ||
		g.TurnFault == turn.FaultRecordsAnyGroup
}

// promptly reports whether engines deliver promptly. The bugs in that need it.
func (g *Group) promptly() bool {
	return g.Prompt || slices.Contains(allconcur.PromptFaults(), g.Fault) ||
		g.Plant == PlantVouchedIgnored
}

// ChangesEngine reports whether the operator may change the engine. The bugs in that need it.
func (g *Group) ChangesEngine() bool {
	return g.EngineChanges || g.Plant >= PlantEngineOfSetting && g.Plant <= PlantEngineLate
}

// inFlight returns the number of rounds in flight. A planted bug of package interleave needs
// several.
func (g *Group) inFlight() int {
	if g.InterleaveFault != interleave.FaultNone {
		return max(g.InFlight, interleave.FaultsInFlight)
	}
	return max(g.InFlight, 1)
}

// turnFault returns the bug planted in the driver of the engines. An engine's bug with stale frames
// needs one of the gate, which would otherwise hide it.
func (g *Group) turnFault() turn.Fault {
	if g.Fault == allconcur.FaultStaleEon {
		return turn.FaultStaleFrames
	}
	return g.TurnFault
}

// Options returns the options that run the group, without a seed: as many crashes as it tolerates,
// and everything else left to the seed. The error wraps ErrOptions.
func (g Group) Options() (Options, error) {
	if g.Servers < 1 || g.Servers > ServersMax {
		return Options{}, fmt.Errorf("%w: %d servers, want 1 to %d", ErrOptions, g.Servers,
			ServersMax)
	}
	row, err := g.row()
	if err != nil {
		return Options{}, err
	}
	reliable, err := row.reliable(g.Servers)
	if err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	first := seat{servers: g.Servers, reliable: reliable, payloadMax: payloadMaxDefault,
		detector: g.Detector, nonUniform: g.NonUniform}
	if g.Detector == allconcur.DetectorPerfect && g.Faults&^FaultCrash != 0 {
		return Options{}, fmt.Errorf("%w: a perfect detector supports crashes only; use an "+
			"eventual one for %v", ErrOptions, g.Faults)
	}
	if err := row.check(&g, first); err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if g.promptly() && g.records() {
		return Options{}, fmt.Errorf("%w: records of rounds and prompt delivery exclude each other",
			ErrOptions)
	}
	if g.FullRounds && row.makeMachine == nil && !g.EngineChanges {
		return Options{}, fmt.Errorf("%w: rounds of %s are full always: full rounds are for %s, "+
			"and for changes of the engine", ErrOptions, row.name, dare.EngineName)
	}
	if g.InFlight < 0 || g.InFlight > interleave.InFlightMax {
		return Options{}, fmt.Errorf("%w: %d rounds in flight, want 1 to %d", ErrOptions,
			g.InFlight, interleave.InFlightMax)
	}
	if g.inFlight() > 1 && g.Detector != allconcur.DetectorPerfect {
		return Options{}, fmt.Errorf("%w: several rounds in flight need a perfect detector: a "+
			"generation takes the votes of one engine", ErrOptions)
	}
	if g.EngineAlone && (g.Detector != allconcur.DetectorEventual || g.Faults&^FaultSuspect != 0) {
		return Options{}, fmt.Errorf("%w: engines alone support false suspicions and an "+
			"eventual detector only, not %v and %v", ErrOptions, g.Faults, g.Detector)
	}
	options := Options{
		Servers: g.Servers, Reliable: reliable, NonUniform: g.NonUniform, Crashes: AsTolerated,
		Faults: g.Faults, Detector: g.Detector, Describe: row.describe, group: g, engine: row,
		New: func(self order.ServerID) (order.Broadcaster, error) {
			own := first
			own.self = self
			return row.make(&g, own)
		},
	}
	if g.ChangesEngine() {
		if options.alone() || !options.lives() {
			return Options{}, fmt.Errorf("%w: only a shard that lives on changes its engine",
				ErrOptions)
		}
		options.engines = g.changesTo(first)
	}
	if options.lives() {
		options.reliable = make(map[string][]*digraph.Digraph)
		for _, at := range append(options.engines, slices.IndexFunc(engineRows,
			func(r engineRow) bool { return r.name == row.name })) {
			overlays := make([]*digraph.Digraph, options.slots()+1)
			for n := 1; n <= options.slots(); n++ {
				if overlays[n], err = engineRows[at].reliable(n); err != nil {
					return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
				}
			}
			options.reliable[engineRows[at].name] = overlays
		}
	}
	return options, nil
}
