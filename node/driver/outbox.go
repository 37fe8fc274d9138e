package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Limits of one call of TrySend, unless it carries a single frame. They are well below every
// provider's window.
const (
	chunkBytes  = 512 << 10
	chunkFrames = 512
)

// outbox holds frames for one member. Frames wait in it from the engine's Ready to the end of the
// turn, or longer while the lane has no room. It belongs to the goroutine that takes the turn.
type outbox struct {
	lane   rdmanet.Lane // nil for this server itself
	queue  [][]byte
	bytes  int
	total  uint64 // how many frames the lane has taken in this run
	queued bool   // it is in running.touched
	parked bool   // a goroutine waits for room with the first frames of the queue
	lost   bool   // the lane broke, or nothing more is to be sent

	parkedAt  time.Time // when the lane ran out of room
	inherited int       // how many frames of the previous run are at the start of the queue
}

// unparked is the result of a wait for room.
type unparked struct {
	server order.ServerID
	frames int
	err    error
}

// parkedFramesMax bounds the frames that wait for one member of a group of n, if the member takes
// nothing and no round is complete without it. The package comment explains why. Terms: messages
// and votes under way, once more for each failure; then notifications.
func parkedFramesMax(n int) int {
	const rounds, votes = 3, 2 * 2 // in both directions, of both phases
	return n*(rounds*n+rounds*votes*n) + 2*n*n + 64
}

// errBehind is the reason to give up a running member whose lane takes nothing.
var errBehind = errors.New("its lane takes no frames, and too many wait for it")

// enqueue appends the engine's sends to the outboxes.
func (r *running) enqueue(sends []order.Send) {
	for i := range sends {
		send := &sends[i]
		for _, server := range send.To {
			box := &r.outboxes[server]
			if box.lost || box.lane == nil {
				continue
			}
			if r.watching.on {
				r.noteFrame(rounds.Sent, r.place, server, send.Frame)
			}
			box.queue = append(box.queue, send.Frame)
			box.bytes += len(send.Frame)
			if !box.queued {
				box.queued = true
				r.touched = append(r.touched, server)
			}
		}
	}
}

// flush sends the frames enqueued in this turn of the loop, with one call per lane.
func (r *running) flush() {
	for _, server := range r.touched {
		box := &r.outboxes[server]
		box.queued = false
		if !box.parked && !box.lost {
			r.sendQueue(server, box)
		}
		if len(box.queue) > r.parkedMax+box.inherited {
			r.giveUpMember(server, fmt.Errorf("%w: %d frames", errBehind, len(box.queue)))
		}
	}
	r.touched = r.touched[:0]
}

// sendQueue sends the queue as far as the lane has room, and parks the rest.
func (r *running) sendQueue(server order.ServerID, box *outbox) {
	for len(box.queue) > 0 {
		frames, bytes := chunk(box.queue)
		sent, err := box.lane.TrySend(box.queue[:frames]...)
		for errors.Is(err, rdmanet.ErrTooLarge) && frames > 1 {
			frames, bytes = 1, len(box.queue[0])
			sent, err = box.lane.TrySend(box.queue[0])
		}
		switch {
		case err != nil:
			r.giveUpMember(server, err)
			return
		case !sent:
			r.park(server, box, frames)
			return
		}
		box.sent(frames, bytes)
		r.traffic.FramesSent += uint64(frames)
		r.traffic.BytesSent += uint64(bytes)
	}
}

// chunk returns how many of the first frames go into one call, and their bytes.
func chunk(queue [][]byte) (frames, bytes int) {
	for frames < len(queue) && frames < chunkFrames {
		if frames > 0 && bytes+len(queue[frames]) > chunkBytes {
			break
		}
		bytes += len(queue[frames])
		frames++
	}
	return frames, bytes
}

