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

// pageMax is how many entries are read of the chain at once.
const pageMax = 256

// outgoing is the stream to a child: the writer, and what it is offered.
type outgoing struct {
	s     *Streams
	child ledger.ShardID
	// writer is nil while this node is no member of its shard; guarded by the lock of s.
	writer  *stream.Writer
	self    order.ServerID
	outlets map[order.ServerID]*outlet

	// page is what was read and not offered yet.
	page []ledger.Carried
	// Up to height readTo, the chain has no entry of number readNext.
	readTo   ledger.Height
	readNext uint64
	// absent is the number of the last entry that the chain was found to lack, 0 where it lacked
	// none. It is guarded by the lock of s.
	absent uint64
	retry  time.Time
	// position is where the child was as the loop last looked, moved since when it is there.
	position uint64
	moved    time.Time
}

// seat takes in who the members are.
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

// end takes the writer away. What is under way is completed to it all the same.
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

// reread forgets what was read of the chain, and what it lacks. The lock is held.
func (o *outgoing) reread() {
	o.page, o.readTo, o.readNext, o.absent, o.retry = nil, 0, 0, 0, time.Time{}
}

// step has the stream to the child go on.
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
	if attached { // so it is known where the child is
		o.feed(now)
	}
	o.write(now)
}

// stuck tells whether the child's position has stood still for long although there is more.
func (o *outgoing) stuck(now time.Time) bool {
	position := o.writer.Position()
	if position != o.position || o.writer.Next() == position+1 || o.moved.IsZero() {
		o.position, o.moved = position, now
		return false
	}
	return now.Sub(o.moved) >= 2*o.s.config.AskEvery
}

// feed offers the writer what it has room for.
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
		case err != nil: // the chain did not give what it was asked for
			o.s.config.Logger.Error("streams: an entry that is none", "child", o.child, "error",
				err)
			o.page, o.retry = nil, now.Add(readPause)
			return
		}
	}
}

// offer offers the page. The lock is held.
func (o *outgoing) offer() error {
	for len(o.page) > 0 {
		// Where the child has it already, nothing is to be done: other members were quicker.
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

// read reads the next page of the chain; false where there is none now.
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

// write has what the writer wants to write be posted.
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

// post posts what has room in the queue; the rest follows as completions are taken.
func (s *Streams) post() {
	for len(s.backlog) > 0 {
		n := min(len(s.backlog), rdmanet.QueueDepthMax-s.queue.Outstanding())
		if n <= 0 {
			return
		}
		if err := s.queue.Post(s.backlog[:n]...); err != nil {
			// Only of a host that is being closed. Nothing of it will complete.
			s.config.Logger.Debug("streams: not posted", "operations", n, "error", err)
			s.backlog = nil
			return
		}
		s.backlog = slices.Delete(s.backlog, 0, n)
	}
}

// completed takes a completion.
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
