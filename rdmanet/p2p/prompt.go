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
	rest net.Buffers // not yet written; its memory is reused

	attempt func(fd uintptr) bool // the method value try, made once
	err     error
}

// tryWriter returns a writer that does not wait.
func (c *directConn) tryWriter() (*tryWriter, error) {
	raw, err := c.socket.SyscallConn()
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
	if out := w.conn.out; out != nil {
		w.rest = append(w.rest[:0], *pieces...)
		n, err := out.write(w.rest)
		w.rest = without(w.rest, n)
		return err
	}
	if sealer := w.conn.sealer; sealer != nil {
		w.rest = append(w.rest[:0], sealer.sealAll(*pieces))
	} else {
		w.rest = append(w.rest[:0], *pieces...)
	}
	return errors.Join(w.raw.Write(w.attempt), w.err)
}

// try makes one attempt to write the rest. It never asks to be called again.
func (w *tryWriter) try(fd uintptr) bool {
	for len(w.rest) > 0 {
		n, err := rawWrite(fd, w.rest)
		switch {
		case err == syscall.EAGAIN:
			return true
		case err != nil:
			w.err = err
			return true
		}
		w.rest = without(w.rest, n)
	}
	return true
}

// without returns the pieces without their first n bytes, in the same memory.
func without(pieces net.Buffers, n int) net.Buffers {
	whole := 0
	for whole < len(pieces) && n >= len(pieces[whole]) {
		n -= len(pieces[whole])
		whole++
	}
	left := copy(pieces, pieces[whole:])
	clear(pieces[left:])
	if pieces = pieces[:left]; left > 0 {
		pieces[0] = pieces[0][n:]
	}
	return pieces
}

// flush writes the rest, and waits as long as it takes.
func (w *tryWriter) flush() error {
	if len(w.rest) == 0 {
		return nil
	}
	w.conn.writing.Lock()
	defer w.conn.writing.Unlock()
	rest := w.rest
	var err error
	if out := w.conn.out; out != nil {
		err = out.writeAll(rest)
	} else {
		_, err = rest.WriteTo(w.conn.socket)
	}
	w.rest = w.rest[:0]
	return err
}
