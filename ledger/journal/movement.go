package journal

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrMoves means that an organisation moved between the shards of a book. Its balances then come
// and go without an entry. Only formats that do not sum up amounts have that.
var ErrMoves = errors.New("journal: organisations have moved between the shards of this book, " +
	"which this format cannot say")

// Movement is what an entry changes in the balances of the chain's shard.
type Movement struct {
	// ID and Transaction are those whose postings these are: the entry's own, or those of the
	// transaction that took effect by the entry, which is a verdict.
	ID          ledger.Hash
	Transaction *ledger.Transaction
	// Index is the entry's place in its block.
	Index int
	// Postings are those of accounts of this shard.
	Postings []ledger.Posting
	// Abroad is what the accounts of other shards give and take, by asset. The amounts of Abroad
	// and of the postings add up to zero.
	Abroad []ledger.Balance
}

// Movements calls visit with what each entry of a block changes. It returns ErrMoves if the block
// begins a move of an organisation or has a part of one.
func Movements(source Source, block *ledger.Block, visit func(*Movement) error) error {
	for i, entry := range block.All() {
		moved, err := movementOf(source, entry, entry.Transaction())
		if err == nil && moved != nil {
			moved.Index = i
			err = visit(moved)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// movementOf returns what an entry changes, or nil.
func movementOf(source Source, entry *ledger.Entry, t *ledger.Transaction) (*Movement, error) {
	switch {
	case t.Arrival != nil, t.Book != nil && t.Book.Move != nil && entry.Result.OK():
		return nil, ErrMoves
	case entry.Result.Code == ledger.Settled:
		crossing, err := source.Crossing(t.Verdict.ID)
		if err != nil {
			return nil, fmt.Errorf("transaction %s: %w", t.Verdict.ID, err)
		}
		return crossed(t.Verdict.ID, &crossing)
	case !entry.Result.OK() || len(t.Postings) == 0:
		return nil, nil
	}
	return &Movement{ID: entry.ID, Transaction: t, Postings: t.Postings}, nil
}

// crossed returns what a transaction of several shards changes here.
func crossed(id ledger.Hash, crossing *Crossing) (*Movement, error) {
	m := &Movement{ID: id, Transaction: crossing.Transaction}
	for _, posting := range crossing.Transaction.Postings {
		if crossing.Here(posting.Account.Organisation()) {
			m.Postings = append(m.Postings, posting)
			continue
		}
		if err := m.add(posting.Asset, posting.Amount); err != nil {
			return nil, err
		}
	}
	if len(m.Postings) == 0 {
		return nil, nil
	}
	return m, nil
}

func (m *Movement) add(asset ledger.AssetName, amount ledger.Amount) (err error) {
	for i := range m.Abroad {
		if m.Abroad[i].Asset == asset {
			m.Abroad[i].Amount, err = m.Abroad[i].Amount.Add(amount)
			return err
		}
	}
	m.Abroad = append(m.Abroad, ledger.Balance{Asset: asset, Amount: amount})
	return nil
}
