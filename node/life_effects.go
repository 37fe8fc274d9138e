package node

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// errLeft is the reason to suspect a member that announced its departure.
var errLeft = errors.New("it announced that it left the group")

// carryOut carries out one effect of the machine. It returns the answer of a quick effect, or nil.
// Long effects answer through give.
func (l *life) carryOut(effect shard.Effect) (shard.Input, error) {
	switch e := effect.(type) {
	case shard.Save:
		return l.save(e.State)
	case shard.SendSynod:
		l.send(e.To, wire.KindGeneration, e.Message.Encode(nil))
	case shard.SendWish:
		l.send(e.To, wire.KindEnter, e.Wish.Encode(nil))
	case shard.Announce:
		l.announce(e)
	case shard.Start:
		return nil, l.startEngine(e.Group, e.Former)
	case shard.Freeze:
		l.freezeEngine()
	case shard.Fetch:
		l.work(func() { l.fetch(e) })
	case shard.FetchRound:
		l.work(func() { l.fetchRound(e) })
	case shard.SetAside:
		l.work(func() { l.setAside(e) })
	case shard.Replay:
		l.work(func() { l.replay(e) })
	case shard.Mark:
		l.mark(e)
	case shard.Admit:
		l.admit(e)
	case shard.Suspect:
		l.detector.Lost(uint64(e.Run), e.Server, errLeft)
		l.driver.Probe(uint64(e.Run))
	case shard.Stored:
		l.node.pipeline.PeerStored(uint64(e.Run), e.Server, ledger.Height(e.Height))
	case shard.KnowDurable:
		l.node.pipeline.PeerDurable(ledger.Height(e.Height))
	case shard.SettleDoubt:
		l.node.Store().SettleDoubt()
	case shard.RemovedForGood:
		if err := l.writeRemoved(ledger.Height(e.Height)); err != nil {
			l.node.logger.Warn("this node could not record that it was removed for good, and will "+
				"not know that after a restart",
				"error", err)
		}
	case shard.Changed:
		l.publish()
	case shard.Drop:
		l.node.logger.Error("what a member says is inconsistent, and is ignored",
			"member", e.Server, "reason", e.Reason)
	case shard.End:
		l.node.fail(e.Err)
	default:
		panic(fmt.Sprintf("node: invariant broken: there is no effect %T", effect))
	}
	return nil, nil
}

// save writes the synod's promises to disk, after syncing everything that was executed.
func (l *life) save(state generation.State) (shard.Input, error) {
	if err := l.node.pipeline.Sync(); err != nil {
		return nil, err
	}
	err := home.WriteFile(l.node.home.Generation(), state.Encode(), 0o644)
	if reason := l.node.cannotWrite(err); reason != "" {
		l.node.logger.Error(
			"this node takes no part in forming a group until the disk takes writes", "error", err)
		return shard.SaveFailed{Reason: reason}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write this node's promises: %w", err)
	}
	return shard.Saved{}, nil
}

func (l *life) send(to order.ServerID, kind wire.Kind, payload []byte) {
	if err := l.node.control.Send(l.node.peers.id(to), kind, payload); err != nil {
		l.node.logger.Debug("not sent", "to", to, "error", err)
	}
}

// announce sends this node's announcement to the members. Unlinked members get it less often, only
// if e.All is set. Sending to them makes the fabric look for them.
func (l *life) announce(e shard.Announce) {
	e.Announcement.Clock = uint64(l.node.time.now())
	e.Announcement.Absent = uint64(l.node.Store().Absent())
	payload := e.Announcement.Encode(nil)
	for server, peer := range l.node.peers.table.Load().ids {
		id := order.ServerID(server)
		if peer == "" || id == l.node.home.Self {
			continue
		}
		if !e.All {
			l.mu.Lock()
			_, _, linked := l.machine.Heard(id)
			l.mu.Unlock()
			if !linked {
				continue
			}
		}
		if err := l.node.control.Send(peer, wire.KindStatus, payload); err != nil {
			l.node.logger.Debug("not announced", "peer", peer, "error", err)
		}
	}
}

