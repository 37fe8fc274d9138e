// Package node assembles one node of a shard: fabric, failure detector, round driver, engine,
// mempool, pipeline, the life of a member, API.
//
//	h, err := home.Load("D/node-0")
//	n, err := node.Start(ctx, node.Options{Home: h})
//	fmt.Println(n.URL())
//	select { case <-stop: case <-n.Done(): } // n.Err() says why the node ended by itself
//	err = n.Stop(ctx)
//
// # What a node does
//
// A node starts and agrees with the other nodes on how to continue. Inside the group, it orders.
// Outside the group, it follows: it fetches blocks from its peers, serves reads, and asks to enter.
// Package shard makes all of these decisions as a pure state machine, which the simulator checks.
// This package runs that machine:
//
//	life.go         the loop around the machine
//	life_inputs.go  the sources of its inputs: peers, fabric, driver, pipeline, clock
//	life_effects.go the execution of its effects: disk, engine, peers, pool
//	chain.go        the chain as the machine reads it
//	fetching.go     blocks from peers
//	set_aside.go    blocks that are not in the majority's chain
//	contents.go     contents of rounds that a generation may begin with
//	peers.go        the members that this node stays connected to
//	backfill.go     blocks from before the snapshot that the node began with
//	timekeeping.go  the clocks that date the batches
//	backend.go      the backend of the API, and of the crossing to other shards
//
// The chain says which servers are members. Each node is identified by its index in the chain. An
// index never changes.
//
// # Goroutines
//
// Only the loop's goroutine talks to the machine, and only it starts and stops engines. Long work
// (a fetch, the execution of rounds that a frozen engine had delivered, setting blocks aside) runs
// in a goroutine of its own, one piece of work at a time. Its result comes back as an input. The
// disk's goroutine in the pipeline tells the members directly up to which height the disk is
// synced.
//
// # What always holds
//
//   - Effects are carried out in the machine's order. The disk holds a promise before the promise
//     is sent. An engine stops before the promise that freezes it is sent. A run is recorded before
//     its engine starts.
//   - Every goroutine ends with Stop, which waits for it.
//   - Blocks known to be durable are never set aside, not even by a later process.
package node
