package shards

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// States returns all shards, by number. A shard orders if a member reported lately that it does,
// which takes a majority. For its own shard the directory knows only the reports that the node
// passed to Heard, about itself and its fellows.
func (d *Directory) States() []report.ShardState {
	d.mu.RLock()
	defer d.mu.RUnlock()
	states, now := make([]report.ShardState, len(d.shards)), d.now()
	for i := range d.shards {
		states[i] = d.state(ledger.ShardID(i), now)
	}
	return states
}

// state returns the state of one shard. Its counts are those of the member that is furthest ahead,
// among members with a current report if there are any. The caller holds the lock.
func (d *Directory) state(shard ledger.ShardID, now time.Time) report.ShardState {
	list := d.shards[shard].list
	s := report.ShardState{Shard: shard, Members: make([]report.ShardMember, len(list))}
	var best heard
	for i, member := range list {
		h, known := d.heardOf(member.Peer, shard)
		lately := h.lately(now)
		a := &h.announcement
		s.Members[i] = report.ShardMember{
			Index: uint32(member.Index), Name: member.Name, Self: member.Peer == d.self,
			APIAddress: a.APIAddress, OrderedHeight: a.Heights.Ordered, LastHeard: h.at,
		}
		if !known {
			continue
		}
		if lately {
			s.Members[i].Mode = a.Mode
		}
		if h.at.After(s.LastHeard) {
			s.LastHeard = h.at
		}
		switch {
		case lately && a.Mode == report.ModeOrdering:
			s.Mode = report.ShardOrdering
		case lately && s.Mode == report.ShardSilent:
			s.Mode = report.ShardHalted
		}
		s.Height = max(s.Height, a.Heights.Ordered)
		s.Durable = max(s.Durable, a.Heights.Durable)
		if ahead := a.Heights.Ordered > best.announcement.Heights.Ordered; best.at.IsZero() ||
			lately && !best.lately(now) || lately == best.lately(now) && ahead {
			best = h
		}
	}
	best.announcement.SetCounts(&s)
	s.Waiting = d.waitingOf(shard)
	return s
}

// heardOf returns what a peer reported as a member of a shard. The caller holds the lock.
func (d *Directory) heardOf(peer rdmanet.PeerID, shard ledger.ShardID) (heard, bool) {
	h, known := d.heard[peer]
	if !known || h.announcement.Shard != shard {
		return heard{}, false
	}
	return h, true
}
