package p2p

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// messageBytesMax is what one yamux data message carries, so that it fills one Noise segment and no second one: 65,535 bytes of a segment less
// 16 of its authentication tag, less 12 of yamux's header.
const messageBytesMax = noiseSegmentBytes - yamuxHeaderBytes

const (
	noiseSegmentBytes = 65535 - 16
	yamuxHeaderBytes  = 12
)

// gatherMin is the size from which a frame is written from where it is to a connection that takes many pieces at once, in bytes. Smaller ones are copied
// together, for the system call has its price for every piece.
const gatherMin = 4 << 10

// batchWriter puts batches on a stream.
type batchWriter struct {
	stream io.Writer
	direct *directConn // the stream, where it is one that takes pieces
	buffer []byte      // reused for every batch
	pieces net.Buffers // reused for every batch
	rest   net.Buffers // what a write has left of pieces
}

func newBatchWriter(stream io.Writer) *batchWriter {
	w := &batchWriter{stream: stream}
	w.direct, _ = stream.(*directConn)
	return w
}

// write puts the frames on the stream as one batch, the first of them with that number.
func (w *batchWriter) write(frames [][]byte, first uint64) error {
	size := 0
	for _, frame := range frames {
		size += len(frame)
	}
	b := w.buffer[:0]
	b = binary.BigEndian.AppendUint16(b, batchMagic)
	b = binary.BigEndian.AppendUint16(b, uint16(len(frames)))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint64(b, first)
	for _, frame := range frames {
		b = binary.BigEndian.AppendUint32(b, uint32(len(frame)))
	}
	if w.direct != nil {
		return w.gather(b, frames)
	}
	var rest []byte
	if len(frames) == 1 && len(b)+size > messageBytesMax {
		// A large frame is written from where it is, but for its beginning, which fills the first message.
		room := messageBytesMax - len(b)
		b, rest = append(b, frames[0][:room]...), frames[0][room:]
	} else {
		for _, frame := range frames {
			b = append(b, frame...)
		}
	}
	w.buffer = b
	if _, err := w.stream.Write(b); err != nil {
		return err
	}
	if len(rest) > 0 {
		if _, err := w.stream.Write(rest); err != nil {
			return err
		}
	}
	return nil
}

// gather writes the header, small frames copied behind it and large ones from where they are, with few system calls.
func (w *batchWriter) gather(b []byte, frames [][]byte) error {
	pieces, from := w.pieces[:0], 0
	for _, frame := range frames {
		if len(frame) < gatherMin {
			b = append(b, frame...)
			continue
		}
		pieces, from = append(pieces, b[from:], frame), len(b)
	}
	if from < len(b) {
		pieces = append(pieces, b[from:])
	}
	w.buffer, w.pieces, w.rest = b, pieces, pieces
	err := w.direct.writePieces(&w.rest)
	clear(pieces)
	return err
}

// slabBytes is the size of the buffers that small batches are read into, one after the other.
const slabBytes = 256 << 10

// batchReader takes batches off a stream. What it hands out is never written again, unless it is only lent.
type batchReader struct {
	stream   *bufio.Reader
	frameMax int
	lent     bool   // what is handed out is valid until the next read only
	slab     []byte // what is left of the buffer for small batches; where frames are lent, the buffer for all
	lengths  []byte // reused for every batch
}

func newBatchReader(stream io.Reader, frameMax int, lent bool) *batchReader {
	return &batchReader{stream: bufio.NewReaderSize(stream, 16<<10), frameMax: frameMax, lent: lent}
}

// read appends the next batch's frames, which must start with that number, to frames.
func (r *batchReader) read(frames [][]byte, first uint64) ([][]byte, error) {
	var header [batchHeaderSize]byte
	if _, err := io.ReadFull(r.stream, header[:]); err != nil {
		return frames, err
	}
	magic, count := binary.BigEndian.Uint16(header[:]), int(binary.BigEndian.Uint16(header[2:]))
	size, number := int(binary.BigEndian.Uint32(header[4:])), binary.BigEndian.Uint64(header[8:])
	bound := batchBytesMax
	if count == 1 {
		bound = r.frameMax
	}
	switch {
	case magic != batchMagic:
		return frames, fmt.Errorf("%w: batch starts with %#x", errProtocol, magic)
	case count == 0 || count > batchFramesMax:
		return frames, fmt.Errorf("%w: batch of %d frames", errProtocol, count)
	case size > bound:
		return frames, fmt.Errorf("%w: batch of %d bytes, the bound is %d", errProtocol, size, bound)
	case number != first:
		return frames, fmt.Errorf("%w: batch starts with frame %d instead of %d", errProtocol, number, first)
	}
	if cap(r.lengths) < count*lengthSize {
		r.lengths = make([]byte, count*lengthSize)
	}
	lengths := r.lengths[:count*lengthSize]
	if _, err := io.ReadFull(r.stream, lengths); err != nil {
		return frames, unexpected(err)
	}
	total := 0
	for i := range count {
		length := int(binary.BigEndian.Uint32(lengths[i*lengthSize:]))
		if length > r.frameMax || length > size-total {
			return frames, fmt.Errorf("%w: frame of %d bytes in a batch of %d", errProtocol, length, size)
		}
		total += length
	}
	if total != size {
		return frames, fmt.Errorf("%w: frames of %d bytes in a batch of %d", errProtocol, total, size)
	}
	body := r.room(size)
	if _, err := io.ReadFull(r.stream, body); err != nil {
		return frames, unexpected(err)
	}
	for i := range count {
		length := int(binary.BigEndian.Uint32(lengths[i*lengthSize:]))
		frames = append(frames, body[:length:length])
		body = body[length:]
	}
	return frames, nil
}

// room gives a buffer that nobody else has, unless it is lent. What is in it is anything.
func (r *batchReader) room(size int) []byte {
	if r.lent {
		if size > len(r.slab) {
			r.slab = unzeroed(max(size, min(2*len(r.slab), r.frameMax)))
		}
		return r.slab[:size]
	}
	if size > slabBytes/4 {
		return unzeroed(size)
	}
	if size > len(r.slab) {
		r.slab = unzeroed(slabBytes)
	}
	body := r.slab[:size:size]
	r.slab = r.slab[size:]
	return body
}

// unexpected turns an end in the middle of a batch into an error of its own.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
