package search

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

// machine is an engine that a search can explore.
type machine interface {
	order.Broadcaster
	// AppendState appends everything that the engine's further behaviour depends on. Two engines
	// with equal state behave the same.
	AppendState(state []byte) []byte
}

// model is a group of servers with one engine: all that a search needs to know of it.
type model struct {
	// watch has an edge from each server to each whose detector watches it. These learn that it
	// stopped, and may suspect it falsely. tolerated is how many failures the group survives.
	watch     *digraph.Digraph
	tolerated int
	// make returns the engine of a server at its beginning, and copyOf a copy of an engine. Nothing
	// that happens to the copy may change the original.
	make   func(self order.ServerID) (machine, error)
	copyOf func(machine) machine
	// sends reports whether a server may ever send to another.
	sends func(from, to int) bool
	// votes says that servers vote for rounds which they have not A-delivered, and that the votes
	// are judged.
	votes bool
	// nameless says that engines treat the names of servers alike. Servers may then be renamed if
	// that changes neither watch nor sends.
	nameless bool
	// inspect returns what is wrong within an engine, nil for nothing. It may be nil.
	inspect func(id order.ServerID, engine machine) *order.Violation
	// describe describes a frame.
	describe func(frame []byte) string
}

// engineRow is how a search makes groups of one of ledgerd's engines.
type engineRow struct {
	name string
	// group returns the group that options describe. The error wraps ErrOptions.
	group func(o Options) (*model, error)
}

// engineRows is the table of the engines.
var engineRows = []engineRow{
	{allconcur.EngineAllConcurPlus, allConcurGroup},
	{allconcur.EngineAllConcur, allConcurGroup},
	{trains.EngineName, ringGroup},
}

// Engines lists the names of the engines that a search can explore.
func Engines() []string {
	names := make([]string, len(engineRows))
	for i, row := range engineRows {
		names[i] = row.name
	}
	return names
}

// group returns the group to explore.
func (o Options) group() (*model, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(engineRows, func(r engineRow) bool { return r.name == o.Engine })
	if at < 0 {
		return nil, fmt.Errorf("%w: engine %q, want one of %q", ErrOptions, o.Engine, Engines())
	}
	return engineRows[at].group(o)
}

// cloned copies an engine that has a method Clone.
func cloned[E interface {
	machine
	Clone() E
}](m machine) machine {
	return m.(E).Clone()
}
