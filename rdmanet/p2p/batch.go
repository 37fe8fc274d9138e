package p2p

import (
	"io"
	"net"

	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// gatherMin is the size, in bytes, from which a frame is written without copying it. Smaller frames
// are copied together, because every piece has a cost.
const gatherMin = 4 << 10

// pieceWriter is the destination of batches. It writes the pieces in order without copying them. It
// may change the list.
type pieceWriter interface {
	writePieces(pieces *net.Buffers) error
}

// batchWriter writes batches to a connection.
type batchWriter struct {
	to     pieceWriter
	buffer []byte      // the header and small frames; reused for every batch
	pieces net.Buffers // reused for every batch
	rest   net.Buffers // the pieces that a write has not written yet
}

// write writes the frames as one batch; first is the number of the first of them. Small frames are
// copied behind the header, large ones are written without copying.
func (w *batchWriter) write(frames [][]byte, first uint64) error {
	b := lane.AppendBatchHeader(w.buffer[:0], frames, first)
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
	err := w.to.writePieces(&w.rest)
	clear(pieces)
	return err
}

// unexpected turns io.EOF in the middle of a message into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
