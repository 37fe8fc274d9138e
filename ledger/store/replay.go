package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// replay executes the chain again from the genesis, on a state of its own. When the state has more
// accounts than may be in memory, the replay keeps them in a database of its own, too, which is
// removed at its end. Nothing in it is durable, and nothing else reads it. Each account that comes
// from it is checked against the state's tree.
type replay struct {
	state *state.State
	dir   string
	limit int
	// scratch is nil as long as all accounts are in memory. It has the changes of the blocks up to
	// stored; batch has some of the blocks after it.
	scratch *badger.DB
	batch   *badger.WriteBatch
	blocks  int
	stored  ledger.Height
}

// replayFolder is the name of the folder of a replay's database in the store's folder. If a process
// leaves it behind, the next Open removes it.
const replayFolder = "replay"

// replayBlocks is after how many blocks the changes go to the replay's database at the latest. The
// accounts that they touch are in memory until then.
const replayBlocks = 64

func (s *Store) newReplay() (*replay, error) {
	begun, err := s.beginState()
	if err != nil {
		return nil, err
	}
	return &replay{state: begun, dir: filepath.Join(s.dir, replayFolder),
		limit: s.options.AccountsInMemory}, nil
}

// execute executes the next block again, as far as it gives the same block. A failure of the
// replay's database is no damage of the store.
func (r *replay) execute(block *ledger.Block) (*ledger.Block, *state.Changes, error) {
	draft := state.Redraft(block)
	if err := r.admit(r.state.Wanted(draft)); err != nil {
		return nil, nil, fmt.Errorf("store: executing block %d again: %w", block.Header.Height, err)
	}
	executed, changes := r.state.Execute(draft)
	if err := r.keep(changes, block.Header.Height); err != nil {
		return nil, nil, fmt.Errorf("store: executing block %d again: %w", block.Header.Height, err)
	}
	return executed, changes, nil
}

// admit reads accounts from the replay's database.
func (r *replay) admit(paths []ledger.AccountPath) error {
	if len(paths) == 0 {
		return nil
	}
	return r.scratch.View(func(transaction *badger.Txn) error {
		for _, path := range paths {
			var value []byte
			item, err := transaction.Get(state.AppendAccountKey(nil, path))
			if err == nil {
				value, err = item.ValueCopy(nil)
			}
			if err != nil && !errors.Is(err, badger.ErrKeyNotFound) {
				return err
			}
			if err := r.state.Admit(path, value); err != nil {
				return err
			}
		}
		return nil
	})
}

// keep keeps what a block changed in accounts, once these are more than may be in memory.
func (r *replay) keep(changes *state.Changes, height ledger.Height) error {
	if r.scratch == nil {
		if r.state.Version() < ledger.AccountTreeVersion || r.state.AccountCount() <= r.limit {
			return nil
		}
		if err := r.begin(); err != nil {
			return err
		}
	}
	for change := range changes.Entries.All() {
		if state.IsAccountKey(change.Key) {
			if err := r.batch.Set(change.Key, change.After); err != nil {
				return err
			}
		}
	}
	if r.blocks++; r.blocks < replayBlocks {
		return nil
	}
	if err := r.batch.Flush(); err != nil {
		return err
	}
	r.batch, r.blocks, r.stored = r.scratch.NewWriteBatch(), 0, height
	r.state.Evict(r.stored, r.limit)
	return nil
}

// begin makes the replay's database, with all accounts. All of them are in memory until then.
func (r *replay) begin() error {
	if err := os.RemoveAll(r.dir); err != nil {
		return err
	}
	const megabytes = 1 << 20
	scratch, err := badger.Open(badger.DefaultOptions(r.dir).WithLogger(nil).
		WithMetricsEnabled(false).WithDetectConflicts(false).WithNumVersionsToKeep(1).
		WithMemTableSize(8 * megabytes).WithNumMemtables(2).WithNumCompactors(2).
		WithBlockCacheSize(8 * megabytes).WithValueLogFileSize(8 * megabytes).
		WithValueThreshold(megabytes / 2).WithCompression(options.None))
	if err != nil {
		return err
	}
	r.scratch, r.batch = scratch, scratch.NewWriteBatch()
	return r.state.Entries(func(key, value []byte) error {
		if !state.IsAccountKey(key) {
			return nil
		}
		return r.batch.Set(bytes.Clone(key), bytes.Clone(value))
	})
}

// end removes what the replay kept.
func (r *replay) end() error {
	if r.scratch == nil {
		return nil
	}
	r.batch.Cancel()
	if err := errors.Join(r.scratch.Close(), os.RemoveAll(r.dir)); err != nil {
		return fmt.Errorf("store: executing blocks again: %w", err)
	}
	return nil
}
