// Package memory is the fabric inside one process: hosts of a Network hand frames over without
// copying them. The demo and tests use it. The other providers are measured against it, as an upper
// bound.
//
// A lane has two goroutines. The sender's host owns the first, which only manages the connection:
// it waits for the receiver to be there, notices when it goes, runs the mend timer and breaks the
// lane. The receiver's host owns the second, which takes batches of frames from the lane's window,
// calls the receive function and acknowledges. A busy lane costs one lock per call of Send and per
// batch. It wakes a goroutine only when the receiver had nothing left.
//
// The goroutine that posts an operation on a region performs it before Post returns. This costs the
// copy and four locks that are rarely contended, and no other goroutine. Only if the link is cut do
// operations wait, in a line that a goroutine of the poster's host serves until it is empty. A
// revocation waits on the grants at the owner.
//
// Failures can be simulated: Network.Kill ends a host without notice, Cut and Mend break and mend
// the link between two hosts, and Host after Kill or Close starts a new incarnation. Every name is
// a member until a host is given a member set.
package memory
