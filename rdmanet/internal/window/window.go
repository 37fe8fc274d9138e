// Package window holds the sending half of a lane, the same for every provider: a bounded queue of
// numbered frames that remembers what the peer has not acknowledged.
//
// A frame gets the next number when it is pushed, from 0. Three numbers cut the queue: base is the
// first frame not yet acknowledged, taken the first not yet handed to the wire, next the number of
// the next frame pushed. What always holds:
//
//   - base <= taken <= next, and next - base and the bytes in between are within the limits;
//   - frames leave in the order of their numbers; after Rewind the same frames leave again under
//     the same numbers;
//   - senders that wait for room are served in their order, and nobody overtakes them;
//   - after Break every call returns at once.
//
// The provider's loop: wait on Ready, Take, put the frames on the wire, Ack what the peer says,
// Rewind to what it says after a reconnect, Break when the lane is lost.
package window

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Limits bound what one lane holds.
type Limits struct {
	// Bytes and Frames bound what is pushed and not yet acknowledged.
	Bytes  int
	Frames int
	// FrameBytes bounds one frame; at most Bytes.
	FrameBytes int
}

// Defaults are the limits of a lane whose host was not told otherwise.
var Defaults = Limits{Bytes: 32 << 20, Frames: 64 << 10, FrameBytes: 16 << 20}

// WithDefaults fills what is zero: the frames' and bytes' bounds from Defaults, the frame bound
// with the smaller of Defaults' and Bytes.
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

// Check says what is wrong with the limits.
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

// ringSizeMin is the size of a queue's ring when the first frame comes; it doubles with need.
const ringSizeMin = 64

// Window is one lane's queue. All methods may be called from several goroutines; Take and Rewind
// only from the lane's own.
type Window struct {
	limits Limits

	mu      sync.Mutex
	ring    [][]byte // frame i is at i & (len(ring)-1), a power of two
	base    uint64
	taken   uint64
	sent    uint64 // the highest taken ever: what the peer can know of
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

// flush is one caller that waits until base reaches target.
type flush struct {
	target  uint64
	reached chan struct{}
}

// New gives an empty window. The limits must have passed Check.
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

// Push queues all frames or none, waiting for room until ctx ends or the window refuses.
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

// pushWaiting is Push once there was no room: it takes its turn among the waiting senders, then
// waits for acknowledgements.
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

// TryPush is Push that does not wait: false when there is no room or others wait for it.
func (w *Window) TryPush(frames [][]byte) (bool, error) {
	size, err := w.size(frames)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	if w.refusal != nil {
		err := w.refusal
		w.mu.Unlock()
		return false, err
	}
	if w.waiting > 0 || !w.fits(len(frames), size) {
		w.mu.Unlock()
		return false, nil
	}
	idle := w.put(frames, size)
	w.mu.Unlock()
	if idle {
		notify(w.ready)
	}
	return true, nil
}

// size checks a call's frames against the limits and adds up their bytes.
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

// put appends the frames and says whether the taker had nothing left before.
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

// Ready carries a token when frames may have come to an empty window; Take then tells.
func (w *Window) Ready() <-chan struct{} { return w.ready }

// Take appends to frames the next ones for the wire, at most framesMax of them and no further frame
// once bytesMax is reached, and gives the number of the first. It never waits; it gives none when
// there is none or the window is broken.
func (w *Window) Take(frames [][]byte, framesMax, bytesMax int) (taken [][]byte, first uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
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

// Ack forgets the frames before number acked, which the peer has taken. It reports false for a
// number that the peer cannot know of; a number that was acknowledged before changes nothing.
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

// Rewind makes Take start again at number from, what the peer wants next after a reconnect. It
// reports false when that frame is not there: the peer lost its state, or claims frames that were
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

// Flushed waits until every frame pushed before the call is acknowledged; if that is so already, it
// is no matter that the window broke since.
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

// Pending is the number of frames not yet acknowledged; after Break, the number that was given up.
func (w *Window) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int(w.next - w.base)
}

// Seal refuses further frames with err; what is queued still leaves. Only the first of Seal's and
// Break's errors counts.
func (w *Window) Seal(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse(err)
}

// Break ends the window: frames are refused with err and those not acknowledged are given up.
// Breaking again changes nothing. It reports whether this call broke it.
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

// Refusal is the error that sends get, nil as long as frames are accepted.
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

// Done is closed by Break.
func (w *Window) Done() <-chan struct{} { return w.done }

// notify leaves a token for the one goroutine that waits on c, unless one is there.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
