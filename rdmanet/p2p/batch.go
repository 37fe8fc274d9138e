package p2p

import (
	"io"
	"net"

	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// gatherMin is the size from which a frame is written from where it is, in bytes. Smaller ones are
// copied together, for every piece has its price.
const gatherMin = 4 << 10

// pieceWriter is where batches go: it writes the pieces one behind the other, from where they are.
// The list is its to change.
type pieceWriter interface {
	writePieces(pieces *net.Buffers) error
}

// batchWriter puts batches on a connection.
type batchWriter struct {
	to     pieceWriter
	buffer []byte      // reused for every batch: the header, and small frames
	pieces net.Buffers // reused for every batch
	rest   net.Buffers // what a write has left of pieces
}

// write puts the frames on the connection as one batch, the first of them with that number: the
// header, small frames copied behind it and large ones from where they are.
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

// unexpected turns an end in the middle of something into an error of its own.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
