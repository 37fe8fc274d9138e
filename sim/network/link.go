package network

import "time"

// admit passes a chunk to its host's link, or holds it back until the connection's window has room.
// The processor has finished with it at the instant ready.
func (n *Network) admit(c chunk, ready time.Duration) {
	if n.connections != nil {
		connection := n.connection(c.from, c.to)
		connection.settle(n.now)
		if connection.blocked.count > 0 || !connection.fits(c, n.model.Window) {
			connection.blocked.push(c)
			n.wake(c.from, c.to, connection)
			return
		}
		connection.unacknowledged += int(c.bytes)
	}
	n.enterOutgoing(c, ready)
}

// enterOutgoing queues a chunk for its host's outgoing link.
func (n *Network) enterOutgoing(c chunk, ready time.Duration) {
	h := &n.hosts[c.from]
	h.out.push(queued{chunk: c, ready: ready})
	if !h.waking {
		n.drain(int(c.from))
	}
}

// drain puts the chunks that can go now on a host's outgoing link, and schedules itself for the
// next one.
func (n *Network) drain(server int) {
	h := &n.hosts[server]
	for h.out.count > 0 {
		at := max(h.outFree, h.out.peek().ready)
		// Without a rate and without switches, nothing on the way depends on other frames. The
		// future can then be settled at once.
		if at > n.now && (n.model.HostRate > 0 || n.model.Topology != nil) {
			h.waking = true
			n.schedule(at, linkFree, int32(server))
			return
		}
		q := h.out.pop()
		wire := n.model.Wire(int(q.bytes))
		n.stats.Wire += int64(wire)
		h.outFree = at + n.model.HostRate.Serialisation(wire)
		n.fly(q.chunk, wire, at)
	}
}

// far is the cable delay from which on the rest of the way is settled only when a chunk's head gets
// there, because other chunks use those ports in the meantime. Cables within a datacentre are
// shorter by orders of magnitude, so a whole way is settled at once.
const far = 100 * time.Microsecond

// fly takes a chunk that leaves its host's link at the instant start on to the switches.
func (n *Network) fly(c chunk, wire int, start time.Duration) {
	first := n.model.firstSegment(wire)
	// A switch sends on when it has the first segment. It cannot finish before it has the last,
	// which is assumed to be as long.
	head := start + n.model.HostRate.Serialisation(first) + n.model.HostDelay
	tail := start + n.model.HostRate.Serialisation(wire) + n.model.HostDelay
	n.underway[int(c.from)*len(n.hosts)+int(c.to)]++
	var place int32
	if last := len(n.landed) - 1; last >= 0 {
		place, n.landed = n.landed[last], n.landed[:last]
	} else {
		place = int32(len(n.flights))
		n.flights = append(n.flights, flight{})
	}
	n.flights[place] = flight{chunk: c, tail: tail}
	n.pass(place, head)
}

// pass takes a chunk whose head is at a switch at an instant through the remaining ports of its
// way: to the port that leads to its receiver, or to the end of the next fibre.
func (n *Network) pass(place int32, head time.Duration) {
	f := &n.flights[place]
	if n.model.Topology != nil {
		wire := n.model.Wire(int(f.bytes))
		first := n.model.firstSegment(wire)
		n.route = n.model.Topology.AppendRoute(n.route[:0], int(f.from), int(f.to))
		for int(f.passed) < len(n.route) {
			id := n.route[f.passed]
			f.passed++
			port := &n.ports[id]
			begin := max(head, n.busy[id])
			end := max(begin+port.Rate.Serialisation(wire), f.tail+port.Rate.Serialisation(first))
			n.busy[id] = end
			head = begin + port.Rate.Serialisation(first) + port.Delay
			f.tail = end + port.Delay
			if port.Delay >= far && int(f.passed) < len(n.route) {
				n.schedule(head, fibrePassed, place)
				return
			}
		}
	}
	n.schedule(head, headArrived, place)
}

