package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/ledgerd/ledgerd/ledger"
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
	return height <= p.Height || height == p.Height+1 && index < p.Entries
}

// Compare orders places as they are in the chain.
func (p Place) Compare(other Place) int {
	return cmp.Or(cmp.Compare(p.Height, other.Height), cmp.Compare(p.Entries, other.Entries))
}

// CarriedAt returns the number of the last entry of the parent's stream in the blocks up to a
// height, or 0 if they have none. It looks for the nearest block with an entry, before and after.
func (s *Store) CarriedAt(height ledger.Height) (uint64, error) {
	s.mutex.RLock()
	head, last := s.head.Header.Height, s.state.Carried()
	s.mutex.RUnlock()
	if last == 0 || height == 0 {
		return 0, nil
	}
	for before, after := height, height+1; ; before, after = before-1, after+1 {
		if before == 0 {
			return 0, nil
		}
		if after > head {
			return last, nil
		}
		block, err := s.Block(after)
		if err != nil {
			return 0, err
		}
		if first, _ := carriedIn(block); first != 0 {
			return first - 1, nil
		}
		if block, err = s.Block(before); err != nil {
			return 0, err
		}
		if _, last := carriedIn(block); last != 0 {
			return last, nil
		}
	}
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

// firstWith returns the first block up to a height with which the chain has this many entries of
// the parent's stream, or ErrNotYet.
func (s *Store) firstWith(number uint64, upTo ledger.Height) (ledger.Height, error) {
	carried, err := s.CarriedAt(upTo)
	if err != nil {
		return 0, err
	}
	if carried < number {
		return 0, fmt.Errorf("%w: up to block %d it has %d entries of the stream from above, "+
			"not %d", ErrNotYet, upTo, carried, number)
	}
	last, err := lastOf(uint64(upTo), func(height uint64) (bool, error) {
		carried, err := s.CarriedAt(ledger.Height(height))
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
// several entries, so the place may be within a block, before an entry.
func (s *Store) PlaceWith(carried uint64, near, upTo ledger.Height) (Place, error) {
	near = min(near, upTo)
	there, err := s.CarriedAt(near)
	switch {
	case err != nil:
		return Place{}, err
	case there == carried:
		return Place{Height: near}, nil
	case there > carried:
		next, err := s.firstWith(carried+1, near)
		if err != nil {
			return Place{}, err
		}
		return s.before(next, carried+1)
	}
	height, err := s.firstWith(carried, upTo)
	if err != nil {
		return Place{}, err
	}
	block, err := s.Block(height)
	if err != nil {
		return Place{}, err
	}
	if _, last := carriedIn(block); last == carried {
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
	// A book of several shards has no packed bundles, so Unpacked has all transactions.
	return Place{Height: height - 1, Entries: uint32(sort.Search(len(block.Unpacked),
		func(i int) bool { return block.Unpacked[i].Bundle >= bundle }))}, nil
}

// StreamedAt returns the number of the last entry of the stream to a child shard that is before a
// place, or 0 if there is none.
func (s *Store) StreamedAt(child ledger.ShardID, place Place) (uint64, error) {
	var bundles uint32 // of the next block that are before the place
	if place.Entries > 0 {
		block, err := s.Block(place.Height + 1)
		if err != nil {
			return 0, err
		}
		bundles = uint32(len(block.Bundles))
		if int(place.Entries) < len(block.Unpacked) {
			bundles = uint32(block.Unpacked[place.Entries].Bundle)
		}
	}
	return lastOf(s.Streamed(child), func(number uint64) (bool, error) {
		where, err := s.forwarded(child, number)
		return where.height <= place.Height ||
			where.height == place.Height+1 && where.index < bundles, err
	})
}

// forwarded returns where an entry of the stream to a child shard is: the index is its bundle's.
func (s *Store) forwarded(child ledger.ShardID, number uint64) (position, error) {
	s.mutex.RLock()
	where, found := s.unwritten.forward(child, number)
	s.mutex.RUnlock()
	if found {
		return where, nil
	}
	return s.readForward(child, number)
}

// AccountAt returns an account as of a place: its balances are those that it has once every
// transaction before the place is decided, and no later one took effect. So a transaction that
// waited for other shards there counts if it took effect since. AccountAt returns ErrNotYet while
// one still waits, and ErrNotFound if the account was not open at the place.
func (s *Store) AccountAt(path ledger.AccountPath, place Place) (ledger.Account, error) {
	if err := s.decided(place); err != nil {
		return ledger.Account{}, err
	}
	account, err := s.Account(path)
	if err != nil {
		return ledger.Account{}, err
	}
	open, err := s.rewind(&account, place)
	if err == nil && !open {
		err = errNoAccount(path)
	}
	return account, err
}

// AccountsAt returns at most limit accounts after the given path, ordered by path, as of a place
// (see AccountAt). more reports whether there may be accounts after the last path that it looked
// at, which it returns as well.
func (s *Store) AccountsAt(place Place, after ledger.AccountPath, limit int) (page []ledger.Account,
	last ledger.AccountPath, more bool, err error) {
	if err := s.decided(place); err != nil {
		return nil, "", false, err
	}
	accounts, err := s.Accounts(after, limit)
	if err != nil || len(accounts) == 0 {
		return nil, after, false, err
	}
	for i := range accounts {
		open, err := s.rewind(&accounts[i], place)
		if err != nil {
			return nil, "", false, err
		}
		if open {
			page = append(page, accounts[i])
		}
	}
	return page, accounts[len(accounts)-1].Path, len(accounts) == limit, nil
}

// decided returns ErrNotYet if a transaction before a place still waits for other shards, or the
// chain does not reach the place.
func (s *Store) decided(place Place) error {
	head := s.AppendedHeight()
	if place.Height > head || place.Height == head && place.Entries > 0 {
		return fmt.Errorf("%w: it ends with block %d, before block %d", ErrNotYet, head,
			place.Height)
	}
	s.mutex.RLock()
	oldest, waits := s.state.OldestPending()
	s.mutex.RUnlock()
	if waits && place.Has(oldest.Height, oldest.Index) {
		return fmt.Errorf("%w: transaction %s waits for shard %d", ErrNotYet, oldest.ID,
			oldest.Waits[0])
	}
	return nil
}

// rewind takes back what happened to an account after a place, and reports whether it was open
// there. Nothing before the place may wait for other shards.
func (s *Store) rewind(account *ledger.Account, place Place) (open bool, err error) {
	if open, err = s.openAt(account, place); !open || err != nil {
		return false, err
	}
	for i := range account.Balances {
		account.Balances[i] = ledger.Balance{Asset: account.Balances[i].Asset,
			Amount: account.Balances[i].Settled()}
	}
	// Each step that the account counts is in a block of these, or in the database later.
	s.mutex.RLock()
	pending, head := s.unwritten.blocks, s.head.Header.Height
	s.mutex.RUnlock()
	if head <= place.Height {
		return true, nil // no step is after the place
	}
	// In a store that began with a snapshot, the steps up to there may not be found. If the place
	// is later, they need not be.
	unindexed, growth := s.Unindexed(), uint64(16)
	count := uint64(1)
	for last := account.History; last > 0; count = min(count*growth, MaxHistoryPage) {
		first := last - min(last, count)
		places, err := s.steps(account, first, last, pending)
		if errors.Is(err, ErrAbsent) && unindexed > 0 && unindexed <= place.Height {
			if count == 1 {
				return true, nil
			}
			count, growth = 1, 1 // some of these are later ones: look one by one
			continue
		}
		if err != nil {
			return false, err
		}
		for ; last > first; last-- {
			where := places[last-1-first]
			if place.Has(where.height, where.index) {
				return true, nil // and so are all steps before it
			}
			if err := s.takeBack(account, where, place); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// openAt reports whether an account was open at a place.
func (s *Store) openAt(account *ledger.Account, place Place) (bool, error) {
	if account.Opened != place.Height+1 {
		return account.Opened <= place.Height, nil
	}
	if place.Entries == 0 {
		return false, nil
	}
	block, err := s.Block(account.Opened)
	if err != nil {
		return false, err
	}
	for i := range min(int(place.Entries), block.Len()) {
		entry := block.Entry(i)
		if entry.Result.OK() && slices.ContainsFunc(entry.Transaction().Openings,
			func(opening ledger.Opening) bool { return opening.Account == account.Path }) {
			return true, nil
		}
	}
	return false, nil
}

// takeBack takes back a step of an account's history, unless the transaction itself is before the
// place, and only the verdict that let it take effect is after it.
func (s *Store) takeBack(account *ledger.Account, where position, place Place) error {
	found, err := s.at(where)
	if err != nil {
		return err
	}
	if verdict := found.Entry.Transaction().Verdict; verdict != nil {
		if found, err = s.Transaction(verdict.ID); err != nil {
			return err
		}
		if place.Has(found.Height, uint32(found.Index)) {
			return nil
		}
	}
	postings := found.Entry.Transaction().Postings
	for i := range postings {
		if postings[i].Account != account.Path {
			continue
		}
		at := slices.IndexFunc(account.Balances, func(balance ledger.Balance) bool {
			return balance.Asset == postings[i].Asset
		})
		if at < 0 {
			return damaged(where.height, "account %s has no asset %s, which transaction %d moved",
				account.Path, postings[i].Asset, where.index)
		}
		balance := &account.Balances[at]
		if balance.Amount, err = balance.Amount.Sub(postings[i].Amount); err != nil {
			return damaged(where.height, "taking back transaction %d from account %s: %v",
				where.index, account.Path, err)
		}
	}
	return nil
}
