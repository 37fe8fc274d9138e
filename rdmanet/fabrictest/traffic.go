package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// pattern is the source of the frames' contents. Any two of its first 256 offsets differ.
var pattern = func() []byte {
	p := make([]byte, 256+(128<<10))
	for k := range p {
		p[k] = byte(k)
	}
	return p
}()

// frameOf makes frame number i: the number, then bytes derived from it. The frame has size bytes,
// but at least 8.
func frameOf(i uint64, size int) []byte {
	frame := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(frame, i)
	copy(frame[8:], pattern[i%256:])
	return frame
}

// checkFrame returns an error unless frame is number i and intact.
func checkFrame(frame []byte, i uint64) error {
	if len(frame) < 8 {
		return fmt.Errorf("frame %d has %d bytes", i, len(frame))
	}
	if number := binary.BigEndian.Uint64(frame); number != i {
		return fmt.Errorf("frame %d arrived in the place of frame %d", number, i)
	}
	if !bytes.Equal(frame[8:], pattern[i%256:][:len(frame)-8]) {
		return fmt.Errorf("frame %d of %d bytes is damaged", i, len(frame))
	}
	return nil
}

// inbox is a receiver that keeps all frames in order, with the events of its host in between.
type inbox struct {
	mu      sync.Mutex
	frames  []arrival
	changed chan struct{}
	gate    chan struct{} // receive waits until it is closed; nil: does not wait
	entered chan struct{} // closed by the first receive call
	once    sync.Once
}

type arrival struct {
	from  rdmanet.Peer
	frame []byte
	lost  bool // no frame: a LaneReset event
}

func newInbox() *inbox {
	return &inbox{changed: make(chan struct{}), entered: make(chan struct{})}
}

func newGatedInbox() *inbox {
	in := newInbox()
	in.gate = make(chan struct{})
	return in
}

func (in *inbox) receive(from rdmanet.Peer, frames [][]byte) {
	in.once.Do(func() { close(in.entered) })
	if in.gate != nil {
		<-in.gate
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, frame := range frames {
		in.frames = append(in.frames, arrival{from: from, frame: frame})
	}
	in.change()
}

// watch inserts LaneReset events between the frames.
func (in *inbox) watch(event rdmanet.PeerEvent) {
	if event.Kind != rdmanet.LaneReset {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.frames = append(in.frames, arrival{from: event.Peer, lost: true})
	in.change()
}

// forget empties the inbox.
func (in *inbox) forget() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.frames = nil
}

func (in *inbox) change() {
	close(in.changed)
	in.changed = make(chan struct{})
}

func (in *inbox) count() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.frames)
}

// wait returns everything that arrived, once holds returns true for it.
func (in *inbox) wait(ctx context.Context, what string, holds func([]arrival) bool) ([]arrival,
	error) {
	for {
		in.mu.Lock()
		frames, changed := in.frames[:len(in.frames):len(in.frames)], in.changed
		in.mu.Unlock()
		if holds(frames) {
			return frames, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return frames, fmt.Errorf("waited in vain for %s: %d frames arrived", what, len(frames))
		}
	}
}

// waitCount waits for count frames and checks that they are numbers 0 to count-1 from that peer.
func (in *inbox) waitCount(ctx context.Context, from rdmanet.Peer, count int) error {
	frames, waitErr := in.wait(ctx, fmt.Sprintf("%d frames", count), func(a []arrival) bool {
		return len(a) >= count
	})
	for i, a := range frames {
		if a.lost {
			return fmt.Errorf("frames were given up before frame %d", i)
		}
		if a.from != from {
			return fmt.Errorf("frame %d comes from %s instead of %s", i, a.from, from)
		}
		if err := checkFrame(a.frame, uint64(i)); err != nil {
			return err
		}
	}
	if waitErr != nil {
		return waitErr
	}
	if len(frames) > count {
		return fmt.Errorf("%d frames arrived, %d were sent", len(frames), count)
	}
	return nil
}

// quiet returns an error if a frame arrives in the next moment. A frame that arrives after a flush
// is a duplicate.
func (in *inbox) quiet(ctx context.Context, count int) error {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	in.mu.Lock()
	changed := in.changed
	in.mu.Unlock()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
	if now := in.count(); now != count {
		return fmt.Errorf("%d frames arrived, %d were sent", now, count)
	}
	return nil
}

// events keeps the events that a host reports about its peers.
type events struct {
	mu      sync.Mutex
	list    []rdmanet.PeerEvent
	changed chan struct{}
}

func watchEvents(h rdmanet.Host) *events {
	e := &events{changed: make(chan struct{})}
	h.Watch(func(event rdmanet.PeerEvent) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, event)
		close(e.changed)
		e.changed = make(chan struct{})
	})
	return e
}

