package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// server is one server of a run: an engine and the driver around it.
type server struct {
	engine order.Broadcaster
	// pool is what users submitted and the engine has not taken yet.
	pool    [][]byte
	crashed bool
	// doom is the planned crash that waits for its moment.
	doom *crash
	// acts tells that an acting is scheduled: the server is lazy and lets inputs gather.
	acts bool
	// lingers tells that a lingering is scheduled; its number must match to count. lingered tells that it is over and an empty message is due.
	lingers, lingered bool
	lingering         int
	// removed counts the servers that this one has seen removed.
	removed int
	livingServer
}

// actionsMax bounds the A-broadcasts of one server in a row without any input.
const actionsMax = 10_000

// actSoon lets a server act on its input: at once, or where the seed has made servers lazy, sometimes after more input.
func (s *simulation) actSoon(id order.ServerID) {
	v := &s.servers[id]
	if v.crashed || v.acts {
		return
	}
	if s.laziness > 0 && s.adversary.IntN(3) == 0 {
		v.acts = true
		s.queue.push(event{at: s.now + between(0, s.laziness)(s.adversary), kind: acting, server: id})
		return
	}
	s.act(id)
}

// act is the loop of order.Broadcaster's comment, from "if engine.CanBroadcast()" until there is nothing more to do.
func (s *simulation) act(id order.ServerID) {
	v := &s.servers[id]
	for range actionsMax {
		broadcast := s.broadcast(id)
		if s.over() {
			return
		}
		s.carryOut(id, v.engine.Ready())
		if v.crashed || s.over() {
			return
		}
		if !broadcast {
			s.linger(id)
			return
		}
	}
	s.breach(id, fmt.Sprintf("it A-broadcasts %d times without any input", actionsMax))
}

// broadcast A-broadcasts what is due and tells whether anything was.
func (s *simulation) broadcast(id order.ServerID) bool {
	v := &s.servers[id]
	if !v.engine.CanBroadcast() {
		if v.engine.Solicited() {
			s.breach(id, "it is solicited though it cannot A-broadcast")
		}
		return false
	}
	var payload []byte
	switch {
	case len(v.pool) > 0:
		payload = v.pool[0]
		v.pool = v.pool[1:]
	case v.engine.Solicited():
	case v.lingered && v.engine.Undelivered():
	default:
		return false
	}
	s.trace.note(s.now, 101, uint64(id), uint64(len(payload)))
	s.trace.say(s.now, "%d A-broadcasts %d bytes", id, len(payload))
	v.lingered = false
	s.history.Broadcast(id, payload)
	if err := v.engine.Broadcast(payload); err != nil {
		s.breach(id, "it refuses an A-broadcast though CanBroadcast holds: "+err.Error())
		return false
	}
	return true
}

// carryOut does what an engine wants done, unless the server's time has come.
func (s *simulation) carryOut(id order.ServerID, ready order.Ready) {
	v := &s.servers[id]
	for _, send := range ready.Sends {
		for _, to := range send.To {
			if to == id || int(to) >= s.options.Servers {
				s.breach(id, fmt.Sprintf("it sends a frame to %d", to))
				return
			}
		}
	}
	c := v.doom
	if c != nil && (s.now > s.faultsEnd || c.reliable && !v.engine.Status().Reliable) {
		c = nil
	}
	if c != nil && c.moment == sending && len(ready.Sends) > 0 {
		if c.skip == 0 {
			var hops []hop
			for item, send := range ready.Sends {
				for _, to := range send.To {
					hops = append(hops, hop{to, item})
				}
			}
			s.sendSome(len(ready.Sends), hops, c, func(h hop) { s.send(id, h.to, ready.Sends[h.item].Frame) })
			s.crash(id)
			return
		}
		c.skip--
	}
	for _, send := range ready.Sends {
		for _, to := range send.To {
			s.send(id, to, send.Frame)
		}
	}
	last := len(ready.Deliveries)
	doomed := false
	if c != nil && c.moment == delivering && last > 0 {
		if doomed = c.skip == 0; doomed {
			last = 1 + s.adversary.IntN(last)
		} else {
			c.skip--
		}
	}
	for _, d := range ready.Deliveries[:last] {
		s.deliver(id, d)
		if s.over() {
			return
		}
	}
	if doomed {
		s.crash(id)
	}
}

// deliver records an A-delivered round and asks the oracles that judge at once.
func (s *simulation) deliver(id order.ServerID, d order.Delivery) {
	s.trace.note(s.now, 102, uint64(id), uint64(d.Epoch), uint64(d.Round), uint64(len(d.Messages)), uint64(len(d.Removed)))
	s.trace.say(s.now, "%d A-delivers [%d,%d]: %s", id, d.Epoch, d.Round, contents(d))
	s.judgeAccuracy(id, d)
	s.judgeTolerance(id, d)
	if v := s.history.Deliver(id, d); v != nil {
		s.broken = append(s.broken, v)
	}
}

// linger schedules an empty message where messages wait for a later round and nothing else will bring it.
func (s *simulation) linger(id order.ServerID) {
	v := &s.servers[id]
	switch {
	case !v.engine.Undelivered():
		v.lingers, v.lingered = false, false
		v.lingering++
	case !v.lingers && !v.lingered:
		v.lingers = true
		v.lingering++
		s.queue.push(event{at: s.now + s.lingerFor, kind: lingering, server: id, number: v.lingering})
	}
}

// lingerOver ends a linger.
func (s *simulation) lingerOver(e event) {
	v := &s.servers[e.server]
	if v.crashed || !v.lingers || v.lingering != e.number {
		return
	}
	v.lingers, v.lingered = false, true
	s.act(e.server)
}

// contents shows a round in a trace.
func contents(d order.Delivery) string {
	text := "messages of"
	for _, m := range d.Messages {
		text += fmt.Sprintf(" %d", m.Origin)
		if len(m.Payload) > 0 {
			text += fmt.Sprintf("(%d bytes)", len(m.Payload))
		}
	}
	if len(d.Removed) > 0 {
		text += fmt.Sprintf(", removed %v", d.Removed)
	}
	return text
}
