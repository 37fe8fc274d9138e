// Package fabric simulates one-sided memory in virtual time: hosts that implement
// rdmanet.RegionHost over a network that a seed makes slow, uneven and hostile. Code that uses
// regions (TRAM) runs on it unchanged, in one goroutine, and every run can be repeated.
//
// # What it does to its users
//
// It keeps rdmanet's memory contract and uses every liberty that the contract leaves:
//
//   - Each operation takes a time of its own, which a seed draws. Operations of one attachment take
//     place in order, those to different peers in any order.
//   - A write lands in pieces, from its first word to its last. Reads, and a revocation by the
//     owner, may come between two pieces.
//   - If a write is longer than rdmanet.InlineMax, its bytes are read as it lands, not as it is
//     posted.
//   - A crashed host's operations under way land or get lost, by chance, without a gap. Its memory
//     does not answer: operations on it end with ErrUnreachable after the operation timeout, or
//     with ErrReset once its next incarnation answers.
//   - Cut holds operations back. An operation that timed out meanwhile may land when the wire is
//     mended, unless its permission changed.
//   - A program that hangs just makes no calls. Its memory stays readable and writable (DARE's
//     zombie).
//   - Attach is decided at once and takes no time. It belongs to the control plane, which is not
//     tested here.
//
// # Operations in time
//
// With Options.Timing, a model gives the time of each operation, and nothing is drawn but what a
// crash loses. This is for figures and not for faults. LogGP is such a model, with the parameters
// that were measured for DARE:
//
//	timing := fabric.LogGP{RDMA: network.InfiniBandRDMA} // of package sim/network
//	timed := fabric.New(fabric.Options{Timing: timing})
//
// Options.Distance adds the time between each two hosts, if they are not equally far from each
// other. A program must take its steps when its processor is free: Host.BusyUntil says when.
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
// A simulator with events of its own (package sim) takes the steps up to its next one (Next, Step,
// Advance), and hears which programs have something to look at (Options.Stirred).
//
// Calls that wait (Queue.Wait, Region.Await) take steps themselves until their condition holds, and
// return ErrIdle when no event is left. With Options.Paced, a goroutine takes each step when the
// machine's clock has reached its virtual time, and waiting calls park. The suite of package
// fabrictest, which is written for real providers, runs in this mode. Only runs without it can be
// repeated.
//
// Hosts have regions only: Lane and Receive return ErrNoLanes. Package sim simulates engines that
// send messages.
package fabric
