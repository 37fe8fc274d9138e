package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// server is one server of a run: an engine and the driver around it. Package shard/turn makes the
// driver's decisions.
type server struct {
	engine order.Broadcaster
	turn   *turn.Machine
	// frames and opinions have arrived since the last turn.
	frames   []turn.Arrival
	opinions []turn.Opinion
	// pool are the payloads that users submitted and the engine has not taken yet.
	pool    [][]byte
	crashed bool
	// doom is the planned crash that waits for its moment.
	doom *crash
	// acts reports that an acting event is scheduled: the server is lazy and lets inputs gather.
	acts bool
	// lingering numbers the lingers. Only the end of the last one counts.
	lingering int
	// removed counts the servers that were removed according to this one.
	removed int
	livingServer
}

// actionsMax bounds the turns of one server in a row without any input.
const actionsMax = 10_000

// actSoon makes a server act on its input: at once or, if the seed made servers lazy, sometimes
// after more input.
func (s *simulation) actSoon(id order.ServerID) {
	v := &s.servers[id]
	if v.crashed || v.acts {
		return
	}
	if s.laziness > 0 && s.adversary.IntN(3) == 0 {
		v.acts = true
		s.queue.push(event{at: s.now + between(0, s.laziness)(s.adversary), kind: acting,
			server: id})
		return
	}
	s.act(id)
}

// act is the loop of package turn, until there is nothing more to do.
func (s *simulation) act(id order.ServerID) {
	v := &s.servers[id]
	for range actionsMax {
		if v.turn.Over() {
			return
		}
		v.turn.Step(v.frames, v.opinions)
		clear(v.frames)
		v.frames, v.opinions = v.frames[:0], v.opinions[:0]
		s.broadcast(id)
		s.carryOut(id)
		if v.crashed || s.over() {
			return
		}
		if reason := v.turn.Halted(); reason != "" {
			s.trace.Say(s.now, "%d has halted: %s", id, reason)
		}
		if !v.turn.Again() {
			return
		}
	}
	s.breach(id, fmt.Sprintf("it takes %d turns without any input", actionsMax))
}

// broadcast A-broadcasts a message if one is due.
func (s *simulation) broadcast(id order.ServerID) {
	v := &s.servers[id]
	if !v.turn.MayBroadcast() {
		if v.engine.Solicited() {
			s.breach(id, "it is solicited though it cannot A-broadcast")
		}
		return
	}
	var payload []byte
	if len(v.pool) > 0 {
		payload = v.pool[0]
	}
	if !v.turn.Broadcast(payload) {
		if payload != nil {
			s.breach(id, "it refuses an A-broadcast though CanBroadcast holds: "+v.turn.Halted())
		}
		return
	}
	if payload != nil {
		v.pool = v.pool[1:]
	}
	s.trace.Note(s.now, 101, uint64(id), uint64(len(payload)))
	s.trace.Say(s.now, "%d A-broadcasts %d bytes", id, len(payload))
	s.history.Broadcast(id, payload)
	clear(payload) // the caller may: the engine has copied it
}

// carryOut executes the actions of a server's turn, unless its planned crash is due.
func (s *simulation) carryOut(id order.ServerID) {
	v := &s.servers[id]
	for do := v.turn.Next(); do.Kind != turn.Done; do = v.turn.Next() {
		switch do.Kind {
		case turn.Send:
			s.sendAll(id, v.engine, s.allIDs, do.Sends, func(to order.ServerID, frame []byte) {
				s.send(id, to, frame)
			})
		case turn.Deliver:
			s.deliverAll(id, do.Deliveries)
		case turn.Linger:
			v.lingering++
			at := s.now + s.lingerFor
			s.queue.push(event{at: at, kind: lingering, server: id, number: v.lingering})
		case turn.Silenced:
			s.breach(id, fmt.Sprintf("it refuses a frame of server %d: %v", do.Server, do.Cause))
		case turn.Suspected:
			if do.Refused != nil && !s.halted(id, do.Refused) {
				s.breach(id, "it refuses the suspicion of a predecessor: "+do.Refused.Error())
			}
		}
		if v.crashed || s.over() {
			return
		}
	}
}

// due returns the planned crash of a server, nil if it cannot happen now.
func (s *simulation) due(id order.ServerID, engine orderer) *crash {
	c := s.servers[id].doom
	if c != nil && (s.now > s.faultsEnd || c.reliable && !engine.Status().Reliable) {
		return nil
	}
	return c
}

// sendAll sends to members of a group by their places, or crashes in the middle of it.
func (s *simulation) sendAll(
	id order.ServerID, engine orderer, members []order.ServerID, sends []order.Send,
	put func(at order.ServerID, frame []byte),
) {
	for _, send := range sends {
		for _, to := range send.To {
			if int(to) >= len(members) || members[to] == id {
				s.breach(id, fmt.Sprintf("it sends a frame to %d", to))
				return
			}
		}
	}
	if c := s.due(id, engine); c != nil && c.moment == sending {
		if c.skip == 0 {
			var hops []hop
			for item, send := range sends {
				for _, to := range send.To {
					hops = append(hops, hop{members[to], item})
				}
			}
			s.sendSome(len(sends), hops, c, func(h hop) {
				at, _ := slices.BinarySearch(members, h.to)
				put(order.ServerID(at), sends[h.item].Frame)
			})
			s.crash(id)
			return
		}
		c.skip--
	}
	for _, send := range sends {
		for _, to := range send.To {
			put(to, send.Frame)
		}
	}
}

// delivers returns how many of some rounds a server A-delivers, and whether it crashes after that.
func (s *simulation) delivers(
	id order.ServerID, engine orderer, rounds int,
) (last int, doomed bool) {
	c := s.due(id, engine)
	if c == nil || c.moment != delivering {
		return rounds, false
	}
	if c.skip > 0 {
		c.skip--
		return rounds, false
	}
	return 1 + s.adversary.IntN(rounds), true
}

// deliverAll A-delivers rounds, or crashes after some of them.
func (s *simulation) deliverAll(id order.ServerID, deliveries []order.Delivery) {
	last, doomed := s.delivers(id, s.servers[id].engine, len(deliveries))
	for _, d := range deliveries[:last] {
		s.deliver(id, d)
		if s.over() {
			return
		}
	}
	if doomed {
		s.crash(id)
	}
}

// deliver records an A-delivered round and runs the oracles that judge at once.
func (s *simulation) deliver(id order.ServerID, d order.Delivery) {
	s.trace.Note(s.now, 102, uint64(id), uint64(d.Epoch), uint64(d.Round), uint64(len(d.Messages)),
		uint64(len(d.Removed)))
	s.trace.Say(s.now, "%d A-delivers [%d,%d]: %s", id, d.Epoch, d.Round, contents(d))
	s.judgeAccuracy(id, d)
	s.judgeTolerance(id, d)
	if v := s.history.Deliver(id, d); v != nil {
		s.broken = append(s.broken, v)
	}
}

// lingerOver ends a linger.
func (s *simulation) lingerOver(e event) {
	v := &s.servers[e.server]
	if v.crashed || v.lingering != e.number {
		return
	}
	v.turn.LingerOver()
	s.act(e.server)
}

// contents describes a round in a trace.
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
