package search

// A frame that changes nothing and never will, a copy of what the receiver has, say, is taken off
// its channel as soon as it is the first there: whether it is taken sooner or later nobody can
// tell. That it never will is not taken on trust from the engine. A frame that changes nothing in a
// server's state is assumed to be of that kind, and the assumption is an obligation for each state
// that the server can get to from there: it is checked for each of them, once. If one does not keep
// it, the assumption is withdrawn wherever it leads there, and the search begins again without it
// (with all steps of servers remembered).

// claim is what is known about an input of a server in a state.
type claim uint8

const (
	claimUnknown claim = iota
	// claimIdle: the input changes nothing, and nothing in any state after this one.
	claimIdle
	// claimAlive: it does.
	claimAlive
)

// claims holds what is claimed about inputs.
type claims struct {
	known map[uint64]claim
	// idle lists the idle inputs of a server's state, by its number; next and before the states
	// that are one step away.
	idle   [][]input
	next   [][]uint32
	before [][]uint32
	// obligations are claims to be checked: a state and an input.
	obligations []uint64
	// advanced remembers channels without the idle frames in front.
	advanced map[uint64]uint32
	// withdrawn tells that a claim was wrong.
	withdrawn bool
	// restarts counts the searches that were begun again.
	restarts int
}

func newClaims() *claims {
	return &claims{known: map[uint64]claim{}, advanced: map[uint64]uint32{}}
}

func claimKey(at uint32, in input) uint64 { return uint64(at)<<32 | uint64(in) }

// connect notes that a step leads from one state of a server to another; what is claimed of the
// first is to hold for the second.
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

// keepClaims checks all that is claimed for the states known so far.
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

// withdraw takes back a claim wherever it leads to a state in which it is wrong.
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

// advance takes the idle frames off the front of a channel to a server.
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