// wait returns the first event of that kind.
func (e *events) wait(ctx context.Context, kind rdmanet.EventKind) (rdmanet.PeerEvent, error) {
	for {
		e.mu.Lock()
		list, changed := e.list, e.changed
		e.mu.Unlock()
		for _, event := range list {
			if event.Kind == kind {
				return event, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return rdmanet.PeerEvent{}, fmt.Errorf("waited in vain for a %q event, got %v", kind,
				list)
		}
	}
}

// pair starts members 0 and 1 and opens a lane "test" between them, with a receiver at member 1.
func pair(f Fabric, in *inbox) (from, to rdmanet.Host, lane rdmanet.Lane, err error) {
	if from, err = f.Start(0); err != nil {
		return nil, nil, nil, err
	}
	if to, err = startReceiver(f, 1, in); err != nil {
		return nil, nil, nil, err
	}
	lane, err = from.Lane(f.ID(1), "test")
	return from, to, lane, err
}

// connectedPair is pair for a mend timeout that a busy machine may take to connect for the first
// time: it opens lanes until one is connected. The inbox is empty then.
func connectedPair(ctx context.Context, f Fabric, in *inbox) (from, to rdmanet.Host,
	lane rdmanet.Lane, err error) {
	from, to, lane, err = pair(f, in)
	for err == nil {
		if err = send(ctx, lane, 0, 1, 8); err == nil {
			err = lane.Flushed(ctx)
		}
		if !errors.Is(err, rdmanet.ErrUnreachable) {
			break
		}
		lane, err = from.Lane(f.ID(1), "test")
	}
	in.forget()
	return from, to, lane, err
}

func startReceiver(f Fabric, i int, in *inbox) (rdmanet.Host, error) {
	h, err := f.Start(i)
	if err != nil {
		return nil, err
	}
	h.Watch(in.watch)
	return h, h.Receive("test", in.receive)
}

func peerOf(h rdmanet.Host) rdmanet.Peer {
	return rdmanet.Peer{ID: h.ID(), Incarnation: h.Incarnation()}
}

// send sends the frames with numbers first to before-1. Their sizes cycle through sizes.
func send(ctx context.Context, lane rdmanet.Lane, first, before uint64, sizes ...int) error {
	for i := first; i < before; i++ {
		if err := lane.Send(ctx, frameOf(i, sizes[int(i)%len(sizes)])); err != nil {
			return fmt.Errorf("send frame %d: %w", i, err)
		}
	}
	return nil
}

// sendUntilBlocked sends in the background until the lane breaks, and waits until the inbox has a
// frame, which it takes only when its gate opens. The channel gets the lane's error. A lane that
// breaks earlier, because a busy machine did not connect within the mend timeout, is followed by
// another one to the same peer.
func sendUntilBlocked(ctx context.Context, from rdmanet.Host, lane rdmanet.Lane,
	in *inbox) (<-chan error, error) {
	for {
		broken := make(chan error, 1)
		go func() {
			_, err := sendUntilError(ctx, lane, 0)
			broken <- err
		}()
		select {
		case <-in.entered:
			return broken, nil
		case <-broken:
			var err error
			if lane, err = from.Lane(lane.Peer(), "test"); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, errors.New("nothing arrives")
		}
	}
}

// sendUntilError sends until the lane breaks. It returns the lane's error and the number of
// accepted frames.
func sendUntilError(ctx context.Context, lane rdmanet.Lane, first uint64) (uint64, error) {
	for i := first; ; i++ {
		if err := lane.Send(ctx, frameOf(i, 64)); err != nil {
			return i, err
		}
		if i%64 == 0 {
			// Do not overload the lane in the meantime.
			if err := pause(ctx, time.Millisecond); err != nil {
				return i, err
			}
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// within runs work under a deadline and returns an error if it passes. A busy machine may be late
// to notice.
func within(ctx context.Context, limit time.Duration, what string,
	work func(context.Context) error) error {
	limit = patience(ctx, limit)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work(limited) }()
	select {
	case err := <-done:
		if limited.Err() != nil {
			return fmt.Errorf("%s did not end within %s: %v", what, limit, err)
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s hangs", what)
	case <-time.After(limit + mendSlack):
		return fmt.Errorf("%s hangs, beyond its context", what)
	}
}

// want returns an error unless err matches target.
func want(what string, err, target error) error {
	if !errors.Is(err, target) {
		return fmt.Errorf("%s: got error %v, want %q", what, err, target)
	}
	return nil
}

// together runs all functions concurrently and returns the first error.
func together(work ...func() error) error {
	errs := make(chan error, len(work))
	for _, w := range work {
		go func() { errs <- w() }()
	}
	var first error
	for range work {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
