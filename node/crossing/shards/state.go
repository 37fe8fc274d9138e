package shards

import (
	"slices"
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
	for i := range states {
		for _, above := range above(d.Tree(), ledger.ShardID(i)) {
			if states[i].Waiting.Lacks.Lost == 0 && int(above) < len(states) {
				states[i].Waiting.Lacks = states[above].Waiting.LostFor(above, states[i].Shard)
			}
		}
	}
	return states
}

// state returns the state of one shard. Its heights are those that its members are believed. Its
// counts are those of the member that is furthest ahead, among members with a current report if
// there are any. The caller holds the lock.
func (d *Directory) state(shard ledger.ShardID, now time.Time) report.ShardState {
	list := d.shards[shard].list
	s := report.ShardState{Shard: shard, Members: make([]report.ShardMember, len(list))}
	var best heard
	var ordered, durable, carried []uint64
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
		ordered = append(ordered, uint64(a.Heights.Ordered))
		durable = append(durable, uint64(a.Heights.Durable))
		carried = append(carried, a.Carried)
		if ahead := a.Heights.Ordered > best.announcement.Heights.Ordered; best.at.IsZero() ||
			lately && !best.lately(now) || lately == best.lately(now) && ahead {
			best = h
		}
	}
	if _, lost := d.lost[shard]; lost {
		s.Mode = report.ShardLost
	}
	best.announcement.SetCounts(&s)
	s.Height = ledger.Height(d.believed(shard, ordered))
	s.Durable = ledger.Height(d.believed(shard, durable))
	if d.vouched && shard != d.own {
		// The alarm about entries that a shard has not taken depends on this one.
		s.Carried = d.believed(shard, carried)
	}
	s.Waiting = d.waitingOf(shard)
	return s
}

// believed returns the number that the members of a shard are believed, if they said these: the
// greatest one, or with vouched crossings the greatest one that more than half of them reach, so
// that a minority that lies raises nothing. The members of the own shard are always believed.
func (d *Directory) believed(shard ledger.ShardID, said []uint64) uint64 {
	if len(said) == 0 {
		return 0
	}
	need := 1
	if d.vouched && shard != d.own {
		need = len(said)/2 + 1
	}
	slices.Sort(said)
	return said[len(said)-need]
}

// heardOf returns what a peer reported as a member of a shard. The caller holds the lock.
func (d *Directory) heardOf(peer rdmanet.PeerID, shard ledger.ShardID) (heard, bool) {
	h, known := d.heard[peer]
	if !known || h.announcement.Shard != shard {
		return heard{}, false
	}
	return h, true
}

// orders reports whether a member of a shard reported lately that the shard orders.
func (d *Directory) orders(shard ledger.ShardID) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	now := d.now()
	for _, member := range d.shards[shard].list {
		if h, known := d.heardOf(member.Peer, shard); known && h.lately(now) &&
			h.announcement.Mode == report.ModeOrdering {
			return true
		}
	}
	return false
}

// saidFull is what a member of another shard said last of the shards that its shard is full for.
type saidFull struct {
	shard   ledger.ShardID
	awaited []ledger.ShardID
	at      time.Time
}

// HeardFull records that a member of another shard says that its shard is full for these. It
// ignores a peer that is no member.
func (d *Directory) HeardFull(peer rdmanet.PeerID, awaited []ledger.ShardID, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if where, known := d.places[peer]; known {
		d.full[peer] = saidFull{shard: where.shard, awaited: awaited, at: at}
	}
}

// fullFor returns the shards that another shard is full for, in ascending order, according to what
// its members said lately: any member, or with vouched crossings more than half of its present
// members, so that a minority that lies keeps no transaction away. Shards that this node does not
// know yet do not count.
func (d *Directory) fullFor(shard ledger.ShardID) (awaited []ledger.ShardID) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.full) == 0 {
		return nil
	}
	now, list := d.now(), d.shards[shard].list
	need := 1
	if d.vouched {
		need = len(list)/2 + 1
	}
	said := make(map[ledger.ShardID]int)
	for _, member := range list {
		of := d.full[member.Peer]
		if of.shard != shard || now.Sub(of.at) > ReportLifetime {
			continue
		}
		for _, each := range of.awaited {
			if said[each]++; said[each] == need && int(each) < d.Tree().Shards() {
				awaited = append(awaited, each)
			}
		}
	}
	slices.Sort(awaited)
	return awaited
}
