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
	"github.com/libp2p/go-libp2p/p2p/transport/tcpreuse"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// identifyTimeout is how long a connection may take to show whether it is one of libp2p's or a
	// direct one, and then its token.
	identifyTimeout = 10 * time.Second
	// newcomersMax bounds the connections that have not shown it yet, or that libp2p has not taken
	// yet. One more closes the oldest, so that a crowd of silent ones keeps nobody out.
	newcomersMax = 256
	// acceptPause is how long the listener rests when the system has no connection to give, for
	// want of descriptors say.
	acceptPause = 50 * time.Millisecond
	// keepAlivePeriod is TCP's own, against connections that end without a word.
	keepAlivePeriod = 30 * time.Second
)

// sharedTransport is libp2p's TCP transport on a port that direct connections come to as well.
type sharedTransport struct {
	*tcp.TcpTransport
	upgrader transport.Upgrader
	tickets  *ticketOffice
}

// newSharedTransport gives what libp2p.Transport takes.
func newSharedTransport(tickets *ticketOffice) any {
	return func(upgrader transport.Upgrader, resources network.ResourceManager,
		shared *tcpreuse.ConnMgr) (*sharedTransport, error) {
		plain, err := tcp.NewTCPTransport(upgrader, resources, shared, tcp.DisableReuseport(),
			tcp.WithConnectionTimeout(handshakeTimeout))
		if err != nil {
			return nil, fmt.Errorf("TCP: %w", err)
		}
		return &sharedTransport{TcpTransport: plain, upgrader: upgrader, tickets: tickets}, nil
	}
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

// port tells the connections that come to one address apart, by their first bytes: those of libp2p
// go on to whoever calls Accept, direct ones to whoever waits for the token that they show. What
// shows neither in time is closed.
type port struct {
	manet.Listener
	plain    net.Listener // what is below it
	tickets  *ticketOffice
	patience time.Duration // identifyTimeout
	libp2p   chan manet.Conn
	closed   chan struct{}
	once     sync.Once
	work     sync.WaitGroup

	mu        sync.Mutex
	newcomers []*newcomer // oldest first
}

// newcomer is a connection that nobody has taken yet.
type newcomer struct {
	net.Conn
	expelled chan struct{} // closed with the connection, by the port
}

// expel makes room for others.
func (n *newcomer) expel() {
	close(n.expelled)
	n.Close()
}

func newPort(listener manet.Listener, plain net.Listener, tickets *ticketOffice,
	patience time.Duration) *port {
	p := &port{Listener: listener, plain: plain, tickets: tickets, patience: patience,
		libp2p: make(chan manet.Conn), closed: make(chan struct{})}
	p.work.Go(p.run)
	return p
}

// Accept implements manet.Listener: it gives libp2p's connections.
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

// note counts a connection among those that nobody has taken yet; false when the port is closed.
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

// known takes a connection out of those that note counted.
func (p *port) known(n *newcomer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.newcomers, n); i >= 0 {
		p.newcomers = slices.Delete(p.newcomers, i, i+1)
	}
}

// identify reads what a connection starts with and passes it on.
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
		p.known(n) // before it has an owner, so that no crowd closes it any more
		tcp, ok := conn.(*net.TCPConn)
		if !ok || !p.tickets.redeem(token, tcp) {
			conn.Close()
		}
	default:
		p.forward(n, start[:])
		p.known(n) // so many and no more wait for libp2p to take them
	}
}

// forward hands a connection that starts as libp2p's do to libp2p.
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

// tune makes a connection of libp2p what its own transport would: one that is reset at its end, and
// that the system keeps alive.
func tune(conn net.Conn) {
	// Both fail on a connection only that is gone, which its reader finds out.
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
	start []byte // what is left of them
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
