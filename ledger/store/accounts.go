package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// The state has only some accounts in memory (package state, resident.go). This file reads the
// others from the runs of entries: before a block is executed, and for those that ask.
//
// An account that is not resident was touched by no block that the database does not have: its
// entry is in the runs. A read takes the list of runs after it has seen that the account is not
// resident, so it finds that entry or a newer one.

// accountBytes is about what a resident account takes of the memory, with its path, balances and
// places in tables. accountsShare is the share of the limit of memory that resident accounts may
// take.
const (
	accountBytes  = 256
	accountsShare = 4
)

// Bounds of the default of Options.AccountsInMemory.
const (
	accountsAtLeast  = 1 << 16
	accountsNoLimit  = 8 << 20
	accountsTogether = 64 // that are looked up in one part of a computation
)

// accountsInMemoryDefault returns the default of Options.AccountsInMemory, given the limit of
// memory.
func accountsInMemoryDefault(limit int64) int {
	if limit == math.MaxInt64 {
		return accountsNoLimit
	}
	return int(max(limit/accountsShare/accountBytes, accountsAtLeast))
}

// memoryLimit returns the limit of the process's memory; math.MaxInt64 if there is none.
func memoryLimit() int64 { return debug.SetMemoryLimit(-1) }

// admit makes the accounts resident that executing a draft needs. If it returns an error, the draft
// must not be executed. The caller must hold applying, and not the mutex.
func (s *Store) admit(height ledger.Height, draft *state.Draft) (err error) {
	defer guard(height, &err)
	return s.admitPaths(height, func() []ledger.AccountPath { return s.state.Wanted(draft) })
}

