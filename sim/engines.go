package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

// engineRow is how the simulator runs one of ledgerd's engines.
type engineRow struct {
	name string
	// options, if set, returns the options of a group that needs others than AllConcur's. The row
	// then has no check and no make.
	options func(g *Group, row engineRow) (Options, error)
	// toOne says that the engine goes on down to one server: it needs no majority.
	toOne bool
	// unreliable says that the engine has unreliable rounds, to which a group returns when its
	// faults are over.
	unreliable bool
	// check returns an error if the engine cannot be made for a group.
	check func(g *Group, s seat) error
	// make makes the engine of a server.
	make func(g *Group, s seat) (order.Broadcaster, error)
}

// engineRows is the table of the engines.
var engineRows = []engineRow{
	{name: allconcur.EngineAllConcurPlus, unreliable: true, check: checkAllConcur,
		make: makeAllConcur},
	{name: allconcur.EngineAllConcur, check: checkAllConcur, make: makeAllConcur},
	{name: trains.EngineName, toOne: true, options: ringOptions},
}

// Engines lists the names of the engines that a Group can have.
func Engines() []string {
	names := make([]string, len(engineRows))
	for i, row := range engineRows {
		names[i] = row.name
	}
	return names
}

// row returns the group's engine.
func (g *Group) row() (engineRow, error) {
	at := slices.IndexFunc(engineRows, func(r engineRow) bool { return r.name == g.Engine })
	if at < 0 {
		return engineRow{}, fmt.Errorf("%w: engine %q, want one of %q", ErrOptions, g.Engine,
			Engines())
	}
	return engineRows[at], nil
}

// seat is a server's place in a run, from which its engine is made.
type seat struct {
	self    order.ServerID
	servers int
	// shard is the number of members of the shard, 0 for servers.
	shard    int
	reliable *digraph.Digraph
	// run is the number of the run, and first that of its first round.
	run        uint64
	first      order.Round
	payloadMax int
	detector   allconcur.Detector
	nonUniform bool
	// changes reports whether a round changes the group. It may be nil.
	changes func(order.Delivery) bool
}

// allConcur returns the configuration of AllConcur's engine at a seat.
func (g *Group) allConcur(s seat) allconcur.Config {
	return allconcur.Config{
		Engine: g.Engine, Self: s.self, Servers: s.servers, Shard: s.shard, Reliable: s.reliable,
		Generation: s.run, FirstRound: s.first, MaxPayload: s.payloadMax, Detector: s.detector,
		NonUniform: s.nonUniform, Prompt: g.promptly(), Fault: g.Fault, Change: s.changes,
	}
}

func checkAllConcur(g *Group, s seat) error { return g.allConcur(s).Validate() }

// makeAllConcur makes one of AllConcur's engines, or several with their rounds in flight at a time.
func makeAllConcur(g *Group, s seat) (order.Broadcaster, error) {
	config := g.allConcur(s)
	if g.inFlight() == 1 {
		alone, err := allconcur.New(config)
		if err != nil {
			return nil, err
		}
		return alone, nil
	}
	several, err := interleave.New(interleave.Config{Engine: config, InFlight: g.inFlight(),
		Fault: g.InterleaveFault})
	if err != nil {
		return nil, err
	}
	return several, nil
}
