package lane

import (
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	// slabsKeptMax bounds the slabs of each size that a host keeps for reuse.
	slabsKeptMax = 64
	// poison overwrites the frames of slabs that were given back, if Config.Poison is set.
	poison = 0xdb
)

// slab is a buffer into which a Feeder reads; it implements rdmanet.Loan.
type slab struct {
	bytes []byte
	holds atomic.Int32
	pool  *slabPool // nil: it is never used again
}

var _ rdmanet.Loan = (*slab)(nil)

// Hold implements rdmanet.Loan.
func (s *slab) Hold() { s.holds.Add(1) }

// Release implements rdmanet.Loan.
func (s *slab) Release() {
	switch left := s.holds.Add(-1); {
	case left < 0:
		panic("lane: frames were released more often than held")
	case left == 0 && s.pool != nil:
		s.pool.put(s)
	}
}

// slabPool has the slabs that nobody holds.
type slabPool struct {
	poison bool

	mu   sync.Mutex
	free map[int][]*slab // by size
}

// get returns a slab that the caller holds. Its contents are undefined.
func (p *slabPool) get(size int) *slab {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free[size]
	if len(free) == 0 {
		s := &slab{bytes: unzeroed(size), pool: p}
		s.Hold()
		return s
	}
	s := free[len(free)-1]
	p.free[size] = free[:len(free)-1]
	s.Hold()
	return s
}

func (p *slabPool) put(s *slab) {
	if p.poison {
		for i := range s.bytes {
			s.bytes[i] = poison
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if size := len(s.bytes); len(p.free[size]) < slabsKeptMax {
		p.free[size] = append(p.free[size], s)
	}
}
