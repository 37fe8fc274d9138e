package p2p

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// identifyTimeout is how long a connection may take to show whether it is libp2p's or a direct
	// one, including its token.
	identifyTimeout = 10 * time.Second
	// acceptPause is how long the listener pauses after the kernel fails to accept a connection,
	// for example for lack of file descriptors.
	acceptPause = 50 * time.Millisecond
	// keepAlivePeriod is the period of TCP keep-alive, which detects connections whose peer
	// disappeared.
	keepAlivePeriod = 30 * time.Second
)

// newcomersMax bounds the connections that are not yet identified: an eighth of the descriptors
// that the process may open, from 16 to 256.
var newcomersMax = sync.OnceValue(func() int {
	const fewest, most = 16, 256
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return max(fewest, int(min(limit.Cur/8, most)))
})

// errNameTaken means that another process listens on the name for connections within this machine.
// It can be what is left of an earlier process of this host, or one of another user.
var errNameTaken = errors.New("another process has the name of this host's address")

// sharedTransport is libp2p's TCP transport on a port that also accepts direct connections.
type sharedTransport struct {
	*tcp.TcpTransport
	upgrader transport.Upgrader
	tickets  *ticketRegistry
	own      peer.ID
	gate     *gater
	door     *door
	local    bool
}

func newSharedTransport(upgrader transport.Upgrader, resources network.ResourceManager,
	own peer.ID, config libp2pConfig) (*sharedTransport, error) {
	plain, err := tcp.NewTCPTransport(upgrader, resources, nil, tcp.DisableReuseport(),
		tcp.WithConnectionTimeout(handshakeTimeout),
		tcp.WithDialerForAddr(func(multiaddr.Multiaddr) (tcp.ContextDialer, error) {
			return passDialer{config.key}, nil
		}))
	if err != nil {
		return nil, fmt.Errorf("TCP: %w", err)
	}
	return &sharedTransport{TcpTransport: plain, upgrader: upgrader, tickets: config.tickets,
		own: own, gate: config.gate, door: config.door, local: config.local}, nil
}

var _ transport.DialUpdater = (*sharedTransport)(nil)

// Listen implements transport.Transport.
func (t *sharedTransport) Listen(address multiaddr.Multiaddr) (transport.Listener, error) {
	kind, hostPort, err := manet.DialArgs(address)
	if err != nil {
		return nil, err
	}
	plain, err := net.Listen(kind, hostPort)
	if err != nil {
		return nil, err
	}
	listener, err := manet.WrapNetListener(plain)
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	var local net.Listener
	if t.local {
		if local, err = t.listenLocal(plain.Addr()); err != nil {
			return nil, errors.Join(err, plain.Close())
		}
	}
	return t.upgrader.UpgradeGatedMaListener(t,
		t.upgrader.GateMaListener(newPort(listener, plain, local, t, identifyTimeout))), nil
}

// listenLocal is the function listenLocal for a host that does without if the name is taken.
func (t *sharedTransport) listenLocal(beside net.Addr) (net.Listener, error) {
	local, err := listenLocal(t.own, beside)
	if errors.Is(err, errNameTaken) {
		t.gate.log.Warn("connections within this machine go over TCP, which is slower: find the "+
			"process with `ss -xlp`, end it, and restart this one", "error", err)
		return nil, nil
	}
	return local, err
}

// port separates the connections to one address by their first bytes. It passes libp2p's
// connections to the caller of Accept, and direct ones to the goroutine that waits for their token.
// Strangers may introduce themselves. It closes connections that show nothing of this in time.
type port struct {
	manet.Listener
	plain    net.Listener // the listener below it
	local    net.Listener // for UNIX sockets, which are direct connections only; may be nil
	owner    *sharedTransport
	members  slots
	patience time.Duration // identifyTimeout
	libp2p   chan manet.Conn
	closed   chan struct{}
	once     sync.Once
	work     sync.WaitGroup

	newcomers crowd // connections that are not identified
	strangers crowd // connections of those who introduce themselves
}

// newcomer is a connection that has no owner yet.
type newcomer struct {
	net.Conn
	from string // the address, without the port
}

// crowd is a bounded number of connections. One more closes the oldest of the address that has the
// most, so that silent connections cannot block others.
type crowd struct {
	most int

	mu     sync.Mutex
	closed bool
	list   []*newcomer // oldest first
}

// add takes a connection. It returns false if the port is closed.
func (c *crowd) add(n *newcomer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if len(c.list) >= c.most {
		i := c.crowded()
		c.list[i].Close()
		c.list = slices.Delete(c.list, i, i+1)
	}
	c.list = append(c.list, n)
	return true
}

