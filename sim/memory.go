package sim

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// memory is the one-sided memory of all servers, if an engine of the life works on it. Each process
// is an incarnation of its server's host. The network of the memory has a timeline of its own,
// which the run moves on together with its queue. A link that is cut in either direction carries no
// operation, since each needs its answer.
type memory struct {
	network *fabric.Network
	random  *rand.Rand
	// patience is when an operation without an answer fails.
	patience Instant
	// silence is how long a leader may be silent.
	silence Instant
	// idle is how long a process that has nothing to do does not look at its memory. Others that
	// write there wake it.
	idle Instant
}

const (
	// wakesWithin is how long it takes a process to look at its memory, and underWay how long it
	// does not look while operations are under way: their ends wake it.
	wakesWithin = 50 * microsecond
	underWay    = 1 * millisecond
	// closesWithin is how long a process may take to close the memory of a run that it froze.
	closesWithin = 100 * millisecond
	// serveFor is how long a run that ended goes on for members that do not know it, as in a node.
	serveFor = 2 * second
)

// newMemory makes the memory of a life.
func (s *simulation) newMemory() *memory {
	random := stream(s.options.Seed, driverStream+6)
	m := &memory{random: random,
		patience: []Instant{10 * millisecond, 100 * millisecond}[random.IntN(2)],
		silence: []Instant{100 * millisecond, 200 * millisecond, 500 * millisecond,
			500 * millisecond}[random.IntN(4)]}
	m.idle = m.silence / ledBeats / Instant(1+random.IntN(2))
	m.network = fabric.New(fabric.Options{Seed: random.Uint64(),
		Delay:            time.Duration(between(2*microsecond, 200*microsecond)(random)),
		OperationTimeout: time.Duration(m.patience),
		Stirred: func(host rdmanet.PeerID) {
			if p := s.servers[serverOf(host)].process; p != nil && p.up() {
				p.lookSoon()
			}
		}})
	return m
}

// hostOf names the host of a server, and serverOf is its inverse.
func hostOf(server order.ServerID) rdmanet.PeerID {
	return rdmanet.PeerID(strconv.Itoa(int(server)))
}

func serverOf(host rdmanet.PeerID) int {
	server, _ := strconv.Atoi(string(host))
	return server
}

// worksOnMemory reports whether an engine of the life works on one-sided memory.
func (o *Options) worksOnMemory() bool {
	if o.engine.makeMachine != nil {
		return true
	}
	for _, at := range o.engines {
		if engineRows[at].makeMachine != nil {
			return true
		}
	}
	return false
}

// moveMemory lets everything happen in memory that comes before the next event of the queue.
func (s *simulation) moveMemory() {
	if s.life == nil || s.life.memory == nil {
		return
	}
	network := s.life.memory.network
	for {
		at, some := network.Next()
		if !some || Instant(at) > s.queue.first() {
			break
		}
		s.now = Instant(at)
		network.Step()
	}
	network.Advance(time.Duration(s.queue.first()))
}

// forgetMemory frees the memory at the end of a run.
func (l *life) forgetMemory() {
	if l != nil && l.memory != nil {
		l.memory.network.Close()
	}
}

// cutMemory makes the wire between two hosts what the links between their servers are.
func (s *simulation) cutMemory(a, b order.ServerID) {
	m := s.life.memory
	switch {
	case m == nil:
	case s.network.link(a, b).cuts > 0 || s.network.link(b, a).cuts > 0:
		m.network.Cut(hostOf(a), hostOf(b))
	default:
		m.network.Mend(hostOf(a), hostOf(b))
	}
}

// breakMemory makes all operations under way between two hosts fail. They may take place all the
// same, or even later.
func (s *simulation) breakMemory(a, b order.ServerID) {
	if m := s.life.memory; m != nil {
		m.network.Cut(hostOf(a), hostOf(b))
		m.network.After(time.Duration(m.patience+millisecond), func() { s.cutMemory(a, b) })
	}
}

// endMemory ends the host of a server's process.
func (s *simulation) endMemory(id order.ServerID) {
	if m := s.life.memory; m != nil {
		m.network.Crash(hostOf(id))
	}
}
