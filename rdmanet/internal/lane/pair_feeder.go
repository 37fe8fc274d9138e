package lane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Acknowledged is what a PairFeeder reports of this host's lane over the connection.
type Acknowledged struct {
	// Delivered is called with the acknowledgement of each batch.
	Delivered func(delivered uint64) error
	// Message is called with each message of MessageBytes bytes that is no batch. The bytes are
	// only lent.
	Message      func(message []byte) error
	MessageBytes int
}

// PairFeeder reads a connection that carries a lane each way, from a stream that does not wait. It
// feeds the lane from the peer, once that has come (Join), and reports acknowledgements of the lane
// to the peer.
//
// The two lanes do not wait for each other: Poll reads on if the receiver is full. What it reads
// then waits in a backlog. That cannot have more than the window of the lane, since the sender gets
// no acknowledgement of it. The provider must not let a lane with a larger window than its own
// join.
//
// One goroutine at a time calls Poll, and another one Drain.
type PairFeeder struct {
	stream io.Reader
	acked  Acknowledged
	intake

	joining chan *Inbound // has the lane from when it joins to its first batch
	in      *Inbound      // nil before that
	wanted  uint64        // the number of the next frame to read
	batched [][]byte      // the frames of a batch; reused
	idle    bool          // buffer is too small for batches
	tried   bool          // TryReceive was called since the last Poll began

	backlogged chan struct{} // a token: Drain is due

	mu      sync.Mutex
	full    bool      // Drain is due, or runs; only it hands over frames then
	begun   bool      // the receiver took a part of the first batch; calling of the lane is held
	backlog []backlog // the oldest first
	frames  int       // in the backlog
	bytes   int       // in the backlog
	over    bool      // nothing is handed over any more
}

// backlog is a batch that waits for the receiver.
type backlog struct {
	frames [][]byte // of a batch that was begun, those that were not taken
	count  int      // frames of the batch
	bytes  int      // of the batch
}

// NewPairFeeder returns a feeder of the lanes of a name with a prompt receiver.
func NewPairFeeder(lanes *Lanes, prompt *rdmanet.PromptReceiver, stream io.Reader,
	acked Acknowledged) *PairFeeder {
	return &PairFeeder{stream: stream, acked: acked, intake: intake{lanes: lanes, prompt: prompt},
		joining: make(chan *Inbound, 1), backlogged: make(chan struct{}, 1)}
}

// PromptReceiver returns the receiver of lanes of that name if it is prompt, and otherwise nil.
func (l *Lanes) PromptReceiver(name string) *rdmanet.PromptReceiver {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.receivers[name].prompt
}

// CanPair reports whether the window of a lane from a peer is small enough for a PairFeeder.
func (l *Lanes) CanPair(hello Hello) bool {
	limits := l.config.Limits
	return int64(hello.WindowBytes) <= int64(limits.Bytes) &&
		int64(hello.WindowFrames) <= int64(limits.Frames)
}

// Join makes the feeder feed a lane from the peer. It is called once, before the peer may send the
// lane's first batch.
func (f *PairFeeder) Join(in *Inbound) { f.joining <- in }

// Backlogged returns a channel that has a token when Drain must be called.
func (f *PairFeeder) Backlogged() <-chan struct{} { return f.backlogged }

// Poll hands over what can be read, without waiting. It returns nil once the stream has nothing
// more, or why the connection must end. It reports whether the receiver was given frames: then its
// Turn is due, also with an error.
func (f *PairFeeder) Poll() (tried bool, err error) {
	f.tried = false
	for err == nil {
		var more bool
		for more = true; more && err == nil; {
			more, err = f.next()
		}
		if err == nil {
			err = f.read()
		}
	}
	if err == ErrNotYet {
		err = nil
	}
	return f.tried, err
}

func (f *PairFeeder) read() error {
	if f.in == nil && f.want <= intakeIdleBytes {
		if !f.idle {
			f.idle, f.buffer = true, make([]byte, intakeIdleBytes)
		} else if f.from > 0 {
			f.change(f.buffer) // it moves down what is there
		}
	} else {
		f.makeRoom()
	}
	n, err := f.stream.Read(f.buffer[f.to:])
	f.to += n
	switch {
	case n > 0:
		return nil
	case err == io.EOF && f.to > f.from:
		return io.ErrUnexpectedEOF
	}
	return err
}

