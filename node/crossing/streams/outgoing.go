package streams

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// pageMax bounds the entries read from the chain at once.
const pageMax = 256

// outgoing is the stream to a child: the writer and its input.
type outgoing struct {
	s     *Streams
	child ledger.ShardID
	// writer is nil while this node is no member of its shard; guarded by the lock of s.
	writer  *stream.Writer
	self    order.ServerID
	outlets map[order.ServerID]*outlet

	// page holds the entries that were read and not offered yet.
	page []ledger.Carried
	// The chain has no entry of number readNext up to the height readTo.
	readTo   ledger.Height
	readNext uint64
	// absent is the number of the last entry that the chain was found to lack, 0 if it lacked none.
	// It is guarded by the lock of s.
	absent uint64
	retry  time.Time
	// position is the child's position when the loop last looked, and moved the time since which it
	// is there.
	position uint64
	moved    time.Time
}

// seat updates the members.
func (o *outgoing) seat(own, child members, self order.ServerID, present bool) {
	present = present && len(child) > 0
	if o.writer != nil && (!present || o.self != self) {
		o.end()
	}
	if !present {
		return
	}
	o.self = self
	for carrier, outlet := range o.outlets {
		if now, there := child.find(outlet.peer); !there || now != carrier {
			outlet.end()
			delete(o.outlets, carrier)
		}
	}
	for _, member := range child {
		if carrier := order.ServerID(member.Index); o.outlets[carrier] == nil {
			o.outlets[carrier] = &outlet{of: o, carrier: carrier, peer: member.Peer,
				attempt: o.s.number()}
		}
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	var err error
	if o.writer == nil {
		o.writer, err = stream.NewWriter(o.s.machine(own, child, self))
	} else {
		err = o.writer.SetMembers(own.ids(), child.ids())
	}
	if err != nil {
		o.s.config.Logger.Error("streams: members of the stream to a child", "child", o.child,
			"error", err)
	}
}

// end removes the writer. Its outstanding writes are still completed to it.
func (o *outgoing) end() {
	for carrier, outlet := range o.outlets {
		outlet.end()
		delete(o.outlets, carrier)
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.writer, o.position, o.moved = nil, 0, time.Time{}
	o.reread()
}

// reread drops the entries read from the chain, and the record of absent ones. The caller holds the
// lock.
func (o *outgoing) reread() {
	o.page, o.readTo, o.readNext, o.absent, o.retry = nil, 0, 0, 0, time.Time{}
}

// step advances the stream to the child.
func (o *outgoing) step(now time.Time) {
	if o.writer == nil {
		return
	}
	stuck := o.stuck(now)
	attached := false
	for _, outlet := range o.outlets {
		outlet.step(now, stuck)
		attached = attached || outlet.connection != nil
	}
	if attached && o.writer.Placed() {
		o.feed(now)
	}
	o.write(now)
}

// stuck reports whether the child's position has stood still for long although there is more.
func (o *outgoing) stuck(now time.Time) bool {
	position := o.writer.Position()
	if position != o.position || o.writer.Next() == position+1 || o.moved.IsZero() {
		o.position, o.moved = position, now
		return false
	}
	return now.Sub(o.moved) >= 2*o.s.config.AskEvery
}

// feed offers entries to the writer until it is full.
func (o *outgoing) feed(now time.Time) {
	for {
		if len(o.page) == 0 && !o.read(now) {
			return
		}
		o.s.mu.Lock()
		err := o.offer()
		o.s.mu.Unlock()
		switch {
		case errors.Is(err, stream.ErrFull):
			return
		case err != nil: // the chain returned entries other than requested
			o.s.config.Logger.Error("streams: an entry that is none", "child", o.child, "error",
				err)
			o.page, o.retry = nil, now.Add(readPause)
			return
		}
	}
}

// offer offers the page. The caller holds the lock.
func (o *outgoing) offer() error {
	for len(o.page) > 0 {
		// If the child already has the entry, skip it: other members were faster.
		if entry := &o.page[0]; entry.Number >= o.writer.Next() {
			if err := o.writer.Offer(entry.Number, entry.Bundle); err != nil {
				return err
			}
		}
		o.page[0] = ledger.Carried{}
		o.page = o.page[1:]
	}
	return nil
}

// read reads the next page from the chain. It returns false if there is none now.
func (o *outgoing) read(now time.Time) bool {
	if now.Before(o.retry) {
		o.s.by(o.retry)
		return false
	}
	next := o.writer.Next()
	chain := o.s.config.Chain()
	if chain == nil {
		return false
	}
	upTo := chain.AppendedHeight()
	if o.s.config.fault != faultBeyondDurable {
		upTo = min(upTo, o.s.heights.durableHeight())
	}
	if o.readTo == upTo && o.readNext == next {
		return false
	}
	page, err := chain.Stream(o.child, next, pageMax, upTo)
	switch {
	case errors.Is(err, store.ErrAbsent):
		o.s.mu.Lock()
		defer o.s.mu.Unlock()
		o.absent = next
		o.retry = now.Add(absentPause)
		o.s.by(o.retry)
		return false
	case err != nil:
		o.s.config.Logger.Warn("streams: the chain cannot be read", "child", o.child, "entry", next,
			"error", err)
		o.retry = now.Add(readPause)
		o.s.by(o.retry)
		return false
	case len(page) == 0:
		o.readTo, o.readNext = upTo, next
		return false
	}
	o.page = slices.Clone(page)
	return true
}

// write queues the writer's writes to be posted.
func (o *outgoing) write(now time.Time) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.writer.Tick(o.s.ticks(now))
	for _, w := range o.writer.Writes() {
		c := o.outlets[w.Carrier].connection
		if c == nil {
			panic(fmt.Sprintf("streams: a write to carrier %d of shard %d, which is not attached",
				w.Carrier, o.child))
		}
		c.under++
		o.s.backlog = append(o.s.backlog, rdmanet.Operation{To: c.attachment,
			Kind: rdmanet.OperationWrite, Offset: w.Offset, Bytes: w.Bytes, Ring: true,
			Tag: c.number})
	}
	o.s.due(o.writer.Deadline())
}

// post posts as many operations as the queue has room for. The rest follows as completions are
// taken.
func (s *Streams) post() {
	for len(s.backlog) > 0 {
		n := min(len(s.backlog), rdmanet.QueueDepthMax-s.queue.Outstanding())
		if n <= 0 {
			return
		}
		if err := s.queue.Post(s.backlog[:n]...); err != nil {
			// This happens only if the host is being closed. None of these operations will
			// complete.
			s.config.Logger.Debug("streams: not posted", "operations", n, "error", err)
			s.backlog = nil
			return
		}
		s.backlog = slices.Delete(s.backlog, 0, n)
	}
}

// completed handles a completion.
func (s *Streams) completed(done *rdmanet.Completion, now time.Time) {
	c := s.connections[done.Tag]
	if c == nil {
		panic(fmt.Sprintf("streams: a completion of connection %d, which has none under way",
			done.Tag))
	}
	c.under--
	s.mu.Lock()
	c.writer.Completed(c.outlet.carrier)
	s.mu.Unlock()
	if done.Err != nil && c.outlet.connection == c {
		s.config.Logger.Debug("streams: a ring is lost", "peer", c.attachment.Peer(), "error",
			done.Err)
		c.outlet.lost(now)
	}
	c.forget()
}
