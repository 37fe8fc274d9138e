// Package window implements the sending half of a lane, in the same way for every provider: a
// bounded queue of numbered frames that keeps the frames that the peer has not acknowledged.
//
// A frame gets the next number when it is pushed, starting from 0. Three numbers divide the queue:
// base is the first frame not yet acknowledged, taken is the first not yet handed to the wire, next
// is the number of the next frame pushed. Invariants:
//
//   - base <= taken <= next, and next - base and the bytes in between are within the limits;
//   - frames leave in the order of their numbers; after Rewind the same frames leave again under
//     the same numbers;
//   - senders that wait for room are served in their order, and none overtakes another;
//   - after Break every call returns at once.
//
// A provider's loop: wait on Ready, Take, put the frames on the wire, Ack the peer's
// acknowledgements, Rewind to the peer's next number after a reconnect, Break when the lane is
// lost.
package window

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Limits bounds the frames that one lane holds.
type Limits struct {
	// Bytes and Frames bound the frames that are pushed and not yet acknowledged.
	Bytes  int
	Frames int
	// FrameBytes bounds one frame. It is at most Bytes.
	FrameBytes int
}

// Defaults are the limits of a lane whose host has no other setting.
var Defaults = Limits{Bytes: 32 << 20, Frames: 64 << 10, FrameBytes: 16 << 20}

// WithDefaults fills in zero fields: Bytes with the larger of the default and FrameBytes, Frames
// with the default, FrameBytes with the smaller of the default and Bytes.
func (l Limits) WithDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = max(Defaults.Bytes, l.FrameBytes)
	}
	if l.Frames == 0 {
		l.Frames = Defaults.Frames
	}
	if l.FrameBytes == 0 {
		l.FrameBytes = min(Defaults.FrameBytes, l.Bytes)
	}
	return l
}

// Check returns an error if the limits are invalid.
func (l Limits) Check() error {
	switch {
	case l.Frames < 1:
		return fmt.Errorf("a window of %d frames: want at least 1", l.Frames)
	case l.FrameBytes < 1:
		return fmt.Errorf("a frame bound of %d bytes: want at least 1", l.FrameBytes)
	case l.Bytes < l.FrameBytes:
		return fmt.Errorf("a window of %d bytes cannot hold a frame of %d", l.Bytes, l.FrameBytes)
	}
	return nil
}

// ringSizeMin is the size of a queue's ring at the first frame. The ring doubles as needed.
const ringSizeMin = 64

// Window is one lane's queue. All methods may be called from several goroutines, except Take,
// TakeAll and Rewind, which one goroutine at a time may call.
type Window struct {
	limits Limits

	mu      sync.Mutex
	ring    [][]byte // frame i is at i & (len(ring)-1); the length is a power of two
	base    uint64
	taken   uint64
	sent    uint64 // the highest value of taken so far: the peer can know of no later frame
	next    uint64
	bytes   int // of the frames from base to next
	waiting int // senders that wait for room or for their turn
	refusal error
	broken  bool
	flushes []flush

	turn    chan struct{} // held by the sender that waits for room
	room    chan struct{} // room may have come
	ready   chan struct{} // a frame may be there to take
	refused chan struct{} // closed with refusal set
	done    chan struct{} // closed when broken
}

// flush is a caller waiting until base reaches target.
type flush struct {
	target  uint64
	reached chan struct{}
}

