// Package node is one node of a shard, put together: fabric, failure detector, round driver,
// engine, mempool, pipeline, the life of a member, API.
//
//	h, err := home.Load("D/node-0")
//	n, err := node.Start(ctx, node.Options{Home: h})
//	fmt.Println(n.URL())
//	select { case <-stop: case <-n.Done(): } // n.Err() says why it ended by itself
//	err = n.Stop(ctx)
//
// # What a node does
//
// It starts, and finds out with the others how to go on. In the group it orders. Outside of it, it
// follows: it fetches blocks from its peers, serves reads, and asks to enter. Package shard decides
// all of that, as a pure machine, and the simulator judges that machine. This package runs it:
//
//	life.go         the loop around the machine
//	life_inputs.go  where its inputs come from: peers, fabric, driver, pipeline, clock
//	life_effects.go what each of its effects does: disk, engine, peers, pool
//	chain.go        the chain as the machine reads it
//	fetching.go     blocks from peers
//	set_aside.go    blocks that the majority goes on without
//	contents.go     contents of rounds that a generation may begin with
//	peers.go        which members this node stays connected to
//	backfill.go     blocks from before the snapshot that the node began with
//	timekeeping.go  the clocks that date the batches
//	between.go      the members of other shards, in a book of several
//	backend.go      the API's questions
//
// The chain says which servers are members. Nodes are named by their indexes in it, which stay for
// ever.
//
// # Goroutines
//
// The loop's goroutine is the only one that talks to the machine, and that starts and stops
// engines. What takes long (a fetch, the execution of what a frozen engine had delivered, blocks
// that are set aside) runs in a goroutine of its own, one at a time, and comes back as an input.
// The disk's goroutine in the pipeline tells the members directly how far the disk has come.
//
// # What always holds
//
//   - Effects are carried out in the machine's order: the disk holds a promise before it is sent,
//     an engine is stopped before the promise that freezes it leaves, and a run is recorded before
//     its engine starts.
//   - Every goroutine ends with Stop, which waits for it.
//   - Blocks known to be durable are never set aside, also by a later process.
package node