// next takes the next message from the buffer. It returns false if that is not yet whole.
func (f *PairFeeder) next() (more bool, err error) {
	const magicBytes = 2
	if !f.has(magicBytes) {
		return false, nil
	}
	if binary.BigEndian.Uint16(f.buffer[f.from:]) != pairMagic {
		if !f.has(f.acked.MessageBytes) {
			return false, nil
		}
		message := f.buffer[f.from : f.from+f.acked.MessageBytes]
		f.skip(len(message))
		return true, f.acked.Message(message)
	}
	if err := f.expect(); err != nil || !f.has(pairHeaderSize) {
		return false, err
	}
	delivered := binary.BigEndian.Uint64(f.buffer[f.from+batchHeaderSize:])
	frames, size, whole, err := f.batch(f.batched, pairHeaderSize, pairMagic, f.wanted)
	f.batched = frames
	if err != nil || !whole {
		return false, err
	}
	f.wanted += uint64(len(frames))
	if err = f.acked.Delivered(delivered); err == nil {
		err = f.take(frames, size)
	}
	clear(frames)
	return err == nil, err
}

// expect prepares for a batch.
func (f *PairFeeder) expect() error {
	if f.in != nil {
		return nil
	}
	select {
	case f.in = <-f.joining:
	default:
		return fmt.Errorf("%w: a batch of a lane that has not come", ErrProtocol)
	}
	f.wanted = f.in.next
	if f.idle {
		// The lane's frames must not be in memory that is not a slab.
		f.idle = false
		left := slices.Clone(f.buffer[f.from:f.to])
		f.buffer, f.from, f.to = nil, 0, 0
		f.makeRoom()
		f.to = copy(f.buffer, left)
	}
	return nil
}

// take hands over a batch, or adds it to the backlog.
func (f *PairFeeder) take(frames [][]byte, size int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.over:
		return nil
	case f.full:
		return f.postpone(frames, len(frames), size)
	}
	left, err := f.tryDeliver(frames, size)
	switch {
	case errors.Is(err, ErrSealed):
		f.over = true
		return nil
	case !errors.Is(err, ErrFull):
		return err
	}
	f.full = true
	notify(f.backlogged)
	return f.postpone(left, len(frames), size)
}

// tryDeliver hands over a batch without waiting. With ErrFull it returns the frames that the
// receiver did not take.
func (f *PairFeeder) tryDeliver(frames [][]byte, size int) (left [][]byte, err error) {
	in := f.in
	// An earlier connection may still be waiting for the receiver, and watchers are told of losses.
	if !in.lane.calling.TryLock() {
		return frames, ErrFull
	}
	if in.opening.lost > 0 {
		in.lane.calling.Unlock()
		return frames, ErrFull
	}
	if err := in.lane.advance(in, len(frames)); err != nil {
		in.lane.calling.Unlock()
		return nil, err
	}
	f.tried = true
	if taken := in.tryReceive(frames, f.slab); taken < len(frames) {
		f.begun = true
		return frames[taken:], ErrFull
	}
	f.finish(len(frames), size)
	return nil, nil
}

// finish ends a batch that was taken as a whole. It releases the lane.
func (f *PairFeeder) finish(count, size int) {
	f.in.taken(count, size)
	f.in.next += uint64(count)
	f.in.lane.calling.Unlock()
}

// postpone adds a batch to the backlog.
func (f *PairFeeder) postpone(frames [][]byte, count, size int) error {
	f.frames += count
	f.bytes += size
	if int64(f.frames) > f.in.windowFrames || int64(f.bytes) > f.in.windowBytes {
		return fmt.Errorf("%w: %d frames of %d bytes are more than the lane's window", ErrProtocol,
			f.frames, f.bytes)
	}
	if f.slab != nil {
		f.slab.Hold() // Receive keeps frames for ever
	}
	f.backlog = append(f.backlog, backlog{slices.Clone(frames), count, size})
	return nil
}

// Drain hands over the backlog, and waits until the receiver has taken it. It returns nil once that
// is done, or why the connection must end. It must also be called after the end of the connection:
// a batch that the receiver has begun keeps later connections of the lane waiting.
func (f *PairFeeder) Drain() error {
	for {
		f.mu.Lock()
		if len(f.backlog) == 0 || f.over {
			f.full, f.backlog = false, nil
			f.mu.Unlock()
			return nil
		}
		batch, begun := f.backlog[0], f.begun
		f.mu.Unlock()
		if err := f.deliver(batch, begun); err != nil {
			f.mu.Lock()
			f.over, f.backlog = true, nil
			f.mu.Unlock()
			if errors.Is(err, ErrSealed) {
				return nil
			}
			return err
		}
		f.mu.Lock()
		f.begun = false
		f.frames -= batch.count
		f.bytes -= batch.bytes
		f.backlog[0] = backlog{}
		f.backlog = f.backlog[1:]
		f.mu.Unlock()
	}
}

// deliver hands over a batch of the backlog, or the rest of one.
func (f *PairFeeder) deliver(batch backlog, begun bool) error {
	if begun {
		f.in.receive.call(f.in.from, batch.frames)
		f.finish(batch.count, batch.bytes)
		return nil
	}
	if err := f.in.deliver(batch.frames); err != nil {
		return err
	}
	f.in.next += uint64(batch.count)
	return nil
}
