package search

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

const (
	// ServersMax is the largest group that a search takes.
	ServersMax = 8
	// RoundsMax is the most rounds with payloads that a search takes.
	RoundsMax = 16
	// StatesMaxDefault bounds the states where Options.StatesMax is 0. They need about 30 bytes
	// each, and those that are still to be looked at 4 bytes more for each server and each channel.
	StatesMaxDefault = 20_000_000
)

// ErrOptions says that Options describe no search; match it with errors.Is.
var ErrOptions = errors.New("search: wrong options")

// Options say what to explore.
type Options struct {
	// Engine is allconcur.EngineAllConcur or allconcur.EngineAllConcurPlus.
	Engine string
	// Servers is the size of the group, 1 to ServersMax.
	Servers int
	// Rounds is how many rounds carry payloads: in each of the first Rounds rounds every server
	// A-broadcasts one, at any moment. Later rounds carry empty messages, which servers
	// A-broadcast, at any moment, when they are due.
	Rounds int
	// Idle lets a server A-broadcast an empty message in place of its payload, too, whenever it is
	// solicited.
	Idle bool
	// Crashes is how many servers crash: all sets of so many servers, or fewer, each at any moment.
	Crashes int
	// Suspicions is how many false suspicions there are: all choices of so many edges of the
	// reliable digraph, or fewer, each at any moment, and each taken back at any later moment.
	Suspicions int
	// Detector is what the engines take their failure detector for.
	Detector allconcur.Detector
	// NonUniform asks for non-uniform broadcast.
	NonUniform bool
	// JudgeUniform asks uniform agreement of non-uniform broadcast all the same, to show what it
	// lacks.
	JudgeUniform bool
	// Fault plants a bug in every engine.
	Fault allconcur.Fault
	// StatesMax bounds the states visited; 0 means StatesMaxDefault.
	StatesMax int
	// WithoutTracking leaves the tracking digraphs unchecked, to see what a fault in them does to
	// the group.
	WithoutTracking bool
	// DepthFirst looks at the newest states first, from time to time going back to a state of long
	// ago: where a search cannot be complete, it sees whole runs from all parts of it. Otherwise
	// the oldest come first, so that a violation is found with the fewest steps.
	DepthFirst bool
	// Unreduced takes every interleaving one by one, to show that the reduction loses nothing.
	Unreduced bool
}

// Validate says what is wrong with the options; the error wraps ErrOptions.
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
	case o.StatesMax < 0:
		return fmt.Errorf("%w: at most %d states", ErrOptions, o.StatesMax)
	}
	return nil
}

// suspicionsMax bounds the false suspicions in a run.
const suspicionsMax = 8

// group is what the options say about the group: its engines' configuration and its digraph.
func (o Options) group() (allconcur.Config, error) {
	if err := o.Validate(); err != nil {
		return allconcur.Config{}, err
	}
	reliable, err := digraph.Reliable(o.Servers, digraph.Target{})
	if err != nil {
		return allconcur.Config{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	config := allconcur.Config{
		Engine: o.Engine, Servers: o.Servers, Reliable: reliable, Detector: o.Detector,
		NonUniform: o.NonUniform, Fault: o.Fault,
		AssertPropositions: o.Detector == allconcur.DetectorPerfect && o.Suspicions == 0,
	}
	if err := config.Validate(); err != nil {
		return allconcur.Config{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return config, nil
}

// Result is what a search found.
type Result struct {
	// States counts the states visited, Transitions the steps between them, and Duplicates those
	// that led to a state visited before.
	States, Transitions, Duplicates int
	// Depth is the most steps from a first state to one visited.
	Depth int
	// Ends counts the states in which nothing is left to do, and Stalled those among them that need
	// a new generation of the group to go on, so that no liveness is asked.
	Ends, Stalled int
	// Scenarios counts the first states: the choices of who crashes and who is wrong about whom.
	Scenarios int
	// ServerStates counts the different states of a single server, and EngineSteps the steps that
	// an engine took: each of them is taken and checked once.
	ServerStates, EngineSteps int
	// Restarts counts how often the search had to begin again, because a frame that had seemed to
	// be of no use was.
	Restarts int
	// Complete tells that all was visited. Otherwise Bound says what ended the search: BoundStates,
	// BoundTime, BoundInterrupt or BoundViolation.
	Complete bool
	Bound    string
	// Violations holds what is broken, at most one: the search ends there.
	Violations []Violation
}

// What ends a search before it is complete.
const (
	BoundStates    = "states"
	BoundTime      = "time"
	BoundInterrupt = "interrupt"
	BoundViolation = "violation"
)

// Violation says what is broken, and how to get there.
type Violation struct {
	// Property names what is broken, and Evidence is what happened, a fact a line.
	Property order.Property
	Evidence []string
	// Path is the schedule, a step a line.
	Path []string
	// Schedule is the path in short, as Replay takes it.
	Schedule string
}
