package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// MaxHistoryPage is the maximum number of items in a page of an account's history.
const MaxHistoryPage = 1000

// HistoryItem is one transaction that was applied to an account.
type HistoryItem struct {
	// Ordinal is the item's number in the account's history, from 0.
	Ordinal uint64
	// Height, Index and Time tell where and when the transaction took effect. For a cross-shard
	// transaction, that is at the last verdict that it waited for.
	Height ledger.Height
	Index  int
	// Entry is the transaction in its own block.
	Entry *ledger.Entry
	Time  ledger.Milliseconds
	// Changes are the sums of what the transaction changed in the account, and Balances what there
	// is of the same assets after it, in the same order. Only Statement fills them in.
	Changes, Balances []ledger.Balance
}

// HistoryPage is a part of an account's history.
type HistoryPage struct {
	Items []HistoryItem
	// Next is the cursor of the next page. It is valid only if More is set.
	Next uint64
	More bool
	// Total is the length of the whole history.
	Total uint64
}

// History returns a page of at most limit items of an account's history, from the oldest on or from
// the newest back. The cursor is 0 for the first page, and Next of the previous page for the
// others. A cursor stays valid while blocks are appended. History returns ErrNotFound if the
// account is not open.
func (s *Store) History(path ledger.AccountPath, cursor uint64, limit int,
	newestFirst bool) (HistoryPage, error) {
	account, err := s.Account(path)
	if err != nil {
		return HistoryPage{}, err
	}
	// Each step that the account counts is in a block of these, or in the database later.
	s.mutex.RLock()
	pending, closed := s.unwritten.blocks, s.closed
	s.mutex.RUnlock()
	if closed {
		return HistoryPage{}, ErrClosed
	}
	limit = max(1, min(limit, MaxHistoryPage))
	page := HistoryPage{Total: account.History}
	// Oldest first, the cursor is the next ordinal. Newest first, it is one more than the next
	// ordinal, so that 0 can mean the newest item.
	first, last := min(cursor, account.History), account.History
	if newestFirst && cursor != 0 {
		first, last = 0, min(cursor, account.History)
	} else if newestFirst {
		first = 0
	}
	if newestFirst {
		first = max(first, last-min(last, uint64(limit)))
	} else {
		last = min(last, first+uint64(limit))
	}
	if first < last {
		places, err := s.steps(&account, first, last, pending)
		if err != nil {
			return HistoryPage{}, err
		}
		for k := range places {
			ordinal := first + uint64(k)
			if newestFirst {
				ordinal = last - 1 - uint64(k)
			}
			item, err := s.historyItem(&account, ordinal, places[ordinal-first])
			if err != nil {
				return HistoryPage{}, err
			}
			page.Items = append(page.Items, item)
		}
	}
	page.Next, page.More = last, last < account.History
	if newestFirst {
		page.Next, page.More = first, first > 0
	}
	return page, nil
}

func (s *Store) historyItem(account *ledger.Account, ordinal uint64,
	where position) (HistoryItem, error) {
	result, err := s.at(where)
	if err != nil {
		return HistoryItem{}, err
	}
	entry := result.Entry
	// A verdict ended the wait of a cross-shard transaction: show that transaction.
	verdict := entry.Transaction().Verdict
	if verdict != nil && entry.Result.Code == ledger.Settled {
		settled, err := s.Transaction(verdict.ID)
		if err != nil {
			return HistoryItem{}, err
		}
		entry = settled.Entry
	}
	if !touches(entry, account.Path) {
		return HistoryItem{}, damaged(where.height,
			"the history of %s says that transaction %d touches it", account.Path, where.index)
	}
	return HistoryItem{Ordinal: ordinal, Height: where.height, Index: int(where.index),
		Entry: entry, Time: result.Block.Header.Time}, nil
}

func touches(entry *ledger.Entry, path ledger.AccountPath) bool {
	postings := entry.Transaction().Postings
	for i := range postings {
		if postings[i].Account == path {
			return entry.Result.OK() || entry.Result.Code == ledger.SetAside
		}
	}
	return false
}

// pendingHistory looks up an entry of a history in the blocks that are not written yet.
func pendingHistory(number, ordinal uint64, pending []*pendingBlock) (position, bool) {
	for i := len(pending) - 1; i >= 0; i-- {
		steps := pending[i].history()
		at, found := slices.BinarySearchFunc(steps, ordinal,
			func(change state.HistoryChange, ordinal uint64) int {
				return cmp.Or(cmp.Compare(change.Number(), number),
					cmp.Compare(change.Ordinal, ordinal))
			})
		if found {
			return position{height: pending[i].block.Header.Height, index: steps[at].Index()}, true
		}
	}
	return position{}, false
}

// steps looks up the steps of an account's history from first to before last.
func (s *Store) steps(account *ledger.Account, first, last uint64,
	pending []*pendingBlock) (places []position, err error) {
	places = make([]position, last-first)
	for ; last > first; last-- {
		where, found := pendingHistory(account.Number, last-1, pending)
		if !found {
			break
		}
		places[last-1-first] = where
	}
	if last == first {
		return places, nil
	}
	defer guard(account.Opened, &err)
	missing, err := s.readSteps(account.Number, first, places[:last-first])
	if errors.Is(err, errMissing) && account.Opened <= s.Unindexed() {
		return nil, s.errUnindexed(fmt.Sprintf("entry %d of the history of %s", missing,
			account.Path))
	}
	if errors.Is(err, ErrClosed) {
		return nil, err
	}
	if err != nil {
		return nil, damaged(account.Opened, "history of %s, entry %d: %v", account.Path, missing,
			err)
	}
	return places, nil
}

