package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// ErrNotYet reports that a chain is not as far yet as a read needs it.
var ErrNotYet = errors.New("store: the chain is not so far yet")

// Place is a place in a chain, between two entries: after all entries of the blocks up to Height,
// and after the first Entries entries of the next block.
type Place struct {
	Height  ledger.Height
	Entries uint32
}

// Has reports whether an entry of a block is before the place.
func (p Place) Has(height ledger.Height, index uint32) bool {
	return height <= p.Height || height-1 == p.Height && index < p.Entries
}

// Compare orders places as they are in the chain.
func (p Place) Compare(other Place) int {
	return cmp.Or(cmp.Compare(p.Height, other.Height), cmp.Compare(p.Entries, other.Entries))
}

// Last returns the last block that has an entry before the place.
func (p Place) Last() ledger.Height {
	if p.Entries > 0 {
		return p.Height + 1
	}
	return p.Height
}

// CheckPlace returns ErrNotFound if a place is within a bundle, or after more entries than its
// block has. It returns ErrNotYet if the chain does not have the place yet.
func (s *Store) CheckPlace(place Place) error {
	head := s.AppendedHeight()
	if place.Height > head || place.Last() > head {
		return fmt.Errorf("%w: it ends with block %d, before the end of block %d", ErrNotYet, head,
			place.Last())
	}
	if place.Entries == 0 {
		return nil
	}
	block, err := s.Block(place.Last())
	if err != nil {
		return err
	}
	// A book of several shards has no packed bundles, so Unpacked has all transactions. In a book
	// of one shard, a place is the end of a block.
	entries, at := block.Unpacked, int64(place.Entries)
	if s.ShardTree() == nil || at > int64(len(entries)) ||
		at < int64(len(entries)) && entries[at-1].Bundle == entries[at].Bundle {
		return fmt.Errorf("%w: a place after %d entries of block %d", ErrNotFound, place.Entries,
			place.Last())
	}
	return nil
}

// bundlesBefore returns how many bundles of the block after a place's height are before the place.
func (s *Store) bundlesBefore(place Place) (uint32, error) {
	if place.Entries == 0 {
		return 0, nil
	}
	block, err := s.Block(place.Last())
	if err != nil {
		return 0, err
	}
	if int64(place.Entries) >= int64(len(block.Unpacked)) {
		return uint32(len(block.Bundles)), nil
	}
	return uint32(block.Unpacked[place.Entries].Bundle), nil
}

// walkDefault bounds the work of a look-up in blocks of an earlier version, which have no rows for
// the entries of the parent's stream (Effort). It takes a second or two.
const walkDefault = 500_000

func (s *Store) walk() *Effort { return &Effort{Most: s.options.walk, Near: s.options.walk} }

// CarriedAt returns the number of the last entry of the parent's stream in the blocks up to a
// height, or 0 if they have none. It returns ErrFarBack if an earlier version wrote the blocks, and
// many of them are without an entry.
func (s *Store) CarriedAt(ctx context.Context, height ledger.Height) (uint64, error) {
	return s.carriedAt(ctx, height, s.walk())
}

// carriedAt is CarriedAt with a bound of the work for all look-ups of a call.
func (s *Store) carriedAt(ctx context.Context, height ledger.Height,
	effort *Effort) (uint64, error) {
	s.mutex.RLock()
	head, last := s.head.Header.Height, s.state.Carried()
	s.mutex.RUnlock()
	if last == 0 || height == 0 {
		return 0, nil
	}
	var base uint64
	for _, leg := range slices.Backward(s.legsAbove()) {
		if base, last = leg.Base(), leg.Last; leg.Change == 0 || leg.Height <= height {
			break
		}
	}
	carried, err := lastOf(last-base, func(number uint64) (bool, error) {
		where, err := s.carriedPlace(base + number)
		return where.height <= height, err
	})
	carried = s.after(base + carried)
	if errors.Is(err, errMissing) {
		return s.walkToCarried(ctx, height, head, last, effort)
	}
	return carried, err
}

