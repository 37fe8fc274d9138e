package sim

import (
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// detector is the failure detector of a run. It is told of crashes and schedules suspicions. An
// eventually perfect detector would also schedule false suspicions, from its view of the network;
// nothing else would change.
type detector interface {
	// crash reports that a server has just crashed.
	crash(s *simulation, server order.ServerID)
}

// perfect is P [Poke19, section 2.2.4]: no server is suspected before it fails (accuracy), and each
// live successor of a failed server in the reliable digraph eventually suspects it (completeness).
// The proofs also require that a server receives nothing more from a server that it suspects
// [Poke19, Proposition 5.2.1]. A suspicion therefore waits for the last frame on the link.
type perfect struct {
	random     *rand.Rand
	successors func(order.ServerID) []order.ServerID
	// quickest and slowest bound how long a successor takes to notice.
	quickest, slowest Instant
}

// newPerfect draws the speed of the detector of a run.
func newPerfect(seed uint64, successors func(order.ServerID) []order.ServerID) *perfect {
	random := stream(seed, detectorStream)
	p := &perfect{random: random, successors: successors}
	switch random.IntN(4) {
	case 0, 1: // as fast as P can be
		p.slowest = 10 * microsecond
	case 2:
		p.quickest, p.slowest = 1*millisecond, 3*millisecond
	case 3: // some notice long before others
		p.slowest = 80 * millisecond
	}
	return p
}

// crash schedules the suspicions of the successors.
func (p *perfect) crash(s *simulation, server order.ServerID) {
	for _, successor := range p.successors(server) {
		at := s.now + between(p.quickest, p.slowest)(p.random)
		// Of two events at one instant, the one scheduled first happens first. The last frame has
		// been scheduled already.
		at = max(at, s.network.link(server, successor).last)
		s.queue.push(event{at: at, kind: suspicion, server: successor, from: server})
	}
}

// suspect delivers a suspicion to a server.
func (s *simulation) suspect(e event) {
	v := &s.servers[e.server]
	if v.crashed {
		return
	}
	s.trace.Note(s.now, uint64(suspicion), uint64(e.server), uint64(e.from))
	s.trace.Say(s.now, "%d suspects %d", e.server, e.from)
	v.opinions = append(v.opinions, turn.Opinion{Server: e.from, Kind: turn.Suspect})
	s.actSoon(e.server)
}
