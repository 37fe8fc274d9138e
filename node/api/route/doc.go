// Package route is the network front of a node in a book of several shards. It answers clients for
// the whole book, from the one-shard api.Service of its own node and from those of other shards'
// nodes. In a book of one shard nothing uses it.
//
// # How it is driven
//
//	server, err := route.New(backend, shards, options)
//	go server.Serve(listener)                    // clients, for the whole book
//	calls.Serve(server.Forwarded())              // other shards' nodes, for this shard
//
// # Which shard answers
//
// A node of the shard that owns a call's subject answers the call: this node, or another after one
// hop. Shards has the clients for that hop. Methods that concern no other shard are those of the
// embedded Service.
//
//   - A query for an account, a record or a nonce goes to the home shard of its organisation.
//   - A query that names a shard goes to that shard.
//   - A cut is found by asking all shards for places, level by level of the tree. A list at a cut
//     fails if a shard that may have accounts does not answer.
//   - Lists and searches go to all shards at the same time. The answer names the shards that did
//     not reply.
//   - A bundle is admitted where it enters the tree. The node then waits for its transactions in
//     the chains of their signers' homes, which decide on them.
//   - A transaction shows its place in the chain of each shard that it concerns.
//   - A subscription to the book takes the blocks of each shard from a node of that shard. While
//     there is one, one call to each other shard waits for its next block, for all subscriptions.
//
// # What always holds
//
//   - A call takes at most one hop: a node that gets a call of another shard's node answers it from
//     its own shard.
//   - Bad input gets the same error as in a book of one shard, and costs no hop where this node can
//     tell.
//   - A shard that does not answer costs a bounded time, and an error with api.HeaderRetry. If it
//     may have admitted a bundle all the same, or a member of it may have that did not answer while
//     another refused, the error has api.HeaderUnsure.
//   - A bundle that crosses to a shard that is down or full (Shards.Obstacles) is refused,
//     whichever node takes the call, unless its transactions are in a chain already or its caller
//     queues. If only a part was taken, or may have been, the refusal has api.HeaderUnsure.
//   - In order, the admitted bundles of a SubmitMany are a prefix, across all shards.
//   - A subscription has each block of a shard once and in order, whichever nodes of it answer.
//   - Memory is bounded: it remembers the shards of at most 2*maxSent transactions, and maxRecent
//     blocks of each shard that a subscription follows.
//
// # Files
//
//	route.go        the interface to the other shards, and how a call is passed on
//	cut.go          places in all chains that are one cut, and the accounts there
//	reads.go        queries for one shard, and for all of them
//	submit.go       where bundles enter, in what order, and what cannot be submitted
//	obstacles.go    bundles that cross to shards that are down or full
//	learn.go        organisations whose registration is still on its way down the tree
//	waiting.go      waiting at the homes, and finding transactions that no shard knows yet
//	wherever.go     a transaction from the chains of all shards that have it
//	subscribe.go    the blocks of all shards in one stream
//	watch.go        waiting for another shard's next block
//	whereabouts.go  where this node sent transactions
//	tree.go         the tree, and the state of each shard
//	metrics.go      the streams to the child shards, for Prometheus
package route
