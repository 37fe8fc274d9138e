package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// ackDelay is how long an acknowledgement may wait for more to be acknowledged with it, unless a good part of the sender's window
// waits for it.
const ackDelay = 5 * time.Millisecond

var (
	// errSuperseded: another stream carries the lane now, or nobody may.
	errSuperseded = errors.New("superseded")
	// errSealed: the host closes, and its program gets nothing more.
	errSealed = errors.New("sealed")
)

// inboundLane is the receiving end of a lane. It outlives streams; at most one stream feeds it at a time.
type inboundLane struct {
	// calling is held while the receive function runs, by the stream whose batch it gets.
	calling sync.Mutex

	mu      sync.Mutex
	opening *opening       // nil before the first hello
	stream  *inboundStream // who feeds it, nil if nobody may
	quiet   chan struct{}  // nil until the lane is sealed; closed when its receive function has returned for the last time
}

// opening is the receiver's memory of one opening of a lane by one incarnation of its sender.
type opening struct {
	sender    rdmanet.Incarnation
	number    uint64
	lost      uint64 // given up before it, not yet told; guarded by the lane's calling
	next      uint64 // the first frame not yet given to the receive function; the lane's mu
	delivered uint64 // the receive function returned for the frames before; the lane's mu
}

// supersede makes stream the one that feeds the lane and stops the one before.
func (in *inboundLane) supersede(stream *inboundStream) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.supersedeLocked(stream)
}

func (in *inboundLane) supersedeLocked(stream *inboundStream) {
	if in.stream != nil {
		in.stream.stop()
	}
	in.stream = stream
}

// supersedeOlder stops a stream of an incarnation older than that.
func (in *inboundLane) supersedeOlder(incarnation rdmanet.Incarnation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.opening != nil && in.opening.sender < incarnation {
		in.supersedeLocked(nil)
	}
}

// seal ends the handing over, for good. What it gives is closed once the last receive call has returned, so that delivered is final.
func (in *inboundLane) seal() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.quiet == nil {
		in.quiet = make(chan struct{})
		if in.opening == nil || in.opening.next == in.opening.delivered {
			close(in.quiet)
		}
	}
	return in.quiet
}

// owed is how many frames of that opening the receive function is done with.
func (in *inboundLane) owed(sender rdmanet.Incarnation, number uint64) uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.opening == nil || in.opening.sender != sender || in.opening.number != number {
		return 0
	}
	return in.opening.delivered
}

// claim gives the lane to a stream, if its hello is not older than what is known, and fills in what the stream works on.
func (in *inboundLane) claim(s *inboundStream, greeting hello) (next, delivered uint64, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	known := in.opening
	if known != nil {
		older := greeting.sender < known.sender || greeting.sender == known.sender && greeting.opening < known.number
		if older {
			return 0, 0, false
		}
	}
	if known == nil || greeting.sender != known.sender || greeting.opening != known.number {
		known = &opening{sender: greeting.sender, number: greeting.opening}
		if greeting.lostBy == 0 || greeting.lostBy == s.host.incarnation {
			known.lost = greeting.lost
		}
		in.opening = known
	}
	s.lane, s.opening = in, known
	in.supersedeLocked(s)
	return known.next, known.delivered, true
}

// inboundStream is one stream of a peer's lane. Its goroutine reads batches and calls the receive function; another one
// acknowledges.
type inboundStream struct {
	host    *Host
	stream  network.Stream
	from    rdmanet.Peer
	name    string
	receive receiver
	lane    *inboundLane
	opening *opening

	ended   chan struct{}   // closed when the stream has ended
	stopped context.Context // ended by stop
	cancel  context.CancelFunc

	mu      sync.Mutex
	carrier carrier // what the lane's bytes go over: the stream itself, or a direct connection

	// An acknowledgement is due at once when that many bytes or frames wait for it.
	urgentBytes, urgentFrames int64
	waitingBytes              atomic.Int64
	waitingFrames             atomic.Int64
	due, urgent               chan struct{} // tokens for the acknowledging goroutine
}

// stop ends the stream from outside, without waiting; its own goroutine then resets it.
func (s *inboundStream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	unblock(s.carrier)
}