// New returns an empty window. The limits must have passed Check.
func New(limits Limits) *Window {
	return &Window{
		limits:  limits,
		turn:    make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
		ready:   make(chan struct{}, 1),
		refused: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

// Push queues all frames or none. It waits for room until ctx ends or the window refuses frames.
func (w *Window) Push(ctx context.Context, frames [][]byte) error {
	size, err := w.size(frames)
	if err != nil {
		return err
	}
	w.mu.Lock()
	if w.refusal != nil {
		err := w.refusal
		w.mu.Unlock()
		return err
	}
	if w.waiting == 0 && w.fits(len(frames), size) {
		idle := w.put(frames, size)
		w.mu.Unlock()
		if idle {
			notify(w.ready)
		}
		return nil
	}
	w.waiting++
	w.mu.Unlock()
	return w.pushWaiting(ctx, frames, size)
}

// pushWaiting is the part of Push that waits for room. It takes its turn among the waiting senders,
// then waits for acknowledgements.
func (w *Window) pushWaiting(ctx context.Context, frames [][]byte, size int) error {
	defer func() {
		w.mu.Lock()
		w.waiting--
		w.mu.Unlock()
	}()
	select {
	case w.turn <- struct{}{}:
	case <-w.refused:
		return w.Refusal()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.turn }()
	for {
		w.mu.Lock()
		if w.refusal != nil {
			err := w.refusal
			w.mu.Unlock()
			return err
		}
		if w.fits(len(frames), size) {
			idle := w.put(frames, size)
			w.mu.Unlock()
			if idle {
				notify(w.ready)
			}
			return nil
		}
		w.mu.Unlock()
		select {
		case <-w.room:
		case <-w.refused:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TryPush is like Push but does not wait. It returns false if there is no room or other senders
// wait for it.
func (w *Window) TryPush(frames [][]byte) (bool, error) {
	pushed, idle, err := w.Offer(frames)
	if idle {
		w.Wake()
	}
	return pushed, err
}

// Offer is TryPush for a caller that may put the frames on the wire itself. It reports whether
// there was nothing to take before. Then the caller must see to it that the frames are taken: with
// the lane's own goroutine held off, or by Wake.
func (w *Window) Offer(frames [][]byte) (pushed, idle bool, err error) {
	size, err := w.size(frames)
	if err != nil {
		return false, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refusal != nil {
		return false, false, w.refusal
	}
	if w.waiting > 0 || !w.fits(len(frames), size) {
		return false, false, nil
	}
	return true, w.put(frames, size), nil
}

// Wake leaves a token on Ready.
func (w *Window) Wake() { notify(w.ready) }

// size checks the frames of a call against the limits and returns their total size in bytes.
func (w *Window) size(frames [][]byte) (int, error) {
	if len(frames) > w.limits.Frames {
		return 0, fmt.Errorf("%w: %d frames in one call, the window holds %d", rdmanet.ErrTooLarge,
			len(frames), w.limits.Frames)
	}
	size := 0
	for _, frame := range frames {
		if len(frame) > w.limits.FrameBytes {
			return 0, fmt.Errorf("%w: a frame of %d bytes, the bound is %d", rdmanet.ErrTooLarge,
				len(frame), w.limits.FrameBytes)
		}
		size += len(frame)
	}
	if size > w.limits.Bytes {
		return 0, fmt.Errorf("%w: %d bytes in one call, the window holds %d", rdmanet.ErrTooLarge,
			size, w.limits.Bytes)
	}
	return size, nil
}

func (w *Window) fits(frames, size int) bool {
	return int(w.next-w.base)+frames <= w.limits.Frames && w.bytes+size <= w.limits.Bytes
}

// put appends the frames. It reports whether there was nothing left to take before.
func (w *Window) put(frames [][]byte, size int) (idle bool) {
	idle = w.taken == w.next && len(frames) > 0
	if need := int(w.next-w.base) + len(frames); need > len(w.ring) {
		w.grow(need)
	}
	mask := uint64(len(w.ring) - 1)
	for _, frame := range frames {
		w.ring[w.next&mask] = frame
		w.next++
	}
	w.bytes += size
	return idle
}

func (w *Window) grow(need int) {
	size := max(len(w.ring), ringSizeMin)
	for size < need {
		size *= 2
	}
	ring := make([][]byte, size)
	for i := w.base; i < w.next; i++ {
		ring[i&uint64(size-1)] = w.ring[i&uint64(len(w.ring)-1)]
	}
	w.ring = ring
}

// Ready returns a channel that carries a token when frames may have arrived in an empty window.
// Call Take to find out.
func (w *Window) Ready() <-chan struct{} { return w.ready }

// Take appends the next frames for the wire to frames: at most framesMax of them, and none that
// would exceed bytesMax unless it is the first. It returns the number of the first frame. It never
// waits. It adds no frame if there is none or the window is broken.
func (w *Window) Take(frames [][]byte, framesMax, bytesMax int) (taken [][]byte, first uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.take(frames, framesMax, bytesMax)
}

// TakeAll is like Take, but takes either all frames or, if they exceed a bound, none. It reports
// whether no frame is left to take.
func (w *Window) TakeAll(frames [][]byte, framesMax, bytesMax int) (taken [][]byte, first uint64,
	all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return frames, w.taken, true
	}
	mask, size := uint64(len(w.ring)-1), 0
	for i := w.taken; i < w.next; i++ {
		if size += len(w.ring[i&mask]); size > bytesMax || int(i-w.taken) >= framesMax {
			return frames, w.taken, false
		}
	}
	taken, first = w.take(frames, framesMax, bytesMax)
	return taken, first, true
}

func (w *Window) take(frames [][]byte, framesMax, bytesMax int) (taken [][]byte, first uint64) {
	first = w.taken
	if w.broken {
		return frames, first
	}
	mask := uint64(len(w.ring) - 1)
	for size := 0; w.taken < w.next && int(w.taken-first) < framesMax; w.taken++ {
		frame := w.ring[w.taken&mask]
		size += len(frame)
		if size > bytesMax && w.taken > first {
			break
		}
		frames = append(frames, frame)
	}
	w.sent = max(w.sent, w.taken)
	return frames, first
}

// Ack removes the frames before number acked, which the peer has taken. It returns false for a
// number that the peer cannot know. A number that was acknowledged before changes nothing.
func (w *Window) Ack(acked uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return true
	}
	if acked > w.sent {
		return false
	}
	if acked <= w.base {
		return true
	}
	mask := uint64(len(w.ring) - 1)
	for ; w.base < acked; w.base++ {
		slot := &w.ring[w.base&mask]
		w.bytes -= len(*slot)
		*slot = nil
	}
	w.taken = max(w.taken, w.base)
	if w.waiting > 0 {
		notify(w.room)
	}
	if len(w.flushes) > 0 {
		w.wakeFlushes()
	}
	return true
}

func (w *Window) wakeFlushes() {
	kept := w.flushes[:0]
	for _, f := range w.flushes {
		if f.target <= w.base {
			close(f.reached)
		} else {
			kept = append(kept, f)
		}
	}
	clear(w.flushes[len(kept):])
	w.flushes = kept
}

// Rewind makes Take continue at number from, the frame that the peer wants next after a reconnect.
// It returns false if that frame is not there: the peer lost its state, or claims frames that were
// never on the wire.
func (w *Window) Rewind(from uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if from < w.base || from > w.sent {
		return false
	}
	w.taken = from
	if w.taken < w.next {
		notify(w.ready)
	}
	return true
}

// Flushed waits until every frame pushed before the call is acknowledged. If all are acknowledged
// already, it returns nil even if the window has broken since.
func (w *Window) Flushed(ctx context.Context) error {
	w.mu.Lock()
	if w.base == w.next {
		w.mu.Unlock()
		return nil
	}
	if w.broken {
		defer w.mu.Unlock()
		return w.refusal
	}
	f := flush{target: w.next, reached: make(chan struct{})}
	w.flushes = append(w.flushes, f)
	w.mu.Unlock()
	select {
	case <-f.reached:
		return nil
	case <-w.done:
		return w.Refusal()
	case <-ctx.Done():
		w.mu.Lock()
		for i := range w.flushes {
			if w.flushes[i].reached == f.reached {
				w.flushes = append(w.flushes[:i], w.flushes[i+1:]...)
				break
			}
		}
		w.mu.Unlock()
		return ctx.Err()
	}
}

// Pending returns the number of frames not yet acknowledged. After Break this is the number given
// up.
func (w *Window) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int(w.next - w.base)
}

// Seal refuses further frames with err. Queued frames still leave. Only the first error given to
// Seal or Break counts.
func (w *Window) Seal(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse(err)
}

// Break ends the window: it refuses frames with err and gives up those not acknowledged. It reports
// whether this call broke the window. Later calls change nothing.
func (w *Window) Break(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return false
	}
	w.broken = true
	w.refuse(err)
	w.ring = nil
	close(w.done)
	return true
}

func (w *Window) refuse(err error) {
	if w.refusal == nil {
		w.refusal = err
		close(w.refused)
	}
}

// Refusal returns the error that senders get, or nil while frames are accepted.
func (w *Window) Refusal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusal
}

// Broken reports whether Break was called.
func (w *Window) Broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

// Done returns a channel that Break closes.
func (w *Window) Done() <-chan struct{} { return w.done }

// notify leaves a token for the one goroutine that waits on c, unless there is one already.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
