package shard

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Tip is the end of a member's own chain.
type Tip struct {
	// Height and Hash are those of the last executed block; height 0 is the genesis.
	Height uint64
	Hash   [32]byte
	// Round is the last executed round. An empty round makes no block, so Round may be above the
	// round of the last block. After a restart it is the round of the last block.
	Round order.Round
	// Block is the round of the last block, 0 at the genesis.
	Block order.Round
}

// Heights are how far a chain has come at each level of acknowledgement. Ordered is the highest.
// Durable may be above Stored: a majority may be quicker than this disk.
type Heights struct{ Ordered, Stored, Durable uint64 }

// Former is a server that was a member.
type Former struct {
	Server order.ServerID
	// Left is the height of the block that removed it.
	Left uint64
}

// Chain is a member's own chain, as its machine reads it. The driver implements it over its store.
// Calls are quick and change nothing. While an engine works, the chain may grow between two calls.
// Otherwise it changes only by the effects that the machine emitted.
type Chain interface {
	// Tip returns the end of the chain.
	Tip() Tip
	// Heights returns how far the chain has come. Durable survives a restart: it is never below the
	// height that the disk recorded as durable.
	Heights() Heights
	// Hash returns the hash of the block at a height up to the tip's. An error says that the chain
	// is damaged; it ends the member.
	Hash(height uint64) ([32]byte, error)
	// RoundOf returns the round and the epoch that ordered the block at a height up to the tip's.
	// An error says that the chain is damaged.
	RoundOf(height uint64) (order.Round, order.Epoch, error)
	// Membership returns the members and their disks as of the tip, and the height of the block
	// that made the latest change, 0 for the genesis.
	Membership() (membership generation.Membership, changed uint64)
	// MembershipAt is like Membership, as of the block at a height up to the tip's.
	MembershipAt(height uint64) (membership generation.Membership, changed uint64)
	// Engine returns the name of the engine that the chain names after the block at a height up to
	// the tip's, "" for none.
	Engine(height uint64) string
	// Former returns the servers that left, ascending.
	Former() []Former
}
