package sim

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// climate is a kind of network weather: how long frames take on each link of a run.
type climate struct {
	name string
	// base and spread draw a link's own base and spread, once a run.
	base, spread func(*rand.Rand) Instant
	// tail is the chance in 1,000 that a frame takes a multiple of its time. Each further doubling
	// has half the chance.
	tail int
	// laggards is how many servers have links that are slow in both directions.
	laggards int
}

// between draws evenly from low to high.
func between(low, high Instant) func(*rand.Rand) Instant {
	return func(random *rand.Rand) Instant {
		return low + Instant(random.Int64N(int64(high-low)+1))
	}
}

// climates are drawn with equal probability.
var climates = []climate{
	{name: "calm", base: between(50*microsecond, 60*microsecond),
		spread: between(10*microsecond, 20*microsecond)},
	{name: "lockstep", base: between(100*microsecond, 100*microsecond), spread: between(0, 0)},
	{name: "jittery", base: between(1*microsecond, 20*microsecond),
		spread: between(500*microsecond, 1000*microsecond)},
	{name: "heavy-tailed", base: between(20*microsecond, 80*microsecond),
		spread: between(20*microsecond, 100*microsecond), tail: 200},
	{name: "far and near", base: between(5*microsecond, 5*millisecond),
		spread: between(10*microsecond, 200*microsecond)},
	{name: "laggards", base: between(20*microsecond, 80*microsecond),
		spread: between(20*microsecond, 100*microsecond), laggards: 2},
}

const (
	// laggardFactor is how much slower a laggard's links are.
	laggardFactor = 30
	// doublings bounds a tail.
	doublings = 9
)

// link carries frames from one server to another, reliably and in order. Each frame arrives after
// its delay, and after the frame before it. Frames on different links overtake each other. A frame
// on a link arrives even if its sender crashes. A frame that is not on the link yet is lost in the
// crash.
type link struct {
	base, spread Instant
	// extra is the delay that the adversary adds.
	extra Instant
	// last is when the latest frame arrives.
	last Instant
	// sent and received count frames.
	sent, received int
	// cuts counts the partitions that cut the link. held are the frames that came to its end
	// meanwhile and wait for the cut to heal.
	cuts int
	held []event
}

// network is all links of a run.
type network struct {
	random  *rand.Rand
	climate climate
	servers int
	links   []link
	// extraLast keeps a tail from multiplying the adversary's delay. This gives a bound on how long
	// a frame takes, with which detectors and synods can work.
	extraLast bool
}

func newNetwork(seed uint64, servers int) *network {
	random := stream(seed, networkStream)
	n := &network{random: random, climate: climates[random.IntN(len(climates))], servers: servers,
		links: make([]link, servers*servers)}
	slow := make([]bool, servers)
	for range n.climate.laggards {
		slow[random.IntN(servers)] = true
	}
	for from := range servers {
		for to := range servers {
			l := &n.links[from*servers+to]
			l.base, l.spread = n.climate.base(random), n.climate.spread(random)
			if slow[from] || slow[to] {
				l.base, l.spread = l.base*laggardFactor, l.spread*laggardFactor
			}
		}
	}
	return n
}

// link returns the link between two servers.
func (n *network) link(from, to order.ServerID) *link {
	return &n.links[int(from)*n.servers+int(to)]
}

// put puts a frame on a link at an instant and returns when it arrives.
func (n *network) put(from, to order.ServerID, now Instant) Instant {
	l := n.link(from, to)
	delay := l.base
	if !n.extraLast {
		delay += l.extra
	}
	if l.spread > 0 {
		delay += Instant(n.random.Int64N(int64(l.spread)))
	}
	if n.climate.tail > 0 && n.random.IntN(1000) < n.climate.tail {
		for doubled := 0; doubled < doublings; doubled++ {
			delay *= 2
			if n.random.IntN(2) == 0 {
				break
			}
		}
	}
	if n.extraLast {
		delay += l.extra
	}
	l.last = max(now+delay, l.last+1)
	l.sent++
	return l.last
}

// slowest bounds how long a frame may take in this climate, without the adversary's delays.
func (n *network) slowest() Instant {
	longest := Instant(0)
	for i := range n.links {
		longest = max(longest, n.links[i].base+n.links[i].spread)
	}
	if n.climate.tail > 0 {
		longest <<= doublings
	}
	return longest
}

// send puts a frame on a link.
func (s *simulation) send(from, to order.ServerID, frame []byte) {
	sum := crc32.Checksum(frame, checksums)
	at := s.network.put(from, to, s.now)
	s.trace.Note(s.now, uint64(arrival), uint64(from), uint64(to), uint64(sum), uint64(len(frame)))
	if s.trace.HasText() {
		s.trace.Say(s.now, "%d sends %s to %d, arriving at %v", from, s.describe(frame), to, at)
	}
	s.queue.push(event{at: at, kind: arrival, server: to, from: from, frame: frame, sum: sum})
}

// loseTails loses the last frames under way from a crashing server: on each link, those that would
// arrive after a random instant.
func (s *simulation) loseTails(from order.ServerID) {
	cuts := make([]Instant, len(s.servers))
	for to := range cuts {
		l := s.network.link(from, order.ServerID(to))
		cuts[to] = l.last
		if l.last > s.now && s.adversary.IntN(2) == 0 {
			cuts[to] = between(s.now, l.last)(s.adversary)
		}
	}
	s.queue.scheduled(func(e *event) {
		if e.kind == arrival && e.from == from && e.at > cuts[e.server] {
			e.kind = loss
			s.network.link(from, e.server).sent--
			s.trace.Note(s.now, uint64(loss), uint64(from), uint64(e.server), uint64(e.at))
			s.trace.Say(s.now, "%s from %d to %d, arriving at %v, is lost", s.describe(e.frame),
				from, e.server, e.at)
		}
	})
}

// arrive hands a frame to its receiver.
func (s *simulation) arrive(e event) {
	l := s.network.link(e.from, e.server)
	l.received++
	to := &s.servers[e.server]
	if to.crashed {
		return
	}
	if s.trace.HasText() {
		s.trace.Say(s.now, "%d receives %s from %d", e.server, s.describe(e.frame), e.from)
	}
	if crc32.Checksum(e.frame, checksums) != e.sum {
		s.breach(e.server, fmt.Sprintf("a frame of %d bytes that %d sent was changed afterwards",
			len(e.frame), e.from))
		return
	}
	to.frames = append(to.frames, turn.Arrival{From: e.from, Frame: e.frame})
	if s.servers[e.from].crashed && l.received == l.sent {
		s.heardLast(e.from, e.server)
	}
	s.actSoon(e.server)
}

// describe describes a frame in a trace.
func (s *simulation) describe(frame []byte) string {
	if !s.trace.HasText() {
		return ""
	}
	if s.options.Describe != nil {
		return s.options.Describe(frame)
	}
	return fmt.Sprintf("%d bytes", len(frame))
}

var checksums = crc32.MakeTable(crc32.Castagnoli)
