package ledgertest

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Vouch makes a member of the genesis' chain vouch for all input from other shards in a batch. Name
// is the member's name, as of Member.
func Vouch(genesis *ledger.Genesis, name string, batch *ledger.Batch) {
	entries := make([]ledger.Vouched, len(batch.Carried))
	for i, carried := range batch.Carried {
		entries[i] = ledger.Vouched{Number: carried.Number,
			Hash: ledger.CarriedHash(carried.Bundle)}
	}
	slices.SortFunc(entries, func(a, b ledger.Vouched) int {
		return cmp.Compare(a.Number, b.Number)
	})
	entries = slices.CompactFunc(entries, func(a, b ledger.Vouched) bool {
		return a.Number == b.Number
	})
	batch.Vouch(Key(name), genesis.Hash(), entries)
}
