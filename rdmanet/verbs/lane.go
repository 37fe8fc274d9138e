//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// statuses are the words of a reply to a lane's request, by the lanes' own.
var statuses = [...]status{
	lane.StatusWelcome: statusWelcome, lane.StatusRestarted: statusRestarted,
	lane.StatusStale: statusStale, lane.StatusNoReceiver: statusNoReceiver,
	lane.StatusFrameMax: statusFrameMax, lane.StatusClosing: statusClosing,
	lane.StatusRefused: statusFailed,
}

// answerOf gives the answer that a reply to a lane's request is.
func answerOf(from rdmanet.Peer, reply message) lane.Answer {
	answer := lane.Answer{Status: lane.StatusRefused, Incarnation: from.Incarnation,
		Next: reply.next, Delivered: reply.delivered}
	for word, code := range statuses {
		if code == reply.status && word != 0 {
			answer.Status = lane.Status(word)
		}
	}
	if answer.Status == lane.StatusRefused {
		answer.Reason = fmt.Errorf("refused: %s", reply.status)
	}
	return answer
}

// dial makes one attempt to connect a lane; it is Config.Dial of the lanes.
func (h *host) dial(ctx context.Context, to *lane.Sender, patience time.Duration) (lane.Outlet,
	error) {
	n, err := h.engine.newEnd(h.ringBytes, wordsSize)
	if err != nil {
		return nil, err
	}
	s, err := h.connect(ctx, to, n, patience)
	if err != nil {
		h.giveBack(n, to.Name())
		return nil, err
	}
	h.mu.Lock()
	h.senders[s] = struct{}{}
	h.mu.Unlock()
	return s, nil
}

// connect asks the receiver for a ring and connects this end to it.
func (h *host) connect(ctx context.Context, to *lane.Sender,
	n *end, patience time.Duration) (*sender, error) {
	attempt, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	hello := to.Hello()
	from, reply, err := h.control.askOnce(attempt, to.Peer(), message{
		kind: messageLane, name: hello.Name, receiver: hello.Receiver, opening: hello.Opening,
		lost: hello.Lost, lostBy: hello.LostBy,
		frameMax: hello.FrameMax, windowBytes: hello.WindowBytes, windowFrames: hello.WindowFrames,
		endpoint: n.link.endpoint(), memory: n.exposure(wordsSize),
	})
	switch {
	case err != nil && hello.Receiver == 0 && errors.Is(err, rdmanet.ErrReset):
		return nil, fmt.Errorf("no answer: %s", err) // the lane led nowhere yet, and asks again
	case err != nil && hello.Receiver != 0 && errors.Is(err, rdmanet.ErrUnreachable):
		// the control plane has spent the mend timeout
		return nil, fmt.Errorf("%w: %w", lane.ErrGoodbye, err)
	case err != nil:
		return nil, err
	}
	if err := to.Accept(answerOf(from, reply)); err != nil {
		return nil, err
	}
	if size := reply.memory.size; size != ringBegin+uint64(h.ringBytes) {
		return nil, fmt.Errorf("%w: the peer's ring has %d bytes, this host's %d", errProtocol,
			size, h.ringBytes)
	}
	if err := n.link.connect(reply.endpoint); err != nil {
		return nil, err
	}
	n.peer = reply.memory
	return &sender{
		end: n, host: h, lane: to, ctx: ctx, size: uint64(h.ringBytes),
		acknowledged: reply.delivered,
		probe:        time.NewTimer(time.Hour), probing: max(h.mendTimeout/4, time.Millisecond),
	}, nil
}

// giveBack closes an end of a lane.
func (h *host) giveBack(n *end, name string) {
	if err := n.close(); err != nil {
		h.log.Warn("lane's memory stays", "lane", name, "error", err)
	}
}

// Start implements lane.Outlet. The peer is heard while frames are written and waited for.
func (s *sender) Start() {}

// Write implements lane.Outlet.
func (s *sender) Write(frames [][]byte, first uint64) error {
	s.header = lane.AppendBatchHeader(s.header[:0], frames, first)
	if err := s.write(s.header); err != nil {
		return err
	}
	for _, frame := range frames {
		if err := s.write(frame); err != nil {
			return err
		}
	}
	return s.flush()
}

// Wait implements lane.Outlet.
func (s *sender) Wait(ready <-chan struct{}) error {
	if err := s.flush(); err != nil {
		return err
	}
	return s.wait(ready)
}

// Close implements lane.Outlet.
func (s *sender) Close(why error) (heard time.Time, err error) {
	s.probe.Stop()
	s.host.mu.Lock()
	delete(s.host.senders, s)
	s.host.mu.Unlock()
	// The last word may have come with the end. What was never sent is not believed.
	_ = s.hear()
	at := s.heard.Load()
	s.host.giveBack(s.end, s.lane.Name())
	if at == 0 {
		return time.Time{}, why
	}
	// The device takes long to find out that a wire is broken; half of the time is left to mend it.
	heard = time.Unix(0, at)
	if least := time.Now().Add(-s.host.mendTimeout / 2); heard.Before(least) {
		heard = least
	}
	return heard, why
}

// ended ends the sender whose link has that number, because the receiver's end is over.
func (h *host) ended(from rdmanet.PeerID, name string, number uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.senders {
		if s.lane.Peer() == from && s.lane.Name() == name && s.link.endpoint().number == number {
			s.stop(errEnded)
		}
	}
}
