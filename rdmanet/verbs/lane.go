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

// statuses maps the lanes' statuses to those of replies on the control plane.
var statuses = [...]status{
	lane.StatusWelcome: statusWelcome, lane.StatusRestarted: statusRestarted,
	lane.StatusStale: statusStale, lane.StatusNoReceiver: statusNoReceiver,
	lane.StatusFrameMax: statusFrameMax, lane.StatusClosing: statusClosing,
	lane.StatusRefused: statusFailed,
}

// answerOf converts a reply to a lane request into an answer.
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

// dial makes one attempt to connect a lane. It is the Config.Dial of the lanes.
func (h *host) dial(ctx context.Context, to *lane.Sender, patience time.Duration) (lane.Outlet,
	error) {
	n, err := h.engine.newEnd(h.ringBytes, wordsSize)
	if err != nil {
		return nil, err
	}
	s := &sender{
		end: n, host: h, lane: to, ctx: ctx, size: uint64(h.ringBytes),
		probe: time.NewTimer(time.Hour), probing: max(h.mendTimeout/4, time.Millisecond),
	}
	// The receiver's end may be over before this host has read the reply that tells of it. So the
	// sender is listed before the request goes out, for ended to find.
	h.mu.Lock()
	h.senders[s] = struct{}{}
	h.mu.Unlock()
	if err := h.connect(s, patience); err != nil {
		s.drop()
		return nil, err
	}
	return s, nil
}

// connect asks the receiver for a ring and connects the sender's end to it.
func (h *host) connect(s *sender, patience time.Duration) error {
	attempt, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	hello := s.lane.Hello()
	from, reply, err := h.control.askOnce(attempt, s.lane.Peer(), message{
		kind: messageLane, name: hello.Name, receiver: hello.Receiver, opening: hello.Opening,
		lost: hello.Lost, lostBy: hello.LostBy,
		frameMax: hello.FrameMax, windowBytes: hello.WindowBytes, windowFrames: hello.WindowFrames,
		endpoint: s.link.endpoint(), memory: s.exposure(wordsSize),
	})
	switch {
	case err != nil && hello.Receiver == 0 && errors.Is(err, rdmanet.ErrReset):
		return fmt.Errorf("no answer: %s", err) // the lane is not connected yet; ask again
	case err != nil && hello.Receiver != 0 && errors.Is(err, rdmanet.ErrUnreachable):
		// the control lane used up the mend timeout
		return fmt.Errorf("%w: %w", lane.ErrGoodbye, err)
	case err != nil:
		return err
	}
	if err := s.lane.Accept(answerOf(from, reply)); err != nil {
		return err
	}
	if size := reply.memory.size; size != ringBegin+uint64(h.ringBytes) {
		return fmt.Errorf("%w: the peer's ring has %d bytes, this host's %d", errProtocol,
			size, h.ringBytes)
	}
	if err := s.link.connect(reply.endpoint); err != nil {
		return err
	}
	s.peer, s.acknowledged = reply.memory, reply.delivered
	return nil
}

// giveBack closes an end of a lane.
func (h *host) giveBack(n *end, name string) {
	if err := n.close(); err != nil {
		h.log.Warn("lane's memory stays", "lane", name, "error", err)
	}
}

// Start implements lane.Outlet. Write and Wait read the peer's acknowledgements.
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
	for {
		if something, err := s.wait(ready); something || err != nil {
			return err
		}
	}
}

// Close implements lane.Outlet.
func (s *sender) Close(why error) (heard time.Time, err error) {
	// The last acknowledgement may have come with the end. One of frames never sent is refused.
	_ = s.hear()
	at := s.heard.Load()
	s.drop()
	if at == 0 {
		return time.Time{}, why
	}
	// The device detects a broken network late. Leave half of the time to mend it.
	heard = time.Unix(0, at)
	if least := time.Now().Add(-s.host.mendTimeout / 2); heard.Before(least) {
		heard = least
	}
	return heard, why
}

// drop unlists the sender and closes its end.
func (s *sender) drop() {
	s.probe.Stop()
	s.host.mu.Lock()
	delete(s.host.senders, s)
	s.host.mu.Unlock()
	s.host.giveBack(s.end, s.lane.Name())
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
