package p2p

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/ledgerd/ledgerd/internal/beat"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// An acknowledgement waits for further frames, unless many wait for it already (Inlet.Owe). On a
// quiet lane it waits for ackDelayMin, since a sender may wait for it. While frames keep coming the
// wait doubles up to a share of the mend timeout: each acknowledgement wakes both processes, and
// frees memory only. It leaves once no frame has come for ackQuiet.
//
// Lone frames that come one after the other, as heartbeats on an idle lane do, share an
// acknowledgement, too: after ackLone of them, each less than ackSteady after the acknowledgement
// of the one before, it waits for ackSteady, so that heartbeats twice a second share one. A host
// that closes waits for it that much longer.
const (
	ackDelayMin = 5 * time.Millisecond
	ackQuiet    = 80 * time.Millisecond
	ackShare    = 8
	ackLone     = 8
	ackSteady   = time.Second
)

// ackPace decides how long the acknowledgements of a lane wait.
type ackPace struct {
	max   time.Duration
	delay time.Duration // how long the last one might wait
	sent  time.Time     // when it left
	due   time.Time     // when the current one leaves at the latest
	owed  int64         // how many frames waited for it at the last look
	lone  int           // how many lone frames have come one after the other, at most ackLone
	// steady says that the current one waits for ackSteady.
	steady bool
}

// begin returns how long to wait until the first look, if the first of owed frames that wait for an
// acknowledgement came now.
func (p *ackPace) begin(now time.Time, owed int64) time.Duration {
	pause := now.Sub(p.sent)
	if p.steady = p.lone == ackLone && pause < ackSteady; p.steady {
		wait := min(ackSteady, p.max)
		p.due, p.owed = now.Add(wait), owed
		return wait
	}
	if pause >= p.delay && pause < ackSteady {
		p.lone++
	} else {
		p.lone = 0
	}
	if pause < p.delay {
		p.delay = min(2*p.delay, p.max)
	} else {
		p.delay = min(ackDelayMin, p.max)
	}
	p.due, p.owed = now.Add(p.delay), owed
	return min(p.delay, ackQuiet)
}

// look returns how long to wait until the next look, or 0 if the acknowledgement leaves now.
func (p *ackPace) look(now time.Time, owed int64) time.Duration {
	left := p.due.Sub(now)
	switch {
	case left <= 0:
		if p.steady && owed == p.owed {
			p.lone = 0 // the wait saved nothing
		}
		return 0
	case owed == p.owed: // the lane is quiet, so the next one does not wait for long either
		p.delay = min(ackDelayMin, p.max)
		return 0
	}
	p.owed = owed
	return min(left, ackQuiet)
}

// readAhead is the number of bytes read from a direct connection at once if batches are small.
const readAhead = 16 << 10

// errSuperseded: another stream of the peer serves it now, or none is allowed to.
var errSuperseded = lane.ErrSuperseded

// inboundStream is one connection of a peer's lane, and the stream before it; it implements
// lane.Inlet. Its goroutine reads batches and calls the receive function. Another one acknowledges.
type inboundStream struct {
	host    *Host
	stream  network.Stream
	from    rdmanet.PeerID
	name    string
	inbound *lane.Inbound // set once it is welcomed

	ended   chan struct{}   // closed when the stream has ended
	stopped context.Context // ended by stop
	cancel  context.CancelFunc

	mu      sync.Mutex
	carrier carrier // carries the lane's bytes: the stream itself, or a direct connection

	due, urgent chan struct{} // tokens for the acknowledging goroutine
	// polled says that the poller feeds the lane. Then urgent acknowledgements are sent by the
	// goroutine that hands over the frames, once pressing is set. To wake another costs more.
	polled, pressing atomic.Bool
}

// Stop implements lane.Inlet.
func (s *inboundStream) Stop(error) { s.stop() }

// Owe implements lane.Inlet.
func (s *inboundStream) Owe(first, urgent bool) {
	if first {
		notify(s.due)
	}
	switch {
	case urgent && s.polled.Load():
		s.pressing.Store(true)
	case urgent:
		notify(s.urgent)
	}
}

// acknowledgePressing sends an acknowledgement if one is urgent.
func (s *inboundStream) acknowledgePressing() {
	if s.pressing.Load() && s.pressing.Swap(false) {
		var message [ackSize]byte
		s.sendAck(message[:0], false)
	}
}

// stop ends the stream from outside, without waiting. Its own goroutine then resets it.
func (s *inboundStream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	unblock(s.carrier)
}

// use makes conn the carrier of the lane's bytes.
func (s *inboundStream) use(conn *directConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carrier = conn
	if s.stopped.Err() != nil {
		unblock(conn)
	}
}

