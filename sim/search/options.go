package search

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

const (
	// ServersMax is the size of the largest group that a search accepts.
	ServersMax = 8
	// RoundsMax is the maximum number of rounds with payloads.
	RoundsMax = 16
	// StatesMaxDefault bounds the states if Options.StatesMax is 0. Each state needs about 30
	// bytes. A state that is not expanded yet needs 4 bytes more for each server and each channel.
	StatesMaxDefault = 20_000_000
)

// ErrOptions is returned for Options that describe no search. Match it with errors.Is.
var ErrOptions = errors.New("search: wrong options")

// Options are what to explore.
type Options struct {
	// Engine is one of Engines.
	Engine string
	// Servers is the size of the group, 1 to ServersMax.
	Servers int
	// Rounds is how many rounds carry payloads: in each of the first Rounds rounds, every server
	// A-broadcasts one, at any moment. Later rounds carry empty messages, which servers A-broadcast
	// at any moment when they are due.
	Rounds int
	// Idle also lets a server A-broadcast an empty message in place of its payload whenever it is
	// solicited.
	Idle bool
	// Crashes is how many servers crash: all sets of at most that many servers, each at any moment.
	Crashes int
	// Suspicions is the number of false suspicions: all choices of at most that many edges of the
	// reliable digraph, each at any moment, and each withdrawn at any later moment.
	Suspicions int
	// Detector is the class of failure detector that the engines assume.
	Detector allconcur.Detector
	// NonUniform selects non-uniform broadcast.
	NonUniform bool
	// Prompt makes the engines deliver promptly (docs/design/prompt.md).
	Prompt bool
	// InFlight is the number of rounds in flight (docs/design/interleaving.md); 0 and 1 are the
	// engine alone. Rounds counts the rounds of all engines together. InterleaveFault plants a bug
	// in how several engines work together.
	InFlight        int
	InterleaveFault interleave.Fault
	// Trains is the number of trains of a ring, for package trains; 0 means trains.TrainsDefault.
	// EonEnds lets the ring's eon end: its first round with a payload changes the group.
	// WagonFrames gives each wagon with a payload a frame of its own. TrainsFault plants a bug in
	// every server of a ring.
	Trains      int
	EonEnds     bool
	WagonFrames bool
	TrainsFault trains.Fault
	// JudgeUniform requires uniform agreement even of non-uniform broadcast, to show what it lacks.
	JudgeUniform bool
	// Fault plants a bug in every engine.
	Fault allconcur.Fault
	// StatesMax bounds the states visited; 0 means StatesMaxDefault.
	StatesMax int
	// Records makes every server record each round that is complete in a group that removed no
	// server, and judges what the records of a majority say (RecordedRounds). RecordsAnyGroup is a
	// bug to plant: servers record in other groups, too.
	Records, RecordsAnyGroup bool
	// WithoutTracking leaves the tracking digraphs of AllConcur and the invariants of rings
	// unchecked, to show what a fault in them does to the group.
	WithoutTracking bool
	// DepthFirst expands the newest states first and goes back to an old state from time to time. A
	// search that cannot be complete then sees whole runs from all parts of the state space.
	// Otherwise the oldest states come first, so a violation is found with the fewest steps.
	DepthFirst bool
	// Unreduced takes every interleaving separately, to show that the reduction loses nothing.
	Unreduced bool
}

// Validate returns an error that wraps ErrOptions if the options are wrong.
func (o Options) Validate() error {
	switch {
	case o.Servers < 1 || o.Servers > ServersMax:
		return fmt.Errorf("%w: %d servers, want 1 to %d", ErrOptions, o.Servers, ServersMax)
	case o.Rounds < 1 || o.Rounds > RoundsMax:
		return fmt.Errorf("%w: %d rounds, want 1 to %d", ErrOptions, o.Rounds, RoundsMax)
	case o.Crashes < 0 || o.Crashes > o.Servers:
		return fmt.Errorf("%w: %d crashes of %d servers", ErrOptions, o.Crashes, o.Servers)
	case o.Suspicions < 0 || o.Suspicions > suspicionsMax:
		return fmt.Errorf("%w: %d false suspicions, want 0 to %d", ErrOptions, o.Suspicions,
			suspicionsMax)
	case o.InFlight < 0 || o.InFlight > InFlightMax:
		return fmt.Errorf("%w: %d rounds in flight, want 1 to %d", ErrOptions, o.InFlight,
			InFlightMax)
	case o.InFlight > 1 && (o.Prompt || o.Records):
		return fmt.Errorf("%w: several rounds in flight exclude prompt delivery and records",
			ErrOptions)
	case o.StatesMax < 0:
		return fmt.Errorf("%w: a bound of %d states, want 0 or more", ErrOptions, o.StatesMax)
	}
	return nil
}

// InFlightMax bounds the rounds in flight.
const InFlightMax = 4

// suspicionsMax bounds the false suspicions in a run.
const suspicionsMax = 8

// Result is the outcome of a search.
type Result struct {
	// States counts the visited states, Transitions the steps between them, and Duplicates the
	// steps that led to a state visited before.
	States, Transitions, Duplicates int
	// Depth is the maximum number of steps from a first state to a visited state.
	Depth int
	// Ends counts the states in which nothing is left to do. Stalled counts those of them in which
	// the group needs a new generation to go on, so no liveness is required.
	Ends, Stalled int
	// Scenarios counts the first states: the choices of servers that crash and of false suspicions.
	Scenarios int
	// ServerStates counts the different states of a single server, and EngineSteps the steps that
	// an engine took. Each of them is taken and checked once.
	ServerStates, EngineSteps int
	// Restarts counts how often the search began again because a frame that seemed useless was not.
	Restarts int
	// Complete reports that all states were visited. Otherwise Bound is what ended the search:
	// BoundStates, BoundTime, BoundInterrupt or BoundViolation.
	Complete bool
	Bound    string
	// Violations holds the broken properties, at most one: the search ends there.
	Violations []Violation
}

// Reasons why a search ends before it is complete.
const (
	BoundStates    = "states"
	BoundTime      = "time"
	BoundInterrupt = "interrupt"
	BoundViolation = "violation"
)

// Violation is a broken property, and how to get there.
type Violation struct {
	// Property is the broken property, and Evidence the facts, one a line.
	Property order.Property
	Evidence []string
	// Path is the schedule, one step a line.
	Path []string
	// Schedule is the path in the short form that Replay takes.
	Schedule string
}
