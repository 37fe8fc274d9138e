package api_test

import (
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/intake"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestAssetsOfNames: names that are not registered are left out, and no error.
func TestAssetsOfNames(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.AssetsVersion
	b := newBank(t, apitest.Options{Genesis: genesis}, api.Options{})
	for _, name := range []ledger.AssetName{"EUR", "gold"} {
		b.done(ledger.Transaction{Asset: &ledger.AssetChange{Asset: name, Number: 1,
			AssetTerms: ledgertest.Capped(50, "bank")}})
	}
	list := func(names ...string) ([]string, error) {
		answer, err := b.client.ListAssets(b.context(), connect.NewRequest(
			&ledgerdv1.ListAssetsRequest{Names: names, PageSize: 1}))
		if err != nil {
			return nil, err
		}
		var found []string
		for _, asset := range answer.Msg.GetAssets() {
			found = append(found, asset.GetName())
		}
		return found, nil
	}
	for _, each := range []struct{ names, want []string }{
		{nil, []string{"EUR"}}, // a page
		{[]string{"gold", "silver", "EUR"}, []string{"gold", "EUR"}},
		{[]string{"silver"}, nil},
	} {
		if got, err := list(each.names...); err != nil || !slices.Equal(got, each.want) {
			t.Errorf("%q: %q, %v", each.names, got, err)
		}
	}
	_, err := list(make([]string, intake.MaxAssetNames+1)...)
	codeIs(t, err, connect.CodeInvalidArgument)
}
