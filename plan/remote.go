package plan

import (
	"time"

	"github.com/ledgerd/ledgerd/sim/network"
)

// remote is one-sided access of memory over a deployment, in the terms of LogGP [Poke19, section
// 4.5.1]. Either the adapters make the accesses, or an agent at the owner takes each operation and
// answers it, as package rdmanet/p2p does it in software. Then posting an operation, taking it, and
// taking its completion each cost o.
type remote struct {
	site
	// post and poll occupy the processor that posts an operation and takes its completion. target
	// occupies its owner.
	post, poll, target time.Duration
	// carrier has the times of messages without contents.
	carrier carrier
	// memory is the model of the adapters, nil if there are agents. distance is that of the
	// deployment.
	memory   *network.RDMA
	distance time.Duration
}

func newRemote(d Deployment, servers int) (remote, error) {
	c, err := newCarrier(d, servers, -messageHeader)
	r := remote{site: c.site, carrier: c, post: d.Overhead, poll: d.Overhead, target: d.Overhead,
		memory: d.memory, distance: d.Distance}
	if d.memory != nil {
		r.post, r.poll, r.target = d.memory.WriteInline.Overhead, d.memory.Polling, 0
	}
	return r, err
}

// way returns the time of a byte from one server to another, without overheads. An access takes the
// latency of the adapters for both ways.
func (r *remote) way(from, to int) time.Duration {
	if r.memory != nil {
		return r.memory.WriteInline.Latency/2 + r.distance
	}
	return r.carrier.way(from, to) - 2*r.carrier.overhead
}

// bytes returns the time that a link takes for an operation with a number of bytes.
func (r *remote) bytes(bytes int) time.Duration {
	if r.memory != nil {
		return r.memory.WriteOf(bytes).Bytes(bytes)
	}
	return r.model.HostRate.Serialisation(r.wire(bytes))
}

// wire returns the bytes that an operation takes on a link.
func (r *remote) wire(bytes int) int {
	return r.model.Wire(bytes + messageHeader + r.model.FrameHeader)
}
