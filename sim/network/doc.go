// Package network models the networks on which the dissertation's figures were taken, in virtual
// time: how long a frame takes from one server's engine to another's, and what it waits for on its
// way. Figures need what package sim's weather leaves out, that bandwidth is finite and shared.
//
// # A frame's way
//
//	engine -> processor -> connection -> host's link -> ports of switches -> host's link -> processor -> engine
//	          overhead o   window        rate, FIFO     rate, FIFO each      rate, FIFO     overhead o
//
// Whatever has a rate passes one frame at a time, in the order of arrival, store and forward: a
// switch sends a frame on when it has the whole of its first segment. Whoever comes while a port is
// busy waits; so links, switches' ports and processors are shared, and no port ever carries more
// than its rate. A frame longer than a chunk goes in chunks, which share links with those of other
// frames. On the wire each segment carries its headers. A connection, that is a pair of servers,
// has at most a window of bytes on its way that are not acknowledged, as TCP does; acknowledgements
// take the way's time back, and no bandwidth. Nothing is lost: connections are reliable and FIFO.
//
// # The models
//
//	LogP    latency, overhead and a rate [Poke19, sections 5.6 and 5.7; figure 5.10's parameters]: logp.go, with the closed forms of section 5.6
//	SDC     one datacentre, a fat-tree of k-port switches with one server a subnet [Poke19, section 6.5]: fattree.go
//	MDC     five datacentres across Europe, a fat-tree each, fibres between them [Poke19, section 6.5]: europe.go
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
// # What always holds
//
// The same calls give the same events, at the same virtual nanoseconds, on every machine: integers
// only, and events of one instant are taken in the order in which they were scheduled. Frames
// between two servers arrive in the order in which they were sent, each once, and all of them
// unless one of the two crashes: what a crashed server had not yet put on its link is lost. Frames
// are shared with the caller and never copied. Once the queues have grown, nothing is allocated.
package network
