package node

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/poller"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// ordering drives the engines of a node's runs, one at a time: framed those that take frames,
// polled those that work on one-sided memory. A run has the engine that its group names, so a run
// of one kind may follow one of the other.
type ordering struct {
	framed *driver.Driver
	// polled is nil where no such engine runs, for the reason in unpolled.
	polled   *poller.Runs
	unpolled error
	// pollsNow says that the current run is polled's.
	pollsNow atomic.Bool
}

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

// newOrdering makes what drives the engines of this node, of both kinds.
func (l *life) newOrdering(record func(rounds []order.Delivery)) (*ordering, error) {
	n, config := l.node, l.node.home.Config.Ordering
	made, err := engineNamed(n.engineChoice().Name)
	if err != nil {
		return nil, err
	}
	lost := func(run uint64, server order.ServerID, cause error) {
		l.detector.Lost(run, server, cause)
	}
	removed := func(run uint64, servers []order.ServerID) { l.detector.Removed(run, servers) }
	o := &ordering{}
	host, has := n.host.(rdmanet.RegionHost)
	if !has {
		o.unpolled = fmt.Errorf("%w: ordering.engine: this fabric has no one-sided memory: use %v",
			home.ErrConfig, engine.All().With(engine.Engine.RunsInNode).With(
				engine.Engine.TakesFrames))
	}
	if !made.TakesFrames() && o.unpolled != nil {
		return nil, o.unpolled
	}
	o.framed, err = driver.New(driver.Config{
		Host: n.host, Self: n.home.Self, Peers: n.peers.table.Load().ids, NewEngine: l.newEngine,
		FrameRun: engine.FrameRun, FrameHead: engine.FrameHead, Source: n.pool, Sink: n.pipeline,
		Linger: config.Linger, MaxBatch: config.BatchBytesMax, Logger: n.logger,
		Arrived: n.arrivals(engine.FrameMessages), Record: record, Rounds: n.rounds,
		Lost: lost, Removed: removed,
		Halted: l.onHalted, Ended: l.onEnded, Moved: l.onMoved,
	})
	if err != nil || o.unpolled != nil {
		return o, err
	}
	o.polled, err = poller.NewRuns(poller.RunsConfig{
		Host: host, Self: n.home.Self, Peers: n.peers.table.Load().ids, Source: n.pool,
		Sink: n.pipeline, MaxBatch: config.BatchBytesMax, Idle: polledIdle, Rounds: n.rounds,
		Lost: lost, Removed: removed, Halted: l.onHalted, Ended: l.onEnded, Moved: l.onMoved,
		Logger:     n.logger,
		NewMachine: l.newMachine,
	})
	if err != nil {
		o.framed.Close()
	}
	return o, err
}

// newMachine makes the engine of a run that works on one-sided memory. In a book of several shards,
// what comes from other shards counts if most members have it in one round (mempool.Beside), so all
// members take part in each round.
func (l *life) newMachine(g driver.Group, place order.ServerID, peers []rdmanet.Peer,
	host rdmanet.RegionHost) (engine.Machine, error) {
	made, err := engineNamed(g.Engine)
	if err != nil {
		return nil, err
	}
	config := l.node.home.Config.Ordering
	genesis, chain := l.node.home.Genesis, l.node.Store().GenesisHash()
	return made.NewMachine(engine.Config{
		Self: place, Servers: len(g.Members), Shard: g.Shard, Run: g.Run,
		FirstRound: g.FirstRound, MaxPayload: config.BatchBytesMax,
		MinPayload: home.BatchBytesMin, FullRounds: genesis.Sharded(),
		InFlight: made.NodeInFlight, Timeout: config.SuspectAfter / leaderShare,
		Change: func(d order.Delivery) bool { return changes(d, genesis, chain) },
	}, peers, host)
}

// takes returns why no run of this node can have an engine, or nil.
func (o *ordering) takes(made engine.Engine) error {
	if made.TakesFrames() {
		return nil
	}
	return o.unpolled
}

// Activate starts the engine of a group. The run before it ends, as with a run of the same kind:
// members that do not know yet that it is over are still served for a while.
func (o *ordering) Activate(group driver.Group) error {
	made, err := engineNamed(group.Engine)
	if err == nil {
		err = o.takes(made)
	}
	switch {
	case err != nil:
		return err
	case made.TakesFrames():
		if o.pollsNow.Swap(false) {
			o.polled.Part()
		}
		return o.framed.Activate(group)
	}
	if !o.pollsNow.Swap(true) {
		o.framed.Freeze()
	}
	return o.polled.Activate(group)
}

// Freeze ends the current run, and returns what it leaves behind.
func (o *ordering) Freeze() driver.Remains {
	if o.pollsNow.Load() {
		return o.polled.Freeze()
	}
	return o.framed.Freeze()
}

// SetPeers replaces the peers.
func (o *ordering) SetPeers(peers []rdmanet.PeerID) error {
	err := o.framed.SetPeers(peers)
	if o.polled != nil {
		err = errors.Join(err, o.polled.SetPeers(peers))
	}
	return err
}

// Met says in which incarnation a peer was met last. Lanes know it by themselves.
func (o *ordering) Met(peer rdmanet.Peer) {
	if o.polled != nil {
		o.polled.Met(peer)
	}
}

// Suspect tells the engine of a run that the failure detector suspects a server.
func (o *ordering) Suspect(run uint64, server order.ServerID, cause error) {
	o.framed.Suspect(run, server, cause)
	if o.polled != nil {
		o.polled.Suspect(run, server, cause)
	}
}

// Trust tells the engine of a run that the failure detector no longer suspects a server.
func (o *ordering) Trust(run uint64, server order.ServerID) {
	o.framed.Trust(run, server)
	if o.polled != nil {
		o.polled.Trust(run, server)
	}
}

// Probe has the engine of a run show whether the run goes on. An engine with a leader goes on
// without a member, and its leader's heartbeats show that.
func (o *ordering) Probe(run uint64) { o.framed.Probe(run) }

// Status returns the state of the current run.
func (o *ordering) Status() *driver.Status {
	if o.pollsNow.Load() {
		return o.polled.Status()
	}
	return o.framed.Status()
}

// Close ends all runs.
func (o *ordering) Close() {
	o.framed.Close()
	if o.polled != nil {
		o.polled.Close()
	}
}
