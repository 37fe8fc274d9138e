// Package crossing connects a node to the other shards of its book: it knows their members, runs
// the streams of the tree, exchanges the verdicts on crossing transactions, and carries calls.
//
// # How it is driven
//
// The node has one Crossing, whatever its book. In a book of one shard there is nothing to connect
// to, and the Crossing does nothing.
//
//	c, err := crossing.New(crossing.Config{Genesis: genesis, Self: host, Key: key, Dir: dir, ...})
//	host := openFabric(c.Addresses(own))       // admits the members of all shards
//	c.Hook(&pooling, &executing)               // before the pool and the pipeline are made
//	server, err := c.API(backend, options)     // answers for the whole book
//	err = c.Start(host, control)               // before the node makes blocks
//	err = c.Serve(server.Forwarded())          // once the node serves calls
//	c.SetOwn(membership)                       // whenever the members of the own shard changed
//	if c.MembersChanged() { host.SetMembers(c.Addresses(own)) }
//	c.Changed()                                // the node's state changed
//	c.Close()                                  // after the last block, before the host
//
// # Parts
//
//	shards     the members of all shards, the nodes' announcements, and the verdicts
//	streams    from the parent shard into this node's batches, from the own chain to the children
//	calls      clients' calls to other shards, and calls of other shards to this node
//
// # What always holds
//
//   - Each hook returns at once. Hooks only take notes for the parts' own goroutines.
//   - A batch carries only what its decoder accepts, and verdicts never keep the stream's largest
//     entry out for ever.
//   - A bundle that enters at another shard is handed over there, or dropped with a line in the
//     log: its client sends it again. At most straysMax bundles wait, and
//     strayBytesMax bytes. A shard that does not take them holds up no other one.
//   - What an organisation takes along is given to members of its new home only. An old home that
//     does not answer holds up no moves from another one.
//   - What was admitted once, such as a stray, is not refused because of a shard that is down or
//     full (shards.Obstacles).
//   - Other shards learn this shard's members once the change is durable, and never earlier. With
//     vouched crossings they learn them once the change is certified.
//   - A shard that is added counts from the time on at which this node's chain has the addition
//     durably, and for ever. So each node knows it at another time.
//   - What waits is read from the chain at most once a second, and only while something waits.
//   - Close ends every goroutine, and waits for it.
//
// # Files
//
//	crossing.go       the interface, and the Crossing of a book of one shard
//	book.go           the Crossing of a book of several shards: its start and its end
//	batches.go        input from other shards in batches, and what executed blocks tell them
//	lies.go           members that say something else of other shards
//	growth.go         shards that are added to the book
//	strays.go         bundles that enter at another shard by now
//	arrivals.go       organisations that move: questions, answers, and bundles that wait for them
//	fetching.go       fetching what they take along from their old homes
//	late.go           transactions that wait for a shard that they never reach
//	losses.go         shards that are lost for good
//	alarm.go          entries that wait for another shard for longer than a bound
//	former.go         what shards have that hung below this one, on disk
//	states.go         this node's announcement, and the other shards for the API
//	acquaintances.go  the members of other shards, on disk
//	proofs.go         certified proofs of other shards' verdicts
package crossing
