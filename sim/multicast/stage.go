package multicast

import (
	"math/rand/v2"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// randomStage is a stage in virtual time: memory of package fabric, and links with delays that a
// seed draws.
type randomStage struct {
	network *fabric.Network
	random  *rand.Rand
	delay   time.Duration // the longest way of a letter, except for one in 16
	links   map[[2]int]*link
	cuts    map[[2]int]bool
	arrive  func(from, to int, letter Letter)
}

// link holds the letters under way from one process or log to another.
type link struct {
	letters []Letter
	last    time.Duration // when the last of them arrives, or arrived
	due     int           // letters that would have arrived if the link were not cut
}

func (s *randomStage) now() time.Duration { return s.network.Now() }

func (s *randomStage) start(id rdmanet.PeerID) (rdmanet.RegionHost, error) {
	return s.network.Start(id)
}

func (s *randomStage) carry(from, to int, letter Letter) {
	l := s.links[[2]int{from, to}]
	if l == nil {
		l = &link{}
		s.links[[2]int{from, to}] = l
	}
	l.letters = append(l.letters, letter)
	l.last = max(l.last, s.now()+fabric.Delay(s.random, s.delay))
	s.network.After(l.last-s.now(), func() {
		if s.cuts[wire(from, to)] {
			l.due++
			return
		}
		s.take(from, to, l)
	})
}

// take delivers the first letter of a link, unless a crash lost it.
func (s *randomStage) take(from, to int, l *link) {
	if len(l.letters) == 0 {
		return
	}
	letter := l.letters[0]
	l.letters = l.letters[1:]
	s.arrive(from, to, letter)
}

// crash ends a host, and loses some of what the process sent last: a tail of the letters under way
// on each link.
func (s *randomStage) crash(process int, id rdmanet.PeerID, ends int) {
	s.network.Crash(id)
	for to := range ends {
		if l := s.links[[2]int{process, to}]; l != nil && len(l.letters) > 0 {
			l.letters = l.letters[:s.random.IntN(len(l.letters)+1)]
		}
	}
}

// cut makes a wire hold everything, and mend lets it go on.
func (s *randomStage) cut(a, b int, idA, idB rdmanet.PeerID) {
	s.cuts[wire(a, b)] = true
	s.network.Cut(idA, idB)
}

func (s *randomStage) mend(a, b int, idA, idB rdmanet.PeerID) {
	delete(s.cuts, wire(a, b))
	s.network.Mend(idA, idB)
	for _, ends := range [][2]int{{a, b}, {b, a}} {
		l := s.links[ends]
		if l == nil {
			continue
		}
		for ; l.due > 0; l.due-- {
			s.take(ends[0], ends[1], l)
		}
	}
}

// wire returns the name of the wire between two processes, for both directions.
func wire(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }
