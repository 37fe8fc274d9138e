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

// Steps of histories have no balances: there is no room for them. Instead, a layer that has the
// step with which an account completes a further 256 has a row with the account as of the layer's
// end. A read begins at the next such row after the steps that it wants, or at the head, and takes
// back what is in between: at most 256 steps and those of one layer.
//
// Such a row names the block of the layer's end by its hash, so a row of a layer that a crash undid
// is known, and never used. The rows only shorten the way: if some are missing, as those of layers
// that an earlier version wrote, a read takes more work, and its result is the same.

// balanceStepsDefault is after how many further steps an account gets a row with its balances.
const balanceStepsDefault = 256

// tally is what an account has after a number of steps: all of it, set aside or not.
type tally struct {
	steps    uint64
	balances []ledger.Balance // by asset
}

// tallyOf returns the tally of an account after all steps that it counts.
func tallyOf(account *ledger.Account) tally {
	t := tally{steps: account.History}
	for i := range account.Balances {
		balance := &account.Balances[i]
		t.balances = append(t.balances, ledger.Balance{Asset: balance.Asset,
			Amount: balance.Settled()})
	}
	return t
}

// amount returns how much of an asset there is.
func (t *tally) amount(asset ledger.AssetName) ledger.Amount {
	for i := range t.balances {
		if t.balances[i].Asset == asset {
			return t.balances[i].Amount
		}
	}
	return ledger.Amount{}
}

// add adds the changes of a step.
func (t *tally) add(changes []ledger.Balance) {
	for i := range changes {
		t.subtract(changes[i].Asset, ledger.Amount{}.Minus(changes[i].Amount))
	}
	t.steps++
}

// takeBack takes back the changes of the last step.
func (t *tally) takeBack(changes []ledger.Balance) {
	for i := range changes {
		t.subtract(changes[i].Asset, changes[i].Amount)
	}
	t.steps--
}

func (t *tally) subtract(asset ledger.AssetName, amount ledger.Amount) {
	if amount.Sign() == 0 {
		return
	}
	for i := range t.balances {
		if t.balances[i].Asset == asset {
			t.balances[i].Amount = t.balances[i].Amount.Minus(amount)
			return
		}
	}
	t.balances = append(t.balances, ledger.Balance{Asset: asset,
		Amount: ledger.Amount{}.Minus(amount)})
}

// known returns what there is, by asset, without assets of 0.
func (t *tally) known() []ledger.Balance {
	known := slices.DeleteFunc(slices.Clone(t.balances), func(balance ledger.Balance) bool {
		return balance.Amount.Sign() == 0
	})
	slices.SortFunc(known, func(a, b ledger.Balance) int {
		return cmp.Compare(a.Asset, b.Asset)
	})
	return known
}

// changesIn returns what a transaction changed in an account, in the order of its postings: the sum
// for each asset.
func changesIn(path ledger.AccountPath, postings []ledger.Posting) (changes []ledger.Balance) {
	var t tally
	for i := range postings {
		posting := &postings[i]
		if posting.Account != path {
			continue
		}
		if !slices.ContainsFunc(t.balances, func(b ledger.Balance) bool {
			return b.Asset == posting.Asset
		}) {
			t.balances = append(t.balances, ledger.Balance{Asset: posting.Asset})
		}
		t.subtract(posting.Asset, ledger.Amount{}.Minus(posting.Amount))
	}
	return t.balances
}

// balancesDue returns the numbers of the accounts that get a row of balances with a layer of these
// blocks, or nil.
func (s *Store) balancesDue(blocks []*pendingBlock) map[uint64]struct{} {
	var due map[uint64]struct{}
	for _, pending := range blocks {
		history := pending.changes.History
		for i := range history {
			if (history[i].Ordinal+1)%s.options.balanceSteps != 0 {
				continue
			}
			if due == nil {
				due = make(map[uint64]struct{})
			}
			due[history[i].Number()] = struct{}{}
		}
	}
	return due
}

// balancePutter returns a function that takes the entries of the state that blocks changed, as they
// are after the last one, and passes rows of balances to put.
func (s *Store) balancePutter(blocks []*pendingBlock, put putRow) func(key, after []byte) error {
	due := s.balancesDue(blocks)
	if due == nil {
		return func(_, _ []byte) error { return nil }
	}
	last := blocks[len(blocks)-1].block
	return func(key, after []byte) error {
		if len(after) == 0 || !state.IsAccountKey(key) {
			return nil
		}
		number, _ := binary.Uvarint(after)
		if _, is := due[number]; !is {
			return nil
		}
		account, err := state.DecodeAccount(state.AccountOfKey(key), after)
		if err != nil {
			return err
		}
		value := binary.BigEndian.AppendUint64(nil, uint64(last.Header.Height))
		value = append(append(value, last.Hash[:]...), after...)
		return put("balances", balanceKey(number, account.History), value)
	}
}

func balanceKey(number, steps uint64) []byte {
	return appendStepKey([]byte{rowBalances}, number, steps)
}

// balanceRow is a row with the balances of an account.
type balanceRow struct {
	steps  uint64
	height ledger.Height
	hash   ledger.Hash
	entry  []byte
}

// maxUndone bounds how many rows of layers that a crash undid a read passes.
const maxUndone = 16

// tallyFrom returns the tally of an account after some steps or the next later one that is known
// without taking steps back.
func (s *Store) tallyFrom(account *ledger.Account, steps uint64) (tally, error) {
	from := steps
	for range maxUndone {
		if from >= account.History {
			break
		}
		row, found, err := s.balanceRowFrom(account, from)
		if err != nil || !found || row.steps >= account.History {
			return tallyOf(account), err
		}
		from = row.steps + 1
		if s.exists(row.height) != nil {
			continue
		}
		if hash, err := s.hash(row.height); err != nil {
			return tally{}, err
		} else if hash != row.hash {
			continue
		}
		then, err := state.DecodeAccount(account.Path, row.entry)
		if err != nil || then.Number != account.Number || then.History != row.steps {
			return tally{}, damaged(row.height, "balances of %s after %d steps: %v", account.Path,
				row.steps, errors.Join(errRow, err))
		}
		return tallyOf(&then), nil
	}
	return tallyOf(account), nil
}

// balanceRowFrom returns the first row with balances of an account after some steps or more.
func (s *Store) balanceRowFrom(account *ledger.Account, steps uint64) (row balanceRow, found bool,
	err error) {
	defer guard(account.Opened, &err)
	err = s.look(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.PrefetchValues = false
		settings.Prefix = balanceKey(account.Number, 0)[:1+8]
		rows := transaction.NewIterator(settings)
		defer rows.Close()
		rows.Seek(balanceKey(account.Number, steps))
		if found = rows.Valid(); !found {
			return nil
		}
		key := rows.Item().KeyCopy(nil)
		sealed, err := rows.Item().ValueCopy(nil)
		if err != nil {
			return fmt.Errorf("database: %w", err)
		}
		value, err := unseal(key, sealed)
		if err != nil {
			return err
		}
		if len(key) != 1+8+8 || len(value) < 8+ledger.HashSize {
			return errRow
		}
		row.steps = binary.BigEndian.Uint64(key[1+8:])
		row.height = ledger.Height(binary.BigEndian.Uint64(value))
		row.hash = ledger.Hash(value[8 : 8+ledger.HashSize])
		row.entry = value[8+ledger.HashSize:]
		return nil
	})
	if err != nil {
		err = damagedUnless(ErrClosed, err, account.Opened, fmt.Sprintf("balances of %s",
			account.Path))
	}
	return row, found, err
}
