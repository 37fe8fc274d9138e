package plan

import (
	"math"
	"time"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/sim/network"
)

// messageHeader is what an engine's frame has before its payload, in bytes.
const messageHeader = 32

// Resource is what a round's duration follows from.
type Resource string

// The resources.
const (
	// ResourceDepth is the length of the ways of messages, in time.
	ResourceDepth Resource = "depth"
	// ResourceProcessor is the overhead of sending and receiving.
	ResourceProcessor Resource = "processor"
	// ResourceLink is a server's link.
	ResourceLink Resource = "link"
	// ResourceFibre is what connects two datacentres, and ResourceGateway what connects a
	// datacentre's core switches with its fibres.
	ResourceFibre   Resource = "fibre"
	ResourceGateway Resource = "gateway"
	// ResourceWindow is TCP's window between two servers.
	ResourceWindow Resource = "window"
)

// Round is the estimate of one round in which every server A-broadcasts one message.
type Round struct {
	// Duration is how long it lasts, δ.
	Duration time.Duration
	// Depth is the longest way of a message in time, and Pace how long a round takes because of the
	// ways alone: the mean over the slowest circle of servers that wait for each other, which is
	// less than the depth where ways differ. Work is how long the busiest resource is busy.
	Depth, Pace, Work time.Duration
	// Bound is what the duration follows from.
	Bound Resource
	// Sent and Received count a server's messages in it.
	Sent, Received int
}

// carrier knows the times of a site for messages of one size.
type carrier struct {
	site
	wire int // bytes of a message on a link
	size int // and in a connection
	ways []time.Duration
	// gap spaces the messages that one server sends.
	gap, overhead time.Duration
	window        int
}

// What section 6.5 has between datacentres: the rate of a fibre, and that of the port with which
// every core switch is connected to them.
const (
	fibreRate   = 10 * network.Gigabit
	gatewayRate = network.Gigabit
)

// newCarrier measures the ways of a site.
func newCarrier(d Deployment, servers, payload int) (carrier, error) {
	s, err := d.build(servers)
	if err != nil {
		return carrier{}, err
	}
	s.model.Overhead = d.Overhead
	size := payload + messageHeader + s.model.FrameHeader
	c := carrier{site: s, size: size, wire: s.model.Wire(size), overhead: d.Overhead,
		window: d.Window, ways: make([]time.Duration, s.classes())}
	c.gap = max(c.overhead, s.model.HostRate.Serialisation(c.wire))
	known := make([]bool, len(c.ways))
	for from := range servers {
		for to := range servers {
			if class := s.class(from, to); from != to && !known[class] {
				known[class] = true
				c.ways[class] = s.model.Unloaded(s.place(from), s.place(to), payload+messageHeader)
			}
		}
	}
	return c, nil
}

// way is how long a message takes from one server to another when nothing else is under way, T(msg)
// = L + 2o.
func (c *carrier) way(from, to int) time.Duration { return c.ways[c.class(from, to)] }

// load counts the messages of a round on each connection and each pair of cities.
type load struct {
	fibres     []int
	connection time.Duration // the time that the slowest connection needs, by its window
}

func (c *carrier) newLoad() load {
	return load{fibres: make([]int, len(network.Cities)*len(network.Cities))}
}

// add puts messages on a connection.
func (c *carrier) add(l *load, from, to, messages int) {
	l.fibres[c.cityOf(from)*len(network.Cities)+c.cityOf(to)] += messages
	if c.window > 0 {
		// A window's bytes take a round trip; the first one is part of the depth.
		windows := messages * c.size / c.window
		l.connection = max(l.connection, time.Duration(windows)*2*c.way(from, to))
	}
}

// far is how long the busiest fibre and the busiest datacentre's gateway are busy.
func (c *carrier) far(l load) (fibre, gateway time.Duration) {
	if c.city == 0 {
		return 0, 0
	}
	for a := range network.Cities {
		leaves := 0
		for b := range network.Cities {
			if a != b {
				messages := l.fibres[a*len(network.Cities)+b]
				leaves += messages
				fibre = max(fibre, time.Duration(messages)*fibreRate.Serialisation(c.wire))
			}
		}
		gateway = max(gateway, time.Duration(leaves)*gatewayRate.Serialisation(
			c.wire)/time.Duration(c.pod*c.pod))
	}
	return fibre, gateway
}

// ways are the times that messages take from each server to each other one, by from·n+to.
type ways struct {
	n     int
	times []time.Duration
}

func newWays(n int) ways { return ways{n: n, times: make([]time.Duration, n*n)} }

