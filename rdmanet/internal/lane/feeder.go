package lane

import (
	"errors"
	"io"

	"github.com/ledgerd/ledgerd/rdmanet"
)

var (
	// ErrNotYet: a stream that does not wait has no bytes at the moment.
	ErrNotYet = errors.New("nothing to read yet")
	// ErrFull: the receiver has no room for a batch at the moment.
	ErrFull = errors.New("the receiver is full")
)

const (
	// feederRoomMin is the least room, in bytes, with which a Feeder reads into its buffer.
	feederRoomMin = 4 << 10
	// feederSlabBytes is the size of a Feeder's buffer once batches are large. An incomplete batch
	// at the end of a buffer is copied to the next one, so buffers hold several batches.
	feederSlabBytes = 1 << 20
)

// Feeder feeds a lane with a prompt receiver from a stream that does not wait: Read returns
// ErrNotYet instead. One goroutine at a time uses it. Frames are parts of the buffer into which the
// stream is read. That is never written again, unless it is a slab that nobody holds any more. At
// its end a feeder leaves its slab to the garbage collector.
type Feeder struct {
	in     *Inbound
	stream io.Reader

	slab     *slab // of buffer, held by the feeder; nil if frames are not lent
	buffer   []byte
	from, to int // buffer[from:to] is not yet cut into frames
	want     int // the size of the batch that begins there, as far as it is known

	// A batch that is to be handed over, and its size in bytes. Of a batch that was begun, rest
	// are the frames that the receiver has not taken, and the feeder holds calling of the lane.
	frames [][]byte
	size   int
	begun  bool
	rest   [][]byte
	tried  bool // TryReceive was called since the last Poll began
}

// Prompt returns the lane's receiver if that is prompt, and otherwise nil.
func (in *Inbound) Prompt() *rdmanet.PromptReceiver { return in.receive.prompt }

// NewFeeder returns a feeder of a lane with a prompt receiver.
func NewFeeder(in *Inbound, stream io.Reader) *Feeder {
	return &Feeder{in: in, stream: stream}
}

// Poll hands over what can be read, without waiting. It returns nil once the stream has nothing
// more, ErrFull if Wait must be called next, or why the connection must end. It reports whether
// the receiver was given frames: then its Turn is due, also with an error.
func (f *Feeder) Poll() (tried bool, err error) {
	f.tried = false
	err = f.pump((*Feeder).tryDeliver)
	return f.tried, err
}

// Wait waits until the receiver has room, and hands over what Poll could not and what was read
// already. The stream must not read from the network meanwhile. It returns nil if Poll may go on.
func (f *Feeder) Wait() error {
	if len(f.frames) > 0 {
		if err := f.deliver(); err != nil {
			return err
		}
	}
	return f.pump((*Feeder).deliver)
}

// pump reads until the stream has nothing more, and hands over each batch.
func (f *Feeder) pump(deliver func(*Feeder) error) error {
	for {
		for {
			whole, err := f.cut()
			if err != nil {
				return err
			}
			if !whole {
				break
			}
			if err := deliver(f); err != nil {
				return err
			}
		}
		f.makeRoom()
		n, err := f.stream.Read(f.buffer[f.to:])
		f.to += n
		switch {
		case n > 0:
		case err == ErrNotYet:
			return nil
		case err == io.EOF && f.to > f.from:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// cut takes the frames of the next batch from the buffer. It returns false if the batch is not yet
// whole.
func (f *Feeder) cut() (whole bool, err error) {
	bytes := f.buffer[f.from:f.to]
	if len(bytes) < max(f.want, batchHeaderSize) {
		f.want = max(f.want, batchHeaderSize)
		return false, nil
	}
	frameMax := f.in.lanes.config.Limits.FrameBytes
	count, size, err := checkHeader(bytes, f.in.next, frameMax)
	if err != nil {
		return false, err
	}
	head := batchHeaderSize + count*lengthSize
	if len(bytes) < head {
		f.want = head
		return false, nil
	}
	lengths := bytes[batchHeaderSize:head]
	if err := checkLengths(lengths, size, frameMax); err != nil {
		return false, err
	}
	if f.want = head + size; len(bytes) < f.want {
		return false, nil
	}
	f.frames, f.size = appendFrames(f.frames[:0], lengths, bytes[head:f.want]), size
	f.from += f.want
	f.want = 0
	return true, nil
}

// makeRoom makes sure that the next batch fits into the buffer, as far as its size is known. It
// moves an incomplete batch to a new buffer if not.
func (f *Feeder) makeRoom() {
	left := f.to - f.from
	need := max(f.want, batchHeaderSize)
	if f.from+need <= len(f.buffer) && len(f.buffer)-f.to >= min(feederRoomMin, need-left) {
		return
	}
	size := slabBytes
	switch {
	case need > feederSlabBytes/2:
		size = need // keeping one of its frames keeps no other batch in memory
	case need > slabBytes/4:
		size = feederSlabBytes
	}
	if f.in.receive.prompt.TryReceiveLent != nil {
		f.changeSlab(size)
		return
	}
	f.change(unzeroed(size))
}

// changeSlab makes another slab the buffer.
func (f *Feeder) changeSlab(size int) {
	next := &slab{}
	if size == slabBytes || size == feederSlabBytes {
		next = f.in.lanes.slabs.get(size)
	} else {
		next.bytes = unzeroed(size)
		next.Hold()
	}
	f.change(next.bytes)
	if f.slab != nil {
		f.slab.Release()
	}
	f.slab = next
}

// change makes another memory the buffer. It moves what is not yet cut into frames.
func (f *Feeder) change(buffer []byte) {
	f.to = copy(buffer, f.buffer[f.from:f.to])
	f.from, f.buffer = 0, buffer
}

// tryDeliver hands over a batch without waiting.
func (f *Feeder) tryDeliver() error {
	in := f.in
	// An earlier connection may still be waiting for the receiver, and watchers are told of losses.
	if !in.lane.calling.TryLock() {
		return ErrFull
	}
	if in.opening.lost > 0 {
		in.lane.calling.Unlock()
		return ErrFull
	}
	if err := in.lane.advance(in, len(f.frames)); err != nil {
		in.lane.calling.Unlock()
		return err
	}
	f.tried = true
	taken := f.tryReceive()
	if taken < len(f.frames) {
		f.begun, f.rest = true, f.frames[taken:]
		return ErrFull
	}
	f.finish()
	return nil
}

// tryReceive offers a batch to the receiver.
func (f *Feeder) tryReceive() (taken int) {
	prompt := f.in.receive.prompt
	if prompt.TryReceiveLent == nil {
		return prompt.TryReceive(f.in.from, f.frames)
	}
	return prompt.TryReceiveLent(f.in.from, f.frames, f.slab)
}

// deliver hands over a batch, or the rest of one, and waits until the receiver has taken it.
func (f *Feeder) deliver() error {
	if f.slab != nil {
		f.slab.Hold() // Receive keeps frames for ever
	}
	if f.begun {
		f.in.receive.call(f.in.from, f.rest)
		f.begun, f.rest = false, nil
		f.finish()
		return nil
	}
	if err := f.in.deliver(f.frames); err != nil {
		return err
	}
	f.next()
	return nil
}

// finish ends a batch that was taken as a whole. It releases the lane.
func (f *Feeder) finish() {
	f.in.taken(len(f.frames), f.size)
	f.in.lane.calling.Unlock()
	f.next()
}

// next forgets a batch that was taken.
func (f *Feeder) next() {
	f.in.next += uint64(len(f.frames))
	clear(f.frames)
	f.frames = f.frames[:0]
}
