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
	"github.com/libp2p/go-libp2p/core/protocol"

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

// tryDial makes one attempt. If both hosts connect at the same time, one lane waits for the other
// one, to join its connection.
func (h *Host) tryDial(ctx context.Context, sender *lane.Sender, id peer.ID,
	patience time.Duration) (lane.Outlet, error) {
	deadline := time.Now().Add(patience)
	attempt, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	d := &dialling{host: h, sender: sender, id: id, ctx: ctx, attempt: attempt, deadline: deadline,
		receiver: h.pairReceiver(sender.Name()), key: pairKey{sender.Peer(), sender.Name()}}
	if d.receiver == nil {
		return d.connect(hello{})
	}
	out, err := d.meet()
	if errors.Is(err, errLater) {
		d.told = true
		out, err = d.meet()
	}
	return out, err
}

// dialling is an attempt to connect a lane.
type dialling struct {
	host     *Host
	sender   *lane.Sender
	id       peer.ID
	ctx      context.Context // of the connection
	attempt  context.Context // ends with it, and at the deadline
	deadline time.Time
	receiver *rdmanet.PromptReceiver // of the peer's lane, nil if the two cannot be paired
	key      pairKey
	told     bool // to wait for the peer's lane
}

// errLater: the peer's own lane comes first.
var errLater = errors.New(statusLater.String())

// meet joins the connection of the peer's lane if there is one, and makes one if not.
func (d *dialling) meet() (lane.Outlet, error) {
	out := &pairOutlet{host: d.host, sender: d.sender, ctx: d.ctx}
	if joins := d.host.meetings.find(d.attempt, d.key, d.told, out); joins != nil {
		return d.join(joins, out)
	}
	var made *pair
	defer func() { d.host.meetings.left(d.key, made) }()
	outlet, err := d.connect(hello{pairs: true, insists: d.told})
	if paired, is := outlet.(*pairOutlet); is {
		made = paired.pair
	}
	return outlet, err
}

// join makes the lane join the connection of the peer's lane.
func (d *dialling) join(joins *pair, out *pairOutlet) (lane.Outlet, error) {
	stream, verdict, err := d.greet(hello{pairs: true, joins: true, joined: joins.conn.token})
	if err != nil {
		return nil, err
	}
	defer stream.Reset()
	if verdict != statusJoined {
		return nil, fmt.Errorf("%w: a lane that joins another one got answer %d", errProtocol,
			verdict)
	}
	out.libp2p = stream.Conn()
	out.attach(joins)
	return out, nil
}

// connect makes a connection.
func (d *dialling) connect(greeting hello) (lane.Outlet, error) {
	stream, verdict, err := d.greet(greeting)
	if err != nil {
		return nil, err
	}
	defer stream.Reset()
	stop := context.AfterFunc(d.ctx, func() { unblock(stream) })
	defer stop()
	conn, err := d.host.direct(d.attempt, stream)
	if err != nil {
		d.host.dropIfSilent(d.ctx, stream.Conn(), d.sender.Peer(), err)
		return nil, err
	}
	switch verdict {
	case statusPaired:
		return d.pair(conn, stream)
	case statusWelcome:
		return d.alone(conn, stream)
	}
	return nil, errors.Join(fmt.Errorf("%w: a lane that joins none got answer %d", errProtocol,
		verdict), conn.Reset())
}

// pair makes a connection one that the peer's lane can join.
func (d *dialling) pair(conn *directConn, stream network.Stream) (lane.Outlet, error) {
	if d.receiver == nil {
		return nil, errors.Join(fmt.Errorf("%w: a lane was paired that cannot be", errProtocol),
			conn.Reset())
	}
	p, err := d.host.newPair(d.key, conn, d.receiver)
	if err != nil {
		return nil, err
	}
	out := &pairOutlet{host: d.host, sender: d.sender, ctx: d.ctx, libp2p: stream.Conn()}
	p.out.Store(out)
	if err := p.start(); err != nil {
		return nil, errors.Join(err, conn.Reset())
	}
	out.attach(p)
	return out, nil
}