// readSteps looks up the steps of an account's history from first on in the database. With an error
// it returns the number of a step that it concerns.
func (s *Store) readSteps(number, first uint64, places []position) (missing uint64, err error) {
	err = s.look(func(transaction *badger.Txn) (err error) {
		finder := newStepFinder(transaction, s.runs.list())
		defer finder.rows.Close()
		missing, err = finder.find(number, first, places)
		return err
	})
	return missing, err
}

// stepFinder looks up steps of histories in the database.
type stepFinder struct {
	transaction *badger.Txn
	// runs are those of histories, the oldest first. rows goes backwards through their rows.
	runs []*run
	rows *badger.Iterator
	// at is the run that had the last step alone that was looked up: the next one may be near.
	at int
	// unpacked is the last chunk, if it was packed.
	unpacked []byte
}

// newStepFinder returns a finder for some of a store's runs. The caller must close its rows.
func newStepFinder(transaction *badger.Txn, runs []*run) *stepFinder {
	settings := badger.DefaultIteratorOptions
	settings.PrefetchValues, settings.Reverse = false, true
	settings.Prefix = []byte{rowSteps}
	return &stepFinder{transaction: transaction, runs: of(rowSteps, runs),
		rows: transaction.NewIterator(settings)}
}

// find looks up the steps of an account from first on. Newer runs have later steps. So it goes back
// from the newest one until it has all. A store that began with a snapshot, or before there were
// runs, has rows of its own for the earliest steps.
func (f *stepFinder) find(number, first uint64, places []position) (missing uint64, err error) {
	last := first + uint64(len(places)) // those from here on are found
	if last == first+1 && f.at < len(f.runs) {
		if last, err = f.findIn(f.runs[f.at], number, first, last, places); err != nil {
			return first, err
		}
	}
	for i := len(f.runs) - 1; i >= 0 && last > first; i-- {
		if last, err = f.findIn(f.runs[i], number, first, last, places); err != nil {
			return last - 1, err
		}
		f.at = i
	}
	for ; last > first; last-- {
		places[last-1-first], err = findHistory(f.transaction, number, last-1)
		if err != nil {
			return last - 1, err
		}
	}
	return 0, nil
}

// findIn looks up the steps of an account from first to before last in a run, from the last one
// back as far as it has them. It returns the first one that it found.
func (f *stepFinder) findIn(r *run, number, first, last uint64,
	places []position) (uint64, error) {
	lowest, prefix := appendStepKey(r.prefix(), number, first), r.prefix()
	for f.rows.Seek(appendStepKey(prefix, number, last-1)); f.rows.Valid() && last > first; {
		item := f.rows.Item()
		if !bytes.HasPrefix(item.Key(), r.prefix()) {
			break
		}
		err := item.Value(func(sealed []byte) error {
			chunk, err := unseal(item.Key(), sealed)
			if err == nil {
				chunk, err = r.kind.unpack(&f.unpacked, chunk)
			}
			if err == nil {
				last, err = findSteps(chunk, number, first, last, places)
			}
			return err
		})
		if err != nil {
			return last, err
		}
		// The chunks before this one have only what sorts before its first key.
		if bytes.Compare(item.Key(), lowest) <= 0 {
			break
		}
		f.rows.Next()
	}
	return last, nil
}

// findSteps looks up the steps of an account from first to before last in a chunk, from the last
// one back as far as it has them. It returns the first one that it found.
func findSteps(chunk []byte, number, first, last uint64, places []position) (uint64, error) {
	var of [][2][]byte
	for len(chunk) > 0 {
		key, value, rest, err := runKind(rowSteps).cut(chunk)
		if err != nil || len(key) != stepKeySize {
			return last, errRow
		}
		if chunk = rest; binary.BigEndian.Uint64(key) == number {
			of = append(of, [2][]byte{key, value})
		}
	}
	for i := len(of) - 1; i >= 0; i-- {
		begin := binary.BigEndian.Uint64(of[i][0][8:])
		for last > first && last > begin {
			where, err := decodeHistory(of[i][1], last-1-begin)
			if errors.Is(err, errMissing) {
				return last, nil // this account's step is in a newer record, or lost
			}
			if err != nil {
				return last, err
			}
			last--
			places[last-first] = where
		}
	}
	return last, nil
}

// findHistory finds a step of an account's history in a row of its own. It is in the last row that
// starts at or before the step.
func findHistory(transaction *badger.Txn, number, ordinal uint64) (position, error) {
	settings := badger.DefaultIteratorOptions
	settings.PrefetchValues, settings.Reverse = false, true
	settings.Prefix = historyKey(number, 0)[:1+8]
	rows := transaction.NewIterator(settings)
	defer rows.Close()
	rows.Seek(historyKey(number, ordinal))
	if !rows.Valid() {
		return position{}, errMissing
	}
	key := rows.Item().KeyCopy(nil)
	if len(key) != 1+8+8 {
		return position{}, errRow
	}
	sealed, err := rows.Item().ValueCopy(nil)
	if err != nil {
		return position{}, fmt.Errorf("database: %w", err)
	}
	value, err := unseal(key, sealed)
	if err != nil {
		return position{}, err
	}
	return decodeHistory(value, ordinal-binary.BigEndian.Uint64(key[1+8:]))
}
