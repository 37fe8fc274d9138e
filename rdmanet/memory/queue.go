package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

var (
	errForeign = errors.New("an attachment of another host")
	errKind    = errors.New("no such kind of operation")
	errCut     = errors.New("the link is cut")
)

// queue implements rdmanet.Queue. The posting goroutine performs the operations, except those that
// must wait for a link.
type queue struct {
	host        *Host
	completions *segment.Completions

	posting sync.Mutex
	done    []rdmanet.Completion // performed by the current Post and not yet completed
}

// Queue implements rdmanet.RegionHost.
func (h *Host) Queue(depth int) (rdmanet.Queue, error) {
	completions, err := segment.NewCompletions(depth)
	if err != nil {
		return nil, err
	}
	q := &queue{host: h, completions: completions}
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
	q.posting.Lock()
	defer q.posting.Unlock()
	if err := q.completions.Reserve(len(operations)); err != nil {
		return err
	}
	for i := range operations {
		operation := &operations[i]
		a := operation.To.(*attachment)
		if a.link.mustWait() && a.link.wait(q, a, operation) {
			continue
		}
		q.done = append(q.done, rdmanet.Completion{Tag: operation.Tag, Peer: a.peer.ID,
			Err: a.perform(operation)})
	}
	q.complete()
	return nil
}

// complete hands over the completions so far. The caller holds the lock.
func (q *queue) complete() {
	if len(q.done) > 0 {
		q.completions.Complete(q.done...)
		clear(q.done)
		q.done = q.done[:0]
	}
}

// check returns an error if an operation is invalid.
func (q *queue) check(operation *rdmanet.Operation) error {
	a, ok := operation.To.(*attachment)
	if !ok || a.host != q.host {
		return fmt.Errorf("post: %w", errForeign)
	}
	if operation.Kind != rdmanet.OperationWrite && operation.Kind != rdmanet.OperationRead {
		return fmt.Errorf("post: %w: %s", errKind, operation.Kind)
	}
	if operation.Offset < 0 || operation.Offset > a.region.Size()-len(operation.Bytes) {
		return fmt.Errorf("post: %w: %d bytes at %d of region %q, which has %d", rdmanet.ErrBounds,
			len(operation.Bytes), operation.Offset, a.region.Name(), a.region.Size())
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
	q.completions.Close()
	q.host.mu.Lock()
	defer q.host.mu.Unlock()
	delete(q.host.queues, q)
	return nil
}

// link is the connection from this host to a peer's regions. While it is cut, operations wait in a
// line. All operations posted behind them wait too, whatever their region and queue, which keeps
// the order of the peer's completions.
type link struct {
	host *Host
	peer rdmanet.PeerID
	cut  *atomic.Bool
	kick chan struct{} // an attachment ended

	stalled atomic.Bool // there is a line and a goroutine serving it
	mu      sync.Mutex
	line    []waiting
}

// waiting is an operation in line.
type waiting struct {
	queue      *queue
	attachment *attachment
	operation  rdmanet.Operation
	deadline   time.Time
}

// mustWait reports whether an operation may have to wait.
func (l *link) mustWait() bool { return l.stalled.Load() || l.cut.Load() }

// wait puts an operation in line. It returns false if the operation need not wait after all.
func (l *link) wait(q *queue, a *attachment, operation *rdmanet.Operation) bool {
	q.complete() // operations in line may complete before Post returns
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stalled.Load() {
		if !l.cut.Load() || a.Err() != nil {
			return false
		}
		if !l.host.serve(l.run) {
			a.end(rdmanet.ErrClosed)
			return false
		}
		l.stalled.Store(true)
	}
	w := waiting{queue: q, attachment: a, operation: *operation,
		deadline: time.Now().Add(l.host.network.mendTimeout)}
	if operation.Kind == rdmanet.OperationWrite && len(operation.Bytes) <= rdmanet.InlineMax {
		w.operation.Bytes = slices.Clone(operation.Bytes)
	}
	l.line = append(l.line, w)
	return true
}

// run serves the line until it is empty.
func (l *link) run() {
	for {
		l.mu.Lock()
		if len(l.line) == 0 {
			l.line = nil
			l.stalled.Store(false)
			l.mu.Unlock()
			return
		}
		w := l.line[0]
		l.mu.Unlock()
		l.pass(&w)
		w.queue.completions.Complete(rdmanet.Completion{Tag: w.operation.Tag, Peer: l.peer,
			Err: w.attachment.perform(&w.operation)})
		l.mu.Lock()
		l.line[0] = waiting{}
		l.line = l.line[1:]
		l.mu.Unlock()
	}
}

// pass waits until the link works, or ends the operation's attachment.
func (l *link) pass(w *waiting) {
	timeout := time.NewTimer(time.Until(w.deadline))
	defer timeout.Stop()
	for {
		_, changed := l.host.network.alive(l.peer)
		if !l.cut.Load() || w.attachment.Err() != nil {
			return
		}
		select {
		case <-changed:
		case <-l.kick:
		case <-timeout.C:
			w.attachment.end(fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, errCut))
		case <-l.host.closed:
			w.attachment.end(rdmanet.ErrClosed)
		}
	}
}
