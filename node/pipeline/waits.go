package pipeline

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
)

// wait is one caller's wait for one transaction, in a list of those with the same place in the
// table.
type wait struct {
	waiter       *waiter
	place        int // of the transaction in the waiter
	before, next *wait
}

// id returns the id of the transaction.
func (w *wait) id() *ledger.Hash { return &w.waiter.ids[w.place] }

// of returns the first wait for a transaction, from this one of a list on.
func (w *wait) of(id *ledger.Hash) *wait {
	for w != nil && *w.id() != *id {
		w = w.next
	}
	return w
}

// waits finds what callers wait for by the transaction's id. It is a hash table of lists, since
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

// of returns the first wait for a transaction, or nil. Further ones follow it in its list.
func (t *waits) of(id *ledger.Hash) *wait { return (*t.list(id)).of(id) }

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
