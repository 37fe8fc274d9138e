// Package node is one node of a shard, put together: fabric, failure detector, round driver, engine, mempool, pipeline, the agreement on generations, API.
//
//	h, err := home.Load("D/node-0")
//	n, err := node.Start(ctx, node.Options{Home: h})
//	fmt.Println(n.URL())
//	select { case <-stop: case <-n.Done(): } // n.Err() says why it ended by itself
//	err = n.Stop(ctx)
//
// # What a node does
//
// It starts, and finds out with the others how to go on (package allconcur/generation). In the group it orders. Outside of it, because it came late or was away, it
// follows: it fetches blocks from its peers and serves reads, and asks to enter as soon as it is close to the head; the next eon takes it in, without a pause. It halts while it is
// outside of the majority: its group gets nowhere then, and goes on, or starts anew, as soon as a majority can talk. It ends by itself, loudly, when its chain is not the
// others' (the fork alarm), or its disk is damaged; and in order when the operator removed it from the membership.
//
// # Runs
//
// A run is the life of one engine: an eon of a generation. Runs end
//
//   - in order, three rounds after a mark or a change of the membership was ordered: whoever is left goes on in the next eon at once, with those who asked to enter, as far as they are members;
//   - by the promise to form another generation, which freezes the engine for good. Only nodes whose group gets nowhere promise, and those that are in none.
//
// The chain says who the members are; peers.go follows it. Nodes are named by their indexes in the chain, which stay for ever.
// Who the members of other shards are, in a book of several, their chains say; between.go and acquaintances.go follow that.
//
// # Goroutines
//
// The supervisor (supervisor.go) is the only one that starts and ends runs. It talks to the others through channels and tables of bounded size, and is woken by a
// tick, by messages of the synod, and by news from driver, pipeline and fabric. Catching up with peers runs in a goroutine of its own, at most one at a time, and so does the fetching of rounds.
//
// # What always holds
//
//   - A run's engine starts only after the disk holds that this node takes part in it, and all blocks up to its base; and a process starts it at most once, and only if all that was sent in
//     it comes to this very process.
//   - A node that promised a later generation delivers nothing more in an earlier one: its engine is stopped before the promise leaves, and the promise tells what it had voted for.
//   - Blocks known to be durable are never set aside.
package node
