package p2p

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// directMagic is what a direct connection starts with, and what answers it. Connections of libp2p
// start otherwise, with multistream's name behind its length.
const directMagic = "ldgd"

// ticketBytes is the size of a token.
const ticketBytes = 32

// ticket admits one direct connection. It travels over libp2p, so that nobody else knows it.
type ticket struct {
	// token is what the connection shows, in the open, once.
	token [ticketBytes]byte
	// secret is what the connection's keys are made of, and is never shown; zero on a trusted
	// network.
	secret [keyBytes]byte
	suite  suite
}

// ticketSize is that of the message that carries one.
const ticketSize = 4 + 4 + ticketBytes + keyBytes

func (t ticket) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, ticketMagic)
	b = binary.BigEndian.AppendUint32(b, uint32(t.suite))
	return append(append(b, t.token[:]...), t.secret[:]...)
}

func readTicket(r io.Reader) (t ticket, err error) {
	var b [ticketSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return ticket{}, fmt.Errorf("ticket: %w", err)
	}
	if magic := binary.BigEndian.Uint32(b[:]); magic != ticketMagic {
		return ticket{}, fmt.Errorf("%w: ticket starts with %#x", errProtocol, magic)
	}
	t.suite = suite(binary.BigEndian.Uint32(b[4:]))
	if t.suite > suiteAESGCM {
		return ticket{}, fmt.Errorf("%w: ticket with cipher suite %d", errProtocol, t.suite)
	}
	copy(t.token[:], b[8:])
	copy(t.secret[:], b[8+ticketBytes:])
	return t, nil
}

// ticketOffice knows the tickets that were given out and not yet shown. Each admits one connection.
type ticketOffice struct {
	mu   sync.Mutex
	open map[[ticketBytes]byte]chan *net.TCPConn
}

func newTicketOffice() *ticketOffice {
	return &ticketOffice{open: make(map[[ticketBytes]byte]chan *net.TCPConn)}
}

// issue makes a ticket. The connection that shows it comes through the channel; cancel must be
// called at the end, and closes one that nobody took.
func (o *ticketOffice) issue(trusted bool) (t ticket, shown <-chan *net.TCPConn, cancel func()) {
	_, _ = rand.Read(t.token[:]) // it never fails
	if !trusted {
		_, _ = rand.Read(t.secret[:])
		t.suite = suiteAESGCM
	}
	arrived := make(chan *net.TCPConn, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[t.token] = arrived
	return t, arrived, func() {
		o.mu.Lock()
		delete(o.open, t.token)
		o.mu.Unlock()
		select {
		case conn := <-arrived:
			conn.Close()
		default:
		}
	}
}

// redeem passes the connection on to whoever waits for the token's ticket; false if nobody does.
func (o *ticketOffice) redeem(token [ticketBytes]byte, conn *net.TCPConn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	arrived, ok := o.open[token]
	if ok {
		delete(o.open, token)
		arrived <- conn
	}
	return ok
}

// direct makes the connection that carries data beside a stream of libp2p, until ctx's end at the
// latest. Both ends call it, and the stream is free of other bytes meanwhile. Whoever accepted
// libp2p's connection gives a ticket over the stream, whoever dialled that dials the same address
// again and shows it: so it works wherever libp2p got through.
func (h *Host) direct(ctx context.Context, stream network.Stream) (*directConn, error) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	establish := h.dialDirect
	if stream.Conn().Stat().Direction == network.DirInbound {
		establish = h.acceptDirect
	}
	conn, err := establish(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("direct connection: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return nil, errors.Join(fmt.Errorf("direct connection: %w", rdmanet.ErrClosed),
			conn.tcp.Close())
	}
	h.directs[conn] = struct{}{}
	return conn, nil
}

// directConn is a direct connection, with what seals it unless the network is trusted. One
// goroutine reads at a time.
type directConn struct {
	host *Host
	peer rdmanet.PeerID
	tcp  *net.TCPConn

	writing sync.Mutex // guards the sealer
	sealer  *sealer    // nil on a trusted network, and so is opener
	opener  *opener
}

// newDirectConn makes a connection that a ticket admitted ready for data.
func (h *Host) newDirectConn(tcp *net.TCPConn, stream network.Stream, admitted ticket,
	dialled bool) (*directConn, error) {
	c := &directConn{host: h, peer: rdmanet.PeerID(stream.Conn().RemotePeer().String()), tcp: tcp}
	if h.trusted {
		return c, nil
	}
	if err := c.seal(admitted, dialled); err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return c, nil
}

// SetDeadline is that of net.Conn.
func (c *directConn) SetDeadline(t time.Time) error { return c.tcp.SetDeadline(t) }

// SetReadDeadline is that of net.Conn.
func (c *directConn) SetReadDeadline(t time.Time) error { return c.tcp.SetReadDeadline(t) }

// Reset ends the connection, as that of a stream does.
func (c *directConn) Reset() error {
	c.host.mu.Lock()
	delete(c.host.directs, c)
	c.host.mu.Unlock()
	return c.tcp.Close()
}

// carrier is what a lane's bytes go over: a stream of libp2p, or a direct connection.
type carrier interface {
	io.ReadWriter
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
	// Reset ends it at once, for both ends.
	Reset() error
}

// acceptDirect gives a ticket and waits for who shows it.
func (h *Host) acceptDirect(ctx context.Context, stream network.Stream) (*directConn, error) {
	admitted, shown, cancel := h.tickets.issue(h.trusted)
	defer cancel()
	if _, err := stream.Write(admitted.append(nil)); err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	select {
	case conn := <-shown:
		if err := greetDirect(ctx, conn, []byte(directMagic), nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return h.newDirectConn(conn, stream, admitted, false)
	case <-ctx.Done():
		return nil, fmt.Errorf("nobody showed the ticket: %w", ctx.Err())
	}
}

// dialDirect reads a ticket and shows it where the stream's connection leads to.
func (h *Host) dialDirect(ctx context.Context, stream network.Stream) (*directConn, error) {
	admitted, err := readTicket(stream)
	if err != nil {
		return nil, err
	}
	if trusted := admitted.suite == suitePlain; trusted != h.trusted {
		return nil, fmt.Errorf("%w: a ticket with cipher suite %d", errProtocol, admitted.suite)
	}
	kind, address, err := manet.DialArgs(stream.Conn().RemoteMultiaddr())
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{KeepAlive: keepAlivePeriod}
	conn, err := dialer.DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	var word [len(directMagic)]byte
	err = greetDirect(ctx, conn, append([]byte(directMagic), admitted.token[:]...), word[:])
	if err == nil && string(word[:]) != directMagic {
		err = fmt.Errorf("%w: a direct connection is answered with %x", errProtocol, word)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is no TCP connection", conn), conn.Close())
	}
	return h.newDirectConn(tcp, stream, admitted, true)
}

// greetDirect writes and reads what a direct connection begins with, and leaves it without a
// deadline.
func greetDirect(ctx context.Context, conn net.Conn, say, hear []byte) error {
	defer context.AfterFunc(ctx, func() { unblock(conn) })()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write(say); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, hear); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}
