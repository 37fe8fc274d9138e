package state

import (
	"iter"

	"github.com/ledgerd/ledgerd/ledger"
)

// Change is one entry of the state that a block changed, or removed if After is empty. The slices
// share one arena with those of other changes, which must not be written to.
type Change struct {
	Key, After []byte
}

// ChangeList lists changes. A block has thousands, so it has no pointers to each, which the garbage
// collector would follow.
type ChangeList struct {
	arena  []byte
	places []changeSpan
}

// changeSpan is the place of a change in the arena: where its key begins, and the lengths of the
// key and of the value that follows it. account is the number of the account whose entry it is; 0
// if it is none.
type changeSpan struct {
	start, account uint64
	key, after     uint32
}

// Len returns the number of changes.
func (l *ChangeList) Len() int { return len(l.places) }

// At returns a change by its place in the list.
func (l *ChangeList) At(place int) Change {
	at := &l.places[place]
	value := at.start + uint64(at.key)
	end := value + uint64(at.after)
	return Change{Key: l.arena[at.start:value:value], After: l.arena[value:end:end]}
}

// Account returns the number of the account whose entry a change is of, or 0 if it is no account's.
// The number says which entry it is as well as the key does.
func (l *ChangeList) Account(place int) uint64 { return l.places[place].account }

// All returns the changes in order.
func (l *ChangeList) All() iter.Seq[Change] {
	return func(yield func(Change) bool) {
		for place := range l.places {
			if !yield(l.At(place)) {
				return
			}
		}
	}
}

// Add adds a change, of which it keeps a copy. account is what Account returns of it.
func (l *ChangeList) Add(change Change, account uint64) {
	l.note(len(l.arena), len(change.Key), len(change.After), account)
	l.arena = append(append(l.arena, change.Key...), change.After...)
}

// note adds a change whose place in the arena is known.
func (l *ChangeList) note(start, key, after int, account uint64) {
	l.places = append(l.places, changeSpan{start: uint64(start), account: account,
		key: uint32(key), after: uint32(after)})
}

// HistoryChange adds one transaction to the history of an account. A block has two for each
// transfer, so it is small.
type HistoryChange struct {
	// place is the number of the account above the index of the transaction, which is below
	// ledger.MaxBlockTransactions.
	place uint64
	// Ordinal is the number of the entry in the account's history, from 0.
	Ordinal uint64
}

// indexBits is how many bits an index in a block has. The others leave room for the numbers of more
// accounts than any memory has leaves for.
const indexBits = 24

var _ [1<<indexBits - ledger.MaxBlockTransactions]struct{}

// NewHistoryChange returns the change that adds the transaction at an index of the block to the
// history of the account with a number, as its entry ordinal.
func NewHistoryChange(number, ordinal uint64, index uint32) HistoryChange {
	return HistoryChange{place: number<<indexBits | uint64(index), Ordinal: ordinal}
}

// Number returns the number of the account.
func (h HistoryChange) Number() uint64 { return h.place >> indexBits }

// Index returns the index of the transaction in the block.
func (h HistoryChange) Index() uint32 { return uint32(h.place & (1<<indexBits - 1)) }

// Changes lists what a block changed in the state, in the order in which it first touched the
// entries of each kind.
type Changes struct {
	Entries ChangeList
	History []HistoryChange
	// Counts are those that the block may have changed, as they are after it.
	Counts []Counts
	// Seeds are the directories with which the chains of shards begin that the block added.
	Seeds []Seed
	// Replaced are the terms and assets that the block replaced.
	Replaced []Replaced
	Crossings
}
