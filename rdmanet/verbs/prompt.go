//go:build verbs

package verbs

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// ReceivePrompt implements rdmanet.PromptHost.
func (h *host) ReceivePrompt(name string, receiver rdmanet.PromptReceiver) error {
	return h.lanes.ReceivePrompt(name, receiver)
}

// PromptBytes implements lane.PromptOutlet. Larger batches would wait for room in the ring.
func (s *sender) PromptBytes() int { return int(s.size / 4) }

// TryWrite implements lane.PromptOutlet. It writes all of the batch or nothing.
func (s *sender) TryWrite(frames [][]byte, first uint64) (whole bool) {
	s.posting.Lock()
	defer s.posting.Unlock()
	s.header = lane.AppendBatchHeader(s.header[:0], frames, first)
	size := len(s.header)
	for _, frame := range frames {
		size += len(frame)
	}
	room, err := s.room()
	if err == nil && room >= uint64(size) && s.link.room() >= flushRequests {
		s.putAll(s.header)
		for _, frame := range frames {
			s.putAll(frame)
		}
		if err = s.post(); err == nil {
			return true
		}
	}
	s.rest, s.first, s.tried = append(s.rest[:0], frames...), first, err
	return false
}

// putAll copies bytes into the mirror, which has room for all of them. The ring may wrap.
func (s *sender) putAll(bytes []byte) {
	for len(bytes) > 0 {
		bytes = bytes[s.put(bytes, uint64(len(bytes))):]
	}
}

// Flush implements lane.PromptOutlet.
func (s *sender) Flush() error {
	if s.tried != nil {
		return s.tried
	}
	if len(s.rest) == 0 {
		return nil
	}
	err := s.Write(s.rest, s.first)
	clear(s.rest)
	s.rest = s.rest[:0]
	return err
}

// polledLane is the receiving end of a lane with a prompt receiver. The engine's goroutine hands
// over its frames when the sender has written. The lane's own goroutine does so too, whenever
// another one than the engine's has polled the device, and it sends the acknowledgements. While the
// receiver is full, only the lane's goroutine hands over, and nothing is read from the ring.
type polledLane struct {
	receiver *receiver
	prompt   *rdmanet.PromptReceiver
	queued   bool // it is among the engine's due lanes

	mu     sync.Mutex // held while frames are handed over or acknowledged
	feeder *lane.Feeder
	until  uint64 // the length of the stream when the present poll began
	err    error  // why nothing is read now, or any more
}

// Read implements io.Reader, for the feeder. It returns lane.ErrNotYet after the bytes that were
// there when the poll began: a poll ends, and the sender rings again for those that came meanwhile.
func (p *polledLane) Read(into []byte) (int, error) {
	r := p.receiver
	if p.err != nil || r.consumed == p.until {
		return 0, lane.ErrNotYet
	}
	return r.take(into, p.until)
}

// poll hands over what has arrived, if no other goroutine is at it. It reports whether a turn of
// the receiver is due.
func (p *polledLane) poll() (tried bool) {
	if !p.mu.TryLock() {
		notify(p.receiver.wake) // the lane's goroutine looks once more
		return false
	}
	defer p.mu.Unlock()
	return p.pollLocked()
}

func (p *polledLane) pollLocked() (tried bool) {
	if p.err != nil {
		return false
	}
	if p.until, p.err = p.receiver.tail(); p.err == nil {
		tried, p.err = p.feeder.Poll()
	}
	if p.err == nil && p.receiver.stream.isUrgent() {
		p.err = p.receiver.credit()
	}
	if p.err != nil {
		notify(p.receiver.wake)
	}
	return tried
}

// look is poll for the lane's goroutine. It returns why nothing is read now, or whether an
// acknowledgement is owed.
func (p *polledLane) look() (owes bool, err error) {
	p.mu.Lock()
	tried := p.pollLocked()
	owes, err = p.receiver.owes(), p.err
	p.mu.Unlock()
	if tried {
		p.prompt.Turn()
	}
	return owes, err
}

// acknowledge sends the acknowledgement that is owed.
func (p *polledLane) acknowledge() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.receiver.credit()
}

// resume has the ring read again after the receiver was full, unless err says why not. It returns
// why it was not read before.
func (p *polledLane) resume(err error) (before error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.err = p.err, err
	return before
}

// feedPrompt feeds a lane with a prompt receiver until its end is over.
func (r *receiver) feedPrompt(prompt *rdmanet.PromptReceiver) error {
	p := &polledLane{receiver: r, prompt: prompt}
	p.feeder = lane.NewFeeder(r.stream.inbound, p)
	r.polled.Store(p)
	err := p.feed()
	// The engine's goroutine must not touch the ring any more: its memory is given back.
	r.polled.Store(nil)
	if errors.Is(p.resume(err), lane.ErrFull) {
		// The engine's goroutine met a full receiver meanwhile. The receiver must get what is left
		// of a batch that it took a part of.
		_ = p.feeder.Wait() // the lane ends in any case
	}
	return err
}

func (p *polledLane) feed() error {
	r := p.receiver
	var due <-chan time.Time
	for {
		owes, err := p.look()
		switch {
		case errors.Is(err, lane.ErrFull):
			p.resume(p.feeder.Wait())
			continue
		case err != nil:
			return err
		case owes && due == nil:
			r.delay.Reset(ackDelay)
			due = r.delay.C
		}
		select {
		case <-r.wake:
		case <-r.broken:
			return r.err
		case <-r.stream.inbound.Sealed():
			return lane.ErrSealed
		case <-due:
			due = nil
			if err := p.acknowledge(); err != nil {
				return err
			}
		}
	}
}

// serve hands over the frames of the lanes that the poller found written, then takes the turns that
// are due. Only the poller calls it.
func (e *engine) serve() {
	for i, p := range e.serving {
		if p.poll() && !slices.Contains(e.turns, p.prompt) {
			e.turns = append(e.turns, p.prompt)
		}
		e.serving[i] = nil
	}
	e.serving = e.serving[:0]
	for i, prompt := range e.turns {
		prompt.Turn()
		e.turns[i] = nil
	}
	e.turns = e.turns[:0]
}
