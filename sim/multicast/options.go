package multicast

import (
	"fmt"
	"io"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// Options describes a run. The same options give the same run, event for event.
type Options struct {
	// Engine is the name of a form, and Plant a bug to plant in it, "" for none.
	Engine, Plant string
	// Seed draws everything that the other options leave open.
	Seed uint64
	// Groups is the number of groups, up to GroupsMax, or 1 for an engine that has one group. 0
	// lets the seed choose. Replicas is the size of each group, up to ReplicasMax. 0 lets the seed
	// choose the sizes.
	Groups, Replicas int
	// Tree connects the groups. If it is set, Groups must be its number of groups; nil lets the
	// seed choose.
	Tree *tram.Tree
	// Messages is how many messages are submitted, up to MessagesLimit. 0 lets the seed choose, up
	// to MessagesMax.
	Messages int
	// Faults are the kinds of fault that the seed may draw.
	Faults Faults
	// OnlyMessages and OnlyFaults keep only the messages and faults of the plan with these numbers;
	// nil keeps all.
	OnlyMessages, OnlyFaults []int
	// Trace receives the events, one a line, unless it is nil.
	Trace io.Writer

	// form is run instead of an engine, by tests.
	form Maker
}

// MessagesLimit bounds Options.Messages.
const MessagesLimit = 10_000

// Validate checks the options. The error wraps ErrOptions or ErrEngine.
func (o *Options) Validate() error {
	switch {
	case o.Groups < 0 || o.Groups > GroupsMax:
		return fmt.Errorf("%w: %d groups, want 1 to %d, or 0 to leave it to the seed", ErrOptions,
			o.Groups, GroupsMax)
	case o.Replicas < 0 || o.Replicas > ReplicasMax:
		return fmt.Errorf("%w: %d replicas in a group, want 1 to %d, or 0 to leave it to the seed",
			ErrOptions, o.Replicas, ReplicasMax)
	case o.Tree != nil && o.Tree.Groups() != o.Groups:
		return fmt.Errorf("%w: a tree of %d groups for %d groups", ErrOptions, o.Tree.Groups(),
			o.Groups)
	case o.Messages < 0 || o.Messages > MessagesLimit:
		return fmt.Errorf("%w: %d messages, want 1 to %d, or 0 to leave it to the seed", ErrOptions,
			o.Messages, MessagesLimit)
	}
	if o.form != nil {
		return nil
	}
	engine, err := engineOf(o.Engine, o.Plant)
	if err == nil && engine.OneGroup && o.Groups > 1 {
		return fmt.Errorf("%w: %s has one group, not %d", ErrOptions, o.Engine, o.Groups)
	}
	if err == nil && !engine.Takes(o.Faults) {
		return fmt.Errorf("%w: groups of %s do not change, so it has no faults %v", ErrOptions,
			o.Engine, o.Faults&faultsOfChange)
	}
	return err
}

// maker returns the maker of the form.
func (o *Options) maker() (Maker, error) {
	if o.form != nil {
		return o.form, nil
	}
	engine, err := engineOf(o.Engine, o.Plant)
	return engine.New, err
}

// Result is the result of a run.
type Result struct {
	Seed uint64
	// Violations are the broken properties that the oracles found, safety first. It is empty if the
	// run passed.
	Violations []*order.Violation
	// Plan describes what the seed decided before the run.
	Plan string
	// Groups and Replicas count those of the deployment, Messages the submitted messages,
	// Deliveries the A-deliveries of all replicas together, Faults the faults that struck.
	Groups, Replicas, Messages, Deliveries, Faults int
	// Crashed are the processes that crashed or hang for good, in the order of these events.
	Crashed []order.Replica
	// Overwhelmed reports that a group lost more than it tolerates, so only safety was judged.
	Overwhelmed bool
	// Events counts the events, and Elapsed is the virtual time of the run.
	Events  int
	Elapsed time.Duration
	// Hash covers everything that the frame saw. Two runs with the same hash went alike.
	Hash uint64
	// submitted and struck are the numbers of the plan's messages and faults.
	submitted, struck []int
}

// Properties that only this frame judges.
const (
	// Contract: a form keeps the contract of Form and does not panic.
	Contract order.Property = "contract"
	// Progress: all due messages are A-delivered within bounded time after the last fault.
	Progress order.Property = "progress"
	// Invariant: what a form promises of the memory of its processes, which it looks into itself.
	Invariant order.Property = "invariant"
)
