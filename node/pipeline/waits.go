package pipeline

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
)

// wait is one caller's wait for one transaction, or for transfers of a packed bundle that follow
// each other. It is in a list of those with the same place in the table.
type wait struct {
	waiter *waiter
	place  int // of the first transaction in the waiter
	// count is how many transactions it is for, 1 or more. Those after the first one are next to it
	// in the waiter, and in their packed bundle.
	count        int
	before, next *wait
}

// id returns the id of the first transaction.
func (w *wait) id() *ledger.Hash { return &w.waiter.ids[w.place] }

// holds reports whether the wait is for a transaction, and which of its transactions that is.
func (w *wait) holds(id *ledger.Hash) (offset int, holds bool) {
	if *w.id() == *id {
		return 0, true
	}
	if w.count == 1 {
		return 0, false
	}
	first, from := ledger.PackedPlace(*w.id())
	other, place := ledger.PackedPlace(*id)
	return place - from, first == other && place > from && place-from < w.count
}

// follows reports whether an id is of the transfer after the one with another id, in the same
// packed bundle. Ids of other transactions never look so, as they are hashes.
func follows(id, other *ledger.Hash) bool {
	first, place := ledger.PackedPlace(*id)
	before, from := ledger.PackedPlace(*other)
	return place == from+1 && first == before
}

// runsOf returns the waits of a waiter, which are not in the table yet.
func runsOf(w *waiter) []wait {
	runs := 0
	for i := range w.ids {
		if i == 0 || !follows(&w.ids[i], &w.ids[i-1]) {
			runs++
		}
	}
	waits := make([]wait, 0, runs)
	for i := range w.ids {
		if i > 0 && follows(&w.ids[i], &w.ids[i-1]) {
			waits[len(waits)-1].count++
		} else {
			waits = append(waits, wait{waiter: w, place: i, count: 1})
		}
	}
	return waits
}

// waits finds what callers wait for by the transaction's id. Ids of one packed bundle begin alike,
// so they have the same place in the table. It is a hash table of lists, since
// several callers may wait for one transaction, and one caller several times. Adding and removing a
// wait takes the same time in a long list.
//
// Clients choose the ids that they wait for, but not which of them get the same place: that depends
// on a secret number.
type waits struct {
	lists  []*wait // a power of two
	shift  int     // of a hash, to its place in lists
	count  int
	secret uint64 // odd
}

// fewestLists is a table's size in the beginning.
const fewestLists = 64

func newWaits() waits {
	return waits{lists: make([]*wait, fewestLists), shift: shiftOf(fewestLists),
		secret: rand.Uint64() | 1}
}

func shiftOf(lists int) int { return 64 - bits.TrailingZeros(uint(lists)) }

// list returns the list in which a transaction's waits are, among others.
func (t *waits) list(id *ledger.Hash) **wait {
	return &t.lists[binary.LittleEndian.Uint64(id[:])*t.secret>>t.shift]
}

// anyOf reports whether a caller waits for a transaction.
func (t *waits) anyOf(id *ledger.Hash) bool {
	for each := *t.list(id); each != nil; each = each.next {
		if _, holds := each.holds(id); holds {
			return true
		}
	}
	return false
}

func (t *waits) add(added *wait) {
	if t.count == len(t.lists) {
		t.grow()
	}
	t.count++
	t.link(added)
}

func (t *waits) link(added *wait) {
	list := t.list(added.id())
	added.before, added.next = nil, *list
	if added.next != nil {
		added.next.before = added
	}
	*list = added
}

func (t *waits) remove(gone *wait) {
	t.count--
	if gone.next != nil {
		gone.next.before = gone.before
	}
	if gone.before != nil {
		gone.before.next = gone.next
	} else {
		*t.list(gone.id()) = gone.next
	}
}

// grow doubles the number of lists.
func (t *waits) grow() {
	old := t.lists
	t.lists = make([]*wait, 2*len(old))
	t.shift = shiftOf(len(t.lists))
	for _, each := range old {
		for each != nil {
			next := each.next
			t.link(each)
			each = next
		}
	}
}
