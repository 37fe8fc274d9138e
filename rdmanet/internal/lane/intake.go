package lane

import "github.com/ledgerd/ledgerd/rdmanet"

const (
	// intakeRoomMin is the least room, in bytes, with which an intake reads into its buffer.
	intakeRoomMin = 4 << 10
	// intakeSlabBytes is the size of an intake's buffer once batches are large. An incomplete batch
	// at the end of a buffer is copied to the next one, so buffers hold several batches.
	intakeSlabBytes = 1 << 20
	// intakeIdleBytes is the size of the buffer of a connection that no lane has come in on. It
	// brings acknowledgements only.
	intakeIdleBytes = 512
)

// intake is the buffer into which the stream of a prompt receiver is read. Frames are parts of it.
// It is never written again, unless it is a slab that nobody holds any more.
type intake struct {
	lanes  *Lanes
	prompt *rdmanet.PromptReceiver

	slab     *slab // of buffer, held by the intake; nil if frames are not lent
	buffer   []byte
	from, to int // buffer[from:to] is not yet cut into frames
	want     int // the size of the message that begins there, as far as it is known
}

// has reports whether the next message is there as far as its size is known, and at least its first
// bytes.
func (b *intake) has(first int) bool {
	b.want = max(b.want, first)
	return b.to-b.from >= b.want
}

// batch takes the frames of the next batch from the buffer. Its header, of the given size, is
// there. It returns false if the rest is not.
func (b *intake) batch(frames [][]byte, header int, magic uint16, first uint64) (taken [][]byte,
	size int, whole bool, err error) {
	bytes, frameMax := b.buffer[b.from:b.to], b.lanes.config.Limits.FrameBytes
	count, size, err := checkHeader(bytes, magic, first, frameMax)
	if err != nil {
		return frames, 0, false, err
	}
	head := header + count*lengthSize
	if len(bytes) < head {
		b.want = head
		return frames, 0, false, nil
	}
	lengths := bytes[header:head]
	if err := checkLengths(lengths, size, frameMax); err != nil {
		return frames, 0, false, err
	}
	if b.want = head + size; len(bytes) < b.want {
		return frames, 0, false, nil
	}
	frames = appendFrames(frames[:0], lengths, bytes[head:b.want])
	b.skip(b.want)
	return frames, size, true, nil
}

// skip goes on to the next message.
func (b *intake) skip(size int) {
	b.from += size
	b.want = 0
}

// makeRoom makes sure that the next message fits into the buffer, as far as its size is known. It
// moves an incomplete one to a new buffer if not.
func (b *intake) makeRoom() {
	left := b.to - b.from
	need := max(b.want, batchHeaderSize)
	if b.from+need <= len(b.buffer) && len(b.buffer)-b.to >= min(intakeRoomMin, need-left) {
		return
	}
	size := slabBytes
	switch {
	case need > intakeSlabBytes/2:
		size = need // keeping one of its frames keeps no other batch in memory
	case need > slabBytes/4:
		size = intakeSlabBytes
	}
	if b.prompt.TryReceiveLent != nil {
		b.changeSlab(size)
		return
	}
	b.change(unzeroed(size))
}

// changeSlab makes another slab the buffer.
func (b *intake) changeSlab(size int) {
	next := &slab{}
	if size == slabBytes || size == intakeSlabBytes {
		next = b.lanes.slabs.get(size)
	} else {
		next.bytes = unzeroed(size)
		next.Hold()
	}
	b.change(next.bytes)
	if b.slab != nil {
		b.slab.Release()
	}
	b.slab = next
}

// change makes another memory the buffer. It moves what is not yet cut into frames.
func (b *intake) change(buffer []byte) {
	b.to = copy(buffer, b.buffer[b.from:b.to])
	b.from, b.buffer = 0, buffer
}