// walkToCarried is CarriedAt if the store has no row for an entry, because an earlier version wrote
// the block. It looks for the nearest block with an entry, before and after. Last is the last entry
// of the chain up to the block head.
func (s *Store) walkToCarried(ctx context.Context, height, head ledger.Height,
	last uint64, effort *Effort) (uint64, error) {
	read := func(at ledger.Height) (*ledger.Block, error) {
		block, err := s.Block(at)
		if err == nil {
			err = effort.look(ctx, block)
		}
		if errors.Is(err, ErrFarBack) {
			err = fmt.Errorf("%w: an earlier version wrote the blocks around block %d and did "+
				"not index the entries of the stream from above, and there is none near it",
				ErrFarBack, height)
		}
		return block, err
	}
	for before, after := height, height+1; ; after++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if after > head {
			return last, nil
		}
		block, err := read(after)
		if err != nil {
			return 0, err
		}
		if first, _ := carriedIn(block); first != 0 {
			return first - 1, nil
		}
		if before == 0 {
			return 0, nil
		}
		if before <= s.Absent() {
			continue // the blocks after it have the answer, too
		}
		if block, err = read(before); err != nil {
			return 0, err
		}
		if _, number := carriedIn(block); number != 0 {
			return s.after(number), nil
		}
		before--
	}
}

// HasCarried reports whether exactly the entries of the parent's stream up to a number are before a
// place. Of an entry whose transactions all were in the chain already, nothing is in the block. So
// at one place there may be several such numbers.
func (s *Store) HasCarried(ctx context.Context, place Place, number uint64) (bool, error) {
	least, err := s.CarriedAt(ctx, place.Height)
	if err != nil {
		return false, err
	}
	if least == number && place.Entries == 0 || place.Height >= s.AppendedHeight() {
		return least == number, nil
	}
	block, err := s.Block(place.Height + 1)
	if err != nil {
		return false, err
	}
	most := least
	begin := uint32(0) // of a bundle's entries in Unpacked
	for i := range block.Bundles {
		end := begin
		for ; int(end) < len(block.Unpacked) && block.Unpacked[end].Bundle == i; end++ {
		}
		if end > place.Entries {
			break
		}
		if carried := block.Bundles[i].Number; carried != 0 {
			most = s.after(carried)
			if begin < place.Entries {
				least = most
			}
		}
		begin = end
	}
	return least <= number && number <= most, nil
}

// carriedIn returns the numbers of the first and the last entry of the parent's stream in a block.
// Both are 0 if it has none.
func carriedIn(block *ledger.Block) (first, last uint64) {
	for i := range block.Bundles {
		if number := block.Bundles[i].Number; number != 0 {
			if first == 0 {
				first = number
			}
			last = number
		}
	}
	return first, last
}

// carriedPlace returns where an entry of the parent's stream is: the index is its bundle's. It
// returns errMissing if the store has no row for it, because an earlier version wrote the block or
// because the store began with a snapshot.
func (s *Store) carriedPlace(number uint64) (where position, err error) {
	s.mutex.RLock()
	where, found := s.unwritten.carriedEntry(number)
	height := s.head.Header.Height
	s.mutex.RUnlock()
	if found {
		return where, nil
	}
	defer guard(height, &err)
	err = s.view(func(transaction *badger.Txn) error {
		where, err = findPlace(transaction, carriedKey(number))
		if err != nil && !errors.Is(err, errMissing) {
			return damaged(height, "entry %d of the stream from above: %v", number, err)
		}
		return err
	})
	return where, err
}

// firstWith returns the block up to a height with which the chain gets an entry of the parent's
// stream, or ErrNotYet.
func (s *Store) firstWith(ctx context.Context, number uint64, upTo ledger.Height,
	effort *Effort) (ledger.Height, error) {
	carried, err := s.carriedAt(ctx, upTo, effort)
	if err != nil {
		return 0, err
	}
	if carried < number {
		return 0, fmt.Errorf("%w: up to block %d it has %d entries of the stream from above, "+
			"not %d", ErrNotYet, upTo, carried, number)
	}
	for _, leg := range s.legsAbove() {
		if leg.Change > 0 && leg.Base() == number {
			return leg.Height, nil
		}
	}
	where, err := s.carriedPlace(number)
	if !errors.Is(err, errMissing) {
		return where.height, err
	}
	last, err := lastOf(uint64(upTo), func(height uint64) (bool, error) {
		carried, err := s.carriedAt(ctx, ledger.Height(height), effort)
		return carried < number, err
	})
	return ledger.Height(last) + 1, err
}

