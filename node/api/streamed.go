package api

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api/intake"
)

type streamKey struct{}

// withinEach is within for a call whose client streams requests: each request has a reservation of
// its own.
func (r *requests) withinEach(next http.Handler, limits intake.Limits, w http.ResponseWriter,
	request *http.Request) {
	var body *streamedBody
	address := hostOf(request.RemoteAddr)
	if reservation := r.budget.Open(address); reservation != nil {
		defer reservation.Close()
		body = &streamedBody{ReadCloser: request.Body, limits: limits,
			open: func() *intake.Reservation { return r.budget.Open(address) }}
		if timed, is := request.Body.(*timedBody); is {
			body.takeOver(timed, r.idleTime)
			defer body.end()
		}
		defer body.release()
		request.Body = body
	}
	next.ServeHTTP(w, request.WithContext(context.WithValue(request.Context(), streamKey{}, body)))
	if body != nil && body.read > 0 && request.Context().Err() == nil {
		r.offences.offend(request.Context(), offenceRequest, 1+body.read/bytesPerOffence)
	}
}

// streamedBodyOf returns the body of a call whose client streams requests. It is nil if the budget
// is spent, and for other calls.
func streamedBodyOf(ctx context.Context) *streamedBody {
	body, _ := ctx.Value(streamKey{}).(*streamedBody)
	return body
}

// prefixBytes is the length of what precedes each message of a stream in Connect, gRPC and
// gRPC-Web: a byte of flags, and the length of the message in four bytes.
const prefixBytes = 5

// streamedBody bounds each request that arrives on a stream: its bytes, its memory, and its time.
// One goroutine at a time uses it, except for cut and reset.
type streamedBody struct {
	io.ReadCloser
	limits intake.Limits
	open   func() *intake.Reservation

	timer    *time.Timer   // calls cut; nil if the transport has no deadlines
	idle     time.Duration // that a client may send nothing
	patience time.Duration // beyond the time that the least rate allows for a request

	mutex      sync.Mutex
	controller *http.ResponseController // nil once the call is over, when it must not be used

	prefix  [prefixBytes]byte
	arrived int // bytes of the prefix
	left    int // bytes of the request to come
	// read counts the bytes of the request that arrives, or that was refused for its form.
	read        int
	head        [numberBytes]byte // the first bytes of the request
	reservation *intake.Reservation
	poor        bool // there is no memory for the request
	skipping    bool // the rest of a request for which there was none
	failed      error
}

// takeOver replaces the deadlines of a request as a whole by those of a stream.
func (b *streamedBody) takeOver(timed *timedBody, idle time.Duration) {
	b.ReadCloser, b.controller = timed.ReadCloser, timed.controller
	b.idle, b.patience = idle, timed.patience
	_ = b.controller.SetReadDeadline(time.Time{})
	b.timer = time.AfterFunc(idle, b.cut)
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// cut ends the stream for its reader, after what has arrived already.
func (b *streamedBody) cut() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.controller != nil {
		_ = b.controller.SetReadDeadline(past)
	}
}

// reset ends the stream in both directions.
func (b *streamedBody) reset() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.controller != nil {
		_ = b.controller.SetWriteDeadline(past)
	}
}

// end ends the use of the call's deadlines.
func (b *streamedBody) end() {
	b.timer.Stop()
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.controller = nil
}

// Read implements io.Reader. It never reads beyond the end of a request.
func (b *streamedBody) Read(buffer []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	if b.skipping {
		if err := b.skip(); err != nil {
			return 0, err
		}
	}
	if b.left == 0 {
		return b.readPrefix(buffer)
	}
	n, err := b.ReadCloser.Read(buffer[:min(len(buffer), b.left)])
	if b.read < len(b.head) {
		copy(b.head[b.read:], buffer[:n])
	}
	before := b.read
	b.read += n
	b.left -= n
	if !b.poor && !b.reservation.Grow(b.limits.Needs(b.read)-b.limits.Needs(before)) {
		b.poor = true
	}
	if b.poor && b.read >= min(len(b.head), b.read+b.left) {
		return 0, overBudget()
	}
	return n, err
}

// readPrefix reads what precedes a request, and begins the request once all of it is there.
func (b *streamedBody) readPrefix(buffer []byte) (int, error) {
	if b.arrived == 0 && b.timer != nil {
		b.timer.Reset(b.idle)
	}
	n, err := b.ReadCloser.Read(buffer[:min(len(buffer), prefixBytes-b.arrived)])
	copy(b.prefix[b.arrived:], buffer[:n])
	if b.arrived += n; b.arrived < prefixBytes {
		return n, err
	}
	size := int64(binary.BigEndian.Uint32(b.prefix[1:]))
	b.release()
	b.arrived, b.left, b.read = 0, int(size), 0
	if b.timer != nil {
		b.timer.Reset(b.patience + time.Duration(size)*time.Second/leastRate)
	}
	if size > int64(b.limits.Bytes) {
		b.read = prefixBytes // an offence, even if nothing more comes
		b.failed = connect.NewError(connect.CodeResourceExhausted, fmt.Errorf(
			"the request has %d bytes, at most %d are allowed", size, b.limits.Bytes))
		return n, nil
	}
	b.reservation = b.open()
	b.poor = b.reservation == nil
	return n, nil
}

// skip reads the rest of a request for which there was no memory.
func (b *streamedBody) skip() error {
	scratch := make([]byte, min(b.left, 16<<10))
	for b.left > 0 {
		n, err := b.ReadCloser.Read(scratch[:min(len(scratch), b.left)])
		if b.left -= n; err != nil && b.left > 0 {
			return err
		}
	}
	b.skipping = false
	return nil
}

// accept ends a request that was decoded. The caller gets its reservation, without that of the
// encoded form, and closes it.
func (b *streamedBody) accept() *intake.Reservation {
	if b.timer != nil {
		b.timer.Stop()
	}
	reservation := b.reservation
	if reservation != nil {
		reservation.Shrink(b.limits.Encoded(b.read))
	}
	b.reservation, b.read, b.poor = nil, 0, false
	return reservation
}

// release gives back what the request that arrives has reserved.
func (b *streamedBody) release() {
	if b.reservation != nil {
		b.reservation.Close()
		b.reservation = nil
	}
}

// refused returns the number of the request that was just refused because there is no memory for
// it. Otherwise, and for a request that does not begin with its number, ok is false.
func (b *streamedBody) refused() (number uint64, ok bool) {
	if !b.poor {
		return 0, false
	}
	number, ok = numberOf(b.head[:min(b.read, len(b.head))])
	b.release()
	b.read, b.poor, b.skipping = 0, false, b.left > 0
	return number, ok
}

// numberBytes is the most that a request's number takes at its beginning.
const numberBytes = 1 + binary.MaxVarintLen64

// numberOf returns the number of a request in protobuf's wire form, of which it gets the first
// numberBytes.
func numberOf(head []byte) (uint64, bool) {
	const tag = 1 << 3 // field 1, a varint
	switch {
	case len(head) > 0 && head[0] == 2<<3|2: // a number of 0 is left out
		return 0, true
	case len(head) == 0 || head[0] != tag:
		return 0, false
	}
	number, length := binary.Uvarint(head[1:])
	return number, length > 0
}

// between reports whether no request has begun to arrive since the last one.
func (b *streamedBody) between() bool { return b.left == 0 && b.arrived == 0 }

// forgive makes the request that arrives no offence.
func (b *streamedBody) forgive() { b.read = 0 }
