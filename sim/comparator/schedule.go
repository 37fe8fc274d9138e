package comparator

import "github.com/ledgerd/ledgerd/order"

// allgatherSwitch is the total size in bytes from which Open MPI's fixed decision sends blocks from
// neighbour to neighbour.
const allgatherSwitch = 50_000

// step is one step of MPI_Allgather at one rank: it sends some blocks to one rank and then awaits
// others from one rank. Blocks are named by their origins.
type step struct {
	to            []order.ServerID // one rank
	from          order.ServerID
	send, receive []order.ServerID
}

// The algorithms of Open MPI's fixed decision.
const (
	algorithmRecursiveDoubling = "recursive doubling"
	algorithmBruck             = "bruck"
	algorithmNeighbourExchange = "neighbour exchange"
	algorithmRing              = "ring"
)

// algorithmOf returns the fixed decision.
func algorithmOf(n, blockSize int) string {
	switch {
	case n*blockSize < allgatherSwitch && n&(n-1) == 0:
		return algorithmRecursiveDoubling
	case n*blockSize < allgatherSwitch:
		return algorithmBruck
	case n%2 == 0:
		return algorithmNeighbourExchange
	default:
		return algorithmRing
	}
}

// rank is one of n ranks. circle has the numbers 0 to n-1 twice in a row; all lists of the schedule
// are slices of it.
type rank struct {
	n, self int
	circle  []order.ServerID
}

// schedule lists the steps of a rank.
func schedule(n, self int, algorithm string) []step {
	if n == 1 {
		return nil
	}
	r := rank{n: n, self: self, circle: make([]order.ServerID, 2*n)}
	for i := range r.circle {
		r.circle[i] = order.ServerID(i % n)
	}
	switch algorithm {
	case algorithmRecursiveDoubling:
		return r.recursiveDoubling()
	case algorithmBruck:
		return r.bruck()
	case algorithmNeighbourExchange:
		return r.neighbourExchange()
	default:
		return r.ring()
	}
}

// around lists count numbers from first on. first may be below 0 or past n.
func (r rank) around(first, count int) []order.ServerID {
	first = (first%r.n + r.n) % r.n
	return r.circle[first : first+count : first+count]
}

// step returns a step that sends to to and receives from from.
func (r rank) step(to, from int, send, receive []order.ServerID) step {
	return step{to: r.around(to, 1), from: r.around(from, 1)[0], send: send, receive: receive}
}

// recursiveDoubling: in step k, ranks whose numbers differ in bit k exchange everything that they
// have. n is a power of two.
func (r rank) recursiveDoubling() []step {
	var steps []step
	for have := 1; have < r.n; have *= 2 {
		peer := r.self ^ have
		steps = append(steps, r.step(peer, peer, r.around(r.self&^(have-1), have),
			r.around(peer&^(have-1), have)))
	}
	return steps
}

// bruck: in step k, a rank sends the blocks that it has, its own first, to the rank 2^k below and
// receives as many from the rank 2^k above.
func (r rank) bruck() []step {
	var steps []step
	for have := 1; have < r.n; have *= 2 {
		count := min(have, r.n-have)
		steps = append(steps, r.step(r.self-have, r.self+have, r.around(r.self, count),
			r.around(r.self+have, count)))
	}
	return steps
}

// ring: every block goes round, from each rank to the next.
func (r rank) ring() []step {
	steps := make([]step, r.n-1)
	for k := range steps {
		steps[k] = r.step(r.self+1, r.self-1, r.around(r.self-k, 1), r.around(r.self-k-1, 1))
	}
	return steps
}

// neighbourExchange: a rank exchanges its block with one neighbour. After that, it exchanges the
// two newest blocks, in turns with the other neighbour and with this one. n is even. It ends after
// n/2 steps. Blocks travel in pairs from the second step on, the even one first.
func (r rank) neighbourExchange() []step {
	// Even ranks begin with the rank above, odd ones with the rank below.
	toward := 1 - 2*(r.self%2)
	steps := make([]step, r.n/2)
	steps[0] = r.step(r.self+toward, r.self+toward, r.around(r.self, 1), r.around(r.self+toward, 1))
	newest := r.self - r.self%2
	for k := 1; k < r.n/2; k++ {
		// The rank turns to the other side. An even rank's first new pair comes from below and is
		// the next one there, then one comes from above, then the second from below.
		toward = -toward
		distance := (k + 1) / 2 * 2
		if (r.self%2 == 0) == (k%2 == 1) {
			distance = -distance
		}
		gets := r.self - r.self%2 + distance
		steps[k] = r.step(r.self+toward, r.self+toward, r.around(newest, 2), r.around(gets, 2))
		newest = gets
	}
	return steps
}
