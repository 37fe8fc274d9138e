package api

import (
	"context"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/rounds"
)

// Backend is the node as its API sees it. The node implements it; apitest has an in-memory one.
// Every method is safe for concurrent use. None may block on the disk or the network except Wait,
// which ends with its context.
type Backend interface {
	// Store returns the store for reads. A block is visible there before any of its transactions is
	// reported as ordered, so acknowledged transactions can be read at once on this node.
	Store() *store.Store

	// Admit verifies bundles and puts them into the mempool in their order. It returns one outcome
	// per bundle: nil if the bundle is in the mempool now or was known already (a second copy is no
	// error), else the reason for its refusal.
	//
	// The mempool keeps the order of admission: two bundles admitted one after the other at one
	// node are broadcast in that order. With inOrder, the first refusal makes all later bundles
	// refused with RefusedPredecessor, so the admitted bundles are always a prefix. The Backend
	// owns the bundles from the call on. The context says whether the caller Queues.
	Admit(ctx context.Context, bundles []*ledger.Bundle, inOrder bool) []*report.Refusal

	// Status returns how far a transaction has come, from the mempool, the pipeline or the store.
	// The error is the store's.
	Status(id ledger.Hash) (report.Status, error)
	// Wait returns when each of the transactions is in a block of the wanted level (executed or
	// failed alike) or has expired. If the context ends first, Wait returns the statuses at that
	// moment with the context's error. It also waits for unknown transactions, which may have been
	// given to another node. The statuses are in the order of ids.
	Wait(ctx context.Context, ids []ledger.Hash, level report.Level) ([]report.Status, error)

	// FetchAbsent fetches a block that the store lacks because it began with a snapshot from
	// another node, and keeps it in memory for the reads that follow. It waits some seconds at
	// most.
	FetchAbsent(ctx context.Context, height ledger.Height) error

	// Heights returns how far the chain has come at each level, and a channel that is closed when
	// that changes. The caller reads both, uses the heights, waits on the channel, and asks again.
	// Changes in between coalesce.
	Heights() (report.Heights, <-chan struct{})
	// NodeState returns a snapshot of this node. It is cheap enough for several calls a second.
	NodeState() report.NodeState
	// ClusterState returns a snapshot of the shard as this node sees it.
	ClusterState() report.ClusterState

	// Rounds returns the recorder of what passes in this node's rounds.
	Rounds() *rounds.Recorder
	// RoundEdges returns the edges of the reliable digraph of so many members, by their places.
	RoundEdges(members int) [][2]int
}
