package api_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestTermsAtACut: an account and an asset at a cut are those of then, alone and in lists, and what
// was not there yet is not found.
func TestTermsAtACut(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	b := newBank(t, apitest.Options{Genesis: genesis}, api.Options{})
	var places [][]*ledgerdv1.Place // after each step
	step := func(transaction ledger.Transaction) {
		b.done(transaction)
		answer, err := b.client.GetCut(b.context(), connect.NewRequest(&ledgerdv1.GetCutRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, answer.Msg.GetPlaces())
	}
	issue := transfer("bank:mint", "bank:a", 5)
	for i := range issue.Postings {
		issue.Postings[i].Asset = "EUR"
	}
	step(transfer("bank:mint", "bank:a", 1))
	step(ledger.Transaction{Account: &ledger.AccountChange{Account: "bank:a", Number: 2,
		Alias: "till", AccountTerms: ledger.AccountTerms{NoCredits: true}}})
	step(ledger.Transaction{Account: &ledger.AccountChange{Account: "bank:a", Number: 3,
		AccountTerms: ledger.AccountTerms{}}})
	step(ledger.Transaction{Asset: &ledger.AssetChange{Asset: "EUR", Number: 1,
		AssetTerms: ledgertest.Capped(50, "bank")}})
	step(issue)
	step(ledger.Transaction{Asset: &ledger.AssetChange{Asset: "EUR", Number: 2,
		AssetTerms: ledgertest.Capped(40, "bank")}})

	for i, want := range []struct {
		alias    string
		revision uint64
		asset    uint64 // 0 if it is not registered
		issued   string
	}{{"Anna", 1, 0, ""}, {"till", 2, 0, ""}, {"", 3, 0, ""}, {"", 3, 1, "0"},
		{"", 3, 1, "5"}, {"", 3, 2, "5"}} {
		one, err := b.client.GetAccount(b.context(), connect.NewRequest(
			&ledgerdv1.GetAccountRequest{Account: "bank:a", Cut: places[i]}))
		if err != nil {
			t.Fatal(err)
		}
		all, err := b.client.ListAccounts(b.context(), connect.NewRequest(
			&ledgerdv1.ListAccountsRequest{Prefix: "bank:a", Cut: places[i]}))
		if err != nil {
			t.Fatal(err)
		}
		for _, account := range append(all.Msg.GetAccounts(), one.Msg.GetAccount()) {
			if account.GetAlias() != want.alias || account.GetRevision() != want.revision ||
				!account.GetTermsAtCut() ||
				account.GetTerms().GetNoCredits() != (want.revision == 2) {
				t.Errorf("after step %d: account %v", i, account)
			}
		}
		asset, err := b.client.GetAsset(b.context(), connect.NewRequest(
			&ledgerdv1.GetAssetRequest{Name: "EUR", Cut: places[i]}))
		if want.asset == 0 {
			codeIs(t, err, connect.CodeNotFound)
		} else if err != nil {
			t.Fatal(err)
		}
		for _, names := range [][]string{nil, {"gold", "EUR"}} {
			list, err := b.client.ListAssets(b.context(), connect.NewRequest(
				&ledgerdv1.ListAssetsRequest{Cut: places[i], Names: names, PageSize: 1}))
			if err != nil || !list.Msg.GetAtCut() || list.Msg.GetNextPageToken() != "" ||
				(len(list.Msg.GetAssets()) == 1) != (want.asset > 0) {
				t.Fatalf("after step %d: assets %v: %v", i, list, err)
			}
			if want.asset == 0 {
				continue
			}
			for _, each := range append(list.Msg.GetAssets(), asset.Msg.GetAsset()) {
				if each.GetRevision() != want.asset || each.GetIssued() != want.issued ||
					!each.GetTermsAtCut() || each.GetHeight() != places[i][0].GetHeight() {
					t.Errorf("after step %d: asset %v", i, each)
				}
			}
		}
	}
	_, err := b.client.GetAsset(b.context(), connect.NewRequest(
		&ledgerdv1.GetAssetRequest{Name: "EUR", Cut: places[5], Prove: true}))
	codeIs(t, err, connect.CodeInvalidArgument)
}
