//go:build verbs

package verbs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// ackDelay is how long an acknowledgement may wait for further frames while the sender sends
// nothing.
const ackDelay = 2 * time.Millisecond

// inboundStream is one queue pair of a peer's lane; it implements lane.Inlet. Its goroutine reads
// the ring and calls the receive function, or shares this with the engine's (polledLane).
type inboundStream struct {
	host    *host
	from    rdmanet.Peer
	name    string
	number  uint32 // of the sender's queue pair
	inbound *lane.Inbound
	// parted is closed when the stream has ended, or when the sender of a sealed lane has the last
	// acknowledgement.
	parted chan struct{}

	mu      sync.Mutex
	end     *end  // nil until it is made
	stopped error // why it must stop
	urgent  bool  // an acknowledgement is urgent
}

// Stop implements lane.Inlet.
func (s *inboundStream) Stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = err
	if s.end != nil {
		s.end.stop(err)
	}
}

// Owe implements lane.Inlet.
func (s *inboundStream) Owe(_, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urgent = s.urgent || urgent
	if s.end != nil {
		notify(s.end.wake)
	}
}

// isUrgent reports whether an acknowledgement is urgent, and clears the flag.
func (s *inboundStream) isUrgent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	urgent := s.urgent
	s.urgent = false
	return urgent
}

// use gives the end to the stream. It returns an error if the stream must stop already.
func (s *inboundStream) use(n *end) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = n
	return s.stopped
}

// Receive implements rdmanet.Host.
func (h *host) Receive(name string, receive rdmanet.ReceiveFunc) error {
	return h.lanes.Receive(name, receive, false)
}

// open answers a peer's request for a queue pair to this host's end of a lane.
func (h *host) open(from rdmanet.Peer, request message) message {
	if request.memory.size < wordsSize {
		return message{kind: messageReply, call: request.call, status: statusFailed}
	}
	s := &inboundStream{host: h, parted: make(chan struct{}), from: from,
		number: request.endpoint.number, name: request.name}
	inbound, answer := h.lanes.Greet(from.ID, lane.Hello{
		Name: request.name, Sender: from.Incarnation, Receiver: request.receiver,
		Opening: request.opening, Lost: request.lost, LostBy: request.lostBy,
		FrameMax: request.frameMax, WindowBytes: request.windowBytes,
		WindowFrames: request.windowFrames,
	}, s)
	reply := message{kind: messageReply, call: request.call, status: statuses[answer.Status],
		next: answer.Next, delivered: answer.Delivered}
	if inbound == nil {
		return reply
	}
	s.inbound = inbound
	n, err := h.engine.newEnd(h.ringBytes, ringBegin+h.ringBytes)
	if err == nil {
		n.peer = request.memory
		err = n.link.connect(request.endpoint)
		if err == nil {
			err = s.use(n)
		}
		if err == nil {
			err = h.begin(s, answer.Delivered)
		}
		if err != nil {
			h.giveBack(n, s.name)
		}
	}
	if err != nil {
		inbound.End()
		h.log.Warn("lane refused", "lane", s.name, "peer", from.String(), "error", err)
		reply.status, reply.next, reply.delivered = statusFailed, 0, 0
		return reply
	}
	reply.endpoint, reply.memory = n.link.endpoint(), n.exposure(ringBegin+h.ringBytes)
	return reply
}

// begin starts a stream's goroutine.
func (h *host) begin(s *inboundStream, delivered uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return rdmanet.ErrClosed
	}
	h.streams[s] = struct{}{}
	h.goroutines.Go(func() { s.run(delivered) })
	return nil
}

// part waits until the senders know how many frames this host's program has taken, as long as ctx
// and lane.SettleTimeout allow. Settle must have been called before.
func (h *host) part(ctx context.Context) {
	h.mu.Lock()
	streams := slices.Collect(maps.Keys(h.streams))
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lane.SettleTimeout)
	defer cancel()
	for _, s := range streams {
		select {
		case <-s.parted:
		case <-ctx.Done():
			return
		}
	}
}

// run serves the stream until it ends.
func (s *inboundStream) run(delivered uint64) {
	delay := time.NewTimer(time.Hour)
	defer delay.Stop()
	r := &receiver{end: s.end, stream: s, size: uint64(s.host.ringBytes), delivered: delivered,
		delay: delay}
	var err error
	if prompt := s.inbound.Prompt(); prompt != nil {
		err = r.feedPrompt(prompt)
	} else {
		err = s.inbound.Feed(r)
	}
	if errors.Is(err, lane.ErrSealed) {
		err = r.part()
	}
	close(s.parted)
	s.inbound.End()
	s.host.mu.Lock()
	delete(s.host.streams, s)
	s.host.mu.Unlock()
	s.host.giveBack(s.end, s.name)
	if !errors.Is(err, lane.ErrSuperseded) && !errors.Is(err, lane.ErrSealed) {
		// Otherwise the sender's device would detect the end only after all its retries.
		s.host.control.tell(s.from.ID, message{kind: messageEnded, name: s.name,
			endpoint: endpoint{number: s.number}})
	}
	if errors.Is(err, errProtocol) || errors.Is(err, lane.ErrProtocol) {
		s.host.log.Warn("stream dropped", "peer", s.from.String(), "lane", s.name, "error", err)
	} else {
		s.host.log.Debug("stream ended", "peer", s.from.String(), "lane", s.name, "error", err)
	}
}
