package mempool

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
)

// place is a transaction's place in the pool, or that of all transfers of a packed bundle. Their
// ids begin alike, so they get the same list.
type place struct {
	id   *ledger.Hash // of a packed bundle: that of the first transfer
	item *item
	// transfers is how many a packed bundle has, and 0 for a transaction with an id of its own.
	transfers int
	next      *place // in the same list of the table
}

// holds reports whether a transaction has the place.
func (p *place) holds(id *ledger.Hash) bool {
	if p.transfers == 0 {
		return *p.id == *id
	}
	first, at := ledger.PackedPlace(*id)
	return first == *p.id && at < p.transfers
}

// transactions returns how many transactions have the place.
func (p *place) transactions() int { return max(1, p.transfers) }

// places finds items by the ids of their transactions. It is a hash table of lists, which takes a
// fraction of the time of a map with whole ids. Clients can choose some bits of an id, but not
// which ids get the same list: that depends on a secret number.
type places struct {
	lists  []*place // a power of two
	shift  int      // of a hash, to its place in lists
	count  int
	secret uint64 // odd
	// transactions is how many there are in all places.
	transactions int
}

// fewestLists is a table's size in the beginning.
const fewestLists = 64

func newPlaces() places {
	return places{lists: make([]*place, fewestLists), shift: shiftOf(fewestLists),
		secret: rand.Uint64() | 1}
}

func shiftOf(lists int) int { return 64 - bits.TrailingZeros(uint(lists)) }

func (t *places) list(id *ledger.Hash) **place {
	return &t.lists[binary.LittleEndian.Uint64(id[:])*t.secret>>t.shift]
}

// find returns the item with a transaction, or nil.
func (t *places) find(id *ledger.Hash) *item {
	for at := *t.list(id); at != nil; at = at.next {
		if at.holds(id) {
			return at.item
		}
	}
	return nil
}

// add adds a place of a transaction that has none.
func (t *places) add(added *place) {
	if t.count == len(t.lists) {
		t.grow()
	}
	t.count++
	t.transactions += added.transactions()
	t.link(added)
}

func (t *places) link(added *place) {
	list := t.list(added.id)
	added.next, *list = *list, added
}

// remove removes the place of a transaction, or of a packed bundle's first transfer, and returns
// the item, or nil if there is none.
func (t *places) remove(id *ledger.Hash) *item {
	for at := t.list(id); *at != nil; at = &(*at).next {
		if gone := *at; *gone.id == *id {
			t.count--
			t.transactions -= gone.transactions()
			*at, gone.next = gone.next, nil
			return gone.item
		}
	}
	return nil
}

// grow doubles the number of lists.
func (t *places) grow() {
	old := t.lists
	t.lists = make([]*place, 2*len(old))
	t.shift = shiftOf(len(t.lists))
	for _, each := range old {
		for each != nil {
			next := each.next
			t.link(each)
			each = next
		}
	}
}
