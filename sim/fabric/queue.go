package fabric

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Attachment is a host's access to a peer's region.
type Attachment struct {
	host       *Host
	region     *Region
	number     uint64 // of the grant under which it was made
	permission rdmanet.Permission

	// The network's lock guards the rest.
	err     error         // what ended it, as its holder knows
	refused error         // what ended it, as the owner's side knows; nothing later takes place
	lost    bool          // its holder crashed, and one of its operations was lost
	arrival time.Duration // of the operation that was posted last
	answer  time.Duration // of the operation that took place last
	inbox   []*operation  // arrived operations; the first one takes place
}

// Peer returns the owner's incarnation.
func (a *Attachment) Peer() rdmanet.Peer { return a.region.host.Peer() }

// Name returns the region's name.
func (a *Attachment) Name() string { return a.region.name }

// Size returns the region's size in bytes.
func (a *Attachment) Size() int { return a.region.Size() }

// Permission returns the permission that was granted when the attachment was made.
func (a *Attachment) Permission() rdmanet.Permission { return a.permission }

// Err returns the error that ended the attachment.
func (a *Attachment) Err() error {
	a.host.network.mu.Lock()
	defer a.host.network.mu.Unlock()
	return a.err
}

// Close ends the attachment.
func (a *Attachment) Close() error {
	a.host.network.mu.Lock()
	defer a.host.network.mu.Unlock()
	a.end(rdmanet.ErrClosed)
	return nil
}

// end ends the attachment for its holder, and completes its outstanding operations.
func (a *Attachment) end(err error) {
	if a.err != nil {
		return
	}
	a.err = err
	for _, q := range a.host.queues {
		for _, o := range q.posted[a.region.host.id] {
			if o.attachment == a && !o.done {
				q.finish(o, err)
			}
		}
	}
}

func (a *Attachment) wire() [2]rdmanet.PeerID { return wire(a.host.id, a.region.host.id) }

// operation is an operation that was posted.
type operation struct {
	rdmanet.Operation
	attachment *Attachment
	queue      *Queue
	bytes      []byte // the bytes to write: a copy, or the caller's bytes if they are long
	landed     int    // bytes that have landed
	cost       Cost   // under a Timing
	done       bool
	err        error
}

// Queue takes a host's operations and returns their completions.
type Queue struct {
	host  *Host
	depth int

	// The network's lock guards the rest.
	closed bool
	posted map[rdmanet.PeerID][]*operation // by peer, in the order of posting
	ready  []rdmanet.Completion
	count  int // outstanding
}

// Post starts operations.
func (q *Queue) Post(operations ...rdmanet.Operation) error {
	n := q.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.closed {
		return rdmanet.ErrClosed
	}
	if q.count+len(operations) > q.depth {
		return fmt.Errorf("%w: %d outstanding, %d more, room for %d", rdmanet.ErrQueueFull, q.count,
			len(operations), q.depth)
	}
	for i := range operations {
		o := &operations[i]
		if a, ours := o.To.(*Attachment); !ours || a.host != q.host ||
			o.Kind != rdmanet.OperationWrite && o.Kind != rdmanet.OperationRead {
			return fmt.Errorf("fabric: %s on %v: want a write or a read on an attachment of "+
				"this host", o.Kind, o.To)
		}
		if o.Offset < 0 || len(o.Bytes) > o.To.Size() || o.Offset > o.To.Size()-len(o.Bytes) {
			return fmt.Errorf("%w: %s of %d bytes at %d, the region has %d", rdmanet.ErrBounds,
				o.Kind, len(o.Bytes), o.Offset, o.To.Size())
		}
	}
	for i := range operations {
		q.post(operations[i])
	}
	return nil
}

func (q *Queue) post(posted rdmanet.Operation) {
	n := q.host.network
	a := posted.To.(*Attachment)
	o := &operation{Operation: posted, attachment: a, queue: q, bytes: posted.Bytes}
	if o.Kind == rdmanet.OperationWrite && len(o.Bytes) <= rdmanet.InlineMax {
		o.bytes = slices.Clone(o.Bytes)
	}
	q.count++
	peer := a.region.host.id
	q.posted[peer] = append(q.posted[peer], o)
	if a.err != nil {
		q.finish(o, a.err)
		return
	}
	left, arrives := q.depart(o)
	a.arrival = max(a.arrival, arrives)
	n.schedule(a.arrival-n.now, func() { n.travel(o) })
	n.schedule(left-n.now+n.options.OperationTimeout, func() {
		if !o.done {
			a.fail(fmt.Errorf("%w: %s completed no operation within %s", rdmanet.ErrUnreachable,
				peer,
				n.options.OperationTimeout))
		}
	})
}

// fail ends an attachment for its holder.
func (a *Attachment) fail(err error) {
	if owner := a.region.host; owner.ended && owner.network.hosts[owner.id] != nil &&
		!owner.network.cuts[a.wire()] {
		err = fmt.Errorf("%w: %s has restarted", rdmanet.ErrReset, owner.id)
	}
	a.end(err)
}

// travel brings an operation to its owner, unless something prevents that.
func (n *Network) travel(o *operation) {
	a := o.attachment
	if a.host.ended && n.random.IntN(4) == 0 {
		a.lost = true
	}
	switch {
	case a.lost:
	case n.cuts[a.wire()]:
		n.held = append(n.held, o)
	case a.region.host.ended && n.hosts[a.region.host.id] == nil: // no host answers
	default:
		a.inbox = append(a.inbox, o)
		if len(a.inbox) == 1 {
			n.serve(o)
		}
	}
}

