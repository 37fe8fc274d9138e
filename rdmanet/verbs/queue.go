//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// waitPolls is how often Queue.Wait polls the device before it leaves polling to the poller.
const waitPolls = 64

// queue implements rdmanet.Queue.
type queue struct {
	host        *host
	completions *segment.Completions

	mu     sync.Mutex // locked before attachments' locks
	orders map[rdmanet.PeerID]*order
	free   *operation
}

// order lists a queue's operations to one peer in the order of posting. They complete in that
// order, whatever their attachments.
type order struct {
	first, last *operation
}

// operation is an operation that was posted and is not completed.
type operation struct {
	rdmanet.Operation
	queue *queue
	order *order
	next  *operation // of the order, or of the free list
	done  bool
	err   error

	started int  // bytes passed to the device
	limit   int  // bytes from here on are passed too
	copied  bool // Bytes are in own
	own     [rdmanet.InlineMax]byte
}

// Queue implements rdmanet.RegionHost.
func (h *host) Queue(depth int) (rdmanet.Queue, error) {
	completions, err := segment.NewCompletions(depth)
	if err != nil {
		return nil, err
	}
	q := &queue{host: h, completions: completions, orders: make(map[rdmanet.PeerID]*order)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	h.queues[q] = struct{}{}
	return q, nil
}

// Post implements rdmanet.Queue.
func (q *queue) Post(operations ...rdmanet.Operation) error {
	for i := range operations {
		if err := q.check(&operations[i]); err != nil {
			return err
		}
	}
	if err := q.completions.Reserve(len(operations)); err != nil {
		return err
	}
	var few [16]*attachment
	touched := few[:0]
	q.mu.Lock()
	for i := range operations {
		a := operations[i].To.(*attachment)
		o := q.take(&operations[i], a.peer.ID)
		if err := a.enqueue(o); err != nil {
			q.finishLocked(o, err)
		}
		known := false
		for _, t := range touched {
			known = known || t == a
		}
		if !known {
			touched = append(touched, a)
		}
	}
	q.mu.Unlock()
	for _, a := range touched {
		a.start()
	}
	return nil
}

func (q *queue) check(o *rdmanet.Operation) error {
	a, ok := o.To.(*attachment)
	switch {
	case !ok || a.host != q.host:
		return fmt.Errorf("an operation to %T, which is not an attachment of this host", o.To)
	case o.Kind != rdmanet.OperationWrite && o.Kind != rdmanet.OperationRead:
		return fmt.Errorf("there is no %s", o.Kind)
	case o.Offset < 0 || o.Offset > a.size-len(o.Bytes):
		return fmt.Errorf("%w: %d bytes at %d of region %q, which has %d", rdmanet.ErrBounds,
			len(o.Bytes), o.Offset, a.name, a.size)
	}
	return nil
}

// take appends an operation to its peer's order. The caller holds the lock.
func (q *queue) take(posted *rdmanet.Operation, peer rdmanet.PeerID) *operation {
	o := q.free
	if o == nil {
		o = &operation{}
	} else {
		q.free = o.next
	}
	o.Operation, o.queue = *posted, q
	o.next, o.done, o.err, o.started, o.limit, o.copied = nil, false, nil, 0, len(posted.Bytes),
		false
	o.order = q.orders[peer]
	if o.order == nil {
		o.order = &order{}
		q.orders[peer] = o.order
	}
	if o.order.last == nil {
		o.order.first = o
	} else {
		o.order.last.next = o
	}
	o.order.last = o
	return o
}

// finish completes an operation, once all earlier ones to the same peer are complete.
func (q *queue) finish(o *operation, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finishLocked(o, err)
}

func (q *queue) finishLocked(o *operation, err error) {
	o.done, o.err = true, err
	order := o.order
	for first := order.first; first != nil && first.done; first = order.first {
		q.completions.Complete(rdmanet.Completion{Tag: first.Tag,
			Peer: first.To.(*attachment).peer.ID, Err: first.err})
		order.first = first.next
		if order.first == nil {
			order.last = nil
		}
		first.Operation = rdmanet.Operation{}
		first.next, q.free = q.free, first
	}
}

// Poll implements rdmanet.Queue.
func (q *queue) Poll(into []rdmanet.Completion) int {
	n := q.completions.Poll(into)
	if n == 0 && q.host.engine.progress() > 0 {
		n = q.completions.Poll(into)
	}
	return n
}

// Wait implements rdmanet.Queue.
func (q *queue) Wait(ctx context.Context, into []rdmanet.Completion) (int, error) {
	for range waitPolls {
		q.host.engine.looked.Store(time.Now().UnixNano())
		if n := q.Poll(into); n > 0 {
			return n, nil
		}
		runtime.Gosched()
	}
	return q.completions.Wait(ctx, into)
}

// Outstanding implements rdmanet.Queue.
func (q *queue) Outstanding() int { return q.completions.Outstanding() }

// Close implements rdmanet.Queue.
func (q *queue) Close() error {
	q.completions.Close()
	q.host.mu.Lock()
	delete(q.host.queues, q)
	q.host.mu.Unlock()
	return nil
}

// isTransport reports whether an error came from the network and not from the owner.
func isTransport(err error) bool {
	return errors.Is(err, errSilent) || errors.Is(err, errDeadline) || errors.Is(err, errLinkOver)
}
