package trains

import (
	"math/bits"

	"github.com/ledgerd/ledgerd/order"
)

// serverSet is a set of servers of a ring, bit i for server i.
type serverSet uint64

// one returns the set of one server.
func one(server order.ServerID) serverSet { return 1 << server }

// firstServers returns the set of servers 0 to n-1.
func firstServers(n int) serverSet {
	if n == ServersMax {
		return ^serverSet(0)
	}
	return 1<<n - 1
}

func (s serverSet) has(server order.ServerID) bool { return s>>server&1 != 0 }

func (s serverSet) count() int { return bits.OnesCount64(uint64(s)) }

// least returns the first server of a set that is not empty.
func (s serverSet) least() order.ServerID { return order.ServerID(bits.TrailingZeros64(uint64(s))) }

// appendTo appends the servers, ascending.
func (s serverSet) appendTo(list []order.ServerID) []order.ServerID {
	for ; s != 0; s &= s - 1 {
		list = append(list, s.least())
	}
	return list
}

// after returns the server of a set that follows another one in the ring, which may be the same one
// again. The set is not empty.
func (s serverSet) after(server order.ServerID) order.ServerID {
	if behind := s >> server >> 1; behind != 0 {
		return server + 1 + behind.least()
	}
	return s.least()
}

// before returns the server of a set that precedes another one in the ring.
func (s serverSet) before(server order.ServerID) order.ServerID {
	if ahead := s & (one(server) - 1); ahead != 0 {
		s = ahead
	}
	return order.ServerID(63 - bits.LeadingZeros64(uint64(s)))
}
