package search

// A frame that changes nothing and never will, such as a copy of what the receiver has, is removed
// from its channel as soon as it is first. No server can tell whether it is taken sooner or later.
// The search does not trust the engine that the frame never will. It assumes so of a frame that
// changes nothing in a server's state, and the assumption is an obligation for each state that the
// server can reach from there: it is checked once for each of them. If it fails in one of them, it
// is withdrawn in every state that leads there, and the search begins again without it (with all
// steps of servers remembered).

// claim is what is known about an input of a server in a state.
type claim uint8

const (
	claimUnknown claim = iota
	// claimIdle: the input changes nothing, neither in this state nor in any later one.
	claimIdle
	// claimAlive: the input changes something.
	claimAlive
)

// claims holds the claims about inputs.
type claims struct {
	known map[uint64]claim
	// idle lists the idle inputs of a server's state, by its number. next and before list the
	// states that are one step away.
	idle   [][]input
	next   [][]uint32
	before [][]uint32
	// obligations are claims to be checked: a state and an input.
	obligations []uint64
	// advanced caches channels without the idle frames in front.
	advanced map[uint64]uint32
	// withdrawn reports that a claim was wrong.
	withdrawn bool
	// restarts counts the repeated searches.
	restarts int
}

func newClaims() *claims {
	return &claims{known: map[uint64]claim{}, advanced: map[uint64]uint32{}}
}

func claimKey(at uint32, in input) uint64 { return uint64(at)<<32 | uint64(in) }

// connect records that a step leads from one state of a server to another. The claims about the
// first must hold for the second.
func (c *claims) connect(from, to uint32) {
	for _, known := range c.next[from] {
		if known == to {
			return
		}
	}
	c.next[from] = append(c.next[from], to)
	c.before[to] = append(c.before[to], from)
	for _, in := range c.idle[from] {
		c.obligations = append(c.obligations, claimKey(to, in))
	}
}

// isIdle reports whether a frame that is the first of a channel will never change anything.
func (x *explorer) isIdle(at uint32, in input) bool {
	c := x.claims
	if known := c.known[claimKey(at, in)]; known != claimUnknown {
		return known == claimIdle
	}
	if !x.changesNothing(at, in) {
		c.known[claimKey(at, in)] = claimAlive
		return false
	}
	c.obligations = append(c.obligations, claimKey(at, in))
	x.keepClaims()
	return c.known[claimKey(at, in)] == claimIdle
}

func (x *explorer) changesNothing(at uint32, in input) bool {
	if in.frame() == endOfChannel {
		return false
	}
	s := x.step(at, in)
	return s.broken == nil && s.next == at && s.sends == 0 && !s.delivers
}

// keepClaims checks all claims for the states known so far.
func (x *explorer) keepClaims() {
	c := x.claims
	for len(c.obligations) > 0 {
		last := len(c.obligations) - 1
		key := c.obligations[last]
		c.obligations = c.obligations[:last]
		at, in := uint32(key>>32), input(uint32(key))
		switch {
		case c.known[key] == claimIdle:
		case c.known[key] == claimAlive || !x.changesNothing(at, in):
			x.withdraw(at, in)
		default:
			c.known[key] = claimIdle
			c.idle[at] = append(c.idle[at], in)
			for _, next := range c.next[at] {
				c.obligations = append(c.obligations, claimKey(next, in))
			}
		}
	}
}

// withdraw withdraws a claim in every state that leads to a state in which it is wrong.
func (x *explorer) withdraw(at uint32, in input) {
	c := x.claims
	c.known[claimKey(at, in)] = claimAlive
	todo := []uint32{at}
	for len(todo) > 0 {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, before := range c.before[last] {
			if c.known[claimKey(before, in)] != claimIdle {
				continue
			}
			c.withdrawn = true
			c.known[claimKey(before, in)] = claimAlive
			kept := c.idle[before][:0]
			for _, other := range c.idle[before] {
				if other != in {
					kept = append(kept, other)
				}
			}
			c.idle[before] = kept
			todo = append(todo, before)
		}
	}
}

// advance removes the idle frames from the front of a channel to a server.
func (x *explorer) advance(at uint32, from int, channel uint32) uint32 {
	if channel == 0 || x.servers[at].stopped {
		return channel
	}
	key := uint64(from)<<60 | uint64(at)<<32 | uint64(channel)
	if rest, known := x.claims.advanced[key]; known {
		return rest
	}
	rest := channel
	for rest != 0 && x.isIdle(at, newInput(inputReceive, from, x.contents.head(rest))) {
		rest = x.contents.rest(rest)
	}
	x.claims.advanced[key] = rest
	return rest
}
