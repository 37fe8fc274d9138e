package api_test

import (
	"crypto/ed25519"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestAccessToTerms: an organisation finds its accounts by alias, a guardian reads the terms of the
// accounts that it guards, and both see the changes of terms, the holds and their ends that concern
// them. Nobody learns from an error which accounts others have.
func TestAccessToTerms(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.Genesis()
	genesis.Version = ledger.AccountTermsVersion
	b := newBank(t, apitest.Options{Genesis: genesis}, api.Options{})
	key := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), 1))
	registered := ledger.Registration{Name: "other", Keys: []ledger.PublicKey{
		ledger.PublicKey(key.Public().(ed25519.PublicKey))}}
	both := func(transaction ledger.Transaction) ledger.Hash {
		bundle := b.sign(transaction)
		must(t, bundle.Sign("other", key))
		b.submit(ledgerdv1.Level_LEVEL_DURABLE, bundle)
		return bundle.IDs()[0]
	}
	both(ledger.Transaction{Registrations: []ledger.Registration{registered},
		Openings: []ledger.Opening{{Account: "other:a"}}})
	b.done(transfer("bank:mint", "bank:a", 12))
	named := b.done(ledger.Transaction{Account: &ledger.AccountChange{Account: "bank:a", Number: 2,
		Alias: "Anna", AccountTerms: ledger.AccountTerms{Guardian: "other"}}})[0]
	unguarded := b.done(ledger.Transaction{Account: &ledger.AccountChange{Account: "bank:b",
		Number: 1}})[0]
	held := b.done(ledger.Transaction{Hold: &ledger.Hold{From: "bank:a", Asset: ledger.DefaultAsset,
		Amount: ledger.NewAmount(5), To: []ledger.AccountPath{"other:a"}, Poster: "other",
		Expires: 1_700_000_000_000 + ledger.MaxHoldTime/2}})[0]
	_, as := guarded(t, b)

	account := func(caller string, request *ledgerdv1.GetAccountRequest) (*ledgerdv1.Account,
		error) {
		answer, err := as[caller].GetAccount(b.context(), connect.NewRequest(request))
		if err != nil {
			return nil, err
		}
		return answer.Msg.GetAccount(), nil
	}
	alias := &ledgerdv1.GetAccountRequest{Organisation: "bank", Alias: "Anna"}
	found, err := account("bank", alias)
	must(t, err)
	if found.GetAccount() != "bank:a" || len(found.GetBalances()) != 1 {
		t.Errorf("bank finds %v", found)
	}
	for _, request := range []*ledgerdv1.GetAccountRequest{alias, {Account: "bank:a"}} {
		found, err := account("other", request)
		must(t, err)
		if found.GetRevision() != 2 || len(found.GetBalances()) != 0 {
			t.Errorf("the guardian reads %v", found)
		}
	}
	for _, request := range []*ledgerdv1.GetAccountRequest{{Account: "bank:b"},
		{Account: "bank:absent"}, {Organisation: "bank", Alias: "absent"}, {}} {
		_, err := account("other", request)
		codeIs(t, err, connect.CodePermissionDenied)
	}
	for _, request := range []*ledgerdv1.GetAccountRequest{{Account: "other:absent"},
		{Organisation: "other", Alias: "absent"}} {
		_, err := account("other", request)
		codeIs(t, err, connect.CodeNotFound)
	}

	for id, may := range map[ledger.Hash]bool{named: true, held: true, unguarded: false} {
		_, err := as["other"].GetTransaction(b.context(), connect.NewRequest(
			&ledgerdv1.GetTransactionRequest{Id: id[:]}))
		if (err == nil) != may {
			t.Errorf("%s: %v", id, err)
		}
	}
}