// alone makes a connection that carries one lane.
func (d *dialling) alone(conn *directConn, stream network.Stream) (lane.Outlet, error) {
	o := &outlet{host: d.host, sender: d.sender, ctx: d.ctx, libp2p: stream.Conn(), conn: conn,
		ended: make(chan struct{})}
	if err := conn.takeRing(d.attempt); err != nil {
		return nil, errors.Join(err, conn.Reset())
	}
	o.writer.to = conn
	var err error
	if o.prompt, err = conn.tryWriter(); err != nil {
		return nil, errors.Join(err, conn.Reset())
	}
	o.stop = context.AfterFunc(d.ctx, func() { unblock(conn) })
	return o, nil
}

// greet sends the hello and applies the answer. If the peer welcomes the lane, it returns the
// stream and the verdict.
func (d *dialling) greet(greeting hello) (stream network.Stream, verdict status, err error) {
	h := d.host
	// The fabric has its own pauses. libp2p's would grow to minutes.
	h.swarm.Backoff().Clear(d.id)
	protocols := []protocol.ID{pairProtocolID, protocolID}
	if d.receiver == nil {
		protocols = protocols[1:]
	}
	opened, err := h.libp2p.NewStream(d.attempt, d.id, protocols...)
	if err != nil {
		return nil, 0, err
	}
	if verdict, err = d.greetOn(opened, greeting); err != nil {
		opened.Reset()
		return nil, 0, err
	}
	return opened, verdict, nil
}

// greetOn is greet for an open stream.
func (d *dialling) greetOn(stream network.Stream, greeting hello) (status, error) {
	h := d.host
	stop := context.AfterFunc(d.ctx, func() { unblock(stream) })
	defer stop()
	if err := stream.SetDeadline(d.deadline); err != nil {
		return 0, err
	}
	if stream.Protocol() == protocolID {
		if greeting.joins {
			return 0, errors.New("the peer has an older version now")
		}
		greeting = hello{}
	}
	greeting.Hello, greeting.trusted = d.sender.Hello(), h.trusted
	word, verdict, err := h.greet(stream, greeting)
	if err != nil {
		h.dropIfSilent(d.ctx, stream.Conn(), d.sender.Peer(), err)
		return 0, err
	}
	if verdict == statusLater {
		return 0, errLater
	}
	return verdict, d.sender.Accept(word)
}

// greet sends the hello and returns the answer.
func (h *Host) greet(stream network.Stream, greeting hello) (lane.Answer, status, error) {
	if _, err := stream.Write(greeting.append(nil)); err != nil {
		return lane.Answer{}, 0, fmt.Errorf("hello: %w", err)
	}
	reply, err := readAnswer(stream)
	if err != nil {
		return lane.Answer{}, 0, err
	}
	word := lane.Answer{Status: lane.Status(reply.status), Incarnation: reply.incarnation,
		Next: reply.next, Delivered: reply.delivered}
	switch {
	case reply.status.welcomes():
		word.Status = lane.StatusWelcome
	case reply.status == statusTrust:
		word.Reason = fmt.Errorf("%w: this host has %s, the peer has %s; all members need the "+
			"same", lane.ErrMisfit, fabricName(h.trusted), fabricName(!h.trusted))
	}
	return word, reply.status, nil
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

	started bool          // Start was called
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
func (o *outlet) PromptBytes() int { return promptMax(o.conn) }

func promptMax(conn *directConn) int {
	if conn.sealer == nil {
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
	o.host.dropIfSilent(o.ctx, o.libp2p, o.sender.Peer(), o.err)
	return o.heard, o.err
}

// dropIfSilent closes libp2p's connection to a peer if it does not answer in time on any lane, so
// that the next attempt dials again. ctx is that of the lane.
func (h *Host) dropIfSilent(ctx context.Context, conn network.Conn, to rdmanet.PeerID, err error) {
	if isTimeout(err) && ctx.Err() == nil && !h.heardLately(to) {
		// Ignore an error: the connection is gone in either case.
		_ = conn.Close()
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
