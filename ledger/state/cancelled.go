package state

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// Bounds of the cancellations that a shard remembers.
const (
	// MaxCancelled bounds those of one organisation, so that none can use up the memory for all.
	MaxCancelled = 1 << 12
	// SureCancelled is how many each organisation may have, whatever others have. Anyone may
	// register many organisations in an open book, and with them use up what all share.
	SureCancelled = 1 << 4
	// MaxAllCancelled bounds those of all organisations beyond these.
	MaxAllCancelled = 1 << 18
)

// forgottenAtOnce bounds how many cancellations one block forgets. Those that it leaves have no
// effect: their transactions are refused by their deadline.
const forgottenAtOnce = 1 << 10

// withdrawal identifies a cancellation that is remembered: an organisation withdrew its consent to
// a transaction. A stranger may know the id of a transaction, and a shard may not have seen it. So
// the id alone would not do.
type withdrawal struct {
	id ledger.Hash
	by ledger.OrganisationName
}

// cancelled is a cancellation that is remembered until the deadline.
type cancelled struct {
	withdrawal
	deadline ledger.Milliseconds
	// place is that in the heap. It is -1 once the cancellation is forgotten.
	place int
	mark  mark
}

// cancelledSet holds the cancellations that are remembered.
type cancelledSet struct {
	by map[withdrawal]*cancelled
	// next has the one that is forgotten first at its beginning.
	next cancelledHeap
	// shared counts those beyond the first sure ones of each organisation.
	shared int
	// sure, ofOne and ofAll are SureCancelled, MaxCancelled and MaxAllCancelled.
	sure, ofOne, ofAll int
}

func newCancelledSet() cancelledSet {
	return cancelledSet{by: make(map[withdrawal]*cancelled), sure: SureCancelled,
		ofOne: MaxCancelled, ofAll: MaxAllCancelled}
}

// hasRoom reports whether an organisation that has so many cancellations may have one more.
func (c *cancelledSet) hasRoom(has int) bool {
	return has < c.sure || has < c.ofOne && c.shared < c.ofAll
}

// sharedOf returns how many of an organisation's cancellations count towards those of all.
func (c *cancelledSet) sharedOf(has int) int { return max(0, has-c.sure) }

// cancelledHeap is a heap by deadline. Those of one deadline have an order too, so that all members
// forget the same ones.
type cancelledHeap []*cancelled

func (h cancelledHeap) Len() int { return len(h) }

func (h cancelledHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.deadline, b.deadline), bytes.Compare(a.id[:], b.id[:]),
		strings.Compare(string(a.by), string(b.by))) < 0
}

