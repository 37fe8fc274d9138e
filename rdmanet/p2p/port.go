package p2p

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// identifyTimeout is how long a connection may take to show whether it is libp2p's or a direct
	// one, including its token.
	identifyTimeout = 10 * time.Second
	// newcomersMax bounds the connections that are not yet identified, or that libp2p has not yet
	// accepted. One more closes the oldest, so that many silent connections cannot block others.
	newcomersMax = 256
	// acceptPause is how long the listener pauses after the kernel fails to accept a connection,
	// for example for lack of file descriptors.
	acceptPause = 50 * time.Millisecond
	// keepAlivePeriod is the period of TCP keep-alive, which detects connections whose peer
	// disappeared.
	keepAlivePeriod = 30 * time.Second
)

// sharedTransport is libp2p's TCP transport on a port that also accepts direct connections.
type sharedTransport struct {
	*tcp.TcpTransport
	upgrader transport.Upgrader
	tickets  *ticketRegistry
}

func newSharedTransport(upgrader transport.Upgrader, resources network.ResourceManager,
	tickets *ticketRegistry) (*sharedTransport, error) {
	plain, err := tcp.NewTCPTransport(upgrader, resources, nil, tcp.DisableReuseport(),
		tcp.WithConnectionTimeout(handshakeTimeout))
	if err != nil {
		return nil, fmt.Errorf("TCP: %w", err)
	}
	return &sharedTransport{TcpTransport: plain, upgrader: upgrader, tickets: tickets}, nil
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
	return t.upgrader.UpgradeGatedMaListener(t,
		t.upgrader.GateMaListener(newPort(listener, plain, t.tickets, identifyTimeout))), nil
}

// port separates the connections to one address by their first bytes. It passes libp2p's
// connections to the caller of Accept, and direct ones to the goroutine that waits for their token.
// It closes connections that show neither in time.
type port struct {
	manet.Listener
	plain    net.Listener // the listener below it
	tickets  *ticketRegistry
	patience time.Duration // identifyTimeout
	libp2p   chan manet.Conn
	closed   chan struct{}
	once     sync.Once
	work     sync.WaitGroup

	mu        sync.Mutex
	newcomers []*newcomer // oldest first
}

// newcomer is a connection that has no owner yet.
type newcomer struct {
	net.Conn
	expelled chan struct{} // closed with the connection, by the port
}

// expel closes the connection to make room for others.
func (n *newcomer) expel() {
	close(n.expelled)
	n.Close()
}

func newPort(listener manet.Listener, plain net.Listener, tickets *ticketRegistry,
	patience time.Duration) *port {
	p := &port{Listener: listener, plain: plain, tickets: tickets, patience: patience,
		libp2p: make(chan manet.Conn), closed: make(chan struct{})}
	p.work.Go(p.run)
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
	p.mu.Lock()
	for _, n := range p.newcomers {
		n.expel()
	}
	p.newcomers = nil
	p.mu.Unlock()
	p.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *port) run() {
	for {
		conn, err := p.plain.Accept()
		switch {
		case err == nil:
			n := &newcomer{Conn: conn, expelled: make(chan struct{})}
			if !p.note(n) {
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

// note adds a connection to the newcomers. It returns false if the port is closed.
func (p *port) note(n *newcomer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return false
	default:
	}
	if len(p.newcomers) == newcomersMax {
		p.newcomers[0].expel()
		p.newcomers = slices.Delete(p.newcomers, 0, 1)
	}
	p.newcomers = append(p.newcomers, n)
	return true
}

// known removes a connection from the newcomers.
func (p *port) known(n *newcomer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.newcomers, n); i >= 0 {
		p.newcomers = slices.Delete(p.newcomers, i, i+1)
	}
}

// identify reads the first bytes of a connection and passes it on.
func (p *port) identify(n *newcomer) {
	conn := n.Conn
	var start [len(directMagic)]byte
	var token [ticketBytes]byte
	err := conn.SetReadDeadline(time.Now().Add(p.patience))
	if err == nil {
		_, err = io.ReadFull(conn, start[:])
	}
	direct := err == nil && string(start[:]) == directMagic
	if direct {
		_, err = io.ReadFull(conn, token[:])
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	switch {
	case err != nil:
		p.known(n)
		conn.Close()
	case direct:
		p.known(n) // before it has an owner, so that note cannot expel it any more
		tcp, ok := conn.(*net.TCPConn)
		if !ok || !p.tickets.redeem(token, tcp) {
			conn.Close()
		}
	default:
		p.forward(n, start[:])
		// Until now it counts as a newcomer, which bounds the connections waiting for libp2p.
		p.known(n)
	}
}

// forward passes a connection that starts like libp2p's to libp2p.
func (p *port) forward(n *newcomer, start []byte) {
	tune(n.Conn)
	wrapped, err := manet.WrapNetConn(n.Conn)
	if err != nil {
		n.Close()
		return
	}
	select {
	case p.libp2p <- &startedConn{Conn: wrapped, start: start}:
	case <-n.expelled:
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

// startedConn is a connection whose first bytes have been read already.
type startedConn struct {
	manet.Conn
	start []byte // the part not yet returned
}

// Read implements net.Conn.
func (c *startedConn) Read(b []byte) (int, error) {
	if len(c.start) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.start)
	c.start = c.start[n:]
	return n, nil
}
