package driver

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// BorrowingSink is a PromptSink that has no use for payloads once Deliver or TryDeliver has
// returned. The fabric may then use the memory of frames again. The method Borrows does nothing.
type BorrowingSink interface {
	PromptSink
	Borrows()
}

// loansMax bounds the loans that a run or the inbox keeps track of. Of more, none is given back.
const loansMax = 256

// loans are what a run has borrowed from the fabric, and lent to its engine. A loan is given back
// once nobody reads its frames any more: neither the engine, nor the Sink, nor a lane on which they
// were sent on. Where that cannot be known, it is forgotten, and its memory left to the garbage
// collector.
type loans struct {
	engine order.Borrower // nil if all loans are forgotten
	// open are those of frames that arrived since waiting was filled.
	open    []rdmanet.Loan
	waiting []rdmanet.Loan
	// Those in waiting are given back once this round is A-delivered, and the members have then
	// acknowledged the frames that the run had sent them by the end of that turn. Until then the
	// engine may still relay frames. If counted is set, sent says how many these are.
	until   order.Round
	counted bool
	sent    []uint64
	own     []*ownMemory // of own messages, not in use
}

// ownMemory is the memory of an own message; it implements rdmanet.Loan. The run lends it to its
// engine, and is the only one that holds it.
type ownMemory struct {
	loans *loans
	bytes []byte
}

// Hold implements rdmanet.Loan.
func (*ownMemory) Hold() {}

// Release implements rdmanet.Loan.
func (m *ownMemory) Release() { m.loans.own = append(m.loans.own, m) }

const (
	// ownSizeMin is the size, in bytes, from which own messages get memory that is used again.
	// Smaller ones cost the heap little.
	ownSizeMin = 4 << 10
	// ownSpareMax is how many times as large as needed that memory may be.
	ownSpareMax = 4
)

// memory returns memory for an own message.
func (l *loans) memory(size int) []byte {
	if l.engine == nil || size < ownSizeMin || len(l.open) == loansMax {
		return make([]byte, size)
	}
	var m *ownMemory
	if last := len(l.own) - 1; last >= 0 {
		m, l.own[last] = l.own[last], nil
		l.own = l.own[:last]
	}
	if m == nil || len(m.bytes) < size || len(m.bytes) > ownSpareMax*size {
		m = &ownMemory{loans: l, bytes: make([]byte, size+size/4)}
	}
	l.open = append(l.open, m)
	return m.bytes[:size]
}

// borrows reports whether the driver gives loans back. Records and what Arrived gets are kept. A
// host that does not hand over frames promptly lends none, and may pass on the bytes of an own
// message without a copy, as that of package memory does: they must not change then.
func (d *Driver) borrows() bool {
	_, borrows := d.config.Sink.(BorrowingSink)
	_, lends := d.config.Host.(rdmanet.PromptHost)
	return borrows && lends && d.config.Arrived == nil && d.config.Record == nil
}

// borrow begins to give loans back, if the engine can say when it is done with frames.
func (l *loans) borrow(engine order.Broadcaster, members int) {
	borrower, can := engine.(order.Borrower)
	if !can {
		return
	}
	*l = loans{engine: borrower, sent: make([]uint64, members)}
	borrower.UseMemory(l.memory)
}

// forget gives up all loans, and those to come.
func (l *loans) forget() { *l = loans{} }

// took records the loans of frames that were given to the engine. It empties the list.
func (l *loans) took(taken []rdmanet.Loan) {
	for i, loan := range taken {
		taken[i] = nil
		switch {
		case l.engine == nil:
		case slices.Contains(l.open, loan):
			loan.Release() // it is held already
		case len(l.open) == loansMax:
			l.open = nil // some member acknowledges nothing
		default:
			l.open = append(l.open, loan)
		}
	}
}

// giveBack gives back the loans of which nobody reads a frame any more. It is called at the end of
// a turn, when the Sink has taken all rounds.
func (r *running) giveBack() {
	l := &r.loans
	if l.engine == nil {
		return
	}
	if len(l.waiting) > 0 {
		if l.engine.Delivered() < l.until {
			return
		}
		if !l.counted {
			l.counted = true
			for i := range r.outboxes {
				l.sent[i] = r.outboxes[i].total + uint64(len(r.outboxes[i].queue))
			}
		}
		if !r.acknowledged() {
			return
		}
		for i, loan := range l.waiting {
			l.waiting[i] = nil
			loan.Release()
		}
		l.waiting = l.waiting[:0]
	}
	if horizon := l.engine.Horizon(); horizon > 0 && len(l.open) > 0 {
		l.open, l.waiting, l.until, l.counted = l.waiting, l.open, horizon, false
	}
}

// acknowledged reports whether all members have acknowledged the frames that were sent to them
// before they were counted. If one is lost it forgets the loans, since its lane may go on with
// frames for a while.
func (r *running) acknowledged() bool {
	for i := range r.outboxes {
		box := &r.outboxes[i]
		switch since := box.total - r.loans.sent[i]; {
		case box.lane == nil:
		case box.lost:
			r.loans.forget()
			return false
		case box.total < r.loans.sent[i] || uint64(box.lane.Pending()) > since:
			return false
		}
	}
	return true
}
