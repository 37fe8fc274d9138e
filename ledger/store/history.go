package store

import (
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
	s.mutex.RLock()
	account, open := s.state.Account(path)
	pending := s.unwritten.blocks
	s.mutex.RUnlock()
	if !open {
		return HistoryPage{}, fmt.Errorf("%w: account %.150q", ErrNotFound, string(path))
	}
	limit = max(1, min(limit, MaxHistoryPage))
	page := HistoryPage{Total: account.History}
	// Oldest first, the cursor is the next ordinal. Newest first, it is one more than the next
	// ordinal, so that 0 can mean the newest item.
	first, last := cursor, account.History
	if newestFirst && cursor != 0 {
		first, last = 0, min(cursor, account.History)
	} else if newestFirst {
		first = 0
	}
	for len(page.Items) < limit && first < last {
		ordinal := first
		if newestFirst {
			last--
			ordinal = last
		} else {
			first++
		}
		item, err := s.historyItem(&account, ordinal, pending)
		if err != nil {
			return HistoryPage{}, err
		}
		page.Items = append(page.Items, item)
	}
	page.More, page.Next = first < last, first
	if newestFirst {
		page.Next = last
	}
	return page, nil
}

func (s *Store) historyItem(account *ledger.Account, ordinal uint64,
	pending []*pendingBlock) (HistoryItem, error) {
	where, found := pendingHistory(account.Number, ordinal, pending)
	if !found {
		var err error
		if where, err = s.readHistory(account, ordinal); err != nil {
			return HistoryItem{}, err
		}
	}
	result, err := s.at(where)
	if err != nil {
		return HistoryItem{}, err
	}
	entry := result.Entry
	// A verdict ended the wait of a cross-shard transaction: show that transaction.
	if verdict := entry.Transaction.Verdict; verdict != nil && entry.Result.Code == ledger.Settled {
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
	for i := range entry.Transaction.Postings {
		if entry.Transaction.Postings[i].Account == path {
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
				return cmp.Or(cmp.Compare(change.Number, number),
					cmp.Compare(change.Ordinal, ordinal))
			})
		if found {
			return position{height: pending[i].block.Header.Height, index: steps[at].Index}, true
		}
	}
	return position{}, false
}

func (s *Store) readHistory(account *ledger.Account, ordinal uint64) (where position, err error) {
	defer guard(account.Opened, &err)
	err = s.db.View(func(transaction *badger.Txn) error {
		where, err = findHistory(transaction, account.Number, ordinal)
		if errors.Is(err, errMissing) && account.Opened <= s.Unindexed() {
			return s.errUnindexed(fmt.Sprintf("entry %d of the history of %s", ordinal,
				account.Path))
		}
		if err != nil {
			return damaged(account.Opened, "history of %s, entry %d: %v", account.Path, ordinal,
				err)
		}
		return nil
	})
	return where, err
}

// findHistory finds a step of an account's history. It is in the last row that starts at or before
// the step.
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
