package node

import (
	"encoding/binary"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard"
)

// onLink is called on each change of the fabric's links.
func (l *life) onLink(event rdmanet.PeerEvent) {
	server, known := l.node.peers.server(event.Peer.ID)
	if !known {
		return
	}
	switch event.Kind {
	case rdmanet.PeerConnected:
		l.enqueue(shard.Linked{Server: server, Up: true})
	case rdmanet.PeerRestarted:
		l.enqueue(shard.Linked{Server: server, Up: true, Restarted: true})
	case rdmanet.PeerDisconnected, rdmanet.PeerUnreachable:
		l.enqueue(shard.Linked{Server: server})
	}
}

// onAnnouncement is called on each announcement of a member.
func (l *life) onAnnouncement(from rdmanet.Peer, payload []byte) {
	server, known := l.senderOf(from)
	if !known {
		return
	}
	a, err := shard.DecodeAnnouncement(payload)
	if err != nil {
		l.complain(server, "announcement dropped", "peer", from, "error", err)
		return
	}
	l.compareSettings(server, a.Settings)
	l.node.time.heard(ledger.MemberIndex(server), ledger.Milliseconds(a.Clock))
	l.driver.Met(from)
	if a.Group.Run != 0 {
		l.node.pipeline.PeerStored(uint64(a.Group.Run), server, ledger.Height(a.Heights.Stored))
	}
	l.node.crossing.Heard(from.ID, &a)
	l.enqueueMessage(server, len(payload),
		shard.AnnouncementReceived{From: server, Announcement: a})
}

func (l *life) onSynod(from rdmanet.Peer, payload []byte) {
	server, known := l.senderOf(from)
	if !known {
		return
	}
	message, err := generation.DecodeMessage(payload)
	if err != nil {
		l.complain(server, "message dropped", "peer", from, "error", err)
		return
	}
	l.enqueueMessage(server, len(payload), shard.SynodReceived{From: server, Message: message})
}

func (l *life) onWish(from rdmanet.Peer, payload []byte) {
	server, known := l.senderOf(from)
	if !known {
		return
	}
	wish, err := shard.DecodeWish(payload)
	if err != nil {
		l.complain(server, "wish dropped", "peer", from, "error", err)
		return
	}
	l.enqueueMessage(server, len(payload), shard.WishReceived{From: server, Wish: wish})
}

// A recorded message says which complete rounds of a run are on a member's disk: the run, and one
// or two rounds with their epochs in the chain, all u64 numbers, little-endian.
const (
	recordedHeadSize  = 8
	recordedRoundSize = 16
	recordedMax       = 2
)

func (l *life) tellRecorded(run uint64, members []order.ServerID, rounds []shard.Recorded) {
	l.tellMembers(members, wire.KindRecorded, encodeRecorded(run, rounds))
}

func encodeRecorded(run uint64, rounds []shard.Recorded) []byte {
	payload := binary.LittleEndian.AppendUint64(nil, run)
	for _, name := range rounds {
		payload = binary.LittleEndian.AppendUint64(payload, uint64(name.Round))
		payload = binary.LittleEndian.AppendUint64(payload, uint64(name.Epoch))
	}
	return payload
}

// decodeRecorded returns no rounds for bytes that are not from encodeRecorded.
func decodeRecorded(payload []byte) (run uint64, rounds []shard.Recorded) {
	count := (len(payload) - recordedHeadSize) / recordedRoundSize
	if count < 1 || count > recordedMax || len(payload) != recordedHeadSize+
		count*recordedRoundSize {
		return 0, nil
	}
	run = binary.LittleEndian.Uint64(payload)
	for at := recordedHeadSize; at < len(payload); at += recordedRoundSize {
		rounds = append(rounds, shard.Recorded{
			Round: order.Round(binary.LittleEndian.Uint64(payload[at:])),
			Epoch: order.Epoch(binary.LittleEndian.Uint64(payload[at+8:]))})
	}
	return run, rounds
}

func (l *life) onRecorded(from rdmanet.Peer, payload []byte) {
	server, known := l.senderOf(from)
	if !known {
		return
	}
	run, rounds := decodeRecorded(payload)
	if len(rounds) == 0 {
		l.complain(server, "malformed message of recorded rounds dropped", "peer", from)
		return
	}
	l.node.pipeline.PeerRecorded(run, server, rounds)
}

// onHalted is called by the driver when an engine stops delivering.
func (l *life) onHalted(g driver.Group, reason string) {
	l.enqueue(shard.EngineHalted{Run: generation.Run(g.Run), Reason: reason})
}

// onEnded is called by the driver when a run has ended in order. The machine gets the input after
// all of the run is executed.
func (l *life) onEnded(g driver.Group, members []order.ServerID) {
	l.work(func() {
		if l.node.pipeline.Barrier(l.context) != nil {
			return // the node stops
		}
		ended := shard.EonEnded{Run: generation.Run(g.Run), Members: members}
		marks := l.node.pipeline.Marks()
		ended.Regroup = marks.Regroup
		for _, e := range marks.Entrants {
			ended.Entrants = append(ended.Entrants, shard.Entrant{
				Server: order.ServerID(e.Server), Ticket: e.Ticket, Disk: e.Disk,
			})
		}
		for _, server := range marks.Benched {
			ended.Benched = append(ended.Benched, order.ServerID(server))
		}
		l.enqueue(ended)
	})
}

// diskNow returns the state of the disk for the machine.
func (l *life) diskNow() shard.Input {
	return shard.DiskFull{Reason: l.node.pipeline.Stalled(), Low: l.node.disk.low()}
}

// progressThen returns the engine's progress some ticks ago, or nil if no engine runs.
func (l *life) progressThen(ago int) shard.Input {
	group := l.view().Group
	status := l.driver.Status()
	if group == nil || status.Group.Run != uint64(group.Run) {
		return nil
	}
	progressed := shard.Progressed{
		Run: group.Run, Waiting: max(0, int(status.Stalled(time.Now())/tickEvery)-ago),
		Outside: status.OutsideMajority, Relayed: status.Relayed, Stuck: status.Stuck,
		Round: status.Engine.Round, Awaited: status.Engine.Awaited,
	}
	left := map[order.ServerID]bool{}
	for _, server := range status.Engine.Members {
		left[server] = true
	}
	for _, server := range group.Members {
		if !left[server] {
			progressed.Removed = append(progressed.Removed, server)
		}
	}
	return progressed
}
