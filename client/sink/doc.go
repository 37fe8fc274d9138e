// Package sink streams a ledger's entries to other systems: each entry of a chain with its outcome,
// in the order of the chain, each once.
//
//	target, err := postgres.New(ctx, postgres.Config{URL: url, Sink: "books"})
//	err = sink.Run(ctx, nodes, target, sink.Options{})
//
// A Follower reads the chain of one shard from any node, and hands batches of records to a Lane of
// the target. There is one goroutine for each shard, and Run owns all of them. A record is the line
// that the entry has in a journal (ledger/journal), with what is needed to route it.
//
// # What always holds
//
//   - A place in the stream is a Position: shard, height, and index of the entry in its block. The
//     chain never changes a place, so a position names the same entry for ever and everywhere.
//   - The target keeps the Mark up to which it has everything, together with what was written: in
//     the same transaction, or as part of the last record itself. What is written and what is
//     remembered cannot differ. After any failure the Follower asks the target for its mark again,
//     and goes on right after it. It never trusts its own memory of what was written.
//   - Where a target cannot do that (webhooks), an entry may arrive twice, and never out of order:
//     the receiver drops what is not after the last position that it has.
//   - Only durable blocks are streamed. Each must name the hash of the one before it, across
//     restarts too: a mark has the hash of its block and of the chain's genesis. A target that was
//     filled from another chain, or that is ahead of the chain, is refused and left as it is.
//   - Memory is bounded by one answer of a node and one batch for each shard. A slow target stops
//     its own stream and nothing else.
package sink
