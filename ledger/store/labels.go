package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// An account is found by its indexed metadata through rows of its own, one for each metadatum. A
// layer writes those of the accounts that it changed. They are never removed: an account that has
// another value by now, or has moved away, has its row still, so a search reads each account that
// it finds and looks whether the account has what is searched for. A row of a layer that a crash
// undid does no harm for the same reason. So what always holds is that no row is missing:
//
//   - Every account with an indexed metadatum has its row in the database, or in the blocks that
//     the database does not have yet, if the row of labels names a block that is no earlier than
//     the head. It is written with each layer.
//   - Otherwise the store began with a snapshot, or an earlier version wrote its last layer. Then a
//     goroutine reads all accounts and writes their rows, and only then the row of labels. Until it
//     is there, a search looks at the accounts one by one.

// Bounds of a search by metadata. rowsLooked bounds the rows that are looked at for a page, and
// accountsLooked the accounts while there are no rows yet; accountsAtOnce are in memory for it at a
// time.
const (
	rowsLooked     = 4096
	accountsLooked = 10_000
	accountsAtOnce = 500
)

// labelPrefix begins the keys of the rows of accounts with a metadatum. The path of the account
// follows.
func labelPrefix(key, value string) []byte {
	to := make([]byte, 0, 1+1+len(key)+1+len(value)+ledger.MaxAccountPath)
	to = append(append(to, rowLabel, byte(len(key))), key...)
	return append(append(to, byte(len(value))), value...)
}

// eachLabel passes the keys of an account's rows, given the key and value of its entry.
func eachLabel(key, value []byte, pass func(row []byte) error) error {
	if len(value) == 0 || !state.IsAccountKey(key) {
		return nil
	}
	metadata, err := state.IndexedMetadata(value)
	if err != nil {
		return err
	}
	for i := range metadata {
		row := append(labelPrefix(metadata[i].Key, metadata[i].Value), state.AccountOfKey(key)...)
		if err := pass(row); err != nil {
			return err
		}
	}
	return nil
}

// labelPutter returns a function that takes entries of the state, and passes the rows of labels
// that the database does not have to put. To look there costs less than to write a row, and most
// accounts that change keep their labels.
func (s *Store) labelPutter(transaction *badger.Txn, put putRow) func(key, value []byte) error {
	return func(key, value []byte) error {
		return eachLabel(key, value, func(row []byte) error {
			switch _, err := get(transaction, row); {
			case err == nil:
				return nil
			case !errors.Is(err, errMissing):
				return err
			}
			return put("label", row, nil)
		})
	}
}

// labelsRow passes the row to put that says that no label is missing up to a block.
func labelsRow(height ledger.Height, put putRow) error {
	return put("labels", []byte{rowLabels}, binary.BigEndian.AppendUint64(nil, uint64(height)))
}

// loadLabels reads whether all labels have rows up to the head.
func (s *Store) loadLabels(head ledger.Height) error {
	return s.db.View(func(transaction *badger.Txn) error {
		value, err := get(transaction, []byte{rowLabels})
		switch {
		case errors.Is(err, errMissing):
			return nil
		case err != nil:
			return damaged(1, "the row of labels: %v", err)
		case len(value) != 8:
			return damaged(1, "the row of labels: malformed")
		}
		s.labelled.Store(binary.BigEndian.Uint64(value) >= uint64(head))
		return nil
	})
}

// label writes the rows of labels that are missing, until it has all, the store is closed, or
// something is in the way. Searches do without them, and the next Open begins again, so nothing
// fails because of that: what is damaged is found by the check, or by those that need it, and those
// that write blocks notice by themselves that the database takes no writes.
func (s *Store) label() {
	defer s.writer.Done()
	if !s.labelled.Load() {
		_ = s.labelAll()
	}
}

// labelAll writes the rows of labels of all accounts that the database has. The layers that are
// written meanwhile have rows of their own.
func (s *Store) labelAll() (err error) {
	defer guard(s.AppendedHeight(), &err)
	p := s.newPace()
	for after, more := ledger.AccountPath(""), true; more; {
		if err := errors.Join(s.requireSpace(0), s.requireDescriptors()); err != nil {
			return err
		}
		if after, more, err = s.labelSome(after); err != nil {
			return err
		}
		if err := p.step(); err != nil {
			return err
		}
	}
	s.options.onWrite("label fence")
	if err := s.fence(); err != nil {
		return err
	}
	s.mutex.RLock()
	height := s.written
	s.mutex.RUnlock()
	// Layers write the row only from now on, so this one is never written after a later one.
	err = s.db.Update(func(transaction *badger.Txn) error {
		return labelsRow(height, s.putTo(transaction.Set))
	})
	if err == nil {
		s.labelled.Store(true)
	}
	return err
}