// depth is the longest one.
func (w ways) depth() time.Duration {
	longest := time.Duration(0)
	for _, t := range w.times {
		longest = max(longest, t)
	}
	return longest
}

// pace is how long a round takes where a server begins the next one when it has all messages of
// this one: the growth of x(r+1)[v] = max over u of x(r)[u] + way(u,v).
func (w ways) pace() time.Duration {
	// After a few rounds the growth repeats itself, with a short period, of which the rounds that
	// count are a multiple in all likelihood.
	const settle, count = 12, 24
	now, next := make([]time.Duration, w.n), make([]time.Duration, w.n)
	from := time.Duration(0)
	for round := range settle + count {
		if round == settle {
			from = now[0]
		}
		clear(next)
		for u := range w.n {
			row := w.times[u*w.n : (u+1)*w.n]
			for v, way := range row {
				next[v] = max(next[v], now[u]+way)
			}
		}
		now, next = next, now
	}
	return (now[0] - from) / count
}

// round puts depth and work together: the last message of a round starts on its last way when the
// busiest resource is done with the others.
func (c *carrier) round(w ways, sent, received int, l load) Round {
	r := Round{Depth: w.depth(), Pace: w.pace(), Bound: ResourceDepth, Sent: sent,
		Received: received}
	r.Duration = r.Pace
	last := time.Duration(0)
	for _, way := range c.ways {
		last = max(last, way)
	}
	fibre, gateway := c.far(l)
	for _, each := range []struct {
		resource Resource
		busy     time.Duration
	}{
		{ResourceProcessor, time.Duration(sent+received) * c.overhead},
		{ResourceLink, time.Duration(max(sent, received)) * c.model.HostRate.Serialisation(c.wire)},
		{ResourceFibre, fibre},
		{ResourceGateway, gateway},
		{ResourceWindow, l.connection},
	} {
		r.Work = max(r.Work, each.busy)
		if each.busy == 0 || each.busy+last <= r.Duration {
			continue
		}
		r.Duration = each.busy + last
		if each.busy > last {
			r.Bound = each.resource
		}
	}
	return r
}

// reliable estimates a round over G_R, in which each server R-broadcasts so many messages.
func (c *carrier) reliable(g *digraph.Digraph, messages int) Round {
	n, d := g.Order(), g.Degree()
	l := c.newLoad()
	for v := range n {
		for _, successor := range g.Successors(v) {
			c.add(&l, v, successor, n*messages)
		}
	}
	each := (n - 1) * d * messages
	return c.round(c.flood(g), each, each, l)
}

// edge is one of a digraph, with its time.
type edge struct {
	from, to int
	time     time.Duration
}

// flood finds the quickest ways over a digraph, where each edge takes L + o_s + o [Poke19, section
// 5.6.2.1].
func (c *carrier) flood(g *digraph.Digraph) ways {
	waiting := time.Duration(max(0, g.Degree()-1)) * c.gap / 2
	edges := make([]edge, 0, g.Order()*g.Degree())
	for v := range g.Order() {
		for _, successor := range g.Successors(v) {
			edges = append(edges, edge{v, successor, waiting + c.way(v, successor)})
		}
	}
	w := newWays(g.Order())
	for source := range w.n {
		reached := w.times[source*w.n : (source+1)*w.n]
		for v := range reached {
			reached[v] = math.MaxInt64
		}
		reached[source] = 0
		// Ways have few edges, so that a few sweeps over all edges find them.
		for better := true; better; {
			better = false
			for _, e := range edges {
				if at := reached[e.from]; at < math.MaxInt64 && at+e.time < reached[e.to] {
					reached[e.to], better = at+e.time, true
				}
			}
		}
	}
	return w
}

// unreliable estimates a round over G_U: a binomial tree of each source, whose servers send to one
// child after the other.
func (c *carrier) unreliable() Round {
	n := c.servers
	w, l := newWays(n), c.newLoad()
	// messages[k] counts the sources over whose trees a server sends to the one k further on.
	messages := make([]int, n)
	var children []int
	for root := range n {
		reached := w.times[root*n : (root+1)*n]
		for place := range n {
			v := (root + place) % n
			children = digraph.AppendBinomialChildren(children[:0], n, root, v)
			for i, child := range children {
				reached[child] = reached[v] + time.Duration(i)*c.gap + c.way(v, child)
				if root == 0 {
					messages[(child-v+n)%n]++
				}
			}
		}
	}
	for v := range n {
		for distance, count := range messages {
			if count > 0 {
				c.add(&l, v, (v+distance)%n, count)
			}
		}
	}
	return c.round(w, n-1, n-1, l)
}