// admitPaths makes the accounts resident that wanted returns, before they are looked up for a block
// of a height. The caller must hold applying, and not the mutex.
func (s *Store) admitPaths(height ledger.Height, wanted func() []ledger.AccountPath) error {
	s.mutex.RLock()
	paths := wanted()
	s.mutex.RUnlock()
	if len(paths) == 0 {
		return nil
	}
	s.cold.Add(int64(len(paths)))
	slices.Sort(paths)
	values, err := s.readAccounts(paths)
	if err != nil {
		return damagedUnless(ErrClosed, err, height, "the accounts that the block needs")
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i, path := range paths {
		if err := s.state.Admit(path, values[i]); err != nil {
			return damaged(height, "an account that the block needs: %v", err)
		}
	}
	return nil
}

// droppedTogether is how many accounts a block may drop from memory beside as many as it brought
// there. Nobody can read meanwhile. After the upgrade of a chain to accounts that need not be in
// memory, most of the book may have to go.
const droppedTogether = 1 << 13

// dropAccounts drops accounts from memory, if there are more than there may be. The caller must
// hold the mutex.
func (s *Store) dropAccounts() {
	s.state.Evict(s.written, max(s.options.AccountsInMemory, s.resident-droppedTogether))
	s.resident = s.state.Resident()
}

// damagedUnless returns an error as damage, unless it is another one, or says already what is
// damaged.
func damagedUnless(other, err error, height ledger.Height, what string) error {
	if errors.Is(err, other) || errors.Is(err, ErrDamaged) {
		return err
	}
	return damaged(height, "%s: %v", what, err)
}

// readAccounts returns the values of the entries of accounts, whose paths are in their order; nil
// for those that are not open. It reads on all processors.
func (s *Store) readAccounts(paths []ledger.AccountPath) ([][]byte, error) {
	height := s.AppendedHeight()
	values := make([][]byte, len(paths))
	failures := make([]error, (len(paths)+accountsTogether-1)/accountsTogether)
	onAllProcessors(len(failures), func(part int) {
		defer guard(height, &failures[part])
		from, to := part*accountsTogether, min((part+1)*accountsTogether, len(paths))
		failures[part] = s.look(func(transaction *badger.Txn) error {
			finder := newEntryFinder(transaction, s.runs.list(), s.legacyState)
			var key []byte
			for i := from; i < to; i++ {
				key = state.AppendAccountKey(key[:0], paths[i])
				value, err := finder.find(key)
				if err != nil {
					return err
				}
				values[i] = bytes.Clone(value)
			}
			return nil
		})
	})
	return values, errors.Join(failures...)
}

// Account returns an open account as of the head, or ErrNotFound.
func (s *Store) Account(path ledger.AccountPath) (found ledger.Account, err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	var before error
	for {
		s.mutex.RLock()
		found, resident := s.state.Account(path)
		absent, closed := !resident && s.state.AllResident(), s.closed
		s.mutex.RUnlock()
		switch {
		case closed:
			return ledger.Account{}, ErrClosed
		case resident:
			return found, nil
		case absent:
			return ledger.Account{}, errNoAccount(path)
		}
		values, err := s.readAccounts([]ledger.AccountPath{path})
		if err != nil {
			return ledger.Account{}, damagedUnless(ErrClosed, err, height,
				fmt.Sprintf("account %.150q", string(path)))
		}
		if values[0] == nil {
			return ledger.Account{}, errNoAccount(path)
		}
		s.mutex.RLock()
		found, err = s.state.ReadAccount(path, values[0])
		s.mutex.RUnlock()
		if err == nil {
			return found, nil
		}
		// A block may have touched the account since it was found not to be resident. Then another
		// look finds it resident, or finds its new entry. The error has both hashes.
		if before != nil && before.Error() == err.Error() {
			return ledger.Account{}, damaged(height, "%v", err)
		}
		before = err
	}
}

func errNoAccount(path ledger.AccountPath) error {
	return fmt.Errorf("%w: account %.150q", ErrNotFound, string(path))
}

// Accounts returns at most limit accounts after the given path, ordered by path, as of the head. ""
// starts with the first one.
func (s *Store) Accounts(after ledger.AccountPath, limit int) (page []ledger.Account, err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	from := state.AppendAccountKey(nil, after)
	to := append(state.AppendAccountKey(nil, "")[:1], 0xff)
	err = s.look(func(transaction *badger.Txn) error {
		s.mutex.RLock()
		pending, runs := s.unwritten.blocks, s.runs.list()
		s.mutex.RUnlock()
		entries := newMergedRange(transaction, runs, s.legacyState, pending, from, to)
		defer entries.close()
		page = make([]ledger.Account, 0, min(limit, accountsPage))
		for len(page) < limit {
			key, value, more, err := entries.next()
			if err != nil || !more {
				return err
			}
			if bytes.Equal(key, from) || len(value) == 0 {
				continue
			}
			account, err := state.DecodeAccount(state.AccountOfKey(key), value)
			if err != nil {
				return err
			}
			page = append(page, account)
		}
		return nil
	})
	if err != nil {
		return nil, damagedUnless(ErrClosed, err, height, "the accounts")
	}
	return page, nil
}

// accountsPage is how many accounts AllAccounts reads at a time.
const accountsPage = 1024

// AllAccounts iterates over all accounts by path, until an error. Blocks that are appended
// meanwhile may affect accounts that are not yet visited.
func (s *Store) AllAccounts() iter.Seq2[ledger.Account, error] {
	return func(yield func(ledger.Account, error) bool) {
		for after := ledger.AccountPath(""); ; {
			accounts, err := s.Accounts(after, accountsPage)
			if err != nil {
				yield(ledger.Account{}, err)
				return
			}
			for _, account := range accounts {
				if !yield(account, nil) {
					return
				}
			}
			if len(accounts) < accountsPage {
				return
			}
			after = accounts[accountsPage-1].Path
		}
	}
}

// Aliased returns the account of an organisation that lives here with an alias, and whether there
// is one that has terms.
func (s *Store) Aliased(owner ledger.OrganisationName, alias string) (ledger.AccountPath, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Aliased(owner, alias)
}

// AccountCount returns the number of open accounts.
func (s *Store) AccountCount() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.AccountCount()
}

// AccountsInMemory returns how many accounts are in memory.
func (s *Store) AccountsInMemory() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Resident()
}

// residentAtStartDefault is up to how many accounts are in memory once the store is open, if that
// many may be. To have them there takes some 0.6 us more for each at the start, and spares a read
// of the disk for each that is used. With more of them the start would take too long.
const residentAtStartDefault = 2 << 20

// entriesAtMost returns a number that is no less than that of the entries of the state.
func (s *Store) entriesAtMost() (most uint64) {
	for _, r := range of(rowEntries, s.runs.list()) {
		most += r.records
	}
	return most
}

