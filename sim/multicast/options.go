package multicast

import (
	"fmt"
	"io"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// Options says what is run. The same options give the same run, event for event.
type Options struct {
	// Engine is the name of a form, and Plant a bug that is planted in it, "" for none.
	Engine, Plant string
	// Seed draws what the other options leave open.
	Seed uint64
	// Groups is the number of groups, up to GroupsMax; 0 leaves it to the seed. Replicas is the
	// size of each, up to ReplicasMax; 0 leaves the sizes to the seed.
	Groups, Replicas int
	// Tree connects the groups, whose number is then Groups; nil leaves it to the seed.
	Tree *tram.Tree
	// Messages is how many messages are submitted, up to MessagesLimit; 0 leaves it to the seed, up
	// to MessagesMax.
	Messages int
	// Faults are the kinds of fault that the seed may draw.
	Faults Faults
	// OnlyMessages and OnlyFaults leave out all messages and faults of the plan but those with
	// these numbers; nil keeps all.
	OnlyMessages, OnlyFaults []int
	// Trace, where it is not nil, is told what happens, an event a line.
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
	_, err := o.maker()
	return err
}

// maker finds what makes the form.
func (o *Options) maker() (Maker, error) {
	if o.form != nil {
		return o.form, nil
	}
	engine, err := engineOf(o.Engine, o.Plant)
	return engine.New, err
}

// Result is what a run came to.
type Result struct {
	Seed uint64
	// Violations are what the oracles found broken, safety first; none if the run passed.
	Violations []*order.Violation
	// Plan describes what the seed decided before the run.
	Plan string
	// Groups and Replicas count the deployment's, Messages what was submitted, Deliveries what was
	// A-delivered by all replicas together, Faults what went wrong.
	Groups, Replicas, Messages, Deliveries, Faults int
	// Crashed are the processes that crashed, or hang for good, in that order.
	Crashed []order.Replica
	// Overwhelmed tells that a group lost more than it tolerates, so that only safety was judged.
	Overwhelmed bool
	// Events counts what happened, and Elapsed is the virtual time that it took.
	Events  int
	Elapsed time.Duration
	// Hash is over all that the frame saw; two runs with one hash went alike.
	Hash uint64
	// submitted and struck are the numbers of the plan's messages and faults.
	submitted, struck []int
}

// Properties that only this frame judges.
const (
	// Contract: a form does what Form says: it does not panic.
	Contract order.Property = "contract"
	// Progress: all that is due is A-delivered within bounded time once nothing goes wrong any
	// more.
	Progress order.Property = "progress"
)
