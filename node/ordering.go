package node

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/poller"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// ordering drives the engines of a node's runs, one at a time: driver.Driver drives those that take
// frames, poller.Runs those that work on one-sided memory.
type ordering interface {
	Activate(group driver.Group) error
	Freeze() driver.Remains
	SetPeers(peers []rdmanet.PeerID) error
	Met(peer rdmanet.Peer)
	Suspect(run uint64, server order.ServerID, cause error)
	Trust(run uint64, server order.ServerID)
	Probe(run uint64)
	Status() *driver.Status
	Close()
}

// framed drives engines that take frames. The lanes know the incarnations of their peers.
type framed struct{ *driver.Driver }

// Met does nothing.
func (framed) Met(rdmanet.Peer) {}

// Settings of polled engines in nodes.
const (
	// polledIdle is how long a node does not look at its memory while nothing is to be done there:
	// those that write to it ring.
	polledIdle = 2 * time.Millisecond
	// leaderShare is the part of suspect_after for which a leader may be silent. An election among
	// servers that work costs milliseconds, and the failure detector notices a process that ended
	// sooner.
	leaderShare = 4
)

// newOrdering makes what drives the engines of this node, by the kind of its engine.
func (l *life) newOrdering(record func(rounds []order.Delivery)) (ordering, error) {
	n, config := l.node, l.node.home.Config.Ordering
	made, err := engine.Of(config.Engine)
	if err != nil {
		return nil, err
	}
	lost := func(run uint64, server order.ServerID, cause error) {
		l.detector.Lost(run, server, cause)
	}
	removed := func(run uint64, servers []order.ServerID) { l.detector.Removed(run, servers) }
	if made.TakesFrames() {
		d, err := driver.New(driver.Config{
			Host: n.host, Self: n.home.Self, Peers: n.peers.table.Load().ids,
			NewEngine: l.newEngine, FrameRun: made.FrameRun, FrameHead: made.FrameHead,
			Source: n.pool, Sink: n.pipeline,
			Linger: config.Linger, MaxBatch: config.BatchBytesMax, Logger: n.logger,
			Arrived: n.arrivals(made.FrameMessages), Record: record, Rounds: n.rounds,
			Lost: lost, Removed: removed,
			Halted: l.onHalted, Ended: l.onEnded, Moved: l.onMoved,
		})
		if err != nil {
			return nil, err
		}
		return framed{d}, nil
	}
	host, has := n.host.(rdmanet.RegionHost)
	switch {
	case made.OneShard && n.home.Genesis.Sharded():
		return nil, fmt.Errorf("%w: ordering.engine: %s orders in books of one shard only: in a "+
			"book of several shards use %v", home.ErrConfig, made.Name,
			engine.All().With(engine.Engine.RunsInNode).With(engine.Engine.OrdersSeveral))
	case !has:
		return nil, fmt.Errorf("%w: ordering.engine: this fabric has no one-sided memory, which "+
			"%s needs", home.ErrConfig, made.Name)
	}
	return poller.NewRuns(poller.RunsConfig{
		Host: host, Self: n.home.Self, Peers: n.peers.table.Load().ids, Source: n.pool,
		Sink: n.pipeline, MaxBatch: config.BatchBytesMax, Idle: polledIdle, Rounds: n.rounds,
		Lost: lost, Removed: removed, Halted: l.onHalted, Ended: l.onEnded, Moved: l.onMoved,
		Logger: n.logger,
		NewMachine: func(g driver.Group, place order.ServerID, peers []rdmanet.Peer) (
			engine.Machine, error) {
			genesis, chain := n.home.Genesis, n.Store().GenesisHash()
			return made.NewMachine(engine.Config{
				Self: place, Servers: len(g.Members), Shard: g.Shard, Run: g.Run,
				FirstRound: g.FirstRound, MaxPayload: config.BatchBytesMax,
				InFlight: made.NodeInFlight, Timeout: config.SuspectAfter / leaderShare,
				Change: func(d order.Delivery) bool { return changes(d, genesis, chain) },
			}, peers, host)
		},
	})
}