// serve is libp2p's handler. It serves one inbound stream until it ends.
func (h *Host) serve(stream network.Stream) {
	stopped, cancel := context.WithCancel(h.alive)
	s := &inboundStream{
		host:    h,
		stream:  stream,
		from:    rdmanet.PeerID(stream.Conn().RemotePeer().String()),
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
		h.log.Warn("stream dropped", "peer", s.from, "lane", s.name, "error", err)
	case err != nil && !errors.Is(err, io.EOF):
		h.log.Debug("stream ended", "peer", s.from, "lane", s.name, "error", err)
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
	s.name = greeting.Name
	if greeting.trusted != h.trusted {
		return s.refuse(answer{status: statusTrust, incarnation: h.incarnation})
	}
	inbound, word := h.lanes.Greet(s.from, greeting.Hello, s)
	reply := answer{status: status(word.Status), incarnation: word.Incarnation, next: word.Next,
		delivered: word.Delivered}
	if inbound == nil {
		return s.refuse(reply)
	}
	s.inbound = inbound
	defer inbound.End()
	if _, err := s.stream.Write(reply.append(nil)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	conn, err := h.direct(s.stopped, s.stream)
	if err != nil {
		return err
	}
	var polled *descriptor
	ring, err := conn.offerRing(inbound.Prompt() != nil)
	if err != nil {
		return errors.Join(err, conn.Reset())
	}
	if inbound.Prompt() != nil {
		if polled, err = conn.detach(ring); err != nil {
			return errors.Join(err, conn.Reset(), ring.close())
		}
	}
	s.use(conn)
	s.stream.Reset()
	acknowledging := make(chan struct{})
	go func() {
		defer close(acknowledging)
		s.acknowledge()
	}()
	if polled != nil {
		err = s.feedPrompt(conn, polled)
	} else {
		err = s.feed(conn)
	}
	s.stop()
	<-acknowledging
	return err
}

// feed feeds the lane until the connection ends.
func (s *inboundStream) feed(conn *directConn) error {
	reader := bufio.NewReaderSize(conn, readAhead)
	err := s.inbound.Feed(reader)
	if errors.Is(err, lane.ErrSealed) {
		// Closing a connection with unread bytes could destroy the goodbye. Read until the peer
		// hangs up.
		_, _ = io.Copy(io.Discard, reader)
	}
	return err
}

// refuse answers a hello with a refusal, and waits until the peer has read it.
func (s *inboundStream) refuse(reply answer) error {
	if _, err := s.stream.Write(reply.append(nil)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	var one [1]byte
	_, _ = s.stream.Read(one[:]) // the peer resets the stream, or the deadline ends the wait
	return fmt.Errorf("refused: %s", reply.status)
}

// acknowledge reports delivered frames to the sender, soon after they are delivered, and sends
// signs of life, those of all lanes at the same time. It returns when the stream is stopped or the
// host has said goodbye.
func (s *inboundStream) acknowledge() {
	period := max(s.host.mendTimeout/4, time.Millisecond)
	alive := time.NewTimer(beat.Until(time.Now(), period))
	defer alive.Stop()
	pace := ackPace{max: s.host.mendTimeout / ackShare}
	delay := time.NewTimer(ackDelayMin)
	defer delay.Stop()
	var message [ackSize]byte
	for {
		select {
		case <-s.due:
			if !s.gather(&pace, delay) {
				return
			}
		case <-alive.C:
			alive.Reset(beat.Until(time.Now(), period))
			if s.polled.Load() {
				// A sender that was stopped between clearing the bell and raising its event keeps
				// the others from raising it.
				s.host.poller.wake()
			}
		case <-s.host.leaving:
			// The peer then resets the stream, which also ends the reading from it.
			if s.sendAck(message[:0], true) {
				s.flush()
			}
			return
		case <-s.stopped.Done():
			return
		}
		if !s.sendAck(message[:0], false) {
			return
		}
	}
}

// gather waits for further frames to acknowledge. It returns false if the stream is stopped.
func (s *inboundStream) gather(pace *ackPace, delay *time.Timer) bool {
	wait := pace.begin(time.Now(), s.inbound.Owed())
	for wait > 0 {
		delay.Reset(wait)
		select {
		case <-delay.C:
			wait = pace.look(time.Now(), s.inbound.Owed())
			continue
		case <-s.urgent:
		case <-s.host.closing: // the peer may close, too, and wait for it
		case <-s.stopped.Done():
			return false
		}
		break
	}
	pace.sent = time.Now()
	return true
}

func (s *inboundStream) sendAck(message []byte, goodbye bool) bool {
	_, err := s.carrier.Write(ack{delivered: s.inbound.Acknowledging(),
		goodbye: goodbye}.append(message))
	if err != nil {
		s.stop()
	}
	return err == nil
}

// flushEvery is the time between two attempts to write the rest of a goodbye.
const flushEvery = 2 * time.Millisecond

// flush waits until the kernel has taken the goodbye, which no further write takes along, or until
// the stream is stopped.
func (s *inboundStream) flush() {
	conn, direct := s.carrier.(*directConn)
	if !direct {
		return
	}
	wire, lingers := conn.wire.(lingering)
	for lingers {
		if left, err := wire.flush(); err != nil || !left {
			return
		}
		select {
		case <-time.After(flushEvery):
		case <-s.stopped.Done():
			return
		}
	}
}

// notify leaves a token for the one goroutine that waits on c, unless there is one already.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
