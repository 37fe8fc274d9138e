//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// ackDelay is how long an acknowledgement may wait for more to be acknowledged with it, while the sender sends nothing.
const ackDelay = 2 * time.Millisecond

var (
	// errSuperseded: another queue pair carries the lane now, or none may.
	errSuperseded = errors.New("superseded")
	// errSealed: the host closes, and its program gets nothing more.
	errSealed = errors.New("sealed")
)

// inboundLane is the receiving end of a lane. It outlives queue pairs; at most one feeds it at a time.
type inboundLane struct {
	// calling is held while the receive function runs, by the stream whose batch it gets.
	calling sync.Mutex

	mu      sync.Mutex
	opening *opening       // nil before the first request
	stream  *inboundStream // who feeds it, nil if nobody may
	quiet   chan struct{}  // nil until the lane is sealed; closed when its receive function has returned for the last time

	sealed chan struct{} // closed when the lane is sealed
}

// opening is the receiver's memory of one opening of a lane by one incarnation of its sender.
type opening struct {
	sender    rdmanet.Incarnation
	number    uint64
	lost      uint64 // given up before it, not yet told; guarded by the lane's calling
	next      uint64 // the first frame not yet given to the receive function; the lane's mu
	delivered uint64 // the receive function returned for the frames before; the lane's mu
}

// inboundStream is one queue pair of a peer's lane, with the goroutine that reads its ring and calls the receive function.
type inboundStream struct {
	host     *host
	end      *end
	from     rdmanet.Peer
	number   uint32 // of the sender's queue pair
	name     string
	receive  rdmanet.ReceiveFunc
	lane     *inboundLane
	opening  *opening
	frameMax int

	// An acknowledgement is due at once when that many bytes or frames wait for it.
	urgentBytes, urgentFrames int

	parted chan struct{} // closed when the stream has ended, or the sender of a sealed lane has the last acknowledgement
}

// supersede makes stream the one that feeds the lane and stops the one before.
func (in *inboundLane) supersede(stream *inboundStream) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.supersedeLocked(stream)
}

func (in *inboundLane) supersedeLocked(stream *inboundStream) {
	if in.stream != nil {
		in.stream.end.stop(errSuperseded)
	}
	in.stream = stream
}

// sever breaks what feeds the lane, as a device that fails would.
func (in *inboundLane) sever() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stream != nil {
		in.stream.end.stop(errSevered)
	}
}

// seal ends the handing over, for good. What it gives is closed once the last receive call has returned, so that delivered is final.
func (in *inboundLane) seal() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.quiet == nil {
		in.quiet = make(chan struct{})
		close(in.sealed)
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

// claim gives the lane to a stream, if its request is not older than what is known.
func (in *inboundLane) claim(s *inboundStream, request message) (next, delivered uint64, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	known := in.opening
	if known != nil && (s.from.Incarnation < known.sender || s.from.Incarnation == known.sender && request.opening < known.number) {
		return 0, 0, false
	}
	if known == nil || s.from.Incarnation != known.sender || request.opening != known.number {
		known = &opening{sender: s.from.Incarnation, number: request.opening}
		if request.lostBy == 0 || request.lostBy == s.host.incarnation {
			known.lost = request.lost
		}
		in.opening = known
	}
	s.lane, s.opening = in, known
	in.supersedeLocked(s)
	return known.next, known.delivered, true
}

// progress is how many frames the program has taken.
func (s *inboundStream) progress() uint64 {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	return s.opening.delivered
}

// Receive implements rdmanet.Host.
func (h *host) Receive(name string, receive rdmanet.ReceiveFunc) error {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closing:
		return fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	case h.receivers[name] != nil:
		return fmt.Errorf("receiver of lane %q: %w", name, rdmanet.ErrDuplicate)
	}
	h.receivers[name] = receive
	return nil
}