// labelSome writes the rows of labels of some accounts after a path. It returns the path up to
// which it did, and whether there may be accounts after it.
func (s *Store) labelSome(after ledger.AccountPath) (ledger.AccountPath, bool, error) {
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	from := state.AppendAccountKey(nil, after)
	to := append(state.AppendAccountKey(nil, "")[:1], 0xff)
	looked := 0
	err := s.look(func(transaction *badger.Txn) error {
		entries := newMergedRange(transaction, s.runs.list(), s.legacyState, nil, from, to)
		defer entries.close()
		put := s.labelPutter(transaction, s.putTo(batch.Set))
		for looked = 0; looked < accountsAtOnce; looked++ {
			key, value, more, err := entries.next()
			if err != nil || !more {
				return err
			}
			after = state.AccountOfKey(key)
			if err := put(key, value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", false, err
	}
	s.options.onWrite("label flush")
	return after, looked == accountsAtOnce, batch.Flush()
}

// eachLabelled passes the paths and entries of the accounts with labels that the block changed.
// Which these are is kept, and what they have is not: it may take many times the memory that the
// block takes.
func (p *pendingBlock) eachLabelled(pass func(path, entry []byte)) {
	entries := &p.changes.Entries
	p.labelling.Do(func() {
		for i := range entries.Len() {
			if change := entries.At(i); state.IsAccountKey(change.Key) && len(change.After) > 0 {
				if some, err := state.IndexedMetadata(change.After); err == nil && len(some) > 0 {
					p.labelled = append(p.labelled, uint32(i))
				}
			}
		}
	})
	for _, i := range p.labelled {
		change := entries.At(int(i))
		pass(change.Key[1:len(change.Key)-1], change.After)
	}
}

// AccountsWhere returns at most limit accounts after the given path that have an indexed metadatum
// and whose paths have a prefix, by path, as of the head. It does a bounded work. next is the path
// up to which it looked, and more says that there may be accounts after it.
func (s *Store) AccountsWhere(key, value, prefix string, after ledger.AccountPath, limit int) (
	page []ledger.Account, next ledger.AccountPath, more bool, err error) {
	wanted := ledger.Metadatum{Key: key, Value: value, Indexed: true}
	if len(key) > ledger.MaxMetadataKey || len(value) > ledger.MaxMetadataValue {
		return nil, after, false, nil // no account can have it
	}
	if !s.labelled.Load() {
		return s.accountsOneByOne(&wanted, prefix, after, limit)
	}
	paths, more, err := s.labelledPaths(&wanted, prefix, after)
	if err != nil {
		return nil, "", false, err
	}
	next = after
	for _, path := range paths {
		if len(page) == limit {
			return page, next, true, nil
		}
		found, err := s.Account(path)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, "", false, err
		case found.Has(&wanted):
			page = append(page, found)
		}
		next = path
	}
	return page, next, more, nil
}

// labelledPaths returns paths of accounts after the given one that have a metadatum or had it once,
// and whose paths have a prefix, in their order. more says that there may be others after the last
// one.
func (s *Store) labelledPaths(wanted *ledger.Metadatum, prefix string, after ledger.AccountPath) (
	paths []ledger.AccountPath, more bool, err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	begin := labelPrefix(wanted.Key, wanted.Value)
	// A block leaves memory only once the database has it, so memory is read first.
	s.mutex.RLock()
	pending := s.unwritten.blocks
	s.mutex.RUnlock()
	var last string // path of which a row of the database was read
	err = s.view(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.Prefix = append(slices.Clone(begin), prefix...)
		found := transaction.NewIterator(settings)
		defer found.Close()
		from := append(slices.Clone(begin), max(prefix, string(after))...)
		for found.Seek(from); found.Valid(); found.Next() {
			if len(paths) >= rowsLooked {
				more = true
				return nil
			}
			key := found.Item().KeyCopy(nil)
			err := found.Item().Value(func(sealed []byte) error {
				_, err := unseal(key, sealed)
				return err
			})
			if err != nil {
				return err
			}
			if last = string(key[len(begin):]); after == "" || last > string(after) {
				paths = append(paths, ledger.AccountPath(last))
			}
		}
		return nil
	})
	s.options.onLook()
	if err != nil {
		return nil, false, damagedUnless(ErrClosed, err, height, "the labels of accounts")
	}
	for _, block := range pending {
		block.eachLabelled(func(path, entry []byte) {
			if !bytes.HasPrefix(path, []byte(prefix)) ||
				after != "" && string(path) <= string(after) || more && string(path) > last {
				return
			}
			// It was decoded before.
			if labels, err := state.IndexedMetadata(entry); err == nil &&
				slices.Contains(labels, *wanted) {
				paths = append(paths, ledger.AccountPath(path))
			}
		})
	}
	slices.Sort(paths)
	return slices.Compact(paths), more, nil
}

// accountsOneByOne is AccountsWhere as long as labels have no rows.
func (s *Store) accountsOneByOne(wanted *ledger.Metadatum, prefix string, after ledger.AccountPath,
	limit int) (page []ledger.Account, next ledger.AccountPath, more bool, err error) {
	next = after
	if string(after) < prefix {
		// The prefix itself may be the path of an account, and others come after a path.
		next = ledger.AccountPath(prefix)
		switch found, err := s.Account(next); {
		case err == nil && found.Has(wanted):
			page = append(page, found)
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, "", false, err
		}
	}
	for looked := 0; looked < accountsLooked; looked += accountsAtOnce {
		accounts, err := s.Accounts(next, accountsAtOnce)
		if err != nil {
			return nil, "", false, err
		}
		for i := range accounts {
			if !strings.HasPrefix(string(accounts[i].Path), prefix) {
				return page, next, false, nil
			}
			if len(page) == limit {
				return page, next, true, nil
			}
			if next = accounts[i].Path; accounts[i].Has(wanted) {
				page = append(page, accounts[i])
			}
		}
		if len(accounts) < accountsAtOnce {
			return page, next, false, nil
		}
	}
	return page, next, true, nil
}
