package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Reasons why a farewell ends before all of it was taken.
var (
	errTooLong = errors.New("it did not take all frames in time")
	errTooMuch = errors.New("there are too many bytes")
)

// farewell holds the frames that a run that ended still has to send to one of its members. If the
// member is in the next run, it gets them before that run's frames (inherit). If it is not, it gets
// them beside that run: the others do not wait for a member that leaves, but its last rounds may be
// in these frames. The member must take them within Config.Farewell. If they exceed
// Config.ParkedBytes, it gets none of them.
type farewell struct {
	run    uint64
	member order.ServerID
	lane   rdmanet.Lane
	bytes  int // in the queue when the run ended

	cancel context.CancelFunc // nil before it is sent
	done   chan struct{}
	queue  [][]byte // unsent frames; its goroutine owns them until done is closed
}

// part makes farewells of the unsent frames of a run that ended.
func (d *Driver) part(r *running) {
	for place := range r.outboxes {
		box, member := &r.outboxes[place], r.group.Members[place]
		if len(box.queue) == 0 || box.lost {
			continue
		}
		f := &farewell{run: r.group.Run, member: member, lane: box.lane, bytes: box.bytes,
			queue: box.queue}
		box.queue, box.bytes = nil, 0
		d.farewells = append(d.farewells, f)
	}
}

// bid sends the farewells that no run inherited, and drops those that are over. Each farewell has
// its own goroutine, and Close waits for them.
func (d *Driver) bid() {
	d.farewells = slices.DeleteFunc(d.farewells, (*farewell).over)
	for _, f := range d.farewells {
		if f.cancel != nil {
			continue
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), d.config.Farewell, errTooLong)
		f.cancel, f.done = cancel, make(chan struct{})
		d.ends.Go(func() {
			defer close(f.done)
			defer cancel()
			if err := f.send(ctx, d.config.ParkedBytes); err != nil &&
				!errors.Is(err, context.Canceled) {
				d.config.Logger.Info("a departed member does not get the end of its last run",
					"run", f.run, "member", f.member, "frames", len(f.queue), "cause", err)
				f.queue = nil
			}
		})
	}
}

// over reports whether everything was sent or given up.
func (f *farewell) over() bool {
	if f.cancel == nil {
		return false
	}
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// send sends the queue as the lane has room.
func (f *farewell) send(ctx context.Context, bytesMax int) error {
	if f.bytes > bytesMax {
		return fmt.Errorf("%w: %d bytes", errTooMuch, f.bytes)
	}
	for len(f.queue) > 0 {
		frames, _ := chunk(f.queue)
		err := f.lane.Send(ctx, f.queue[:frames]...)
		if errors.Is(err, rdmanet.ErrTooLarge) && frames > 1 {
			frames = 1
			err = f.lane.Send(ctx, f.queue[0])
		}
		switch {
		case err == nil:
			f.queue = f.queue[frames:]
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			return err
		}
	}
	return nil
}

// stop ends the sending and returns the unsent frames.
func (f *farewell) stop() [][]byte {
	if f.cancel != nil {
		f.cancel()
		<-f.done
	}
	return f.queue
}

// inherit takes over the unsent frames of earlier, ended runs to members of this run. The lanes
// carry them before this run's frames.
func (r *running) inherit() {
	d := r.driver
	d.farewells = slices.DeleteFunc(d.farewells, func(f *farewell) bool {
		place, found := slices.BinarySearch(r.group.Members, f.member)
		if !found {
			return false
		}
		box := &r.outboxes[place]
		for _, frame := range f.stop() {
			box.queue, box.bytes = append(box.queue, frame), box.bytes+len(frame)
		}
		if box.inherited = len(box.queue); box.inherited > 0 && !box.queued {
			box.queued = true
			r.touched = append(r.touched, order.ServerID(place))
		}
		return true
	})
}
