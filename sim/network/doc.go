// Package network models the networks of the dissertation's figures in virtual time: how long a
// frame takes from one server's engine to another's, and what it waits for on its way. It adds what
// package sim leaves out: bandwidth is finite and shared.
//
// # A frame's way
//
//	engine
//	-> processor          overhead o
//	-> connection         window
//	-> host's link        rate, FIFO
//	-> ports of switches  rate, FIFO each
//	-> host's link        rate, FIFO
//	-> processor          overhead o
//	-> engine
//
// Anything with a rate passes one frame at a time, in the order of arrival, store and forward: a
// switch sends a frame on when it has the whole of its first segment. A frame that arrives at a
// busy port waits. Links, switch ports and processors are therefore shared, and no port ever
// carries more than its rate. A frame longer than a chunk travels in chunks, which share links with
// the chunks of other frames. On the wire, each segment carries its headers. A connection, which is
// a pair of servers, has at most a window of unacknowledged bytes under way, as in TCP.
// Acknowledgements take the time of the way back, and no bandwidth. Nothing is lost: connections
// are reliable and FIFO.
//
// # The models
//
//	LogP  latency, overhead and a rate [Poke19, sections 5.6 and 5.7; figure 5.10's parameters]:
//	      logp.go, with the closed forms of section 5.6
//	LogGP accesses of remote memory and datagrams, for package sim/fabric and for formulas alone
//	      [Poke19, section 4.5.1; Table 4.1's parameters]: loggp.go
//	SDC   one datacentre, a fat-tree of k-port switches with one server a subnet [Poke19,
//	      section 6.5]: fattree.go
//	MDC   five datacentres across Europe, each a fat-tree, connected by fibres [Poke19,
//	      section 6.5]: europe.go
//
// # The loop that drives it
//
//	net, err := network.New(model)
//	net.After(0, server, token)                   // a timer of the caller's own
//	for {
//		event, more := net.Next()             // time moves on to it
//		hand event.Frame to the engine of event.Server
//		net.Send(event.Server, send.To, send.Frame)
//	}
//
// # Invariants
//
// The same calls give the same events, at the same virtual nanoseconds, on every machine: all
// numbers are integers, and events of one instant are taken in the order in which they were
// scheduled. Frames between two servers arrive once each, in the order of sending. All of them
// arrive unless one of the two servers crashes: a crash loses the frames that are not yet on the
// server's link. Frames are shared with the caller and never copied. Nothing is allocated once the
// queues have grown.
package network
