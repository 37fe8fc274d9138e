package shard

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// ReasonKind is the kind of reason why a member does not order. Programs judge it. View.Why says
// the same to people, and what they can do.
type ReasonKind uint8

// The kinds of reason.
const (
	// NoReason says that the member orders.
	NoReason ReasonKind = iota
	// Looking says that the process has just begun.
	Looking
	// Between says that the group ended, or goes on without this member. The member is about to
	// find out what comes next.
	Between
	// Joining says that the own chain does not yet have the block that made this server a member.
	Joining
	// Forming says that no generation can be formed yet. Waiting and Full name the members that
	// prevent it. Recover says that only an operator can help, because too few disks remember.
	Forming
	// Fetching says that a decided generation goes on from block Height, which this member does not
	// have yet.
	Fetching
	// FetchingRounds says that a decided generation goes on from block Height, which this member
	// has, with rounds that it does not have.
	FetchingRounds
	// SettingAside says that the blocks above Height are being taken off the own chain, because the
	// shard goes on without them.
	SettingAside
	// Learning says that the disk counts in no majority until the chain admits it.
	Learning
	// Entering says that Generation orders, and that this member is about to enter.
	Entering
	// Benched says that the rounds waited for this member. The others take it in again once it has
	// announced itself regularly for a while.
	Benched
	// NoBlock says that no reachable member still has block Height.
	NoBlock
	// NoSpace says that the disk is full.
	NoSpace
	// Outside says that fewer than a majority of the members can be reached.
	Outside
	// NoProgress says that a round waits for Servers.
	NoProgress
	// EngineStopped says that the engine can do nothing more in its run.
	EngineStopped
	// Removed says that the operator removed this member.
	Removed
	// Forked says that the others go on without a block that is durable.
	Forked
	// Broken says that an error ended the member's part.
	Broken
)

// Reason is why a member does not order, for programs. The fields other than Kind belong to the
// kinds that name them.
type Reason struct {
	Kind       ReasonKind
	Height     uint64
	Generation generation.Generation
	Round      order.Round
	// Servers, Full, and the lists in Waiting are ascending.
	Servers []order.ServerID
	Waiting generation.Waiting
	Full    []order.ServerID
	// Newer are servers whose chains have a later change of the membership than this one. Only they
	// know which disks count. They need not be members of this chain.
	Newer []order.ServerID
	// Sought is a durable block that the members that answered do not hold, while others have not
	// answered; 0 for none.
	Sought  uint64
	Recover bool
}

// because returns a reason that consists of its kind alone.
func because(kind ReasonKind) Reason { return Reason{Kind: kind} }

// outdated reports whether another server knows of a later membership than m, according to its
// announcement or a promise.
func (r *Reason) outdated(m generation.Membership) bool {
	return len(r.Newer) > 0 || r.Waiting.Changes > m.Number
}