// startEngine starts the engine of a run.
func (l *life) startEngine(g shard.Group, former []generation.Former) error {
	name := cmp.Or(g.Engine, l.node.home.Config.Ordering.Engine)
	overlay, err := l.reliable(name, len(g.Members))
	if err != nil {
		return err
	}
	shardSize := len(g.Shard.Members)
	made, err := engineNamed(name)
	if err != nil {
		return err
	}
	bound := boundOf(made, l.node.home.Config.Ordering.Trains)
	l.node.pool.Meet(meetingOf(made, bound))
	l.node.pipeline.Begin(pipeline.Run{
		Number: uint64(g.Run), First: g.First, Members: g.Members, Bound: bound, Shard: g.Shard,
		Former: former,
	})
	l.mu.Lock()
	l.digraph = overlay
	decided := l.machine.Decided()
	l.mu.Unlock()
	if err := l.refreshPeers(); err != nil {
		return err
	}
	l.contents.forgetVotes()
	if err := l.contents.clear(decided); err != nil {
		l.node.logger.Warn("stored rounds that are in the chain could not be removed", "error", err)
	}
	l.node.pool.Requeue()
	watched := detector.Group{Generation: uint64(g.Run), Members: g.Members, Reliable: overlay}
	if err := l.detector.Activate(watched); err != nil {
		return err
	}
	err = l.driver.Activate(driver.Group{
		Run: uint64(g.Run), FirstRound: g.First, Members: g.Members, Shard: shardSize,
		Engine: name,
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.acting = true
	l.mu.Unlock()
	l.node.logger.Info("ordering", "generation", g.Run.Generation(), "eon", g.Run.Eon(), "round",
		g.First,
		"members", g.Members, "of", shardSize, "engine", name)
	return nil
}

// boundOf returns the bound of the runs of an engine, with so many trains if it has some.
func boundOf(made engine.Engine, trains int) generation.Bound {
	if !made.TakesFrames() {
		return generation.LogBound(1) // however long their logs are, runs end with a change
	}
	return generation.BoundOf(made.VotesMax(engine.Config{Trains: trains}))
}

// meetingOf returns the distance of meetings (mempool.Pool.Meet) in the runs of an engine with a
// bound. A ring makes rounds for three rotations after a payload, one for each of its trains in
// each. A leader's round needs no other one. Its members have so many messages in flight that they
// have applied one meeting before they send what they have for the next one.
func meetingOf(made engine.Engine, bound generation.Bound) uint64 {
	switch {
	case bound.Log():
		return uint64(max(2, made.NodeInFlight))
	case bound == 0:
		return mempool.MeetingDefault
	}
	const rotations = 4
	return rotations * uint64(bound.Votes())
}

// freezeEngine stops the engine at once. The rounds that the engine had delivered are executed
// beside the loop.
func (l *life) freezeEngine() {
	l.mu.Lock()
	l.acting = false
	l.mu.Unlock()
	remains := l.driver.Freeze()
	l.detector.Deactivate()
	if remains.Err != nil {
		l.node.fail(remains.Err) // nothing may be promised
		return
	}
	l.work(func() {
		if remains.Untaken != nil && l.node.pipeline.Deliver(l.context, remains.Untaken) != nil {
			return // the node stops
		}
		if l.node.pipeline.Barrier(l.context) != nil {
			return
		}
		var record *shard.Record
		if l.node.home.Config.Ordering.LogRounds {
			err := l.node.pipeline.EndRecords()
			if err == nil {
				record, err = l.lastRecord()
			}
			if err != nil {
				l.node.fail(err)
				return
			}
		}
		var report generation.Report
		switch {
		case remains.Log != nil:
			report.Bound = generation.LogBound(remains.VotesMax)
			report.Last = generation.LogEnd{Stamp: remains.Log.Stamp, Index: remains.Log.Index}
		case remains.VotesMax > 0:
			report.Bound = generation.BoundOf(remains.VotesMax)
		}
		for i := range remains.Votes {
			report.Votes = append(report.Votes, l.vote(&remains.Votes[i]))
		}
		for _, k := range remains.Known {
			report.Known = append(report.Known, generation.KnownVote{
				Voter: k.Voter, Round: k.Round, Epoch: l.node.pipeline.ChainEpoch(k.Epoch),
				Reliable: k.Reliable, Confirmed: k.Confirmed, Origins: k.Origins,
			})
		}
		for _, held := range remains.Held {
			report.Vouched = append(report.Vouched, l.vouched(held))
		}
		l.enqueue(shard.Settled{Report: report, Record: record})
	})
}

// vote converts an engine's vote for the synod. The contents of the round stay on this node, for a
// member that will need them.
func (l *life) vote(v *order.Vote) generation.Vote {
	v.Delivery.Epoch = l.node.pipeline.ChainEpoch(v.Delivery.Epoch)
	return generation.Vote{Confirmed: v.Confirmed, Voters: v.Members,
		TailRound: generation.TailRound{
			Round: v.Round, Epoch: l.node.pipeline.ChainEpoch(v.Epoch), Reliable: v.Reliable,
			Origins: v.Origins, Removed: v.Delivery.Removed,
			Content: l.contents.remember(encodeRound(v.Delivery)),
		}}
}

// vouched converts a round that an engine holds for the synod. The contents stay on this node.
func (l *life) vouched(held order.Held) generation.TailRound {
	held.Delivery.Epoch = l.node.pipeline.ChainEpoch(held.Delivery.Epoch)
	r := generation.TailRound{Round: held.Round, Epoch: l.node.pipeline.ChainEpoch(held.Epoch),
		Reliable: held.Reliable, Content: l.contents.remember(encodeRound(held.Delivery))}
	for _, message := range held.Delivery.Messages {
		r.Origins = append(r.Origins, message.Origin)
	}
	return r
}

// fetchRound puts the contents of a round on the disk. It takes them from memory or from a peer.
func (l *life) fetchRound(e shard.FetchRound) {
	content := l.contents.get(e.ID)
	for i := 0; content == nil && i < len(e.From) && l.context.Err() == nil; i++ {
		peer := l.node.peers.id(e.From[i])
		if peer == "" {
			continue
		}
		fetched, err := l.node.exchange.FetchContent(l.context, peer, e.ID)
		if err != nil {
			l.node.logger.Debug("a round could not be fetched; trying again", "peer", peer, "error",
				err)
			continue
		}
		content = fetched
	}
	if content == nil {
		l.enqueue(shard.RoundMissing{ID: e.ID})
		return
	}
	err := l.contents.keep(content)
	reason := l.node.cannotWrite(err)
	switch {
	case reason != "":
		l.enqueue(shard.RoundMissing{ID: e.ID, Reason: reason})
	case err != nil:
		l.node.fail(err)
	default:
		l.enqueue(shard.RoundHeld{ID: e.ID})
	}
}

// setAside removes the blocks above e.Keep from the chain.
func (l *life) setAside(e shard.SetAside) {
	err := l.node.setAside(l.context, ledger.Height(e.Keep))
	reason := l.node.cannotWrite(err)
	switch {
	case err == nil:
		l.enqueue(shard.WasSetAside{})
	case errors.Is(err, errDurableMeanwhile):
		l.node.logger.Info("blocks stay that were to be set aside", "reason", err)
		l.enqueue(shard.WasSetAside{Durable: true})
	case l.context.Err() != nil:
	case reason != "":
		l.node.logger.Error("blocks cannot be set aside; trying again", "error", err)
		l.enqueue(shard.WasSetAside{Reason: reason})
	default:
		l.node.fail(err)
	}
}

// replay executes the rounds that a generation begins with.
func (l *life) replay(e shard.Replay) {
	for i := range e.Rounds {
		content := l.contents.get(e.Rounds[i].Content)
		if content == nil {
			l.enqueue(shard.Replayed{Failed: true})
			return
		}
		round, err := decodeRound(content)
		if err == nil {
			err = l.node.pipeline.Replay(l.context, round, e.Bound)
		}
		if l.context.Err() != nil {
			return
		}
		if err != nil {
			l.node.fail(err)
			return
		}
	}
	l.enqueue(shard.Replayed{})
}

// mark gives a mark to the pool, to be ordered.
func (l *life) mark(e shard.Mark) {
	if e.Regroup {
		l.node.logger.Info("a node wants to enter, but cannot enter this generation: the " +
			"next one admits it")
		l.node.pool.Regroup()
		return
	}
	if e.Bench {
		l.node.logger.Warn("a member holds up the rounds: the next eon begins without it", "member",
			e.Entrant.Server)
		l.node.pool.Bench(uint32(e.Entrant.Server))
		return
	}
	l.node.logger.Info("a node wants to enter: the next eon admits it", "member",
		e.Entrant.Server)
	l.node.pool.Enter(mempool.Entrant{
		Server: uint32(e.Entrant.Server), Ticket: e.Entrant.Ticket, Disk: e.Entrant.Disk,
	})
}

// admit proposes the transaction that makes a member count with another disk. This node signs it.
func (l *life) admit(e shard.Admit) {
	n := l.node
	opened := n.Store()
	membership := opened.Membership()
	bundle, err := ledger.NewAdmit(n.home.Key, opened.GenesisHash(), &membership,
		ledger.MemberIndex(e.Server), ledger.DiskID(e.Disk), opened.Head().Height)
	if err != nil {
		n.logger.Error("a member's new disk could not be proposed", "member", e.Server, "error",
			err)
		return
	}
	if refusals := n.Admit(l.context, []*ledger.Bundle{bundle}, false); refusals[0] != nil {
		n.logger.Debug("a member's new disk is not admitted yet", "member", e.Server, "reason",
			refusals[0].Reason)
		return
	}
	n.logger.Info("a member has a new disk, which holds every durable block: proposed that the "+
		"chain admit it",
		"member", e.Server, "disk", e.Disk)
}

// publish records the machine's mode, logs a change and tells other shards of it.
func (l *life) publish() {
	view := l.view()
	l.mu.Lock()
	changed := l.mode != view.Mode || l.why != view.Why
	if l.mode != view.Mode {
		l.modeSince = time.Now()
	}
	l.mode, l.why = view.Mode, view.Why
	l.mu.Unlock()
	if changed {
		l.node.logger.Info("mode", "mode", view.Mode.String(), "reason", view.Why)
		l.node.crossing.Changed()
	}
}

// peerHeard is the last announcement of a member. It is the zero value before the machine exists.
type peerHeard struct {
	shard.Announcement
	at     time.Time // zero if the member announced nothing yet
	linked bool
}

func (l *life) heard(server order.ServerID) peerHeard {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine == nil {
		return peerHeard{}
	}
	said, ago, linked := l.machine.Heard(server)
	h := peerHeard{Announcement: said, linked: linked}
	if ago >= 0 {
		h.at = time.Now().Add(-time.Duration(ago) * tickEvery)
	}
	return h
}

// heldUp returns for how many of the last ticks the rounds waited for this member alone, as a
// duration.
func (l *life) heldUp(server order.ServerID) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lag := range l.machine.Lags() {
		if lag.Server == server {
			return time.Duration(lag.Ticks) * tickEvery
		}
	}
	return 0
}

// hearsayLasts returns how long a member's announcement stays valid.
func (l *life) hearsayLasts() time.Duration {
	return time.Duration(l.timing().Hearsay) * tickEvery
}

// writers returns the API addresses of the other nodes that announced lately that they take writes.
func (l *life) writers() []string {
	var addresses []string
	lasts := l.hearsayLasts()
	for server := range l.node.peers.table.Load().ids {
		h := l.heard(order.ServerID(server))
		if takesWrites(&h.Announcement) && time.Since(h.at) < lasts {
			addresses = append(addresses, h.APIAddress)
		}
	}
	return addresses
}

// takesWrites reports whether a node takes writes, as it announces. One with a full disk may still
// order, and refuses them.
func takesWrites(said *shard.Announcement) bool { return said.Mode == shard.Ordering && !said.Full }