// land makes a piece of an operation take place.
func (n *Network) land(o *operation) {
	a := o.attachment
	r := a.region
	if r.host.ended && n.hosts[r.host.id] == nil {
		a.inbox = nil // the owner crashed meanwhile
		return
	}
	err := r.judge(a)
	if err == nil && !a.permission.Allows(o.Kind) {
		err = fmt.Errorf("%w: %s under permission %s", rdmanet.ErrAccess, o.Kind, a.permission)
	}
	if err != nil {
		a.refused = err
	} else if length := n.piece(o); o.Kind == rdmanet.OperationWrite {
		if last := len(o.bytes) - rdmanet.WordSize; n.options.Fault == FaultMarkFirst && last > 0 {
			r.CopyIn(o.Offset+last, o.bytes[last:])
		}
		r.CopyIn(o.Offset+o.landed, o.bytes[o.landed:o.landed+length])
		o.landed += length
	} else if !o.done {
		// Read from the last word to the first, so that a reader that sees a mark sees everything
		// written before it.
		end := len(o.Bytes) - o.landed
		r.CopyOut(o.Offset+end-length, o.Bytes[end-length:end])
		o.landed += length
	} else {
		o.landed += length
	}
	if err == nil && o.landed < len(o.Bytes) {
		n.schedule(n.delay(), func() { n.land(o) })
		return
	}
	if err == nil && o.Ring {
		r.ring()
		n.stirred(r.host)
	}
	a.answer = max(a.answer, n.now+n.back(o))
	n.schedule(a.answer-n.now, func() { n.answer(o, err) })
	a.inbox = slices.Delete(a.inbox, 0, 1)
	if len(a.inbox) > 0 {
		next := a.inbox[0]
		n.schedule(1, func() { n.serve(next) })
	}
}

// piece returns how many bytes take place next: all that are left, or up to a word's end.
func (n *Network) piece(o *operation) int {
	left := len(o.Bytes) - o.landed
	if n.options.Timing != nil || left <= rdmanet.WordSize || n.random.IntN(3) == 0 {
		return left
	}
	words := 1 + n.random.IntN(left/rdmanet.WordSize)
	length := min(left, words*rdmanet.WordSize)
	if o.Kind == rdmanet.OperationWrite {
		return min(left, length-(o.Offset+o.landed)%rdmanet.WordSize)
	}
	if beyond := (o.Offset + left) % rdmanet.WordSize; beyond != 0 {
		return min(left, length-rdmanet.WordSize+beyond)
	}
	return length
}

// answer brings the owner's answer to the holder, if possible.
func (n *Network) answer(o *operation, err error) {
	a := o.attachment
	if a.host.ended || n.cuts[a.wire()] || o.done {
		return // the timeout reports it
	}
	if err != nil {
		a.end(err)
		return
	}
	o.queue.finish(o, nil)
}

// finish completes an operation, and releases the completions that waited for it.
func (q *Queue) finish(o *operation, err error) {
	if o.done {
		return
	}
	fault := q.host.network.options.Fault
	if fault == FaultCompletionLost && o.Tag%64 == 63 {
		return
	}
	o.done, o.err = true, err
	if err != nil {
		// bytes still to land must not change, though the owner may now reuse its memory
		o.bytes = slices.Clone(o.bytes)
	}
	peer := o.attachment.region.host.id
	list := q.posted[peer]
	if at := slices.Index(list, o); fault == FaultCompletionsReordered && at > 0 {
		list[0], list[at] = list[at], list[0]
	}
	for len(list) > 0 && list[0].done {
		q.release(rdmanet.Completion{Tag: list[0].Tag, Peer: peer, Err: list[0].err})
		list = list[1:]
	}
	q.posted[peer] = list
	q.host.network.wake()
	q.host.network.stirred(q.host)
}

// Poll returns the available completions.
func (q *Queue) Poll(into []rdmanet.Completion) int {
	q.host.network.mu.Lock()
	defer q.host.network.mu.Unlock()
	return q.poll(into)
}

func (q *Queue) poll(into []rdmanet.Completion) int {
	count := copy(into, q.ready)
	q.ready = slices.Delete(q.ready, 0, count)
	q.count -= count
	return count
}

// Wait is like Poll, but waits for the first completion.
func (q *Queue) Wait(ctx context.Context, into []rdmanet.Completion) (int, error) {
	n := q.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if count := q.poll(into); count > 0 || len(into) == 0 {
			return count, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if q.closed {
			return 0, rdmanet.ErrClosed
		}
		if err := n.wait(ctx.Done()); err != nil {
			return 0, err
		}
	}
}

// Outstanding returns how many completions have not been taken.
func (q *Queue) Outstanding() int {
	q.host.network.mu.Lock()
	defer q.host.network.mu.Unlock()
	return q.count
}

// Close ends the queue.
func (q *Queue) Close() error {
	q.host.network.mu.Lock()
	defer q.host.network.mu.Unlock()
	q.end()
	return nil
}

func (q *Queue) end() {
	q.closed = true
	q.host.network.wake()
}
