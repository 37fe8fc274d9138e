package p2p

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// queue passes operations to links and receives their completions; it implements rdmanet.Queue. Its
// depth bounds the operations under way. For each operation the fabric keeps an entry and at most
// InlineMax copied bytes; longer writes are sent without copying.
type queue struct {
	host        *Host
	completions *segment.Completions
}

var _ rdmanet.Queue = (*queue)(nil)

// Queue implements rdmanet.RegionHost.
func (h *Host) Queue(depth int) (rdmanet.Queue, error) {
	completions, err := segment.NewCompletions(depth)
	if err != nil {
		return nil, err
	}
	r := h.regions
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return nil, r.errHostClosed()
	}
	q := &queue{host: h, completions: completions}
	r.queues[q] = struct{}{}
	return q, nil
}

// Post implements rdmanet.Queue.
func (q *queue) Post(operations ...rdmanet.Operation) error {
	for i := range operations {
		if err := q.check(&operations[i]); err != nil {
			return fmt.Errorf("operation %d of %d: %w", i, len(operations), err)
		}
	}
	if q.host.regions.closed.Load() {
		return q.host.regions.errHostClosed()
	}
	if err := q.completions.Reserve(len(operations)); err != nil {
		return err
	}
	now := time.Now()
	for i := range operations {
		if l := linkOf(&operations[i]); firstOf(operations[:i+1], l) == i {
			l.post(q, operations[i:], now)
		}
	}
	return nil
}

func linkOf(operation *rdmanet.Operation) *link { return operation.To.(*attachment).link }

// firstOf returns the index of the first of the operations that goes over l. operations has at
// least one element.
func firstOf(operations []rdmanet.Operation, l *link) int {
	if last := len(operations) - 1; last > 0 && linkOf(&operations[last-1]) == l {
		return last - 1
	}
	for i := range operations {
		if linkOf(&operations[i]) == l {
			return i
		}
	}
	return len(operations)
}

// check returns an error if an operation cannot be posted.
func (q *queue) check(operation *rdmanet.Operation) error {
	to, ok := operation.To.(*attachment)
	switch {
	case !ok || to.link.host != q.host:
		return fmt.Errorf("%w: the attachment is not this host's", rdmanet.ErrAccess)
	case operation.Kind != rdmanet.OperationWrite && operation.Kind != rdmanet.OperationRead:
		return fmt.Errorf("%w: %s", rdmanet.ErrAccess, operation.Kind)
	case operation.Offset < 0 || operation.Offset > to.size-len(operation.Bytes):
		return fmt.Errorf("%w: %d bytes at %d of %d", rdmanet.ErrBounds, len(operation.Bytes),
			operation.Offset, to.size)
	}
	return nil
}

// Poll implements rdmanet.Queue.
func (q *queue) Poll(into []rdmanet.Completion) int { return q.completions.Poll(into) }

// Wait implements rdmanet.Queue.
func (q *queue) Wait(ctx context.Context, into []rdmanet.Completion) (int, error) {
	return q.completions.Wait(ctx, into)
}

// Outstanding implements rdmanet.Queue.
func (q *queue) Outstanding() int { return q.completions.Outstanding() }

// Close implements rdmanet.Queue.
func (q *queue) Close() error {
	r := q.host.regions
	r.mu.Lock()
	delete(r.queues, q)
	r.mu.Unlock()
	q.completions.Close()
	return nil
}
