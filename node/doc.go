// Package node is one node of a shard, put together: fabric, failure detector, round driver, engine, mempool, pipeline, recovery, API.
//
//	h, err := home.Load("D/node-0")
//	n, err := node.Start(ctx, node.Options{Home: h})
//	fmt.Println(n.URL())
//	select { case <-stop: case <-n.Done(): } // n.Err() says why it ended by itself
//	err = n.Stop(ctx)
//
// # What a node does
//
// It starts, and finds out with the others how to go on (package recovery). In the group it orders. Outside of it, because it came late or was away, it
// follows: it fetches blocks from its peers and serves reads, and asks to enter as soon as it is close to the head. It halts when it has no group:
// too many members failed; then it goes on as soon as a majority is there. It ends by itself, loudly, when its chain is not the others' (the fork
// alarm), or its disk is damaged.
//
// # Goroutines
//
// The supervisor (supervisor.go) is the only one that starts and ends generations. It talks to the others through channels and tables of bounded size, and is woken by a
// tick, by messages of the synod, and by news from driver, pipeline and fabric. Catching up with peers runs in a goroutine of its own, at most one at a time.
//
// # What always holds
//
//   - A generation's engine starts only after the disk holds that this node takes part in it, and all blocks up to its base.
//   - A node that promised a later generation delivers nothing more in an earlier one: its engine is stopped before the promise leaves.
//   - Blocks known to be durable are never set aside.
package node
