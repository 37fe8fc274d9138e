package p2p

import (
	"fmt"
	"io"
	"syscall"

	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	// intakeBytes is the size of an agent's input buffer. It holds one read of the connection and
	// is small enough to stay in a processor's cache until the bytes are applied.
	intakeBytes = 128 << 10
	// promptBytes: answers to at most this many request bytes are sent before the agent looks for
	// more, because a caller may be waiting for them.
	promptBytes = 16 << 10
	// settleBytes: answers to this many request bytes are sent even if more arrive without a pause.
	settleBytes = 512 << 10
)

// intake is an agent's input. It hands out bytes in place, as soon as they have arrived.
type intake struct {
	wire     io.Reader
	eager    bool         // wire calls settle before it waits
	settle   func() error // sends the answers so far
	taken    int          // bytes since the last settle
	buffer   []byte       // buffer[from:to] is not yet taken
	from, to int
}

// newIntake makes the intake of a connection. It calls settle before it waits for more bytes.
func newIntake(stream io.Reader, settle func() error) (*intake, error) {
	in := &intake{wire: stream, settle: settle, buffer: make([]byte, intakeBytes)}
	if conn, direct := stream.(*directConn); direct {
		wire, err := conn.reader(settle)
		if err != nil {
			return nil, err
		}
		in.wire, in.eager = wire, true
	}
	return in, nil
}

// peek returns the next n bytes, at most intakeBytes, without taking them.
func (in *intake) peek(n int) ([]byte, error) {
	if err := in.fill(n); err != nil {
		return nil, err
	}
	return in.buffer[in.from : in.from+n], nil
}

// part returns some of the next left bytes, which go to that offset of a region. It returns the
// bytes that have arrived, cut at the end of a word of the region.
func (in *intake) part(offset, left int) ([]byte, error) {
	if err := in.fill(min(left, rdmanet.WordSize)); err != nil {
		return nil, err
	}
	n := min(left, in.to-in.from)
	if n < left {
		n -= (offset + n) % rdmanet.WordSize
	}
	return in.buffer[in.from : in.from+n], nil
}

// take takes bytes that peek or part returned.
func (in *intake) take(n int) {
	in.from += n
	in.taken += n
}

// fill reads until n bytes have arrived.
func (in *intake) fill(n int) error {
	for in.to-in.from < n {
		if in.from > 0 { // few bytes are left, at most a header, a name or a word
			in.from, in.to = 0, copy(in.buffer, in.buffer[in.from:in.to])
		}
		if !in.eager || in.taken <= promptBytes || in.taken >= settleBytes {
			if err := in.settle(); err != nil {
				return err
			}
			in.taken = 0
		}
		got, err := in.wire.Read(in.buffer[in.to:])
		in.to += got
		if err != nil && in.to-in.from < n {
			if in.to > in.from {
				err = unexpected(err)
			}
			return err
		}
	}
	return nil
}

// reader returns a reader of the connection that calls waiting before each wait.
func (c *directConn) reader(waiting func() error) (io.Reader, error) {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("direct connection: %w", err)
	}
	wire := &eagerReader{conn: raw, waiting: waiting}
	wire.attempt = wire.try
	if c.opener == nil {
		return wire, nil
	}
	return openedReader{c.opener, wire}, nil
}

// openedReader reads and opens sealed records.
type openedReader struct {
	opener *opener
	wire   io.Reader
}

// Read implements io.Reader.
func (r openedReader) Read(b []byte) (int, error) { return r.opener.read(r.wire, b) }

// eagerReader reads a connection. If nothing has arrived, it calls a function before it waits.
// Only one goroutine may use it at a time.
type eagerReader struct {
	conn    syscall.RawConn
	waiting func() error
	attempt func(fd uintptr) bool // the method value try, made once
	into    []byte
	n       int
	err     error
}

// Read implements io.Reader.
func (r *eagerReader) Read(b []byte) (int, error) {
	r.into = b
	err := r.conn.Read(r.attempt)
	r.into = nil
	switch {
	case err != nil:
		return 0, err
	case r.err != nil:
		return 0, r.err
	case r.n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// try makes one attempt to read. It returns false to wait and try again.
func (r *eagerReader) try(fd uintptr) bool {
	for {
		r.n, r.err = syscall.Read(int(fd), r.into)
		switch r.err {
		case nil:
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			r.err = r.waiting()
			return r.err != nil
		default:
			return true
		}
	}
}
