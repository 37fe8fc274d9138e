package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// connections bounds the connections of clients, in all and by address, so that the store and the
// fabric keep the descriptors that they need. At the bound, a new connection takes the place of one
// that carries no call: the longest idle one of the address with the most connections. If all
// carry calls, the new connection is closed.
type connections struct {
	max          int
	maxOfAddress int
	offences     *offences

	mu      sync.Mutex
	open    map[*connection]struct{}
	of      map[netip.Prefix]int
	closing bool
	refused int
	evicted int
}

// connection is a client's connection. The mutex of connections guards its fields.
type connection struct {
	net.Conn
	all    *connections
	from   netip.Prefix
	isNew  bool // it has carried no call yet
	idle   bool
	since  time.Time // of idle
	closed bool

	used     atomic.Bool // it has carried a request
	offended atomic.Bool // it counts in offences
}

// fewest is the least number of connections that a default allows.
const fewest = 16

// defaultConnections returns half of the descriptors that the process may open, at most 4,096. The
// other half is for the store's tables, the fabric and everything else.
func defaultConnections() int {
	const most = 4_096
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return max(fewest, int(min(limit.Cur/2, most)))
}

func newConnections(options Options, offences *offences) *connections {
	return &connections{max: options.MaxConnections, offences: offences,
		maxOfAddress: options.MaxConnectionsPerAddress,
		open:         map[*connection]struct{}{}, of: map[netip.Prefix]int{}}
}

// addressOf returns the network that counts as one address: a single IPv4 address, or the 64 bits
// of IPv6 that one subscriber has.
func addressOf(address net.Addr) netip.Prefix {
	parsed, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := parsed.Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.WithZone("").Prefix(bits)
	return prefix
}

// Listen binds an address, host:port, for Serve. It returns the system's error.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	// The kernel has no filters for sockets of Multipath TCP, with which it drops what addresses
	// that are put off send.
	config.SetMultipathTCP(false)
	return config.Listen(ctx, "tcp", address)
}

// listener returns a listener that keeps the bounds.
func (c *connections) listener(inner net.Listener) net.Listener {
	c.offences.listen(inner)
	return &boundedListener{Listener: inner, connections: c}
}

type boundedListener struct {
	net.Listener
	connections *connections
}

// Accept returns the next connection that is within the bounds.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.connections.admit(accepted); admitted != nil {
			return admitted, nil
		}
		_ = accepted.Close()
	}
}

// admit counts a connection. It returns nil if there is no room for it, or if its address is put
// off.
func (c *connections) admit(accepted net.Conn) net.Conn {
	made := &connection{Conn: accepted, all: c, from: addressOf(accepted.RemoteAddr()), isNew: true,
		idle: true, since: time.Now()}
	if c.offences.refusesConnection(made.from) {
		if inner, is := accepted.(interface{ SetLinger(int) error }); is {
			_ = inner.SetLinger(0) // a reset costs less than the end of a connection
		}
		return nil
	}
	victim, admitted := c.enter(made)
	if victim != nil {
		_ = victim.Close()
	}
	if !admitted {
		return nil
	}
	return made
}

func (c *connections) enter(made *connection) (victim *connection, admitted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return nil, false
	case c.of[made.from] >= c.maxOfAddress:
		victim = c.idlest(func(open *connection) bool { return open.from == made.from })
	case len(c.open) >= c.max:
		victim = c.idlest(func(*connection) bool { return true })
	default:
		c.open[made] = struct{}{}
		c.of[made.from]++
		return nil, true
	}
	if victim == nil {
		c.refused++
		return nil, false
	}
	c.evicted++
	c.forget(victim)
	c.open[made] = struct{}{}
	c.of[made.from]++
	return victim, true
}

// idlest returns the connection to give up among those that carry no call. The caller holds the
// mutex.
func (c *connections) idlest(among func(*connection) bool) (found *connection) {
	for open := range c.open {
		if !open.idle || !among(open) {
			continue
		}
		if found == nil || c.of[open.from] > c.of[found.from] ||
			(c.of[open.from] == c.of[found.from] && open.since.Before(found.since)) {
			found = open
		}
	}
	return found
}

// forget removes a connection, and reports whether it was there. The caller holds the mutex.
func (c *connections) forget(open *connection) bool {
	if open.closed {
		return false
	}
	open.closed = true
	delete(c.open, open)
	if c.of[open.from]--; c.of[open.from] == 0 {
		delete(c.of, open.from)
	}
	return true
}

// Close closes the connection, once it is counted no more. It is an offence of the client that the
// connection has carried no request, unless it gave way or the server stops.
func (c *connection) Close() error {
	c.all.mu.Lock()
	ended := c.all.forget(c) && !c.all.closing
	c.all.mu.Unlock()
	if ended && !c.used.Load() {
		c.all.offences.commit(c.from, offenceConnection, 1)
	}
	return c.Conn.Close()
}

// connectionOf returns the connection below what the server serves, which may add TLS to it. It
// returns nil if there is none.
func connectionOf(served net.Conn) *connection {
	for {
		switch of := served.(type) {
		case *connection:
			return of
		case interface{ NetConn() net.Conn }:
			served = of.NetConn()
		default:
			return nil
		}
	}
}

// state implements http.Server.ConnState.
func (c *connections) state(served net.Conn, state http.ConnState) {
	open := connectionOf(served)
	if open == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
	case http.StateIdle:
		open.isNew, open.idle, open.since = false, true, time.Now()
	default:
		open.isNew, open.idle = false, false
	}
}

// close closes the connections that have carried no call yet, and those that are accepted later.
// Browsers open such connections ahead of need. http.Server.Shutdown waits five seconds for each of
// them; closing them at once harms no caller.
func (c *connections) close() {
	c.mu.Lock()
	c.closing = true
	var unused []*connection
	for open := range c.open {
		if open.isNew {
			unused = append(unused, open)
		}
	}
	c.mu.Unlock()
	for _, open := range unused {
		_ = open.Close()
	}
}

// register adds the metrics.
func (c *connections) register(registry *prometheus.Registry) error {
	count := func(choose func(open, refused, evicted int) int) func() float64 {
		return func() float64 {
			return float64(choose(c.counts()))
		}
	}
	for _, collector := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ledgerd_api_connections", Help: "Connections of clients that are open.",
		}, count(func(open, _, _ int) int { return open })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ledgerd_api_connections_refused_total",
			Help: "Connections closed at once, because all that the bounds allow carry calls.",
		}, count(func(_, refused, _ int) int { return refused })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ledgerd_api_connections_evicted_total",
			Help: "Idle connections closed to make room for new ones.",
		}, count(func(_, _, evicted int) int { return evicted })),
	} {
		if err := registry.Register(collector); err != nil {
			return fmt.Errorf("api: registering metrics: %w", err)
		}
	}
	return nil
}

// counts returns how many connections are open, and how many were refused and evicted.
func (c *connections) counts() (open, refused, evicted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.refused, c.evicted
}
