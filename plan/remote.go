package plan

import "time"

// remote is one-sided access of memory over a deployment, in the terms of LogGP [Poke19, section
// 4.5.1]. An agent at the owner takes each operation and answers it, as package rdmanet/p2p does it
// in software: posting an operation, taking it, and taking its completion each cost o.
type remote struct {
	site
	overhead time.Duration
	// carrier has the times of messages without contents.
	carrier carrier
}

func newRemote(d Deployment, servers int) (remote, error) {
	c, err := newCarrier(d, servers, -messageHeader)
	return remote{site: c.site, overhead: d.Overhead, carrier: c}, err
}

// way returns the time of a byte from one server to another, without overheads.
func (r *remote) way(from, to int) time.Duration {
	return r.carrier.way(from, to) - 2*r.overhead
}

// bytes returns the time that a link takes for a number of bytes, or for what an operation without
// any takes.
func (r *remote) bytes(bytes int) time.Duration {
	return r.model.HostRate.Serialisation(r.wire(bytes))
}

// wire returns the bytes that an operation takes on a link.
func (r *remote) wire(bytes int) int {
	return r.model.Wire(bytes + messageHeader + r.model.FrameHeader)
}
