package shards

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Mode is the current activity of a shard, according to its members.
type Mode string

// The modes of shards.
const (
	// ModeOrdering: a member reported lately that it orders, which takes a majority.
	ModeOrdering Mode = "ordering"
	// ModeHalted: members reported lately, and none orders.
	ModeHalted Mode = "halted"
	// ModeSilent: no member reported lately.
	ModeSilent Mode = "silent"
)

// State is a shard as this node sees it, for people.
type State struct {
	Shard  ledger.ShardID
	Parent ledger.ShardID
	Root   bool
	Self   bool // this node is of this shard
	Mode   Mode
	// Heard is when any member last reported, zero for never.
	Heard   time.Time
	Members []MemberState // by index
	// Heights are the highest that any member reported.
	Heights Heights
	// Transactions, Accounts, Pending, Carried and Streamed are those of the member that is
	// furthest ahead, among members with a current report if there are any.
	Transactions, Accounts, Pending, Carried uint64
	Streamed                                 []Streamed
}

// MemberState is a member as this node sees it, for people.
type MemberState struct {
	Member
	Self       bool
	APIAddress string
	Heard      time.Time // when it last reported, zero for never
	Lately     bool      // its report is still current
	Mode       NodeMode
	Heights    Heights
}

// States returns all shards, by number. For its own shard the directory knows only the reports that
// the node passed to Heard, about itself and its fellows.
func (d *Directory) States() []State {
	d.mu.RLock()
	defer d.mu.RUnlock()
	states, now := make([]State, len(d.shards)), d.now()
	for i := range d.shards {
		states[i] = d.state(ledger.ShardID(i), now)
	}
	return states
}

// state returns the state of one shard. The caller holds the lock.
func (d *Directory) state(shard ledger.ShardID, now time.Time) State {
	parent, below := d.tree.Parent(shard)
	s := State{Shard: shard, Parent: parent, Root: !below, Self: shard == d.own, Mode: ModeSilent,
		Members: make([]MemberState, len(d.shards[shard].list))}
	var best heard
	for i, member := range d.shards[shard].list {
		h, known := d.heardOf(member.Peer, shard)
		lately := h.lately(now)
		a := &h.announcement
		s.Members[i] = MemberState{
			Member: member, Self: member.Peer == d.self, APIAddress: a.APIAddress, Heard: h.at,
			Lately: lately, Mode: a.Mode, Heights: a.Heights,
		}
		if !known {
			continue
		}
		if h.at.After(s.Heard) {
			s.Heard = h.at
		}
		switch {
		case lately && a.Mode == NodeOrdering:
			s.Mode = ModeOrdering
		case lately && s.Mode == ModeSilent:
			s.Mode = ModeHalted
		}
		s.Heights.Ordered = max(s.Heights.Ordered, a.Heights.Ordered)
		s.Heights.Stored = max(s.Heights.Stored, a.Heights.Stored)
		s.Heights.Durable = max(s.Heights.Durable, a.Heights.Durable)
		if ahead := a.Heights.Ordered > best.announcement.Heights.Ordered; best.at.IsZero() ||
			lately && !best.lately(now) || lately == best.lately(now) && ahead {
			best = h
		}
	}
	a := &best.announcement
	s.Transactions, s.Accounts, s.Pending, s.Carried, s.Streamed = a.Transactions, a.Accounts,
		a.Pending, a.Carried, a.Streamed
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
