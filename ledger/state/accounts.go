package state

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// accountsPerPage is how many accounts are in one piece of memory, so that the garbage collector
// has few pieces to find.
const accountsPerPage = 1 << 9

type accountPage [accountsPerPage]account

// accounts are the resident accounts. The index finds them by path. It has 8 bytes for a slot and
// no pointers, where a map would have 24 and two. So the garbage collector does not read it, and a
// lookup reads only a slot, the account and its path.
type accounts struct {
	pages []*accountPage
	// length is the number of accounts. places is that of places for them, of which free are not
	// taken: an account there has no path.
	length, places int
	free           []uint32
	paths          pathMemory

	// index is a hash table with linear probing. Its length is a power of two. A slot that is taken
	// has 32 bits of the path's hash above the account's place, counted from 1. The home of a hash
	// is given by its highest bits. The seed is random, so that no client can choose paths that
	// share a home. The order of the slots is never visible.
	index []uint64
	seed  maphash.Seed
	shift int
}

func newAccounts() accounts {
	a := accounts{seed: maphash.MakeSeed()}
	a.resize(64)
	return a
}

// at returns the account at a place.
func (a *accounts) at(place int) *account {
	return &a.pages[place/accountsPerPage][place%accountsPerPage]
}

// all returns the accounts in the order of their places.
func (a *accounts) all() iter.Seq[*account] {
	return func(yield func(*account) bool) {
		for place := range a.places {
			if each := a.at(place); each.path != "" && !yield(each) {
				return
			}
		}
	}
}

func (a *accounts) hash(path ledger.AccountPath) uint32 {
	return uint32(maphash.String(a.seed, string(path)))
}

// home is the slot where the search for a hash begins.
func (a *accounts) home(hash uint32) int { return int(hash >> a.shift) }

// next is the slot after one.
func (a *accounts) next(slot int) int { return (slot + 1) & (len(a.index) - 1) }

// find returns the account with a path, or nil.
func (a *accounts) find(path ledger.AccountPath) *account {
	hash := a.hash(path)
	for slot := a.home(hash); a.index[slot] != 0; slot = a.next(slot) {
		if taken := a.index[slot]; uint32(taken>>32) == hash {
			if found := a.at(int(uint32(taken)) - 1); found.path == path {
				return found
			}
		}
	}
	return nil
}

// lookup is the search for the account with a path.
type lookup struct {
	path ledger.AccountPath
	hash uint32
	// maybe is unset if the account is not there, or not the likely one.
	maybe bool
	found *account
}

// findAll finds the account of each lookup; nil if there is none. A find waits for memory three
// times in turn: for the slot, the account and its path. A processor waits for several places at a
// time if it has little else to do in between. So findAll reads all slots, then all accounts, then
// all paths.
func (a *accounts) findAll(lookups []lookup) {
	for i := range lookups {
		lookups[i].hash = a.hash(lookups[i].path)
	}
	for i := range lookups { // apart, as hashing is so much that it would wait for each slot
		lookups[i].maybe = a.index[a.home(lookups[i].hash)] != 0
	}
	for i := range lookups {
		l := &lookups[i]
		if l.found = nil; l.maybe {
			l.found = a.likely(l.hash)
			// This reads both lines of the account: the path is in one, the number in the other.
			l.maybe = l.found != nil && len(l.found.path) == len(l.path) && l.found.number > 0
		}
	}
	for i := range lookups {
		l := &lookups[i]
		if l.found != nil && (!l.maybe || l.found.path != l.path) {
			l.found = a.find(l.path)
		}
	}
}

// likely returns the first account whose path has the hash, or nil.
func (a *accounts) likely(hash uint32) *account {
	for slot := a.home(hash); a.index[slot] != 0; slot = a.next(slot) {
		if taken := a.index[slot]; uint32(taken>>32) == hash {
			return a.at(int(uint32(taken)) - 1)
		}
	}
	return nil
}

// add adds an empty account with a path that no other one has. It keeps the path as it is.
func (a *accounts) add(path ledger.AccountPath) *account {
	if a.length >= len(a.index)/4*3 {
		a.resize(2 * len(a.index))
	}
	place := a.take()
	a.length++
	added := a.at(place)
	added.path = path
	a.put(uint64(a.hash(path))<<32 | uint64(uint32(place+1)))
	return added
}

// take returns a place that is free: the one that was freed last, or else a new one.
func (a *accounts) take() (place int) {
	if last := len(a.free) - 1; last >= 0 {
		place, a.free = int(a.free[last]), a.free[:last]
		return place
	}
	if a.places/accountsPerPage == len(a.pages) {
		a.pages = append(a.pages, new(accountPage))
	}
	a.places++
	return a.places - 1
}

// put puts a value into the first free slot for its hash.
func (a *accounts) put(value uint64) {
	slot := a.home(uint32(value >> 32))
	for a.index[slot] != 0 {
		slot = a.next(slot)
	}
	a.index[slot] = value
}

// reserve makes room in the index for a number of accounts at once. To grow later takes the longer,
// the more accounts there are.
func (a *accounts) reserve(count int) {
	slots := len(a.index)
	for count >= slots/4*3 {
		slots *= 2
	}
	if slots > len(a.index) {
		a.resize(slots)
	}
}

// resize gives the index a number of slots. Homes are in the order of the hashes, so the memory of
// both indexes is passed once.
func (a *accounts) resize(slots int) {
	before := a.index
	a.index, a.shift = make([]uint64, slots), 32-bits.TrailingZeros(uint(slots))
	for _, value := range before {
		if value != 0 {
			a.put(value)
		}
	}
}

// remove removes an account. Its memory is for one that is added later.
func (a *accounts) remove(gone *account) {
	free := a.home(a.hash(gone.path))
	for a.index[free] == 0 || a.at(int(uint32(a.index[free]))-1) != gone {
		if a.index[free] == 0 {
			panic("ledger: account " + string(gone.path) + " is not in the index")
		}
		free = a.next(free)
	}
	a.free = append(a.free, uint32(a.index[free])-1)
	// A value after the free slot, whose search would end there, moves into it.
	for slot := a.next(free); a.index[slot] != 0; slot = a.next(slot) {
		home := a.home(uint32(a.index[slot] >> 32))
		if mask := len(a.index) - 1; (slot-home)&mask >= (slot-free)&mask {
			a.index[free], free = a.index[slot], slot
		}
	}
	a.index[free] = 0
	*gone = account{}
	a.length--
}

// pathMemory holds paths one after another, in pieces of memory for many of them.
type pathMemory struct{ piece strings.Builder }

// pathPiece is the size of a piece.
const pathPiece = 1 << 13

// kept returns the path in memory that the state may keep.
func (m *pathMemory) kept(path ledger.AccountPath) ledger.AccountPath {
	if m.piece.Cap()-m.piece.Len() < len(path) {
		m.piece = strings.Builder{}
		m.piece.Grow(pathPiece)
	}
	start := m.piece.Len()
	m.piece.WriteString(string(path))
	return ledger.AccountPath(m.piece.String()[start:])
}
