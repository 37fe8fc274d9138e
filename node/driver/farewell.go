package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Why a farewell ends that was not taken.
var (
	errTooLong = errors.New("it did not take all of it in time")
	errTooMuch = errors.New("it is too much")
)

// farewell is the rest of what a run that ended has to send to one of its members. Who is in the
// next run gets it before that run's frames (inherit). Who is not, gets it beside that run: the
// others do not wait for a member that leaves, and its last rounds may be in these frames. It has
// Config.Farewell for that, and what is more than Config.ParkedBytes it does not get.
type farewell struct {
	run    uint64
	member order.ServerID
	lane   rdmanet.Lane
	bytes  int // when the run ended

	cancel context.CancelFunc // nil before it is sent
	done   chan struct{}
	queue  [][]byte // what is left; its goroutine's until that is done
}

// part makes farewells of what an ended run has yet to send.
func (d *Driver) part(r *running) {
	for place := range r.outboxes {
		box, member := &r.outboxes[place], r.group.Members[place]
		if len(box.queue) == 0 || box.lost {
			continue
		}
		f := &farewell{run: r.group.Generation, member: member, lane: box.lane, bytes: box.bytes,
			queue: box.queue}
		box.queue, box.bytes = nil, 0
		d.farewells = append(d.farewells, f)
	}
}

// bid sends the farewells that no run inherited, each in a goroutine of its own that Close waits
// for, and forgets those that are over.
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
				d.config.Logger.Info("a member does not get the end of a run that it left with",
					"run", f.run, "member", f.member, "frames", len(f.queue), "cause", err)
				f.queue = nil
			}
		})
	}
}

// over tells whether everything was sent or given up.
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

// send puts the queue on the lane as that has room.
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

// stop ends the sending and gives what is left.
func (f *farewell) stop() [][]byte {
	if f.cancel != nil {
		f.cancel()
		<-f.done
	}
	return f.queue
}

// inherit takes over what earlier runs, which ended, have yet to send to members of this one. The
// lanes carry it before this run's frames.
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
