package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// Two hosts that send to each other on lanes of the same name need one connection: a pair. Then the
// acknowledgements of a lane leave with batches of the other direction, where they would be packets
// of their own, and so do some of TCP's.
//
// One lane makes the connection, and the other one joins it later. Whatever ends one of them ends
// the connection, and both lanes are mended by themselves. So each lane has the protocol of package
// lane, whether or not it is paired: a hello and an answer on a stream of libp2p, before any frame.

// meetPatience bounds how long a lane waits for the peer's lane, to join its connection.
const meetPatience = 250 * time.Millisecond

// pairKey names the two lanes of a name between this host and a peer.
type pairKey struct {
	peer rdmanet.PeerID
	name string
}

// meetings is where lanes find the connection of their counterpart. If both hosts connect at the
// same time, the lane of the host with the smaller identity makes the connection.
type meetings struct {
	// patience is how long a lane waits for the peer's lane; meetPatience except in tests.
	patience time.Duration

	mu sync.Mutex
	at map[pairKey]*meeting
}

// meeting is the state of two lanes.
type meeting struct {
	leaving  int           // attempts of this host's lane to make a connection
	arriving int           // attempts of the peer's lane
	pair     *pair         // the newest connection, nil if it is over
	changed  chan struct{} // closed at the next change
}

// change changes the state of two lanes.
func (m *meetings) change(key pairKey, change func(*meeting)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.meeting(key)
	change(at)
	close(at.changed)
	at.changed = make(chan struct{})
	m.forget(key, at)
}

// forget drops the state of two lanes if there is nothing to know. The caller holds the mutex.
func (m *meetings) forget(key pairKey, at *meeting) {
	if at.leaving == 0 && at.arriving == 0 && at.pair == nil {
		delete(m.at, key)
	}
}

// meeting returns the state of two lanes. The caller holds the mutex.
func (m *meetings) meeting(key pairKey) *meeting {
	at := m.at[key]
	if at == nil {
		at = &meeting{changed: make(chan struct{})}
		m.at[key] = at
	}
	return at
}