// lastOf returns the last number from 1 to last that is below, or 0 if none is. If a number is
// below, so are all before it. It looks near the end first, because reads are of late places, most
// often.
func lastOf(last uint64, isBelow func(number uint64) (bool, error)) (uint64, error) {
	low, high := uint64(0), last+1
	for step := uint64(1); step <= last; step *= 2 {
		below, err := isBelow(last + 1 - step)
		if err != nil {
			return 0, err
		}
		if below {
			low = last + 1 - step
			break
		}
		high = last + 1 - step
	}
	for low+1 < high {
		middle := low + (high-low)/2
		below, err := isBelow(middle)
		if err != nil {
			return 0, err
		}
		if below {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

// PlaceWith returns a place where the chain has exactly this many entries of the parent's stream:
// the end of block near if it has so many there, else the place nearest to it that has. It looks at
// the blocks up to upTo only, and returns ErrNotYet if these have fewer entries. A block may have
// several entries, so the place may be within a block, before an entry. It returns ErrFarBack as
// CarriedAt does, and ErrNotFound for a number that no place has, because the tree changed there.
func (s *Store) PlaceWith(ctx context.Context, carried uint64, near,
	upTo ledger.Height) (Place, error) {
	near = min(near, upTo)
	if !s.everHas(carried) {
		return Place{}, fmt.Errorf("%w: no place has all entries from above up to %d", ErrNotFound,
			carried)
	}
	effort := s.walk()
	there, err := s.carriedAt(ctx, near, effort)
	switch {
	case err != nil:
		return Place{}, err
	case there == carried:
		return Place{Height: near}, nil
	case there > carried:
		next, err := s.firstWith(ctx, carried+1, near, effort)
		if err != nil {
			return Place{}, err
		}
		return s.before(next, carried+1)
	}
	height, err := s.firstWith(ctx, carried, upTo, effort)
	if err != nil {
		return Place{}, err
	}
	block, err := s.Block(height)
	if err != nil {
		return Place{}, err
	}
	if _, last := carriedIn(block); s.after(last) == carried {
		return Place{Height: height}, nil
	}
	return s.before(height, carried+1)
}

// before returns the place before an entry of the parent's stream in a block.
func (s *Store) before(height ledger.Height, number uint64) (Place, error) {
	block, err := s.Block(height)
	if err != nil {
		return Place{}, err
	}
	bundle := slices.IndexFunc(block.Bundles, func(seal ledger.BundleSeal) bool {
		return seal.Number == number
	})
	if bundle < 0 {
		return Place{}, damaged(height, "it has no entry %d of the stream from above", number)
	}
	return Place{Height: height - 1, Entries: uint32(sort.Search(len(block.Unpacked),
		func(i int) bool { return block.Unpacked[i].Bundle >= bundle }))}, nil
}

// ShardsAt returns how many shards the book has at a place: an addition of a shard counts if it is
// before the place.
func (s *Store) ShardsAt(place Place) (int, error) {
	shards := s.shardsAt(place.Height + 1)
	if place.Entries == 0 || s.shardsAt(place.Height+2) == shards {
		return shards, nil
	}
	block, err := s.Block(place.Height + 1)
	if err != nil {
		return 0, err
	}
	for i := range min(int(place.Entries), block.Len()) {
		entry := block.Entry(i)
		if change := entry.Transaction().Book; change != nil && change.Addition != nil &&
			entry.Result.OK() {
			shards++
		}
	}
	return shards, nil
}

// StreamedAt returns the number of the last entry of the stream to a child shard that is before a
// place, or 0 if there is none. If a change of the tree began the stream, it is the number with
// which that begins.
func (s *Store) StreamedAt(child ledger.ShardID, place Place) (uint64, error) {
	bundles, err := s.bundlesBefore(place)
	if err != nil {
		return 0, err
	}
	rehung, err := s.RehungAt(place)
	if err != nil {
		return 0, err
	}
	made := s.Rehangs()[:rehung]
	var leg state.Leg // the last part of the stream that has begun before the place
	for _, each := range s.legs() {
		if each.Child == child && (each.Change == 0 || slices.ContainsFunc(made,
			func(r state.Rehang) bool { return r.Number == each.Change })) {
			leg = each
		}
	}
	unindexed, base := s.Unindexed(), leg.Base()
	streamed, err := lastOf(leg.Last-base, func(number uint64) (bool, error) {
		where, err := s.forward(child, base+number)
		if errors.Is(err, ErrAbsent) && unindexed <= place.Height {
			return true, nil // it is in a block that the store's snapshot has, before the place
		}
		return where.height <= place.Height ||
			where.height-1 == place.Height && where.index < bundles, err
	})
	return base + streamed, err
}