// sent removes the first frames from the queue and reuses its memory.
func (b *outbox) sent(frames, bytes int) {
	b.total += uint64(frames)
	rest := copy(b.queue, b.queue[frames:])
	clear(b.queue[rest:])
	b.queue = b.queue[:rest]
	b.bytes -= bytes
}

// park starts a goroutine that waits for the lane's room and then sends the first frames.
func (r *running) park(server order.ServerID, box *outbox, frames int) {
	box.parked, box.parkedAt = true, time.Now()
	r.parked++
	first := make([][]byte, frames)
	copy(first, box.queue)
	lane := box.lane
	r.waits.Add(1)
	go func() {
		defer r.waits.Done()
		err := lane.Send(r.ctx, first...)
		r.room <- unparked{server: server, frames: frames, err: err} // has a place for every member
		r.inbox.signal()
	}()
}

// unpark continues with the queue of a member after its wait for room ended.
func (r *running) unpark(done unparked) {
	box := &r.outboxes[done.server]
	box.parked = false
	r.parked--
	r.turn.Crowded(done.server, false)
	switch {
	case box.lost:
		return
	case done.err != nil && r.ctx.Err() != nil:
		return // the frames stay in the queue
	case done.err != nil:
		r.giveUpMember(done.server, done.err)
		return
	}
	bytes := 0
	for _, frame := range box.queue[:done.frames] {
		bytes += len(frame)
	}
	box.sent(done.frames, bytes)
	r.traffic.FramesSent += uint64(done.frames)
	r.traffic.BytesSent += uint64(bytes)
	if r.ctx.Err() == nil {
		r.sendQueue(done.server, box)
	}
}

// drain continues with the parked frames after the engine has ended, until all are sent or the run
// is frozen. It does not use the engine.
func (r *running) drain() {
	for r.parked > 0 {
		r.unpark(<-r.room)
	}
}

// withheld reports whether own batches wait until a slow member has taken more. A member that takes
// nothing for ParkedPatience is given up.
func (r *running) withheld() bool {
	if r.parked == 0 {
		return false
	}
	for i := range r.outboxes {
		box := &r.outboxes[i]
		r.turn.Crowded(order.ServerID(i), box.parked && box.bytes > r.config.ParkedBytes)
	}
	for {
		server, waits := r.turn.WaitsFor()
		if !waits {
			return false
		}
		box := &r.outboxes[server]
		if left := r.config.ParkedPatience - time.Since(box.parkedAt); left > 0 {
			r.patience.set(left, r.inbox.signal)
			return true
		}
		r.giveUpMember(server, fmt.Errorf("%w: %d bytes", errBehind, box.bytes))
	}
}

// giveUpMember gives up sending to a member in this run: its lane broke and lost frames. Frames
// from it are still taken.
func (r *running) giveUpMember(server order.ServerID, cause error) {
	box := &r.outboxes[server]
	if box.lost || errors.Is(cause, context.Canceled) {
		return
	}
	r.closeLane(box)
	if _, ended := r.turn.Ended(); ended {
		r.config.Logger.Warn("a member does not get the end of a run", "run", r.group.Run,
			"member", r.group.Members[server], "cause", cause)
		return
	}
	r.turn.Break(server, cause)
}

// probe gives up members whose lanes broke while nothing was sent.
func (r *running) probe() {
	for i := range r.outboxes {
		box := &r.outboxes[i]
		if box.lane == nil || box.lost || box.parked {
			continue
		}
		if _, err := box.lane.TrySend(); err != nil {
			r.giveUpMember(order.ServerID(i), err)
		}
	}
}

// closeLane stops sending to a member in this run. The next run takes a fresh lane.
func (r *running) closeLane(box *outbox) {
	if box.lost {
		return
	}
	box.lost = true
	clear(box.queue)
	box.queue, box.bytes = nil, 0
	if err := box.lane.Close(); err != nil {
		r.config.Logger.Debug("a lane could not be closed", "peer", box.lane.Peer(), "error",
			err)
	}
}
