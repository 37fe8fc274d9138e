package interleave

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// InFlightMax is the maximum number of rounds in flight.
const InFlightMax = 64

const (
	// numberShift is where the number of an engine begins in the generation of its frames.
	numberShift = 56
	// generationMax is the largest Generation of a group.
	generationMax = 1<<numberShift - 1
)

// Config describes one server's engine. All servers of a group must have equal values except for
// Engine.Self.
type Config struct {
	// Engine is the configuration of each engine. Prompt and Change must not be set. FirstRound is
	// the number of the group's first round. Generation is below 2^56: the byte above has the
	// engine's number in frames.
	Engine allconcur.Config
	// InFlight is k, the number of engines, 1 to InFlightMax.
	InFlight int
	// Fault plants a bug, to prove that a checker finds it. Production leaves it FaultNone.
	Fault Fault
}

// Fault is a bug that is planted on purpose.
type Fault uint8

const (
	// FaultNone is the correct engine.
	FaultNone Fault = iota
	// FaultArrivalOrder A-delivers rounds in the order in which their engines do.
	FaultArrivalOrder
	// FaultEmptyTurnSkipped does not wait for the round whose turn it is, if another engine has a
	// round with messages.
	FaultEmptyTurnSkipped
	// FaultOneEngineSuspects tells suspicions to one engine only.
	FaultOneEngineSuspects
	// FaultRemovedSpeaks A-delivers what engines have of a server that another one removed.
	FaultRemovedSpeaks
	faultEnd
)

// FaultsInFlight is how many rounds have to be in flight for a planted bug to show soon.
const FaultsInFlight = 3

// Faults lists the bugs to plant.
func Faults() []Fault {
	return []Fault{FaultArrivalOrder, FaultEmptyTurnSkipped, FaultOneEngineSuspects,
		FaultRemovedSpeaks}
}

// String returns the fault's name as used on a command line.
func (f Fault) String() string {
	switch f {
	case FaultNone:
		return "none"
	case FaultArrivalOrder:
		return "arrival-order"
	case FaultEmptyTurnSkipped:
		return "empty-turn-skipped"
	case FaultOneEngineSuspects:
		return "one-engine-suspects"
	case FaultRemovedSpeaks:
		return "removed-speaks"
	default:
		return fmt.Sprintf("fault(%d)", uint8(f))
	}
}

// Validate returns an error that wraps allconcur.ErrConfig if the configuration is wrong.
func (c Config) Validate() error {
	switch {
	case c.InFlight < 1 || c.InFlight > InFlightMax:
		return fmt.Errorf("%w: %d rounds in flight, want 1 to %d", allconcur.ErrConfig, c.InFlight,
			InFlightMax)
	case c.Engine.Prompt:
		return fmt.Errorf("%w: prompt delivery and several rounds in flight exclude each other",
			allconcur.ErrConfig)
	case c.Engine.Change != nil:
		return fmt.Errorf("%w: with several rounds in flight, a round cannot end the eon",
			allconcur.ErrConfig)
	case c.Engine.Generation > generationMax:
		return fmt.Errorf("%w: generation %d, want at most %d: the byte above is the engine's "+
			"number", allconcur.ErrConfig, c.Engine.Generation, uint64(generationMax))
	case c.Fault >= faultEnd:
		return fmt.Errorf("%w: no such fault, %d", allconcur.ErrConfig, c.Fault)
	}
	return c.Engine.Validate()
}

// FrameGeneration returns the generation of a frame without examining the rest of it, like
// allconcur.FrameGeneration.
func FrameGeneration(frame []byte) (uint64, error) {
	generation, err := allconcur.FrameGeneration(frame)
	return generation & generationMax, err
}

// numberOf returns the number of the engine that a frame is of.
func numberOf(frame []byte) (int, error) {
	generation, err := allconcur.FrameGeneration(frame)
	return int(generation >> numberShift), err
}

// engineConfig returns the configuration of one engine. It numbers its own rounds from 1.
func (c Config) engineConfig(number int) allconcur.Config {
	engine := c.Engine
	engine.FirstRound = 1
	engine.Generation |= uint64(number) << numberShift
	return engine
}

// numbered returns the number, among all rounds, of a round of an engine.
func (c Config) numbered(number int, own order.Round) order.Round {
	return c.Engine.FirstRound + (own-1)*order.Round(c.InFlight) + order.Round(number)
}
