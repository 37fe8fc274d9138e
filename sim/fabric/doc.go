// Package fabric is one-sided memory in virtual time: hosts that implement rdmanet.RegionHost over
// a network that a seed makes slow, uneven and hostile. What stands on regions (TRAM) runs on it
// unchanged, in one goroutine, and every run can be repeated.
//
// # What it does to its users
//
// It keeps rdmanet's memory contract and uses every liberty that the contract leaves:
//
//   - Each operation takes a time of its own; operations of one attachment take place in order,
//     those to different peers in any order.
//   - A write lands in pieces, from its first word to its last; others read, and the owner revokes,
//     between two pieces.
//   - The bytes of a write that are longer than rdmanet.InlineMax are looked at as it lands, not as
//     it is posted.
//   - A crashed host's operations that are under way land or get lost, by chance, without a gap.
//     Its memory answers nobody: operations on it end with ErrUnreachable after the operation
//     timeout, or with ErrReset once its next life answers.
//   - What is cut off by Cut waits. What timed out meanwhile may land when the wire is whole again,
//     unless its permission changed.
//   - A program that hangs just makes no calls; its memory stays readable and writable (DARE's
//     zombie).
//   - Attach is decided at once and takes no time. It is the control plane, which is not what is
//     tested here.
//
// # The loop
//
//	network := fabric.New(fabric.Options{Seed: 42})
//	host, err := network.Start("a")
//	...
//	for network.Step() { // the next event
//		poll() // the programs: Load, Post, Poll; none of these waits
//	}
//
// What waits (Queue.Wait, Region.Await) takes steps itself until what it waits for is there, and
// gives ErrIdle when nothing is left that could happen. With Options.Paced a goroutine takes the
// steps, each when its virtual time has come by the machine's clock, and what waits parks: so the
// suite of package fabrictest runs on it, which is written for real providers. Only runs without it
// can be repeated.
//
// Hosts have regions only: Lane and Receive give ErrNoLanes. Engines that send messages are
// simulated by package sim.
package fabric