// find returns a connection for out to join, which becomes its outlet, or nil. If the peer's lane
// is about to come, it waits for that, but not for long. expected says that it is, even if nothing
// of it has arrived. After nil, the lane makes a connection, and left must be called in the end.
func (m *meetings) find(ctx context.Context, key pairKey, expected bool, out *pairOutlet) *pair {
	timer := time.NewTimer(m.patience)
	defer timer.Stop()
	for waits := true; ; {
		m.mu.Lock()
		at := m.meeting(key)
		if at.pair != nil && at.pair.out.CompareAndSwap(nil, out) {
			defer m.mu.Unlock()
			return at.pair
		}
		if !waits || !expected && at.arriving == 0 {
			at.leaving++
			m.mu.Unlock()
			return nil
		}
		changed := at.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
}

// left ends an attempt of this host's lane. made is the connection, nil if there is none for two
// lanes.
func (m *meetings) left(key pairKey, made *pair) {
	m.change(key, func(at *meeting) {
		at.leaving--
		if made != nil {
			at.pair = made
		}
	})
}

// arrive begins an attempt of the peer's lane to make a connection. It returns false if that lane
// can join one of this host's lane, which may have to come first (ownFirst). After true, arrived
// must be called in the end.
func (m *meetings) arrive(key pairKey, ownFirst, insists bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.meeting(key)
	joinable := at.pair != nil && !at.pair.joined.Load()
	if !insists && (joinable || ownFirst && at.leaving > 0) {
		return false
	}
	at.arriving++
	return true
}

// arrived ends an attempt of the peer's lane.
func (m *meetings) arrived(key pairKey, made *pair) {
	m.change(key, func(at *meeting) {
		at.arriving--
		if made != nil {
			at.pair = made
		}
	})
}

// named returns the connection that a token admitted, if a lane from the peer can join it. It can
// be joined once. The peer may know the connection before this host's lane has it, and named waits
// for that.
func (m *meetings) named(ctx context.Context, key pairKey, token [ticketBytes]byte) *pair {
	timer := time.NewTimer(m.patience)
	defer timer.Stop()
	for {
		m.mu.Lock()
		at := m.meeting(key)
		if at.pair != nil && at.pair.conn.token == token {
			defer m.mu.Unlock()
			if at.pair.joined.CompareAndSwap(false, true) {
				return at.pair
			}
			return nil
		}
		changed := at.changed
		if at.leaving == 0 {
			m.forget(key, at)
			m.mu.Unlock()
			return nil
		}
		m.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// over forgets a connection.
func (m *meetings) over(p *pair) {
	m.change(p.key, func(at *meeting) {
		if at.pair == p {
			at.pair = nil
		}
	})
}

// pairReceiver returns the receiver of lanes of a name if they can be paired, and otherwise nil. A
// lane within a machine has a ring for each direction, and is not paired.
func (h *Host) pairReceiver(name string) *rdmanet.PromptReceiver {
	if h.poller == nil || h.local || !h.pairs {
		return nil
	}
	return h.lanes.PromptReceiver(name)
}

// pair is one end of a connection that carries a lane each way, or will. The poller reads it.
type pair struct {
	host   *Host
	key    pairKey
	conn   *directConn
	plain  *descriptor
	prompt *rdmanet.PromptReceiver
	feeder *lane.PairFeeder
	writer pairWriter

	out    atomic.Pointer[pairOutlet]    // this host's lane, nil before it uses the connection
	in     atomic.Pointer[inboundStream] // the peer's lane
	joined atomic.Bool                   // the peer's lane came, or can come no more

	once sync.Once
	err  error         // why the connection ended; valid once over is closed
	over chan struct{} // closed once nothing is read any more
	done chan struct{} // closed once the receiver has returned, too
}

// newPair makes a connection one that two lanes can share.
func (h *Host) newPair(key pairKey, conn *directConn,
	prompt *rdmanet.PromptReceiver) (*pair, error) {
	plain, err := conn.detach(nil)
	if err != nil {
		return nil, errors.Join(err, conn.Reset())
	}
	p := &pair{host: h, key: key, conn: conn, plain: plain, prompt: prompt,
		over: make(chan struct{}), done: make(chan struct{})}
	stream := io.Reader(plain)
	if conn.opener != nil {
		stream = openedReader{conn.opener, plain}
	}
	p.feeder = lane.NewPairFeeder(h.lanes, prompt, stream, lane.Acknowledged{
		Delivered: p.acknowledged, Message: p.hear, MessageBytes: ackSize})
	p.writer.to, p.writer.sealer, p.writer.taken = plain, conn.sealer, p.taken
	p.writer.batch = batchWriter{to: &p.writer, paired: p.taken}
	return p, nil
}

// start starts reading. The pair then owns its connection.
func (p *pair) start() error {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if p.host.dead {
		return fmt.Errorf("direct connection: %w", rdmanet.ErrClosed)
	}
	p.host.goroutines.Go(p.run)
	return nil
}

// run hands over what the receiver did not take promptly, until the connection ends.
func (p *pair) run() {
	defer close(p.done)
	ended, err := p.host.poller.begin(p.plain, p.prompt, p.poll)
	for err == nil {
		select {
		case err = <-ended:
		case <-p.host.poller.ended:
			err = net.ErrClosed
		case <-p.feeder.Backlogged():
			p.drain()
		}
	}
	p.end(err)
	p.drain()
	p.writer.end()
	_ = p.conn.Reset() // it is over in any case
}

// drain hands over the backlog. It may wait for the receiver.
func (p *pair) drain() {
	if err := p.feeder.Drain(); err != nil {
		p.stop()
	}
	p.acknowledgePressing()
}

// poll reads what has arrived.
func (p *pair) poll() (tried bool, err error) {
	if tried, err = p.feeder.Poll(); err != nil {
		p.end(err)
	}
	p.acknowledgePressing()
	return tried, err
}

func (p *pair) acknowledgePressing() {
	if s := p.in.Load(); s != nil {
		s.acknowledgePressing()
	}
}

// stop ends the connection, without waiting.
func (p *pair) stop() { unblock(p.conn) }

// end records that nothing is read any more, and why.
func (p *pair) end(err error) {
	p.once.Do(func() {
		p.err = err
		p.host.meetings.over(p)
		close(p.over)
	})
}

// admit makes a lane of the peer come in on the connection.
func (p *pair) admit(s *inboundStream) {
	s.polled.Store(true)
	p.joined.Store(true)
	p.in.Store(s)
	p.feeder.Join(s.inbound)
}

// taken returns how many frames of the peer's lane the program has taken, for an acknowledgement
// that is sent now.
func (p *pair) taken() uint64 {
	s := p.in.Load()
	if s == nil {
		return 0
	}
	s.pressing.Store(false)
	return s.inbound.Acknowledging()
}

// acknowledged takes an acknowledgement of this host's lane. Until an answer has said whether the
// lane joins, it may have come for none.
func (p *pair) acknowledged(delivered uint64) error {
	if out := p.out.Load(); out != nil {
		return out.sender.Acknowledged(delivered)
	}
	return nil
}

// hear takes an acknowledgement that came by itself.
func (p *pair) hear(message []byte) error {
	a, err := parseAck(message)
	if err == nil {
		err = p.acknowledged(a.delivered)
	}
	if err == nil && a.goodbye {
		err = errGoodbye
	}
	return err
}

// pairOutlet is the sending end of a lane over a pair; it implements lane.PromptOutlet.
type pairOutlet struct {
	host   *Host
	sender *lane.Sender
	ctx    context.Context
	stop   func() bool // releases ctx
	libp2p network.Conn
	pair   *pair
	since  time.Time
	watch  *time.Timer // looks for signs of life
	tried  error       // of TryWrite
	silent atomic.Bool // the peer gave no sign of life for too long
}

// attach makes the outlet use a connection.
func (o *pairOutlet) attach(p *pair) {
	o.pair = p
	o.stop = context.AfterFunc(o.ctx, p.stop)
}

// Start implements lane.Outlet.
func (o *pairOutlet) Start() {
	o.since = time.Now()
	silence := o.host.mendTimeout / 2
	watching := make(chan struct{}) // closed once watch is set
	o.watch = time.AfterFunc(silence, func() {
		<-watching
		last := o.since
		if heard := o.heard(); !heard.IsZero() {
			last = heard
		}
		if left := silence - time.Since(last); left > 0 {
			o.watch.Reset(left)
			return
		}
		o.silent.Store(true)
		o.pair.stop()
	})
	close(watching)
}

// heard returns the time of the last sign of life on this connection, zero if there was none.
func (o *pairOutlet) heard() time.Time {
	if o.watch == nil {
		return time.Time{} // it has not started
	}
	if heard := o.sender.Heard(); heard.After(o.since) {
		return heard
	}
	return time.Time{}
}

// Write implements lane.Outlet.
func (o *pairOutlet) Write(frames [][]byte, first uint64) error {
	whole, err := o.pair.writer.write(frames, first)
	if err == nil && !whole {
		err = o.pair.writer.flush()
	}
	return err
}

// PromptBytes implements lane.PromptOutlet.
func (o *pairOutlet) PromptBytes() int { return promptMax(o.pair.conn) }

// TryWrite implements lane.PromptOutlet.
func (o *pairOutlet) TryWrite(frames [][]byte, first uint64) (whole bool) {
	whole, o.tried = o.pair.writer.write(frames, first)
	return whole && o.tried == nil
}

// Flush implements lane.PromptOutlet.
func (o *pairOutlet) Flush() error {
	if o.tried != nil {
		return o.tried
	}
	return o.pair.writer.flush()
}

// Wait implements lane.Outlet.
func (o *pairOutlet) Wait(ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-o.pair.over:
		return net.ErrClosed
	case <-o.ctx.Done():
		return o.ctx.Err()
	}
}

// Close implements lane.Outlet. It returns why reading ended, which has the best information. It
// does not wait for a receiver that is full.
func (o *pairOutlet) Close(error) (heard time.Time, err error) {
	o.pair.stop()
	<-o.pair.over
	o.pair.writer.end()
	if o.watch != nil {
		o.watch.Stop()
	}
	o.stop()
	heard, err = o.heard(), o.pair.err
	switch {
	case o.silent.Load():
		err = fmt.Errorf("lane: %w", os.ErrDeadlineExceeded)
	case !heard.IsZero() && !errors.Is(err, errProtocol) && o.ctx.Err() == nil:
		heard = time.Now() // the network reports the break, so the time to mend it starts now
	}
	o.host.dropIfSilent(o.ctx, o.libp2p, o.sender.Peer(), err)
	return heard, err
}

// pairWriter writes batches and acknowledgements to a pair without waiting. An acknowledgement
// never gets into the middle of a batch. It leaves with the next one, or behind the current one.
type pairWriter struct {
	to     *descriptor
	sealer *sealer       // nil on a trusted network
	taken  func() uint64 // see pair

	mu      sync.Mutex
	ended   bool
	batch   batchWriter
	left    net.Buffers // of the batch under way, not yet in rest
	rest    net.Buffers // sealed if need be, and not yet taken by the kernel
	owes    bool        // an acknowledgement is due
	goodbye bool        // it says goodbye
	message [ackSize]byte
}

// write begins a batch, after a whole one. It reports whether the kernel took all of it.
func (w *pairWriter) write(frames [][]byte, first uint64) (whole bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false, net.ErrClosed
	}
	w.owes = w.goodbye // others leave with the batch
	if err := w.batch.write(frames, first); err != nil {
		return false, err
	}
	err = w.push()
	return w.idle(), err
}

// writePieces implements pieceWriter, for write.
func (w *pairWriter) writePieces(pieces *net.Buffers) error {
	w.left = append(w.left, *pieces...)
	return nil
}

// flush writes the rest of a batch, and waits as long as it takes.
func (w *pairWriter) flush() error {
	for {
		w.mu.Lock()
		if w.ended {
			w.mu.Unlock()
			return net.ErrClosed
		}
		err := w.push()
		idle := w.idle()
		w.mu.Unlock()
		if err != nil || idle {
			return err
		}
		if err := w.to.awaitRoom(); err != nil {
			return err
		}
	}
}

// acknowledge sends an acknowledgement by itself, once no batch is under way.
func (w *pairWriter) acknowledge(goodbye bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return net.ErrClosed
	}
	w.owes, w.goodbye = true, w.goodbye || goodbye
	return w.push()
}

