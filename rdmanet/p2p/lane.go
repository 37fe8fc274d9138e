package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// The pauses between attempts to mend links of regions grow like those of lanes.
const (
	pauseMin = lane.PauseMin
	pauseMax = lane.PauseMax
)

// dial makes one attempt to connect a lane. It is the Config.Dial of the lanes.
func (h *Host) dial(ctx context.Context, sender *lane.Sender, patience time.Duration) (lane.Outlet,
	error) {
	to := sender.Peer()
	id, err := peer.Decode(string(to))
	if err != nil {
		return nil, fmt.Errorf("%w: %q", rdmanet.ErrNotMember, to)
	}
	out, err := h.tryDial(ctx, sender, id, patience)
	if err == nil {
		return out, nil
	}
	if bound := sender.Hello().Receiver; bound != 0 && errors.Is(err, syscall.ECONNREFUSED) {
		h.peers.Tell(rdmanet.PeerEvent{Kind: rdmanet.PeerRefused,
			Peer: rdmanet.Peer{ID: to, Incarnation: bound}, Lane: sender.Name(), Cause: err})
	}
	return nil, err
}

func (h *Host) tryDial(ctx context.Context, sender *lane.Sender, id peer.ID,
	patience time.Duration) (*outlet, error) {
	deadline := time.Now().Add(patience)
	attempt, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	// The fabric has its own pauses. libp2p's would grow to minutes.
	h.swarm.Backoff().Clear(id)
	stream, err := h.libp2p.NewStream(attempt, id, protocolID)
	if err != nil {
		return nil, err
	}
	defer stream.Reset()
	defer context.AfterFunc(ctx, func() { unblock(stream) })()
	if err := stream.SetDeadline(deadline); err != nil {
		return nil, err
	}
	o := &outlet{host: h, sender: sender, ctx: ctx, libp2p: stream.Conn(),
		ended: make(chan struct{})}
	reply, err := h.greet(stream, sender.Hello())
	if err != nil {
		o.dropIfSilent(err)
		return nil, err
	}
	if err := sender.Accept(reply); err != nil {
		return nil, err
	}
	if o.conn, err = h.direct(attempt, stream); err != nil {
		o.dropIfSilent(err)
		return nil, err
	}
	if err := o.conn.takeRing(attempt); err != nil {
		return nil, errors.Join(err, o.conn.Reset())
	}
	o.writer.to = o.conn
	if o.prompt, err = o.conn.tryWriter(); err != nil {
		return nil, errors.Join(err, o.conn.Reset())
	}
	o.stop = context.AfterFunc(ctx, func() { unblock(o.conn) })
	return o, nil
}

// greet sends the hello and returns the answer.
func (h *Host) greet(stream network.Stream, greeting lane.Hello) (lane.Answer, error) {
	if _, err := stream.Write(hello{Hello: greeting, trusted: h.trusted}.append(nil)); err != nil {
		return lane.Answer{}, fmt.Errorf("hello: %w", err)
	}
	reply, err := readAnswer(stream)
	if err != nil {
		return lane.Answer{}, err
	}
	answer := lane.Answer{Status: lane.Status(reply.status), Incarnation: reply.incarnation,
		Next: reply.next, Delivered: reply.delivered}
	if reply.status == statusTrust {
		answer.Reason = fmt.Errorf("%w: this host has %s, the peer has %s; all members need the "+
			"same", lane.ErrMisfit, fabricName(h.trusted), fabricName(!h.trusted))
	}
	return answer, nil
}

// outlet is the sending end of a lane's direct connection; it implements lane.PromptOutlet. While
// the lane's goroutine writes, another one reads acknowledgements.
type outlet struct {
	host   *Host
	sender *lane.Sender
	ctx    context.Context
	stop   func() bool // releases ctx
	libp2p network.Conn
	conn   *directConn
	writer batchWriter
	prompt *tryWriter
	tried  error // of TryWrite

	started bool          // there is a reader
	ended   chan struct{} // closed when reading has ended; the fields below are valid then
	heard   time.Time     // the time of the last sign of life
	err     error
}

// Start implements lane.Outlet.
func (o *outlet) Start() {
	o.started = true
	go o.read()
}

// Write implements lane.Outlet.
func (o *outlet) Write(frames [][]byte, first uint64) error { return o.writer.write(frames, first) }

// Batches of more bytes are left to the lane's goroutine. To write plain bytes takes less time than
// to wake it. To seal many for many lanes is better done by several processors.
const (
	promptPlainMax  = lane.BatchBytesMax
	promptSealedMax = 2 * recordBytesMax
)

// PromptBytes implements lane.PromptOutlet.
func (o *outlet) PromptBytes() int {
	if o.conn.sealer == nil {
		return promptPlainMax
	}
	return promptSealedMax
}

// TryWrite implements lane.PromptOutlet.
func (o *outlet) TryWrite(frames [][]byte, first uint64) bool {
	o.writer.to = o.prompt
	o.tried = o.writer.write(frames, first)
	o.writer.to = o.conn
	return o.tried == nil && len(o.prompt.rest) == 0
}

// Flush implements lane.PromptOutlet.
func (o *outlet) Flush() error {
	if o.tried != nil {
		return o.tried
	}
	return o.prompt.flush()
}

// Wait implements lane.Outlet.
func (o *outlet) Wait(ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-o.ended:
		return net.ErrClosed
	case <-o.ctx.Done():
		return o.ctx.Err()
	}
}

// Close implements lane.Outlet. It returns the reader's error, which has the best information on
// why the connection broke.
func (o *outlet) Close(error) (heard time.Time, err error) {
	o.conn.Reset()
	if o.started {
		<-o.ended
	}
	o.stop()
	o.dropIfSilent(o.err)
	return o.heard, o.err
}

// dropIfSilent closes libp2p's connection if the peer does not answer in time on any lane, so that
// the next attempt dials again.
func (o *outlet) dropIfSilent(err error) {
	if isTimeout(err) && o.ctx.Err() == nil && !o.host.heardLately(o.sender.Peer()) {
		// Ignore an error: the connection is gone in either case.
		_ = o.libp2p.Close()
	}
}

// read reads acknowledgements as long as the connection works.
func (o *outlet) read() {
	defer close(o.ended)
	// Also wake a writer that waits for the peer's window.
	defer unblock(o.conn)
	var scratch [ackSize]byte
	silence := o.host.mendTimeout / 2
	for {
		if o.err = o.conn.SetReadDeadline(time.Now().Add(silence)); o.err != nil {
			return
		}
		a, err := readAck(o.conn, &scratch)
		if err != nil {
			o.err = err
			if !o.heard.IsZero() && !isTimeout(err) && !errors.Is(err, errProtocol) {
				// The network reports the break, so the time to mend it starts now.
				o.heard = time.Now()
			}
			return
		}
		o.heard = time.Now()
		if o.err = o.sender.Acknowledged(a.delivered); o.err != nil {
			return
		}
		if a.goodbye {
			o.err = errGoodbye
			return
		}
	}
}

// unblock makes every current and later call on a stream or connection return. Unlike Reset, it
// does not wait itself.
func unblock(c interface{ SetDeadline(time.Time) error }) {
	// It fails only on a closed connection, where no call waits.
	_ = c.SetDeadline(time.Unix(1, 0))
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
