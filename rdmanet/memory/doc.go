// Package memory is the fabric inside one process: hosts of a Network hand frames over without
// copying them. It is the provider of the demo and of tests, and the ceiling that the other
// providers are measured against.
//
// A lane has two goroutines. The sender's host owns one that only sees to the connection: it waits
// for the receiver to be there, notices when it goes, runs the mend timer and breaks the lane. The
// receiver's host owns the other, which takes batches of frames from the lane's window, calls the
// receive function and acknowledges. A busy lane so costs a lock per call of Send and per batch,
// and wakes a goroutine only when the receiver had nothing left.
//
// An operation on a region is performed by whoever posts it, before Post returns: it costs the copy
// and four locks that are hardly ever contended, and no other goroutine. Only where the link is cut
// do operations wait, in a line that a goroutine of the poster's host serves until it is empty. The
// grants at the owner are what a revocation waits on.
//
// The fabric's misfortunes can be played: Network.Kill ends a host without a word, Cut and Mend
// break and mend the link between two hosts, and Host after Kill or Close starts a new incarnation.
// Any name is a member until a host is given a member set.
package memory
