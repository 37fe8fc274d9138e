package p2p

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// tryWriter writes to a direct connection without waiting; it implements pieceWriter. It keeps what
// the connection does not take. Flush must have written that before the next call.
type tryWriter struct {
	conn *directConn
	raw  syscall.RawConn
	rest []byte // not yet written
	// buffer holds the pieces of a connection that is not sealed; reused.
	buffer []byte

	attempt func(fd uintptr) bool // the method value try, made once
	err     error
}

// tryWriter returns a writer that does not wait.
func (c *directConn) tryWriter() (*tryWriter, error) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("direct connection: %w", err)
	}
	w := &tryWriter{conn: c, raw: raw}
	w.attempt = w.try
	return w, nil
}

// writePieces implements pieceWriter.
func (w *tryWriter) writePieces(pieces *net.Buffers) error {
	w.conn.writing.Lock()
	defer w.conn.writing.Unlock()
	if sealer := w.conn.sealer; sealer != nil {
		w.rest = sealer.sealAll(*pieces)
	} else {
		w.buffer = w.buffer[:0]
		for _, piece := range *pieces {
			w.buffer = append(w.buffer, piece...)
		}
		w.rest = w.buffer
	}
	return errors.Join(w.raw.Write(w.attempt), w.err)
}

// try makes one attempt to write the rest. It never asks to be called again.
func (w *tryWriter) try(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), w.rest)
		switch err {
		case nil:
			w.rest = w.rest[n:]
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			w.err = err
			return true
		}
	}
}

// flush writes the rest, and waits as long as it takes.
func (w *tryWriter) flush() error {
	if len(w.rest) == 0 {
		return nil
	}
	w.conn.writing.Lock()
	defer w.conn.writing.Unlock()
	_, err := w.conn.tcp.Write(w.rest)
	w.rest = nil
	return err
}
