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
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// directMagic is the first message in each direction of a direct connection. libp2p's connections
// start differently, with the length and name of multistream.
const directMagic = "ldgd"

// localTimeout is how long a process of this machine may take to accept a direct connection. It may
// take at most half of the time that is left, so that TCP can be tried after that.
const localTimeout = time.Second

// ticketBytes is the size of a ticket's token.
const ticketBytes = 32

// ticket admits one direct connection. It travels over libp2p, so only the two ends know it.
type ticket struct {
	// token identifies the ticket. The connection shows it once, in plain text.
	token [ticketBytes]byte
	// secret is the input of the connection's keys and is never shown. It is zero on a trusted
	// network.
	secret [keyBytes]byte
	suite  suite
}

// ticketSize is the size of the message that carries a ticket.
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

// ticketRegistry tracks the tickets that were issued and not yet shown. Each ticket admits one
// connection.
type ticketRegistry struct {
	mu   sync.Mutex
	open map[[ticketBytes]byte]chan directSocket
}

func newTicketOffice() *ticketRegistry {
	return &ticketRegistry{open: make(map[[ticketBytes]byte]chan directSocket)}
}

// issue makes a ticket. The connection that shows it arrives on the channel. The caller must
// finally call cancel, which closes a connection that was not taken.
func (o *ticketRegistry) issue(trusted bool) (t ticket, shown <-chan directSocket, cancel func()) {
	_, _ = rand.Read(t.token[:]) // it never fails
	if !trusted {
		_, _ = rand.Read(t.secret[:])
		t.suite = suiteAESGCM
	}
	arrived := make(chan directSocket, 1)
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

// redeem passes the connection to the goroutine that waits for the token's ticket. It returns false
// if there is none.
func (o *ticketRegistry) redeem(token [ticketBytes]byte, conn directSocket) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	arrived, ok := o.open[token]
	if ok {
		delete(o.open, token)
		arrived <- conn
	}
	return ok
}

// direct makes the connection that carries data beside a stream of libp2p. It gives up after
// identifyTimeout, or when ctx ends. Both ends call it, and the stream carries no other bytes
// meanwhile. The end that accepted libp2p's connection sends a ticket over the stream. The other
// end dials the same address again and shows it. So a direct connection works wherever libp2p's
// does.
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
			conn.socket.Close())
	}
	h.directs[conn] = struct{}{}
	return conn, nil
}

// directConn is a direct connection, with its encryption unless the network is trusted. One
// goroutine reads at a time.
type directConn struct {
	host *Host
	peer rdmanet.PeerID
	// socket is what the ticket came on.
	socket directSocket
	out    *ringWriter // batches go there if it is not nil; set before the connection is used
	// wire carries the bytes: socket, or a descriptor in its place. Before others than Sever use
	// the connection, detach may change it, with the host's mutex held.
	wire wire

	writing sync.Mutex // guards sealer
	sealer  *sealer    // nil on a trusted network, like opener
	opener  *opener
}

// directSocket is the kernel's end of a direct connection: *net.TCPConn or *net.UnixConn.
type directSocket interface {
	net.Conn
	syscall.Conn
}

// wire is a directSocket or a descriptor.
type wire interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
}

// lingering is a wire whose Write may leave bytes that go before the next write. flush tries to
// write them, and reports whether any are left.
type lingering interface {
	flush() (left bool, err error)
}

// newDirectConn prepares a connection that a ticket admitted for data.
func (h *Host) newDirectConn(socket directSocket, stream network.Stream, admitted ticket,
	dialled bool) (*directConn, error) {
	c := &directConn{host: h, peer: rdmanet.PeerID(stream.Conn().RemotePeer().String()),
		socket: socket, wire: socket}
	if h.trusted {
		return c, nil
	}
	if err := c.seal(admitted, dialled); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return c, nil
}

// SetDeadline is like net.Conn's. With a ring, only a time that is over changes writing.
func (c *directConn) SetDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 {
		c.out.stop()
	}
	return c.wire.SetDeadline(t)
}

// SetReadDeadline is like net.Conn's.
func (c *directConn) SetReadDeadline(t time.Time) error { return c.wire.SetReadDeadline(t) }

// Reset ends the connection, like a stream's Reset.
func (c *directConn) Reset() error {
	c.host.mu.Lock()
	delete(c.host.directs, c)
	c.host.mu.Unlock()
	return errors.Join(c.wire.Close(), c.out.close())
}

// sever ends the connection as a broken network would. Its lane resets it later. The caller holds
// the host's mutex.
func (c *directConn) sever() error {
	c.out.stop()
	if c.wire == wire(c.socket) {
		return c.socket.Close()
	}
	unblock(c.wire)
	return nil
}

// carrier carries the bytes of a lane or of requests to a region: a stream of libp2p, a direct
// connection, or a pipe to this host itself.
type carrier interface {
	io.ReadWriter
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
	// Reset ends the connection at once, for both ends.
	Reset() error
}

// acceptDirect sends a ticket and waits for the connection that shows it.
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
		return nil, fmt.Errorf("no connection showed the ticket: %w", ctx.Err())
	}
}

// dialDirect reads a ticket and shows it at the address that the stream's connection leads to.
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
	if h.local {
		// Whatever goes wrong here, TCP is tried next, with the token if that was not taken.
		if conn, err := h.dialLocal(ctx, stream.Conn().RemotePeer(), address,
			admitted); err == nil {
			return h.newDirectConn(conn, stream, admitted, true)
		}
	}
	dialer := net.Dialer{KeepAlive: keepAlivePeriod}
	conn, err := dialer.DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	if err := showTicket(ctx, conn, admitted); err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is no TCP connection", conn), conn.Close())
	}
	return h.newDirectConn(tcp, stream, admitted, true)
}

// dialLocal shows a ticket at the peer's name within this machine, if it has one.
func (h *Host) dialLocal(ctx context.Context, id peer.ID, address string,
	admitted ticket) (directSocket, error) {
	patience := localTimeout
	if deadline, bounded := ctx.Deadline(); bounded {
		patience = min(patience, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dialLocal(ctx, id, address)
	if err != nil {
		return nil, err
	}
	return conn, showTicket(ctx, conn, admitted)
}

// showTicket shows a ticket's token on a new connection. It closes the connection on an error.
func showTicket(ctx context.Context, conn net.Conn, admitted ticket) error {
	var word [len(directMagic)]byte
	err := greetDirect(ctx, conn, append([]byte(directMagic), admitted.token[:]...), word[:])
	if err == nil && string(word[:]) != directMagic {
		err = fmt.Errorf("%w: a direct connection is answered with %x", errProtocol, word)
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return nil
}

// greetDirect writes say and reads hear, the first messages of a direct connection. It leaves the
// connection without a deadline.
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