// open answers a peer's request for a queue pair to this host's end of a lane.
func (h *host) open(from rdmanet.Peer, request message) message {
	reply := message{kind: messageReply, call: request.call}
	s := &inboundStream{host: h, parted: make(chan struct{}), from: from, number: request.endpoint.number, name: request.name, frameMax: int(request.frameMax),
		urgentBytes: int(request.windowBytes / 4), urgentFrames: int(request.windowFrames / 4)}
	if reply.status = h.judge(s, request); reply.status != statusWelcome {
		reply.delivered = h.owed(from, request)
		reply.next = reply.delivered
		return reply
	}
	n, err := h.engine.newEnd(h.ringBytes, ringBegin+h.ringBytes)
	if err == nil {
		n.peer = request.memory
		if err = n.link.connect(request.endpoint); err != nil {
			err = errors.Join(err, n.close())
		}
	}
	if err != nil {
		h.log.Warn("lane refused", "lane", s.name, "peer", from.String(), "error", err)
		reply.status = statusFailed
		return reply
	}
	s.end = n
	next, delivered, ok := h.claim(s, request)
	if !ok {
		if err := n.close(); err != nil {
			h.log.Warn("lane's memory stays", "lane", s.name, "error", err)
		}
		reply.status = statusStale
		return reply
	}
	reply.next, reply.delivered = next, delivered
	reply.endpoint, reply.memory = n.link.endpoint(), n.exposure(ringBegin+h.ringBytes)
	h.spawn(func() { s.run(next, delivered) })
	return reply
}

// judge decides what a request is to be answered before the lane's state is looked at.
func (h *host) judge(s *inboundStream, request message) status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.receive = h.receivers[request.name]
	switch {
	case h.closing || h.dead:
		return statusClosing
	case request.receiver != 0 && request.receiver != h.incarnation:
		return statusRestarted
	case int(request.frameMax) > h.limits.FrameBytes:
		return statusFrameMax
	case s.receive == nil:
		return statusNoReceiver
	case request.memory.size < wordsSize:
		return statusFailed
	default:
		return statusWelcome
	}
}

// owed is how many frames of a request's lane this host's program is done with, from the same opening.
func (h *host) owed(from rdmanet.Peer, request message) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if in := h.inbound[laneKey{from.ID, request.name}]; in != nil {
		return in.owed(from.Incarnation, request.opening)
	}
	return 0
}

// settle hands nothing more over, waits for the receive functions that run, and sees to it that the senders hear of what this host's program has taken.
func (h *host) settle(ctx context.Context) {
	h.mu.Lock()
	lanes := slices.Collect(maps.Values(h.inbound))
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, owedTimeout)
	defer cancel()
	for _, in := range lanes {
		select {
		case <-in.seal():
		case <-ctx.Done():
		}
	}
	for _, in := range lanes {
		in.mu.Lock()
		stream := in.stream
		in.mu.Unlock()
		if stream == nil {
			continue
		}
		select {
		case <-stream.parted:
		case <-ctx.Done():
		}
	}
}

// claim finds or makes the lane that a request is for and gives it to the stream.
func (h *host) claim(s *inboundStream, request message) (next, delivered uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead || s.from.Incarnation < h.newest[s.from.ID] || !h.isMember(s.from.ID) {
		return 0, 0, false
	}
	key := laneKey{s.from.ID, request.name}
	in := h.inbound[key]
	if in == nil {
		in = &inboundLane{sealed: make(chan struct{})}
		h.inbound[key] = in
	}
	return in.claim(s, request)
}

// stopInbound ends what feeds this host's ends of a peer's lanes, where older says so of the sender's incarnation; it forgets the lanes if they are not to be known any more.
func (h *host) stopInbound(peer rdmanet.PeerID, older func(rdmanet.Incarnation) bool, forget bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, in := range h.inbound {
		if peer != "" && key.peer != peer {
			continue
		}
		in.mu.Lock()
		if in.opening != nil && older(in.opening.sender) {
			in.supersedeLocked(nil)
		}
		in.mu.Unlock()
		if forget {
			delete(h.inbound, key)
		}
	}
}