// use makes the connection the one that the lane's bytes go over.
func (s *inboundStream) use(conn *directConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carrier = conn
	if s.stopped.Err() != nil {
		unblock(conn)
	}
}

// serve is libp2p's handler: it carries one inbound stream to its end.
func (h *Host) serve(stream network.Stream) {
	stopped, cancel := context.WithCancel(h.alive)
	s := &inboundStream{
		host:    h,
		stream:  stream,
		from:    rdmanet.Peer{ID: rdmanet.PeerID(stream.Conn().RemotePeer().String())},
		ended:   make(chan struct{}),
		stopped: stopped,
		cancel:  cancel,
		carrier: stream,
		due:     make(chan struct{}, 1),
		urgent:  make(chan struct{}, 1),
	}
	h.mu.Lock()
	if h.dead || !h.gater.isMember(stream.Conn().RemotePeer()) {
		h.mu.Unlock()
		cancel()
		stream.Reset()
		return
	}
	h.goroutines.Add(1)
	h.streams[s] = struct{}{}
	h.mu.Unlock()
	defer h.goroutines.Done()
	err := s.run()
	s.stop()
	close(s.ended)
	s.carrier.Reset()
	s.stream.Reset()
	h.mu.Lock()
	delete(h.streams, s)
	h.mu.Unlock()
	switch {
	case errors.Is(err, errProtocol):
		h.log.Warn("stream dropped", "peer", s.from.String(), "lane", s.name, "error", err)
	case err != nil && !errors.Is(err, io.EOF):
		h.log.Debug("stream ended", "peer", s.from.String(), "lane", s.name, "error", err)
	}
}

