package ledger_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// TestSupplyOf: an issuer counts where it came to last, and what cannot be of one book is refused.
func TestSupplyOf(t *testing.T) {
	t.Parallel()
	of := func(issued int64, arrived uint64) *ledger.Asset {
		return &ledger.Asset{Number: 1, Name: "EUR", Owner: "acme", Revision: 1,
			AssetTerms: ledger.AssetTerms{Supply: ledger.SupplyUnlimited,
				Issuers: []ledger.Issuer{{Organisation: "acme"}}},
			Issuances: []ledger.Issuance{{Issued: ledger.NewAmount(issued), Arrived: arrived}}}
	}
	changed := func(change func(*ledger.Asset)) *ledger.Asset {
		asset := of(0, 0)
		change(asset)
		return asset
	}
	for name, each := range map[string]struct {
		shards []*ledger.Asset
		issued int64
		err    error
	}{
		"no move":            {[]*ledger.Asset{of(0, 0), of(5, 0), of(0, 0)}, 5, nil},
		"moved":              {[]*ledger.Asset{of(5, 0), of(9, 2)}, 9, nil},
		"moved, other order": {[]*ledger.Asset{of(9, 2), of(5, 0)}, 9, nil},
		"moved twice":        {[]*ledger.Asset{of(11, 7), of(9, 2)}, 11, nil},
		"two at once":        {[]*ledger.Asset{of(5, 0), of(9, 0)}, 0, ledger.ErrMalformed},
		"two after a move":   {[]*ledger.Asset{of(5, 3), of(9, 3)}, 0, ledger.ErrMalformed},
		"another owner": {[]*ledger.Asset{of(5, 0), changed(func(a *ledger.Asset) {
			a.Owner = "bank"
		})}, 0, ledger.ErrMalformed},
		"another number": {[]*ledger.Asset{of(5, 0), changed(func(a *ledger.Asset) {
			a.Number = 2
		})}, 0, ledger.ErrMalformed},
		"other terms": {[]*ledger.Asset{of(5, 0), changed(func(a *ledger.Asset) {
			a.Closed = true
		})}, 0, ledger.ErrMalformed},
	} {
		supply, err := ledger.SupplyOf(each.shards...)
		if !errors.Is(err, each.err) || supply.Issued != ledger.NewAmount(each.issued) {
			t.Errorf("%s: %+v, %v", name, supply, err)
		}
	}
}
