package bench

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// lateHost is a host whose frames come late by a fixed time, and in order, as over a long way. It
// is for servers that do not fail: events of peers do not come late.
type lateHost struct {
	rdmanet.Host
	by      time.Duration
	done    chan struct{}
	closing sync.Once
	waits   sync.WaitGroup
}

// lateBatches is the maximum number of batches of frames under way to a host.
const lateBatches = 1 << 14

// lateFrames are frames that are handed over when they are due.
type lateFrames struct {
	due    time.Time
	from   rdmanet.Peer
	frames [][]byte
}

func newLateHost(host rdmanet.Host, by time.Duration) *lateHost {
	return &lateHost{Host: host, by: by, done: make(chan struct{})}
}

// Receive implements rdmanet.Host.
func (h *lateHost) Receive(lane string, receive rdmanet.ReceiveFunc) error {
	queue := make(chan lateFrames, lateBatches)
	h.waits.Go(func() {
		for {
			select {
			case f := <-queue:
				time.Sleep(time.Until(f.due))
				receive(f.from, f.frames)
			case <-h.done:
				return
			}
		}
	})
	return h.Host.Receive(lane, func(from rdmanet.Peer, frames [][]byte) {
		select {
		case queue <- lateFrames{time.Now().Add(h.by), from, slices.Clone(frames)}:
		case <-h.done:
		}
	})
}

// Close implements rdmanet.Host. Frames under way are lost.
func (h *lateHost) Close(ctx context.Context) error {
	h.closing.Do(func() { close(h.done) })
	err := h.Host.Close(ctx)
	h.waits.Wait()
	return err
}