func (s *inboundStream) run() error {
	h := s.host
	if err := s.stream.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	greeting, err := readHello(s.stream)
	if err != nil {
		return err
	}
	s.name, s.from.Incarnation = greeting.lane, greeting.sender
	s.urgentBytes = int64(greeting.windowBytes) / 4
	s.urgentFrames = int64(greeting.windowFrames) / 4
	word := s.judge(greeting)
	if word != statusWelcome {
		return s.refuse(word, h.owed(s.from, greeting))
	}
	if err := h.peers.Up(s.from); err != nil {
		return errors.Join(err, s.refuse(statusStale, 0))
	}
	defer h.peers.Down(s.from)
	next, delivered, ok := h.claim(s, greeting)
	if !ok {
		return s.refuse(statusStale, 0)
	}
	reply := answer{status: statusWelcome, incarnation: h.incarnation, next: next, delivered: delivered}
	if _, err := s.stream.Write(reply.append(nil)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	conn, err := h.direct(s.stopped, s.stream)
	if err != nil {
		return err
	}
	s.use(conn)
	s.stream.Reset()
	acknowledging := make(chan struct{})
	go func() {
		defer close(acknowledging)
		s.acknowledge()
	}()
	err = s.read(next)
	s.stop()
	<-acknowledging
	return err
}

// judge decides what a hello is to be answered before the peer's state is looked at.
func (s *inboundStream) judge(greeting hello) status {
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	s.receive = h.receivers[greeting.lane]
	switch {
	case h.closing:
		return statusClosing
	case greeting.receiver != 0 && greeting.receiver != h.incarnation:
		return statusRestarted
	case int64(greeting.frameMax) > int64(h.limits.FrameBytes):
		return statusFrameMax
	case greeting.trusted != h.trusted:
		return statusTrust
	case s.receive.call == nil:
		return statusNoReceiver
	default:
		return statusWelcome
	}
}

// refuse answers a hello with anything but a welcome, and waits for the peer to have read it.
func (s *inboundStream) refuse(word status, delivered uint64) error {
	reply := answer{status: word, incarnation: s.host.incarnation, next: delivered, delivered: delivered}
	if _, err := s.stream.Write(reply.append(nil)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	var one [1]byte
	_, _ = s.stream.Read(one[:]) // the peer resets the stream, or the deadline ends the wait
	return fmt.Errorf("refused: %s", word)
}

// owed is how many frames of a hello's lane this host's program is done with, from the same opening.
func (h *Host) owed(from rdmanet.Peer, greeting hello) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if in := h.inbound[laneKey{from.ID, greeting.lane}]; in != nil {
		return in.owed(greeting.sender, greeting.opening)
	}
	return 0
}

// claim finds or makes the lane that a hello is for and gives it to the stream.
func (h *Host) claim(s *inboundStream, greeting hello) (next, delivered uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead || greeting.sender < h.newest[s.from.ID] || !h.gater.isMember(s.stream.Conn().RemotePeer()) {
		return 0, 0, false
	}
	key := laneKey{s.from.ID, greeting.lane}
	in := h.inbound[key]
	if in == nil {
		in = &inboundLane{}
		h.inbound[key] = in
	}
	return in.claim(s, greeting)
}

// read takes batches off the stream and hands them over until the stream breaks.
func (s *inboundStream) read(next uint64) error {
	reader := newBatchReader(s.carrier, s.host.limits.FrameBytes, s.receive.lent)
	var frames [][]byte
	for {
		var err error
		if frames, err = reader.read(frames[:0], next); err != nil {
			return err
		}
		if err := s.deliver(frames, next); err != nil {
			if errors.Is(err, errSealed) {
				// Closing a connection with unread bytes would take the goodbye from the peer: it hangs up.
				_, _ = io.Copy(io.Discard, reader.stream)
			}
			return err
		}
		next += uint64(len(frames))
		clear(frames)
	}
}

// deliver hands a batch to the receive function, after the batches that were handed over before, be it by an earlier stream.
func (s *inboundStream) deliver(frames [][]byte, first uint64) error {
	in, known := s.lane, s.opening
	in.calling.Lock()
	defer in.calling.Unlock()
	in.mu.Lock()
	if in.stream != s || known.next != first {
		in.mu.Unlock()
		return errSuperseded
	}
	if in.quiet != nil {
		in.mu.Unlock()
		return errSealed
	}
	known.next += uint64(len(frames))
	in.mu.Unlock()
	if known.lost > 0 {
		s.host.peers.Tell(rdmanet.PeerEvent{Kind: rdmanet.LaneReset, Peer: s.from, Lane: s.name, Lost: known.lost})
		known.lost = 0
	}
	size := 0
	for _, frame := range frames {
		size += len(frame)
	}
	s.receive.call(s.from, frames)
	in.mu.Lock()
	known.delivered = known.next
	if in.quiet != nil && in.opening == known {
		close(in.quiet)
	}
	current := in.stream // not always s: the lane may have been mended meanwhile
	in.mu.Unlock()
	if current != nil && current.opening == known {
		current.owe(len(frames), size)
	}
	return nil
}

// owe notes that frames are to be acknowledged.
func (s *inboundStream) owe(frames, size int) {
	waitingFrames, waitingBytes := s.waitingFrames.Add(int64(frames)), s.waitingBytes.Add(int64(size))
	if waitingFrames == int64(frames) {
		notify(s.due)
	}
	if waitingFrames >= s.urgentFrames || waitingBytes >= s.urgentBytes {
		notify(s.urgent)
	}
}

// acknowledge tells the sender what is delivered, soon after it is, and that the host is alive, until the stream is stopped or the host
// says goodbye.
func (s *inboundStream) acknowledge() {
	alive := time.NewTicker(max(s.host.mendTimeout/4, time.Millisecond))
	defer alive.Stop()
	delay := time.NewTimer(ackDelay)
	defer delay.Stop()
	var message [ackSize]byte
	for {
		select {
		case <-s.due:
			delay.Reset(ackDelay)
			select {
			case <-delay.C:
			case <-s.urgent:
			case <-s.host.leaving:
			case <-s.stopped.Done():
				return
			}
		case <-alive.C:
		case <-s.host.leaving:
			// The peer then resets the stream, which ends its reading too.
			s.sendAck(message[:0], true)
			return
		case <-s.stopped.Done():
			return
		}
		if !s.sendAck(message[:0], false) {
			return
		}
	}
}

func (s *inboundStream) sendAck(message []byte, goodbye bool) bool {
	s.waitingFrames.Store(0)
	s.waitingBytes.Store(0)
	s.lane.mu.Lock()
	delivered := s.opening.delivered
	s.lane.mu.Unlock()
	_, err := s.carrier.Write(ack{delivered: delivered, goodbye: goodbye}.append(message))
	if err != nil {
		s.stop()
	}
	return err == nil
}

// notify leaves a token for the one goroutine that waits on c, unless one is there.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