// run carries the stream to its end.
func (s *inboundStream) run(next, delivered uint64) {
	delay := time.NewTimer(time.Hour)
	defer delay.Stop()
	r := &receiver{end: s.end, size: uint64(s.host.ringBytes), delivered: delivered, progress: s.progress, sealed: s.lane.sealed, delay: delay}
	err := s.read(r, next)
	if errors.Is(err, errSealed) {
		err = s.part(r)
	}
	close(s.parted)
	if closeErr := s.end.close(); closeErr != nil {
		s.host.log.Warn("lane's memory stays", "lane", s.name, "error", closeErr)
	}
	if !errors.Is(err, errSuperseded) && !errors.Is(err, errSealed) {
		// The sender's device would find out, by all its retries.
		s.host.control.tell(s.from.ID, message{kind: messageEnded, name: s.name, endpoint: endpoint{number: s.number}})
	}
	if errors.Is(err, errProtocol) {
		s.host.log.Warn("stream dropped", "peer", s.from.String(), "lane", s.name, "error", err)
	} else {
		s.host.log.Debug("stream ended", "peer", s.from.String(), "lane", s.name, "error", err)
	}
}

// part tells the sender of a sealed lane what the program has taken, and waits until its device has it.
func (s *inboundStream) part(r *receiver) error {
	select {
	case <-s.lane.seal():
	case <-r.broken:
		return r.err
	}
	for r.owes() || r.link.room() < laneSendDepth {
		if err := r.credit(); err != nil {
			return err
		}
		select {
		case <-r.wake:
		case <-r.broken:
			return r.err
		}
	}
	return errSealed
}

// read takes batches off the ring and hands them over until the queue pair fails.
func (s *inboundStream) read(r *receiver, next uint64) error {
	reader := batchReader{stream: r, frameMax: s.frameMax}
	var frames [][]byte
	owedFrames, owedBytes := 0, 0
	for {
		var err error
		if frames, err = reader.read(frames[:0], next); err != nil {
			return err
		}
		size, err := s.deliver(frames, next)
		if err != nil {
			return err
		}
		next += uint64(len(frames))
		owedFrames, owedBytes = owedFrames+len(frames), owedBytes+size
		clear(frames)
		if owedFrames >= s.urgentFrames || owedBytes >= s.urgentBytes {
			owedFrames, owedBytes = 0, 0
			if err := r.credit(); err != nil {
				return err
			}
		}
	}
}

// deliver hands a batch to the receive function, after the batches that were handed over before, be it by an earlier stream. It gives the batch's bytes.
func (s *inboundStream) deliver(frames [][]byte, first uint64) (size int, err error) {
	in, known := s.lane, s.opening
	in.calling.Lock()
	defer in.calling.Unlock()
	in.mu.Lock()
	if in.stream != s || known.next != first {
		in.mu.Unlock()
		return 0, errSuperseded
	}
	if in.quiet != nil {
		in.mu.Unlock()
		return 0, errSealed
	}
	known.next += uint64(len(frames))
	in.mu.Unlock()
	if known.lost > 0 {
		s.host.tell(rdmanet.PeerEvent{Kind: rdmanet.LaneReset, Peer: s.from, Lane: s.name, Lost: known.lost})
		known.lost = 0
	}
	for _, frame := range frames {
		size += len(frame)
	}
	s.receive(s.from, frames)
	in.mu.Lock()
	known.delivered = known.next
	if in.quiet != nil && in.opening == known {
		close(in.quiet)
	}
	current := in.stream // not always s: the lane may have been mended meanwhile
	in.mu.Unlock()
	if current != nil && current != s && current.opening == known {
		notify(current.end.wake)
	}
	return size, nil
}
