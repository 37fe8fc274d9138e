package plan

import (
	"math"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/sim/network"
)

// messageHeader is the size in bytes of the header of an engine's frame.
const messageHeader = 32

// Resource is the limit that determines the duration of a round.
type Resource string

// The resources.
const (
	// ResourceDepth is the time of the messages' paths.
	ResourceDepth Resource = "depth"
	// ResourceProcessor is the overhead of sending and receiving messages.
	ResourceProcessor Resource = "processor"
	// ResourceLink is the link of a server.
	ResourceLink Resource = "link"
	// ResourceFibre is the connection between two datacentres. ResourceGateway is the connection
	// between the core switches of a datacentre and its fibres.
	ResourceFibre   Resource = "fibre"
	ResourceGateway Resource = "gateway"
	// ResourceWindow is TCP's window between two servers.
	ResourceWindow Resource = "window"
)

// Round is the estimate of one round in which every server A-broadcasts one message.
type Round struct {
	// Duration is the duration of the round, δ.
	Duration time.Duration
	// Depth is the time of the longest path of a message. Pace is the time that a round takes
	// because of the paths alone: the mean over the slowest circle of servers that wait for each
	// other. It is less than the depth if the paths differ. Work is the time that the busiest
	// resource is busy.
	Depth, Pace, Work time.Duration
	// Bound is the resource that determines the duration.
	Bound Resource
	// Sent and Received are the numbers of messages that a server sends and receives in the round.
	Sent, Received int
}

// carrier computes the times of a site for messages of one size.
type carrier struct {
	site
	wire int // bytes of a message on a link
	size int // bytes of a message in a connection
	// control is the bytes of a control message on a link.
	control int
	ways    []time.Duration
	// gap is the interval between messages that one server sends.
	gap, overhead time.Duration
	window        int
}

// The rates of section 6.5 between datacentres: that of a fibre, and that of the port that connects
// each core switch to the fibres.
const (
	fibreRate   = 10 * network.Gigabit
	gatewayRate = network.Gigabit
)

// newCarrier measures the paths of a site.
func newCarrier(d Deployment, servers, payload int) (carrier, error) {
	s, err := d.site(servers)
	if err != nil {
		return carrier{}, err
	}
	size := payload + messageHeader + s.model.FrameHeader
	c := carrier{site: s, size: size, wire: s.model.Wire(size), overhead: d.Overhead,
		control: s.model.Wire(messageHeader + s.model.FrameHeader + (servers+63)/64*8),
		window:  d.Window, ways: make([]time.Duration, s.classes())}
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

// way returns the time of a message from one server to another in an idle network, T(msg) = L + 2o.
func (c *carrier) way(from, to int) time.Duration { return c.ways[c.class(from, to)] }

// load counts the messages of a round for each pair of cities, and measures the slowest connection.
type load struct {
	fibres     []int
	connection time.Duration // the time that the window of the slowest connection costs
}

func (c *carrier) newLoad() load {
	return load{fibres: make([]int, len(network.Cities)*len(network.Cities))}
}

// add adds messages to a connection.
func (c *carrier) add(l *load, from, to, messages int) {
	l.fibres[c.cityOf(from)*len(network.Cities)+c.cityOf(to)] += messages
	if c.window > 0 {
		// Each full window takes a round trip; the remainder is part of the depth.
		windows := messages * c.size / c.window
		l.connection = max(l.connection, time.Duration(windows)*2*c.way(from, to))
	}
}

// far returns how long the busiest fibre and the busiest datacentre's gateway are busy.
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

// ways holds the times that messages take between each pair of servers, at from·n+to.
type ways struct {
	n     int
	times []time.Duration
}

func newWays(n int) ways { return ways{n: n, times: make([]time.Duration, n*n)} }

// depth returns the longest time.
func (w ways) depth() time.Duration {
	longest := time.Duration(0)
	for _, t := range w.times {
		longest = max(longest, t)
	}
	return longest
}

// pace returns the duration of a round if a server begins the next round once it has all messages
// of this one. It is the growth of x(r+1)[v] = max over u of x(r)[u] + way(u,v).
func (w ways) pace() time.Duration {
	// After a few rounds the growth is periodic. The number of measured rounds is very likely a
	// multiple of the short period.
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

// round combines depth and work: the last message of a round starts on its last hop when the
// busiest resource has finished the others. Its own overheads and bytes are part of that hop.
func (c *carrier) round(w ways, sent, received int, l load) Round {
	r := Round{Depth: w.depth(), Pace: w.pace(), Bound: ResourceDepth, Sent: sent,
		Received: received}
	r.Duration = r.Pace
	fibre, gateway := c.far(l)
	c.bound(&r, busy{
		{ResourceProcessor, time.Duration(sent+received) * c.overhead, 2 * c.overhead, 0},
		{ResourceLink, time.Duration(max(sent, received)) * c.link(), c.link(), 0},
		{ResourceFibre, fibre, 0, 0},
		{ResourceGateway, gateway, 0, 0},
		{ResourceWindow, l.connection, 0, 0},
	})
	return r
}

// link returns how long a link takes for a message.
func (c *carrier) link() time.Duration { return c.model.HostRate.Serialisation(c.wire) }

// busy lists how long resources are busy in a round, and with the last message alone. What then has
// to follow that message comes in addition.
type busy []struct {
	resource         Resource
	busy, last, then time.Duration
}

// bound prolongs a round to what its busiest resource needs.
func (c *carrier) bound(r *Round, resources busy) {
	last := slices.Max(c.ways)
	for _, each := range resources {
		r.Work = max(r.Work, each.busy)
		if others := each.busy - each.last + each.then; others > each.then &&
			others+last > r.Duration {
			r.Duration = others + last
		} else {
			continue
		}
		if each.busy > last {
			r.Bound = each.resource
		}
	}
}

// reliable estimates a round over G_R in which each server R-broadcasts this number of messages.
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

// edge is an edge of a digraph with its time.
type edge struct {
	from, to int
	time     time.Duration
}

// flood computes the fastest paths over a digraph in which each edge takes L + o_s + o [Poke19,
// section 5.6.2.1].
func (c *carrier) flood(g *digraph.Digraph) ways {
	waiting := time.Duration(max(0, g.Degree()-1)) * c.gap / 2
	edges := make([]edge, 0, g.Order()*g.Degree())
	for v := range g.Order() {
		for _, successor := range g.Successors(v) {
			edges = append(edges, edge{v, successor, waiting + c.way(v, successor)})
		}
	}
	return fastest(g.Order(), edges)
}

// fastest computes the times of the fastest paths between n servers over edges.
func fastest(n int, edges []edge) ways {
	w := newWays(n)
	for source := range w.n {
		reached := w.times[source*w.n : (source+1)*w.n]
		for v := range reached {
			reached[v] = math.MaxInt64
		}
		reached[source] = 0
		// Paths have few edges, so a few sweeps over all edges find them.
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

// unreliable estimates a round over G_U: each source has a binomial tree, in which a server sends
// to one child after another.
func (c *carrier) unreliable() Round {
	n := c.servers
	w, l := newWays(n), c.newLoad()
	// messages[k] is the number of sources in whose trees a server sends to the server k places
	// further on.
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
