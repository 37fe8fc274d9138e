package shard

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// ReasonKind says why a member does not order, in one of few words. Programs judge it; View.Why
// says the same to people, and what they can do.
type ReasonKind uint8

// The kinds of reason.
const (
	// NoReason is a member's that orders.
	NoReason ReasonKind = iota
	// Looking is the one of a process that has just begun.
	Looking
	// Between says that the group ended, or goes on without this member, which is about to find out
	// what comes next.
	Between
	// Joining says that the chain here does not have the block yet that made this server a member.
	Joining
	// Forming says that no generation can be formed yet: Waiting and Full name the members that keep
	// it, and Recover says that only an operator can help, since too few disks remember.
	Forming
	// Fetching says that a decided generation goes on from block Height, which is not here yet.
	Fetching
	// FetchingRounds says that a decided generation goes on from block Height, which is here, with
	// rounds that are not.
	FetchingRounds
	// Learning says that the disk counts in no majority, and that the chain is to admit it.
	Learning
	// Entering says that Generation orders, and that this member is about to enter.
	Entering
	// Benched says that the rounds waited for this member, and that the others take it in again once
	// they have heard from it regularly for a while.
	Benched
	// NoBlock says that no member that can be reached has block Height any more.
	NoBlock
	// NoSpace says that the disk is full.
	NoSpace
	// Outside says that fewer than a majority of the members can be reached.
	Outside
	// NoProgress says that a round waits for the Servers.
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

// Reason is why a member does not order, for programs. The fields besides Kind go with the kinds
// that name them.
type Reason struct {
	Kind       ReasonKind
	Height     uint64
	Generation generation.Generation
	Round      order.Round
	// Servers, Full, and the lists in Waiting are ascending.
	Servers []order.ServerID
	Waiting generation.Waiting
	Full    []order.ServerID
	// Newer are servers whose chains have a later change of the membership than this one: only they
	// know which disks count. This chain may not have them as members.
	Newer []order.ServerID
	// Sought is a durable block that those that answered do not hold, while others have not; 0 for none.
	Sought  uint64
	Recover bool
}

// because is a reason that has nothing to it but its kind.
func because(kind ReasonKind) Reason { return Reason{Kind: kind} }

// outdated reports whether another server knows of a later membership than m, as it said of itself or
// with a promise.
func (r *Reason) outdated(m generation.Membership) bool {
	return len(r.Newer) > 0 || r.Waiting.Changes > m.Number
}
