package plan

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/digraph"
)

// votes is the second part of a round of AllConcur with an eventually perfect failure detector:
// each server that decided the round tells all others so, and A-delivers it when enough others did.
//
// In the paper one control message of each server goes over G_R and another one over its transpose
// [Poke19, section 5.2.1.2]. The engine floods one message along all edges and against them, and
// sends on only what comes before it A-delivers the round (allconcur/vote.go).
type votes struct {
	ways ways
	// enough is the number of votes that a server waits for, its own included.
	enough int
	// frames is the number of control messages that a server sends, and receives.
	frames float64
}

// newVotes returns the votes of a round over an overlay. The carrier is that of control messages.
func newVotes(c carrier, g *digraph.Digraph) votes {
	n := g.Order()
	near := neighbours(g)
	edges, sent := []edge(nil), 0
	for v, others := range near {
		waiting := time.Duration(max(0, len(others)-1)) * c.gap / 2
		for _, other := range others {
			edges = append(edges, edge{v, other, waiting + c.way(v, other)})
		}
		// Its own vote goes to all, and those of others to all but the server that it came from.
		sent += len(others) + (n-1)*max(0, len(others)-1)
	}
	enough := quorum(n)
	return votes{ways: fastest(n, edges), enough: enough,
		frames: float64(sent) / float64(n) * float64(enough) / float64(n)}
}

// neighbours lists for each server those that an edge connects it with, in either direction.
func neighbours(g *digraph.Digraph) [][]int {
	near := make([][]int, g.Order())
	for v := range near {
		for _, successor := range g.Successors(v) {
			near[v] = append(near[v], successor)
			near[successor] = append(near[successor], v)
		}
	}
	for v := range near {
		slices.Sort(near[v])
		near[v] = slices.Compact(near[v])
	}
	return near
}

// spread is how long messages take in rounds that only wait for messages: from a server's
// A-broadcast to its A-delivery on average, to the last A-delivery, and at most to that one.
type spread struct{ own, all, worst time.Duration }

// pace returns the spread of rounds whose messages have these ways, with the votes on them.
func (v votes) pace(messages ways) spread {
	// As in ways.pace, the growth is periodic after a few rounds.
	const settle, count = 6, 6
	n := messages.n
	now, decided, next := make([]time.Duration, n), make([]time.Duration, n),
		make([]time.Duration, n)
	arrivals := make([]time.Duration, n)
	var s spread
	for round := range settle + count {
		clear(decided)
		for u := range n {
			for w, way := range messages.times[u*n : (u+1)*n] {
				decided[w] = max(decided[w], now[u]+way)
			}
		}
		for w := range n {
			for u := range n {
				arrivals[u] = max(decided[w], decided[u]+v.ways.times[u*n+w])
			}
			slices.Sort(arrivals)
			next[w] = arrivals[v.enough-1]
		}
		if round >= settle {
			last := slices.Max(next)
			for u := range n {
				s.own += next[u] - now[u]
				s.all += last - now[u]
			}
			s.worst = max(s.worst, last-slices.Min(now))
		}
		now, next = next, now
	}
	rounds := time.Duration(count * n)
	return spread{s.own / rounds, s.all / rounds, s.worst}
}

// voted estimates a round over G_R with its votes, and the spread of its messages.
func (c *carrier) voted(g *digraph.Digraph, control carrier) (Round, spread) {
	n, d := g.Order(), g.Degree()
	v := newVotes(control, g)
	messages := c.flood(g)
	l := c.newLoad()
	for from := range n {
		for _, successor := range g.Successors(from) {
			c.add(&l, from, successor, n)
		}
	}
	s := v.pace(messages)
	each := (n - 1) * d
	frames := int(v.frames + 0.5)
	r := Round{Depth: messages.depth() + v.ways.depth(), Pace: s.own, Bound: ResourceDepth,
		Sent: each + frames, Received: each + frames, Duration: s.own}
	fibre, gateway := c.far(l)
	c.bound(&r, busy{
		{ResourceProcessor, time.Duration(r.Sent+r.Received) * c.overhead, 2 * c.overhead, 0},
		// The last vote follows the last message.
		{ResourceLink, time.Duration(each)*c.link() + time.Duration(frames)*control.link(),
			c.link(), slices.Max(control.ways)},
		{ResourceFibre, fibre, 0, 0}, {ResourceGateway, gateway, 0, 0},
		{ResourceWindow, l.connection, 0, 0},
	})
	stretch := float64(r.Duration) / float64(max(1, s.own))
	return r, spread{r.Duration, time.Duration(stretch * float64(s.all)),
		time.Duration(stretch * float64(s.worst))}
}
