// Package report holds the values in which a node reports its state: to the clients of its API, to
// the other shards of its book, and between its own rooms. The pipeline makes the reports on
// transactions, the node those on itself and its shard, package shards those on all shards of a
// book. Package api shows them all in the form of its protobuf.
//
//	transaction.go  how far blocks and transactions have come: Level, Heights, Outcome, Status
//	refusal.go      why a bundle was not admitted: Refusal
//	node.go         one node: NodeMode, EngineState, NodeState, Backfill
//	cluster.go      the node's own shard, as the node sees it: ClusterState, MemberState
//	shard.go        any shard of the book, as its members announce it: ShardState, ShardMember,
//	                and why transactions that cross to it are refused: Obstacle
//
// # What always holds
//
//   - A value is a snapshot. Nothing here reads a clock, a disk or the network.
//   - The numbers of Level and NodeMode are those of the API's protobuf. Those of NodeMode are also
//     those of package shard, and go over the wire between shards. They never change.
//   - A transaction that is decided keeps its outcome: Decisive returns the block that decided it.
//     A later Status of it has the same or a higher level, unless the node set that block aside.
//
// The levels of acknowledgement and what each survives are explained in docs/design/durability.md.
package report
