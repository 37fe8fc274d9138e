package store

import (
	"bytes"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// OpenHold is a hold that is open in this shard.
type OpenHold = state.Held

// holdsLooked bounds the rows that one call of OpenHolds looks at.
const holdsLooked = 4096

// FindHold returns a hold that is open here as of the head. It is read-only.
func (s *Store) FindHold(id ledger.Hash) (OpenHold, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Hold(id)
}

// OpenHolds returns at most limit holds that match, in the order of their ids, as of the head. It
// begins after the given id, or with the first one if there is none. It looks at a bounded number
// of rows, those of holds that ended lately among them. next is the id of the last one, and more
// says that there may be holds after it.
func (s *Store) OpenHolds(after *ledger.Hash, limit int, matches func(*OpenHold) bool) (
	page []OpenHold, next ledger.Hash, more bool, err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	err = s.rowsAfter(state.AppendHoldKey, after, limit, &next, &more,
		func() { page = nil }, func(key, value []byte) (bool, error) {
			hold, err := state.DecodeHeld(key, value)
			if err != nil || !matches(&hold) {
				return false, err
			}
			page = append(page, hold)
			return true, nil
		})
	if err != nil {
		return nil, next, false, damagedUnless(ErrClosed, err, height, "the holds")
	}
	return page, next, more, nil
}

// rowsAfter reads entries whose keys are those of ids, in the order of these, after one or from the
// beginning. It calls begin before it reads, perhaps several times, and then take for each of them,
// which reports whether it took the entry, until it took as many as limit or looked at holdsLooked.
func (s *Store) rowsAfter(appendKey func([]byte, ledger.Hash) []byte, after *ledger.Hash, limit int,
	next *ledger.Hash, more *bool, begin func(), take func(key, value []byte) (bool, error)) error {
	from := appendKey(nil, ledger.Hash{})
	if after != nil {
		from = appendKey(nil, *after)
	}
	to := append(from[:1:1], bytes.Repeat([]byte{0xff}, len(from))...)
	return s.look(func(transaction *badger.Txn) error {
		s.mutex.RLock()
		pending, runs := s.unwritten.blocks, s.runs.list()
		s.mutex.RUnlock()
		entries := newMergedRange(transaction, runs, s.legacyState, pending, from, to)
		defer entries.close()
		begin()
		*more = false
		for looked, taken := 0, 0; ; {
			key, value, left, err := entries.next()
			if err != nil || !left {
				return err
			}
			if after != nil && bytes.Equal(key, from) {
				continue
			}
			if taken == limit || looked == holdsLooked {
				*more = true
				return nil
			}
			looked++
			if *next = state.HoldOfKey(key); len(value) == 0 {
				continue // it ended, and its row is not gone yet
			}
			took, err := take(key, value)
			if err != nil {
				return err
			}
			if took {
				taken++
			}
		}
	})
}