// idle reports whether the kernel has taken everything. The caller holds the mutex, as for what
// follows.
func (w *pairWriter) idle() bool { return len(w.rest)+len(w.left) == 0 }

// push writes as much as the kernel takes.
func (w *pairWriter) push() error {
	for {
		for len(w.rest) > 0 {
			n, err := w.to.writeNow(w.rest)
			if err != nil || n == 0 {
				return err
			}
			w.rest = without(w.rest, n)
		}
		switch {
		case len(w.left) > 0:
			w.prepare()
		case w.owes:
			w.owes = false
			a := ack{delivered: w.taken(), goodbye: w.goodbye}
			w.left = append(w.left, a.append(w.message[:0]))
			w.prepare()
		default:
			return nil
		}
	}
}

// prepare moves pieces from left to rest, which is empty: all of them, or as much as is sealed at a
// time.
func (w *pairWriter) prepare() {
	if w.sealer == nil {
		w.rest = append(w.rest[:0], w.left...)
		clear(w.left)
		w.left = w.left[:0]
		return
	}
	w.sealer.out = w.sealer.out[:0]
	for len(w.left) > 0 && len(w.sealer.out) < flushBytes {
		n := min(len(w.left[0]), recordBytesMax)
		if n > 0 {
			w.sealer.seal(w.left[0][:n])
		}
		w.left = without(w.left, n)
	}
	w.rest = append(w.rest[:0], w.sealer.out)
}

// end makes all current and later writes return an error. Frames are not read after that.
func (w *pairWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	clear(w.left)
	clear(w.rest)
	w.left, w.rest = nil, nil
}
