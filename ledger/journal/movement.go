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

// movement is what an entry changes in the balances of the chain's shard.
type movement struct {
	id ledger.Hash
	// transaction is that whose postings these are: the entry's own, or the one that its verdict
	// ends.
	transaction *ledger.Transaction
	// postings are those of accounts of this shard.
	postings []ledger.Posting
	// abroad is what the accounts of other shards give and take, by asset. The amounts of abroad
	// and of the postings add up to zero.
	abroad []ledger.Balance
}

// movementOf returns what an entry changes, or nil.
func movementOf(source Source, entry *ledger.Entry, t *ledger.Transaction) (*movement, error) {
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
	return &movement{id: entry.ID, transaction: t, postings: t.Postings}, nil
}

// crossed returns what a transaction of several shards changes here.
func crossed(id ledger.Hash, crossing *Crossing) (*movement, error) {
	m := &movement{id: id, transaction: crossing.Transaction}
	for _, posting := range crossing.Transaction.Postings {
		if crossing.Here(posting.Account.Organisation()) {
			m.postings = append(m.postings, posting)
			continue
		}
		if err := m.add(posting.Asset, posting.Amount); err != nil {
			return nil, err
		}
	}
	if len(m.postings) == 0 {
		return nil, nil
	}
	return m, nil
}

func (m *movement) add(asset ledger.AssetName, amount ledger.Amount) (err error) {
	for i := range m.abroad {
		if m.abroad[i].Asset == asset {
			m.abroad[i].Amount, err = m.abroad[i].Amount.Add(amount)
			return err
		}
	}
	m.abroad = append(m.abroad, ledger.Balance{Asset: asset, Amount: amount})
	return nil
}
