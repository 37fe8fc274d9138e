package node

import (
	"encoding/binary"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard"
)

// onLink hears of the fabric's links.
func (l *life) onLink(event rdmanet.PeerEvent) {
	server, known := l.node.peers.server(event.Peer.ID)
	if !known {
		return
	}
	switch event.Kind {
	case rdmanet.PeerConnected:
		l.give(shard.Linked{Server: server, Up: true}, false)
	case rdmanet.PeerRestarted:
		l.give(shard.Linked{Server: server, Up: true, Restarted: true}, false)
	case rdmanet.PeerDisconnected, rdmanet.PeerUnreachable:
		l.give(shard.Linked{Server: server}, false)
	}
}

// onAnnouncement hears what a member does.
func (l *life) onAnnouncement(from rdmanet.Peer, payload []byte) {
	server, known := l.isPeer(from)
	if !known {
		return
	}
	a, err := shard.DecodeAnnouncement(payload)
	if err != nil {
		l.node.logger.Error("announcement dropped", "peer", from, "error", err)
		return
	}
	l.compareSettings(server, a.Settings)
	l.node.time.heard(ledger.MemberIndex(server), ledger.Milliseconds(a.Clock))
	if a.Group.Run != 0 {
		l.node.pipeline.PeerStored(uint64(a.Group.Run), server, ledger.Height(a.Heights.Stored))
	}
	l.node.between.heard(from.ID, &a)
	l.give(shard.AnnouncementReceived{From: server, Announcement: a}, true)
}

// compareSettings says once if a member is set to another engine or detector.
func (l *life) compareSettings(server order.ServerID, its string) {
	config := l.node.home.Config.Ordering
	ours := config.Engine + ", " + config.Detector
	l.mu.Lock()
	said := l.warned[server]
	l.warned[server] = said || its != ours
	l.mu.Unlock()
	if its != ours && !said {
		l.node.logger.Error("a member is set to another engine or detector: set [ordering] "+
			"engine and detector "+
			"to the same on all nodes and start them again", "member", server, "its", its, "ours",
			ours)
	}
}

func (l *life) onSynod(from rdmanet.Peer, payload []byte) {
	server, known := l.isPeer(from)
	if !known {
		return
	}
	message, err := generation.DecodeMessage(payload)
	if err != nil {
		l.node.logger.Error("message dropped", "peer", from, "error", err)
		return
	}
	l.give(shard.SynodReceived{From: server, Message: message}, true)
}

func (l *life) onWish(from rdmanet.Peer, payload []byte) {
	server, known := l.isPeer(from)
	if !known {
		return
	}
	wish, err := shard.DecodeWish(payload)
	if err != nil {
		l.node.logger.Error("wish dropped", "peer", from, "error", err)
		return
	}
	l.give(shard.WishReceived{From: server, Wish: wish}, true)
}

// A stored message says how far a member's disk has come in a run: two numbers u64, little-endian.
// The disk's own goroutine sends it, at most once per synced group, and the receiver counts it at
// once: what a caller waits for takes no turn of the machine.
const storedSize = 16

func (l *life) tellStored(run uint64, members []order.ServerID, height ledger.Height) {
	payload := binary.LittleEndian.AppendUint64(make([]byte, 0, storedSize), run)
	payload = binary.LittleEndian.AppendUint64(payload, uint64(height))
	for _, server := range members {
		if server == l.node.home.Self {
			continue
		}
		peer := l.node.peers.id(server)
		if peer == "" {
			continue
		}
		if err := l.node.control.Send(peer, control.KindStored, payload); err != nil {
			l.node.logger.Debug("stored height not sent", "peer", peer, "error", err)
		}
	}
}

func (l *life) onStored(from rdmanet.Peer, payload []byte) {
	server, known := l.isPeer(from)
	if !known {
		return
	}
	if len(payload) != storedSize {
		l.node.logger.Error("malformed stored height dropped", "peer", from)
		return
	}
	run := binary.LittleEndian.Uint64(payload)
	l.node.pipeline.PeerStored(run, server, ledger.Height(binary.LittleEndian.Uint64(payload[8:])))
}

// onHalted hears from the driver that an engine delivers no more.
func (l *life) onHalted(g driver.Group, reason string) {
	l.give(shard.EngineHalted{Run: generation.Run(g.Generation), Reason: reason}, false)
}

// onEnded hears from the driver that a run is over in order. The machine hears of it once all of it
// is executed.
func (l *life) onEnded(g driver.Group, members []order.ServerID) {
	l.work(func() {
		if l.node.pipeline.Barrier(l.context) != nil {
			return // the node stops
		}
		ended := shard.EonEnded{Run: generation.Run(g.Generation), Members: members}
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
		l.give(ended, false)
	})
}

// diskNow is what the machine has to know of the disk.
func (l *life) diskNow() shard.Input {
	return shard.DiskFull{Reason: l.node.pipeline.Stalled(), Low: l.node.disk.low()}
}

// progressNow is how the engine is doing, nil without one.
func (l *life) progressNow() shard.Input {
	group := l.view().Group
	status := l.driver.Status()
	if group == nil || status.Group.Generation != uint64(group.Run) {
		return nil
	}
	progressed := shard.Progressed{
		Run: group.Run, Waiting: int(status.Stalled(time.Now()) / tickEvery),
		Outside: status.OutsideMajority,
		Round:   status.Engine.Round, Awaited: status.Engine.Awaited,
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
