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

// TestDecodeAssetRefuses: entries that no state has are refused.
func TestDecodeAssetRefuses(t *testing.T) {
	t.Parallel()
	good := func() *ledger.Asset {
		return &ledger.Asset{Number: 1, Name: "EUR", Owner: "acme", Revision: 1, Registered: 3,
			AssetTerms: ledger.AssetTerms{Supply: ledger.SupplyUnlimited,
				Issuers: []ledger.Issuer{{Organisation: "acme"}}},
			Issuances: []ledger.Issuance{{Issued: ledger.NewAmount(5)}}}
	}
	for name, change := range map[string]func(*ledger.Asset){
		"": func(*ledger.Asset) {},
		"redeemed more than issued": func(a *ledger.Asset) {
			a.Issuances[0].Redeemed = ledger.NewAmount(6)
		},
		"redeemed below zero": func(a *ledger.Asset) {
			a.Issuances[0].Redeemed = ledger.NewAmount(-1)
		},
		"waiting below zero": func(a *ledger.Asset) {
			a.Issuances[0].Waiting = ledger.NewAmount(-1)
		},
		"number 0":         func(a *ledger.Asset) { a.Number = 0 },
		"number too large": func(a *ledger.Asset) { a.Number = ledger.MaxRegisteredAssets + 1 },
		"revision 0":       func(a *ledger.Asset) { a.Revision = 0 },
		"no owner":         func(a *ledger.Asset) { a.Owner = "" },
		"an issuer that is not counted": func(a *ledger.Asset) {
			a.Issuances = nil
		},
	} {
		asset := good()
		change(asset)
		entry, keyLength := asset.AppendEntry(nil)
		_, err := ledger.DecodeAsset(entry[:keyLength], entry[keyLength:])
		if (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
