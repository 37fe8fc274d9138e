package segment

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// completionsMin is the initial size of a queue's ring. The ring doubles as needed.
const completionsMin = 64

// Completions is the bounded queue behind an rdmanet.Queue. Operations reserve room in it before
// they begin. All methods may be called from several goroutines.
type Completions struct {
	depth int
	bell  Doorbell

	mu          sync.Mutex
	ring        []rdmanet.Completion // entry i is at i & (len(ring)-1)
	first, next uint64
	outstanding int
	sealed      bool // no further operation
	closed      bool // no further completion
}

// NewCompletions makes a queue for up to depth outstanding operations. It returns ErrTooLarge
// unless depth is 1 to rdmanet.QueueDepthMax.
func NewCompletions(depth int) (*Completions, error) {
	if depth < 1 || depth > rdmanet.QueueDepthMax {
		return nil, fmt.Errorf("%w: a queue for %d operations, want 1 to %d", rdmanet.ErrTooLarge,
			depth, rdmanet.QueueDepthMax)
	}
	return &Completions{depth: depth, ring: make([]rdmanet.Completion, completionsMin)}, nil
}

// Reserve makes room for that many operations, all or none. Each of them must complete. It returns
// ErrQueueFull or ErrClosed.
func (c *Completions) Reserve(operations int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		return rdmanet.ErrClosed
	}
	if operations > c.depth-c.outstanding {
		return rdmanet.ErrQueueFull
	}
	c.outstanding += operations
	return nil
}

// Complete adds the completions of operations that reserved room, in that order. Once the queue is
// closed it drops them.
func (c *Completions) Complete(completions ...rdmanet.Completion) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	if int(c.next-c.first)+len(completions) > c.outstanding {
		panic("segment: more operations complete than reserved their room")
	}
	for int(c.next-c.first)+len(completions) > len(c.ring) {
		c.grow()
	}
	mask := uint64(len(c.ring) - 1)
	for _, completion := range completions {
		c.ring[c.next&mask] = completion
		c.next++
	}
	c.mu.Unlock()
	c.bell.Ring()
}

func (c *Completions) grow() {
	ring := make([]rdmanet.Completion, 2*len(c.ring))
	for i := c.first; i < c.next; i++ {
		ring[i&uint64(len(ring)-1)] = c.ring[i&uint64(len(c.ring)-1)]
	}
	c.ring = ring
}

// Poll takes available completions, without waiting.
func (c *Completions) Poll(into []rdmanet.Completion) int {
	n, _ := c.take(into)
	return n
}

// take is like Poll. It also reports whether no further completion will come.
func (c *Completions) take(into []rdmanet.Completion) (n int, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(len(into), int(c.next-c.first))
	mask := uint64(len(c.ring) - 1)
	for i := range n {
		at := &c.ring[c.first&mask]
		into[i] = *at
		at.Err = nil
		c.first++
	}
	c.outstanding -= n
	return n, c.sealed && c.outstanding == 0
}

// Wait is like Poll but waits for at least one completion. It returns ctx's error, or ErrClosed
// once the queue is closed and empty. It returns 0 at once if into has no room.
func (c *Completions) Wait(ctx context.Context, into []rdmanet.Completion) (int, error) {
	n := c.Poll(into)
	if n > 0 || len(into) == 0 {
		return n, nil
	}
	over := false
	err := c.bell.Await(ctx, func() bool {
		n, over = c.take(into)
		return n > 0 || over
	})
	if err != nil {
		// A completion may have arrived at the same time as the error.
		n, over = c.take(into)
	}
	switch {
	case n > 0:
		return n, nil
	case over:
		return 0, rdmanet.ErrClosed
	default:
		return 0, err
	}
}

// Outstanding returns the number of operations whose completions were not taken.
func (c *Completions) Outstanding() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outstanding
}

// Parks returns how often a caller parked in Wait.
func (c *Completions) Parks() uint64 { return c.bell.Parks() }

// Seal refuses further operations. Callers of Wait get the completions of outstanding operations,
// then ErrClosed.
func (c *Completions) Seal() {
	c.mu.Lock()
	c.sealed = true
	c.mu.Unlock()
	c.bell.Ring()
}

// Close refuses further operations and drops completions that are yet to come. Available
// completions can still be taken. A second call does nothing.
func (c *Completions) Close() {
	c.mu.Lock()
	if !c.closed {
		c.sealed, c.closed = true, true
		c.outstanding = int(c.next - c.first)
	}
	c.mu.Unlock()
	c.bell.Close()
}