// hasManyEntries reports whether there may be more accounts than a start makes resident.
func (s *Store) hasManyEntries() bool {
	return s.entriesAtMost() > uint64(min(s.options.AccountsInMemory, s.options.residentAtStart))
}

// loadAccounts reads the state of a chain with an account tree. If there are few accounts, they
// become resident, and otherwise cold. The work is divided by ranges of keys, on all processors.
func (s *Store) loadAccounts(height ledger.Height) error {
	runs, most, resident := s.runs.list(), s.entriesAtMost(), !s.hasManyEntries()
	ends := rangesOf(runs)
	failures, passed := make([]error, len(ends)+1), make([]atomic.Uint64, len(runs))
	onAllProcessors(len(failures), func(part int) {
		defer guard(height, &failures[part])
		var from, to []byte
		if part > 0 {
			from = ends[part-1]
		}
		if part < len(ends) {
			to = ends[part]
		}
		failures[part] = s.loadRange(height, runs, passed, resident, most, from, to)
	})
	if err := errors.Join(failures...); err != nil {
		return err
	}
	for i, r := range of(rowEntries, runs) {
		if found := passed[i].Load(); found != r.records {
			return damaged(height, "the guide of run %d of the state finds %d of %d entries",
				r.number, found, r.records)
		}
	}
	return nil
}

// loadOthers reads the entries of the state but those of accounts.
func (s *Store) loadOthers(to *state.State) error {
	return s.db.View(func(transaction *badger.Txn) error {
		first := state.AppendAccountKey(nil, "")[:1]
		for _, ends := range [...][2][]byte{{nil, first}, {{first[0] + 1}, nil}} {
			entries := newMergedRange(transaction, s.runs.list(), false, nil, ends[0], ends[1])
			for {
				key, value, more, err := entries.next()
				if err != nil {
					return err
				}
				if !more {
					break
				}
				if len(value) == 0 {
					continue
				}
				if err := to.Restore(key, value); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// loadParts is into how many ranges the state is divided, and loadBatch how many accounts of one
// are restored together.
const (
	loadParts = 64
	loadBatch = 4096
)

// rangesOf returns keys that divide the entries of the state into ranges of about the same size, by
// the chunks of the largest run.
func rangesOf(runs []*run) (ends [][]byte) {
	entries := of(rowEntries, runs)
	if len(entries) == 0 {
		return nil
	}
	largest := &slices.MaxFunc(entries, func(a, b *run) int {
		return cmp.Compare(a.starts.len(), b.starts.len())
	}).starts
	for part := 1; part < loadParts; part++ {
		if at := part * largest.len() / loadParts; at > (part-1)*largest.len()/loadParts {
			ends = append(ends, largest.at(at))
		}
	}
	return ends
}

// loadRange reads the entries of a range of keys. most bounds the number of accounts. It adds to
// passed how many entries each run of entries has there.
func (s *Store) loadRange(height ledger.Height, runs []*run, passed []atomic.Uint64, resident bool,
	most uint64, from, to []byte) error {
	var leaves state.AccountLeaves
	restore := func() error {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return s.state.RestoreLeaves(&leaves, most)
	}
	return s.db.View(func(transaction *badger.Txn) error {
		entries := newMergedRange(transaction, runs, false, nil, from, to)
		defer entries.close()
		for _, c := range entries.all {
			c.checks = s.options.CheckAll
		}
		for {
			key, value, more, err := entries.next()
			switch {
			case err != nil:
				return damaged(height, "the state: %v", err)
			case !more:
				for _, c := range entries.all {
					passed[c.age].Add(c.inRange)
				}
				if err := restore(); err != nil {
					return damaged(height, "the state: %v", err)
				}
				return nil
			case len(value) == 0:
				continue
			case state.IsAccountKey(key) && !resident:
				if err = leaves.Add(key, value); err == nil && leaves.Len() >= loadBatch {
					err = restore()
				}
			default:
				s.mutex.Lock()
				err = s.state.Restore(key, value)
				s.mutex.Unlock()
			}
			if err != nil {
				return damaged(height, "entry %x of the state: %v", key, err)
			}
		}
	})
}