// enterIncoming puts a chunk whose head is at the last port on its receiver's link, after all
// earlier chunks.
func (n *Network) enterIncoming(place int32) {
	f := n.flights[place]
	n.flights[place] = flight{}
	n.landed = append(n.landed, place)
	h := &n.hosts[f.to]
	wire := n.model.Wire(int(f.bytes))
	first := n.model.firstSegment(wire)
	end := max(max(n.now, h.inFree)+n.model.HostRate.Serialisation(wire),
		f.tail+n.model.HostRate.Serialisation(first))
	h.inFree = end
	h.in.push(arriving{chunk: f.chunk, at: end + n.model.HostDelay})
	if h.in.count == 1 {
		n.schedule(end+n.model.HostDelay, tailArrived, f.to)
	}
	if n.connections != nil {
		connection := n.connection(f.from, f.to)
		connection.acknowledged.push(acknowledgement{at: end + n.model.HostDelay + connection.back,
			bytes: f.bytes})
		if connection.blocked.count > 0 {
			n.wake(f.from, f.to, connection)
		}
	}
}

// leaveIncoming takes the oldest chunk off a host's incoming link. It returns the chunk if the
// frame is complete and the processor costs nothing. Otherwise the processor receives the frame in
// its turn.
func (n *Network) leaveIncoming(server int) (chunk, bool) {
	h := &n.hosts[server]
	c := h.in.pop().chunk
	if h.in.count > 0 {
		n.schedule(h.in.peek().at, tailArrived, int32(server))
	}
	if h.crashed || !c.last {
		n.take(c)
		return chunk{}, false
	}
	if n.model.Overhead == 0 {
		return c, true
	}
	h.inbox.push(c)
	n.receiveNext(server)
	return chunk{}, false
}

// receiveNext makes a processor receive the oldest frame in its inbox, once it has finished its
// earlier work.
func (n *Network) receiveNext(server int) {
	h := &n.hosts[server]
	if h.receiving || h.inbox.count == 0 {
		return
	}
	h.receiving = true
	h.processor = max(h.processor, n.now) + n.model.Overhead
	n.schedule(h.processor, received, int32(server))
}

// connection returns the connection from one server to another.
func (n *Network) connection(from, to int32) *connection {
	place := &n.connections[int(from)*len(n.hosts)+int(to)]
	if *place == nil {
		*place = &connection{back: n.acknowledgementTime(int(from), int(to))}
	}
	return *place
}

// acknowledgementTime returns how long an acknowledgement takes on an idle network: a segment
// without contents.
func (n *Network) acknowledgementTime(from, to int) time.Duration {
	empty := n.model
	empty.FrameHeader, empty.Overhead = 0, 0
	if n.model.Topology != nil {
		n.route = n.model.Topology.AppendRoute(n.route[:0], to, from)
	}
	return empty.unloaded(n.ports, n.route, 0)
}

// settle counts the acknowledgements that have arrived.
func (c *connection) settle(now time.Duration) {
	for c.acknowledged.count > 0 && c.acknowledged.peek().at <= now {
		c.unacknowledged -= int(c.acknowledged.pop().bytes)
	}
}

// fits reports whether the window has room for a chunk. A chunk longer than the window goes alone.
func (c *connection) fits(next chunk, window int) bool {
	return c.unacknowledged == 0 || c.unacknowledged+int(next.bytes) <= window
}

// wake schedules a check of a blocked connection for the arrival of its oldest acknowledgement, if
// that is known yet.
func (n *Network) wake(from, to int32, c *connection) {
	if !c.waking && c.acknowledged.count > 0 {
		c.waking = true
		n.schedule(c.acknowledged.peek().at, windowOpen, from*int32(len(n.hosts))+to)
	}
}

// openWindow releases blocked chunks for which acknowledgements have made room.
func (n *Network) openWindow(number int) {
	c := n.connections[number]
	c.waking = false
	c.settle(n.now)
	for c.blocked.count > 0 && c.fits(*c.blocked.peek(), n.model.Window) {
		next := c.blocked.pop()
		c.unacknowledged += int(next.bytes)
		n.enterOutgoing(next, n.now)
	}
	if c.blocked.count > 0 {
		n.wake(int32(number/len(n.hosts)), int32(number%len(n.hosts)), c)
	}
}
