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

// directMagic is what a direct connection starts with, and what answers it. Connections of libp2p start otherwise, with multistream's name behind its length.
const directMagic = "ldgd"

// ticket is the secret that a direct connection shows: whoever knows it got it from this host, over libp2p.
type ticket [32]byte

// ticketSize is that of the message that carries one.
const ticketSize = 4 + len(ticket{})

func (t ticket) append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, ticketMagic), t[:]...)
}

func readTicket(r io.Reader) (t ticket, err error) {
	var b [ticketSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return ticket{}, fmt.Errorf("ticket: %w", err)
	}
	if magic := binary.BigEndian.Uint32(b[:]); magic != ticketMagic {
		return ticket{}, fmt.Errorf("%w: ticket starts with %#x", errProtocol, magic)
	}
	copy(t[:], b[4:])
	return t, nil
}

// ticketOffice knows the tickets that were given out and not yet shown. Each admits one connection.
type ticketOffice struct {
	mu   sync.Mutex
	open map[ticket]chan net.Conn
}

func newTicketOffice() *ticketOffice { return &ticketOffice{open: make(map[ticket]chan net.Conn)} }

// issue makes a ticket. The connection that shows it comes through the channel; cancel must be called at the end, and closes one that nobody took.
func (o *ticketOffice) issue() (t ticket, shown <-chan net.Conn, cancel func()) {
	_, _ = rand.Read(t[:]) // it never fails
	arrived := make(chan net.Conn, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[t] = arrived
	return t, arrived, func() {
		o.mu.Lock()
		delete(o.open, t)
		o.mu.Unlock()
		select {
		case conn := <-arrived:
			conn.Close()
		default:
		}
	}
}

// redeem passes the connection on to whoever waits for the ticket; false if nobody does.
func (o *ticketOffice) redeem(t ticket, conn net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	arrived, ok := o.open[t]
	if ok {
		delete(o.open, t)
		arrived <- conn
	}
	return ok
}

// direct makes the connection that carries data beside a stream of libp2p, until ctx's end at the latest. Both ends call it, and the stream is free of other bytes meanwhile. Whoever
// accepted libp2p's connection gives a ticket over the stream, whoever dialled that dials the same address again and shows it: so it works
// wherever libp2p got through.
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
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("direct connection: %T is none of TCP", conn), conn.Close())
	}
	c := &directConn{TCPConn: tcp, host: h, peer: rdmanet.PeerID(stream.Conn().RemotePeer().String())}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return nil, errors.Join(fmt.Errorf("direct connection: %w", rdmanet.ErrClosed), conn.Close())
	}
	h.directs[c] = struct{}{}
	return c, nil
}

// directConn is a direct connection as lanes use it.
type directConn struct {
	*net.TCPConn
	host *Host
	peer rdmanet.PeerID
}

// Reset ends the connection, as that of a stream does.
func (c *directConn) Reset() error {
	c.host.mu.Lock()
	delete(c.host.directs, c)
	c.host.mu.Unlock()
	return c.Close()
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
func (h *Host) acceptDirect(ctx context.Context, stream network.Stream) (net.Conn, error) {
	admitted, shown, cancel := h.tickets.issue()
	defer cancel()
	if _, err := stream.Write(admitted.append(nil)); err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	select {
	case conn := <-shown:
		if err := greetDirect(ctx, conn, []byte(directMagic), nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("nobody showed the ticket: %w", ctx.Err())
	}
}

// dialDirect reads a ticket and shows it where the stream's connection leads to.
func (h *Host) dialDirect(ctx context.Context, stream network.Stream) (net.Conn, error) {
	admitted, err := readTicket(stream)
	if err != nil {
		return nil, err
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
	err = greetDirect(ctx, conn, append([]byte(directMagic), admitted[:]...), word[:])
	if err == nil && string(word[:]) != directMagic {
		err = fmt.Errorf("%w: a direct connection is answered with %x", errProtocol, word)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// greetDirect writes and reads what a direct connection begins with, and leaves it without a deadline.
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