// crowded returns the index of the oldest connection of the address with the most. The caller holds
// the mutex.
func (c *crowd) crowded() (oldest int) {
	counts := map[string]int{}
	for _, n := range c.list {
		counts[n.from]++
	}
	for i, n := range c.list {
		if counts[n.from] > counts[c.list[oldest].from] {
			oldest = i
		}
	}
	return oldest
}

// remove forgets a connection, which is not closed to make room any more.
func (c *crowd) remove(n *newcomer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.list, n); i >= 0 {
		c.list = slices.Delete(c.list, i, i+1)
	}
}

// close closes all connections, and takes no more.
func (c *crowd) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, n := range c.list {
		n.Close()
	}
	c.list = nil
}

func newPort(listener manet.Listener, plain, local net.Listener, owner *sharedTransport,
	patience time.Duration) *port {
	p := &port{Listener: listener, plain: plain, local: local, owner: owner, patience: patience,
		libp2p: make(chan manet.Conn), closed: make(chan struct{}),
		newcomers: crowd{most: newcomersMax()}, strangers: crowd{most: strangersSpeakingMax}}
	p.work.Go(func() { p.run(plain) })
	if local != nil {
		p.work.Go(func() { p.run(local) })
	}
	return p
}

// Accept implements manet.Listener: it returns libp2p's connections.
func (p *port) Accept() (manet.Conn, error) {
	select {
	case conn := <-p.libp2p:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements manet.Listener. It waits for the port's goroutines.
func (p *port) Close() error {
	p.once.Do(func() { close(p.closed) })
	err := p.Listener.Close()
	if p.local != nil {
		err = errors.Join(err, p.local.Close())
	}
	p.newcomers.close()
	p.strangers.close()
	p.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *port) run(from net.Listener) {
	for {
		conn, err := from.Accept()
		switch {
		case err == nil:
			n := &newcomer{Conn: conn, from: hostOf(conn.RemoteAddr())}
			if !p.newcomers.add(n) {
				conn.Close()
				return
			}
			p.work.Go(func() { p.identify(n) })
		case errors.Is(err, net.ErrClosed):
			return
		default:
			select {
			case <-time.After(acceptPause):
			case <-p.closed:
				return
			}
		}
	}
}

func hostOf(address net.Addr) string {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	return host
}

// identify reads the first bytes of a connection, and the pass or the token that they announce, and
// passes the connection on.
func (p *port) identify(n *newcomer) {
	conn := n.Conn
	var start [len(directMagic)]byte
	var token [ticketBytes]byte
	err := conn.SetReadDeadline(time.Now().Add(p.patience))
	if err == nil {
		_, err = io.ReadFull(conn, start[:])
	}
	var member peer.ID
	direct := err == nil && string(start[:]) == directMagic
	switch {
	case direct:
		_, err = io.ReadFull(conn, token[:])
	case err == nil && string(start[:]) == introductionMagic && isTCP(conn):
		p.introduce(n)
		return
	case err == nil && string(start[:]) == passMagic && isTCP(conn):
		member, err = checkPass(conn, p.owner.own, p.owner.gate.isMember)
	case err == nil:
		err = errNoPass
	}
	if errors.Is(err, errNoPass) {
		p.owner.gate.refused(member.String(), "inbound", conn.RemoteAddr().String())
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	// From here on it has an owner, or none at all: it is not closed to make room any more.
	p.newcomers.remove(n)
	switch {
	case err != nil:
		conn.Close()
	case direct:
		socket, ok := conn.(directSocket)
		if !ok || !p.owner.tickets.redeem(token, socket) {
			conn.Close()
		}
	default:
		p.forward(member, conn)
	}
}

// isTCP reports whether libp2p can use a connection.
func isTCP(conn net.Conn) bool {
	_, is := conn.(*net.TCPConn)
	return is
}

// forward passes a member's connection to libp2p.
func (p *port) forward(member peer.ID, conn net.Conn) {
	tune(conn)
	slot := p.members.take(member, conn)
	wrapped, err := manet.WrapNetConn(slot)
	if err != nil {
		slot.Close()
		return
	}
	select {
	case p.libp2p <- wrapped:
	case <-slot.ended:
	case <-p.closed:
		slot.Close()
	}
}

// tune sets the options that libp2p's own transport would set: the connection is reset when closed,
// and kept alive by the kernel.
func tune(conn net.Conn) {
	// Both fail only on a closed connection, which its reader detects.
	if inner, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = inner.SetLinger(0)
	}
	if inner, ok := conn.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		_ = inner.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAlivePeriod,
			Interval: keepAlivePeriod})
	}
}
