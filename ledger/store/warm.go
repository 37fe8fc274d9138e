package store

import (
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger/state"
)

// After a start with many accounts, none is resident, and each costs a read of its own when it is
// first used. So a goroutine reads whole chunks of the runs of entries, and makes their accounts
// resident, until as many are as may be. The newest runs come first: they have the accounts that
// were used last. A chunk costs about as much as one account that is read alone.
//
// A run may have an older entry of an account than a newer run. Only the entry that has the hash in
// the tree is taken, so the order and what blocks do meanwhile do not matter.

// warmTogether is how many accounts are made resident at a time, while blocks wait. warmPasses
// bounds how often runs are read that came meanwhile: those that are merged before their turn are
// in newer ones then.
const (
	warmTogether = 64
	warmPasses   = 3
)

// warm makes accounts resident until the store is closed or enough are.
func (s *Store) warm() {
	defer s.writer.Done()
	s.mutex.RLock()
	all := s.state.AllResident()
	s.mutex.RUnlock()
	if all || s.legacyState || s.options.keepCold {
		return
	}
	w, read := warmer{store: s, pace: s.newPace()}, make(map[uint64]bool)
	w.pace.presses = w.presses
	for range warmPasses {
		merged := false
		for _, r := range slices.Backward(of(rowEntries, s.runs.list())) {
			if read[r.number] {
				continue
			}
			read[r.number] = true
			gone, err := w.run(r.number)
			if err != nil || w.enough {
				return // what is damaged is found by the check, or by those that need it
			}
			merged = merged || gone
		}
		if !merged {
			return
		}
	}
}

// warmer makes accounts of runs resident.
type warmer struct {
	store *Store
	pace  *pace
	batch []state.Warming
	// enough says that as many accounts are resident as may be.
	enough bool
	// cold is how many accounts blocks had read from the database when the last rest began.
	cold int64
}

// presses reports whether blocks have read accounts from the database since it was asked last. To
// read one there takes them much longer than it takes here, so the work does not rest for longer
// then.
func (w *warmer) presses() bool {
	before := w.cold
	w.cold = w.store.cold.Load()
	return w.cold > before
}

// run makes accounts of the run with a number resident. It reports whether the run is no longer
// there.
func (w *warmer) run(number uint64) (gone bool, err error) {
	s := w.store
	defer guard(s.AppendedHeight(), &err)
	var buffer []byte
	for place := 0; ; place++ {
		var chunk []byte
		err := s.db.View(func(transaction *badger.Txn) (err error) {
			// The rows of a run are removed only after it is no longer among these.
			r := s.runs.find(number)
			if gone = r == nil; gone || place >= r.starts.len() {
				return nil
			}
			chunk, err = r.readChunk(transaction, place, &buffer)
			return err
		})
		if err != nil || chunk == nil {
			return gone, err
		}
		if err := w.chunk(chunk); err != nil || w.enough {
			return false, err
		}
		if err := w.pace.step(); err != nil {
			return false, err
		}
	}
}

// chunk makes the accounts of a chunk resident.
func (w *warmer) chunk(chunk []byte) error {
	for len(chunk) > 0 {
		key, value, rest, err := runKind(rowEntries).cut(chunk)
		if err != nil {
			return err
		}
		chunk = rest
		if !state.IsAccountKey(key) || len(value) == 0 {
			continue
		}
		leaf, err := state.LeafOf(key, value)
		if err != nil {
			return err
		}
		w.batch = append(w.batch, state.Warming{Path: state.AccountOfKey(key), Value: value,
			Leaf: leaf})
		if len(w.batch) == warmTogether {
			w.admit()
		}
	}
	w.admit()
	return nil
}

// admit makes the accounts resident that were collected.
func (w *warmer) admit() {
	s := w.store
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.state.Warm(w.batch, s.options.AccountsInMemory)
	w.enough = s.state.Resident() >= s.options.AccountsInMemory
	w.batch = w.batch[:0]
}
