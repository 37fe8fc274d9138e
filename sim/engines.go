package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/trains"
)

// engineRow is how the simulator runs one of ledgerd's engines.
type engineRow struct {
	name string
	// toOne says that the engine goes on down to one server under a perfect detector: it needs no
	// majority.
	toOne bool
	// unreliable says that the engine has unreliable rounds, to which a group returns when its
	// faults are over.
	unreliable bool
	// prompt says that the engine can deliver promptly, and records that it reports complete
	// rounds.
	prompt, records bool
	// neverHalts says that an engine halts in no run that the faults of the simulator can make.
	neverHalts bool
	// reliable returns the digraph along which the servers of a group learn of failures.
	reliable func(servers int) (*digraph.Digraph, error)
	// spacing returns the number of rounds, from that of a change of the membership on, in which no
	// further change takes effect: those that may follow it in the same run.
	spacing func(g *Group) order.Round
	// describe describes a frame in a trace. It may be nil.
	describe func(frame []byte) string
	// check returns an error if the engine cannot be made for a group.
	check func(g *Group, s seat) error
	// make makes the engine of a server, if it takes frames, and makeMachine one that works on
	// one-sided memory. peers are the incarnations of the members of the group, by place.
	make        func(g *Group, s seat) (order.Broadcaster, error)
	makeMachine func(g *Group, s seat, peers []rdmanet.Peer, host rdmanet.RegionHost) (
		*dare.Server, error)
}

// engineRows is the table of the engines.
var engineRows = []engineRow{
	{name: allconcur.EngineAllConcurPlus, unreliable: true, prompt: true, records: true,
		reliable: ofShard, spacing: allConcurSpacing, check: checkAllConcur, make: makeAllConcur},
	{name: allconcur.EngineAllConcur, records: true, reliable: ofShard,
		spacing: allConcurSpacing, check: checkAllConcur, make: makeAllConcur},
	{name: trains.EngineName, toOne: true, neverHalts: true, reliable: digraph.Complete,
		spacing: ringSpacing, describe: trains.Describe, check: checkRing, make: makeRing},
	{name: dare.EngineName, reliable: digraph.Complete, spacing: allConcurSpacing,
		check: checkLed, make: makeNoFrames, makeMachine: makeLed},
}

// with returns the group with another engine, as it is once the operator changed the engine. What
// goes with some engines only is not there with the others.
func (g *Group) with(row engineRow) *Group {
	if row.name == g.Engine {
		return g
	}
	changed := *g
	changed.Engine = row.name
	changed.Prompt = g.Prompt && row.prompt
	changed.Records = g.Records && row.records
	return &changed
}

// changesTo returns the engines that the operator may choose, by their places in engineRows. first
// is a seat of the group.
func (g *Group) changesTo(first seat) (all []int) {
	for at, row := range engineRows {
		reliable, err := row.reliable(g.Servers)
		first.reliable = reliable
		if err == nil && row.check(g.with(row), first) == nil {
			all = append(all, at)
		}
	}
	return all
}

// ofShard returns the reliable digraph that a shard of this size gets.
func ofShard(servers int) (*digraph.Digraph, error) {
	return digraph.Reliable(servers, digraph.Target{})
}

// allConcurSpacing is as in the ledger.
func allConcurSpacing(*Group) order.Round { return 3 }

// spacing returns the spacing of the group's engine, or a wrong one if that is planted.
func (g *Group) spacing(row *engineRow) order.Round {
	if g.Plant == PlantChangesTooClose {
		return allConcurSpacing(g)
	}
	return row.spacing(g)
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
	// silence is how long a leader may be silent, and note hears of an engine's steps.
	silence time.Duration
	note    func(format string, arguments ...any)
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
