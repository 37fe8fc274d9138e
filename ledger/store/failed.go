package store

import (
	"fmt"
	"maps"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// failedIDs are the first bytes of the ids of transactions that are in a block though their nonces
// may be fresh: they failed, were set aside for the home of their signer to decide, or passed
// through. A transaction with a fresh nonce that is not among them was in no block. So most
// transactions are known to be new without a look-up on the disk.
//
// Transactions that concern several shards have deadlines from ledger.DeadlineVersion on. Memory
// forgets an id a while after its deadline is over by the time of the head. It asks the disk for
// every transaction with such a deadline, new or not. Such a transaction changes nothing, so
// clients have no reason to send many. Blocks never become younger, so no id is needed again.
type failedIDs struct {
	// always has the ids of transactions without a deadline, or with one that is far ahead.
	always map[uint64]struct{}
	// until has the others, by the period of the deadline. It has half as many bytes of each. If an
	// id is taken for another one, that costs a look-up on the disk.
	until map[period]map[uint32]struct{}
	// within has those of which a snapshot does not tell the period, by the last one that it may
	// be. They are those of the last days before the snapshot.
	within map[period]map[uint32]struct{}
	spans
}

func newFailedIDs() failedIDs {
	return failedIDs{always: make(map[uint64]struct{}),
		until:  make(map[period]map[uint32]struct{}),
		within: make(map[period]map[uint32]struct{})}
}

// period is a part of the time since 1970, of periodLength. Deadlines of a period are forgotten
// together.
type period int64

const periodLength ledger.Milliseconds = 6 * 3600 * 1000

func periodOf(time ledger.Milliseconds) period { return period(time / periodLength) }

// lapse is what a record of the index has of the deadline of a transaction: 0 for none, or one that
// is far ahead, and else one more than the number of periods from that of the block. It is
// lapseWithin for one that is not known, and that is at most farthest periods ahead.
type lapse uint8

const lapseWithin = lapse(farthest) + 2

// farthest is how many periods a deadline may be ahead. No transaction that was set aside with a
// deadline has one that is further.
const farthest = period(ledger.MaxDeadline / periodLength)

// lapseOf returns the lapse of a deadline in a block of a time. A deadline that was over before
// counts as one in the period of the block.
func lapseOf(time, deadline ledger.Milliseconds) lapse {
	ahead := max(0, periodOf(deadline)-periodOf(time))
	if deadline == 0 || ahead > farthest {
		return 0
	}
	return lapse(ahead + 1)
}

// lapseInOutline returns the lapse for a result in the outline of a block of the book, which has no
// deadlines. From ledger.DeadlineVersion on, whatever was set aside has a deadline.
func lapseInOutline(genesis *ledger.Genesis, result ledger.Result) lapse {
	if result.Code == ledger.SetAside && ledger.TakesDeadlines(genesis.Version) {
		return lapseWithin
	}
	return 0
}

// lapseIn returns the lapse of a failed transaction's deadline in its block. A packed bundle has no
// deadline.
func lapseIn(block *ledger.Block, head *ledger.Head) lapse {
	if head.Transfers > 0 {
		return 0
	}
	entry := block.Entry(head.Index)
	return lapseOf(block.Header.Time, entry.Transaction().Deadline)
}

// spans tell in which periods blocks are.
type spans struct {
	// now is the period of the head. Deadlines of earlier ones are over.
	now period
	// begins are the first blocks of periods, in ascending order. In earlier blocks all deadlines
	// are over, except those that are far ahead. The slice is only appended to and cut at its
	// beginning.
	begins []begin
}

// begin is the first block of a period.
type begin struct {
	first ledger.Height
	of    period
}

// until returns the period of a deadline, given its lapse, of a transaction in a block. over
// reports that it is over for certain. Then the period is only right if the block is one of those
// that the spans have.
func (x *spans) until(height ledger.Height, left lapse) (of period, over bool) {
	at := len(x.begins) - 1
	for at >= 0 && x.begins[at].first > height {
		at--
	}
	if at < 0 {
		return 0, true
	}
	of = x.begins[at].of + min(period(left)-1, farthest)
	return of, of < x.now
}

// advance notes the next block, and forgets the ids whose deadlines are over by its time.
func (f *failedIDs) advance(header *ledger.Header) {
	of := periodOf(header.Time)
	if len(f.begins) == 0 || of > f.begins[len(f.begins)-1].of {
		f.begins = append(f.begins, begin{header.Height, of})
	}
	if of <= f.now {
		return
	}
	f.now = of
	over := func(each period, _ map[uint32]struct{}) bool { return each < of }
	maps.DeleteFunc(f.until, over)
	maps.DeleteFunc(f.within, over)
	for len(f.begins) > 0 && f.begins[0].of+farthest < of {
		f.begins = f.begins[1:]
	}
}

// add adds the id of a transaction without a deadline, or with one that is far ahead.
func (f *failedIDs) add(short uint64) { f.always[short] = struct{}{} }

// addUntil adds the id of a transaction with a deadline in a period, unless that is over.
func (f *failedIDs) addUntil(short uint64, of period) { f.addTo(f.until, short, of) }

func (f *failedIDs) addTo(to map[period]map[uint32]struct{}, short uint64, of period) {
	if of < f.now {
		return
	}
	some := to[of]
	if some == nil {
		some = make(map[uint32]struct{})
		to[of] = some
	}
	some[shorter(short)] = struct{}{}
}

func shorter(short uint64) uint32 { return uint32(short >> 32) }

// mayHave reports whether a transaction with a deadline, or 0 for none, may be among those whose
// ids were added.
func (f *failedIDs) mayHave(short uint64, deadline ledger.Milliseconds) bool {
	_, has := f.always[short]
	if has || deadline == 0 {
		return has
	}
	of := periodOf(deadline)
	if of < f.now {
		return true
	}
	if _, has := f.until[of][shorter(short)]; has {
		return true
	}
	for last, some := range f.within {
		if _, has := some[shorter(short)]; has && of <= last {
			return true
		}
	}
	return false
}

// addBlock adds the ids of a block that follows the blocks before.
func (f *failedIDs) addBlock(block *ledger.Block) {
	f.advance(&block.Header)
	// The first transfer of a packed bundle stands for the others; see unseen.
	for head := range block.Heads() {
		if indexKind(head.Result) != indexFailed {
			continue
		}
		if left := lapseIn(block, &head); left == 0 {
			f.add(shortID(head.ID))
		} else {
			f.addUntil(shortID(head.ID), periodOf(block.Header.Time)+period(left)-1)
		}
	}
}

// lapsing is a failed transaction whose deadline is not over: the first bytes of its id, and the
// period of the deadline, or the last one that it may be in.
type lapsing struct {
	short  uint64
	until  period
	within bool
}

// withinBit marks the last period that a deadline may be in, in a guide.
const withinBit = 1 << 63

// guided returns the period as a guide has it.
func (l *lapsing) guided() uint64 {
	if l.within {
		return uint64(l.until) | withinBit
	}
	return uint64(l.until)
}

// addRun adds the ids of the failed transactions of a run of ids.
func (f *failedIDs) addRun(r *run) {
	for _, short := range r.failed {
		f.add(short)
	}
	for _, each := range r.lapsing {
		if each.within {
			f.addTo(f.within, each.short, each.until)
		} else {
			f.addUntil(each.short, each.until)
		}
	}
}

// knows reports whether the id of a failed transaction is here, or need not be, given its place.
func (f *failedIDs) knows(short uint64, where position) bool {
	if where.lapse == 0 {
		_, has := f.always[short]
		return has
	}
	of, over := f.spans.until(where.height, where.lapse)
	if over {
		return true
	}
	in := f.until
	if where.lapse == lapseWithin {
		in = f.within
	}
	_, has := in[of][shorter(short)]
	return has
}

// loadSpans finds the first blocks of the last periods, up to the head. It reads few headers, of
// which it believes the times.
func (s *Store) loadSpans(transaction *badger.Txn, head ledger.Height) error {
	if len(s.failed.begins) > 0 || head == 0 {
		return nil
	}
	at := func(height ledger.Height) (period, error) {
		header, _, err := readHeader(transaction, height)
		return periodOf(header.Time), err
	}
	first := ledger.Height(1)
	for of := s.failed.now - farthest; ; {
		for beyond := head + 1; first < beyond; {
			middle := (first + beyond) / 2
			found, err := at(middle)
			switch {
			case err != nil:
				return fmt.Errorf("finding the blocks of the last days: %w", err)
			case found < of:
				first = middle + 1
			default:
				beyond = middle
			}
		}
		if first > head {
			return nil
		}
		found, err := at(first)
		if err != nil {
			return fmt.Errorf("finding the blocks of the last days: %w", err)
		}
		s.failed.begins = append(s.failed.begins, begin{first, found})
		of = found + 1
	}
}