func (h cancelledHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push adds a cancellation. It is for container/heap.
func (h *cancelledHeap) Push(each any) {
	added := each.(*cancelled)
	added.place = len(*h)
	*h = append(*h, added)
}

// Pop removes and returns the last cancellation. It is for container/heap.
func (h *cancelledHeap) Pop() any {
	last := (*h)[len(*h)-1]
	last.place = -1
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

// CancelledCount returns the number of cancellations that are remembered.
func (s *State) CancelledCount() int { return len(s.cancelled.by) }

// Cancelled returns until when this shard remembers that an organisation cancelled a transaction.
func (s *State) Cancelled(id ledger.Hash, by ledger.OrganisationName) (ledger.Milliseconds, bool) {
	if found := s.cancelled.by[withdrawal{id, by}]; found != nil {
		return found.deadline, true
	}
	return 0, false
}

// isCancelled reports whether an organisation whose consent a transaction needs has cancelled it
// here.
func (s *State) isCancelled(id *ledger.Hash, t *ledger.Transaction) bool {
	if len(s.cancelled.by) == 0 || t.Deadline == 0 {
		return false
	}
	if s.fault == FaultCancelledByAnyone {
		for each := range s.cancelled.by {
			if each.id == *id {
				return true
			}
		}
		return false
	}
	for name := range t.Consenting() {
		if s.cancelled.by[withdrawal{*id, name}] != nil {
			return true
		}
	}
	for i := range t.Postings {
		posting := &t.Postings[i]
		if s.cancelled.by[withdrawal{*id, posting.Account.Organisation()}] != nil &&
			s.mustAccept(posting) {
			return true
		}
	}
	return false
}

// attemptCancellation decides on a cancellation whose deadline is not over. The state does not know
// the transactions that it executed before and that do not wait. To remember one of them has no
// effect: no transaction is executed twice.
func (s *State) attemptCancellation(t *ledger.Transaction,
	signatures []ledger.Signature) ledger.Code {
	c := t.Cancellation
	if !ledger.TakesCancellations(s.Version()) {
		return ledger.OutOfPlace
	}
	if c.Shard != s.shard {
		return ledger.UnknownShard
	}
	if code := s.authorised(t.Signer, t, signatures); code != ledger.Applied {
		return code
	}
	if t.Deadline-s.time > ledger.MaxDeadline {
		return ledger.DeadlineTooFar
	}
	if found := s.pending.byID[c.Transaction]; found != nil {
		if s.fault == FaultCancelledAfterAll {
			s.release(found.entry)
			s.settled(found, false)
		}
		return ledger.CancelledTooLate
	}
	has := 0
	if use := s.uses[t.Signer]; use != nil {
		has = use.cancelled
	}
	if s.cancelled.by[withdrawal{c.Transaction, t.Signer}] == nil && !s.cancelled.hasRoom(has) {
		return ledger.TooManyCancelled
	}
	return ledger.Applied
}

// cancel remembers a cancellation until its deadline. Of several of one organisation, the one with
// the latest deadline counts.
func (s *State) cancel(t *ledger.Transaction) {
	s.remember(withdrawal{t.Cancellation.Transaction, t.Signer}, t.Deadline)
}

func (s *State) remember(key withdrawal, deadline ledger.Milliseconds) {
	found := s.cancelled.by[key]
	if found == nil {
		key.by = s.use(key.by).name
		s.addCancelled(&cancelled{withdrawal: key, deadline: deadline,
			mark: mark{touched: true}})
		s.touchedCancelled = append(s.touchedCancelled, s.cancelled.by[key])
		return
	}
	if found.deadline >= deadline {
		return
	}
	s.touchCancelled(found)
	found.deadline = deadline
	heap.Fix(&s.cancelled.next, found.place)
}

// addCancelled adds a cancellation to those that are remembered.
func (s *State) addCancelled(added *cancelled) {
	s.cancelled.by[added.withdrawal] = added
	heap.Push(&s.cancelled.next, added)
	s.countCancelled(added.by, 1)
}

// countCancelled counts one cancellation of an organisation more, or less.
func (s *State) countCancelled(by ledger.OrganisationName, more int) {
	use := s.use(by)
	s.cancelled.shared -= s.cancelled.sharedOf(use.cancelled)
	use.cancelled += more
	s.cancelled.shared += s.cancelled.sharedOf(use.cancelled)
}

// forgetCancelled forgets cancellations whose deadlines are over, in the order of their deadlines.
// It runs after the entries of a block, so a block forgets none that it began to remember.
func (s *State) forgetCancelled() {
	for range forgottenAtOnce {
		if len(s.cancelled.next) == 0 || s.cancelled.next[0].deadline > s.time &&
			(s.fault != FaultCancellationForgotten || s.height%impatience > 0) {
			return
		}
		first := s.cancelled.next[0]
		s.touchCancelled(first)
		heap.Pop(&s.cancelled.next)
		delete(s.cancelled.by, first.withdrawal)
		s.countCancelled(first.by, -1)
	}
}

func (s *State) touchCancelled(found *cancelled) {
	if found.mark.touched {
		return
	}
	found.mark = s.keep(found.appendEntry)
	s.touchedCancelled = append(s.touchedCancelled, found)
}

// finishCancelled collects the changes of cancellations.
func (s *State) finishCancelled(changes *Changes) {
	for _, each := range s.touchedCancelled {
		if each.place < 0 {
			s.remove(changes, each.mark)
		} else {
			s.settle(changes, each.mark, each.appendEntry)
		}
		each.mark = mark{}
	}
	clear(s.touchedCancelled)
	s.touchedCancelled = s.touchedCancelled[:0]
}

func (c *cancelled) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(append(append(append(to, kindCancelled), c.id[:]...), c.by...), 0)
	keyLength = len(to) - start
	return binary.AppendUvarint(to, uint64(c.deadline)), keyLength
}

// restoreCancelled puts the entry of a cancellation into the state. It reports whether there was
// one already.
func (s *State) restoreCancelled(key []byte, r *reader) (restored entry, again bool, err error) {
	if len(key) < 1+ledger.HashSize+1+1 {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	by := ledger.OrganisationName(key[1+ledger.HashSize : len(key)-1])
	if by.Validate() != nil {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	added := &cancelled{deadline: ledger.Milliseconds(r.Uvarint())}
	copy(added.id[:], key[1:])
	added.by = s.use(by).name
	if added.deadline <= 0 {
		r.Fail("a cancellation without a deadline")
	}
	if s.cancelled.by[added.withdrawal] != nil {
		return nil, true, nil
	}
	s.addCancelled(added)
	return added, false, nil
}
