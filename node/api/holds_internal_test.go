package api

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestHoldsConcern: the organisation of the account, the poster and those that may get something
// see a hold. Its end is seen by the organisation of the account and the poster.
func TestHoldsConcern(t *testing.T) {
	t.Parallel()
	hold := &ledger.Hold{From: "acme:a", Asset: "EUR", Amount: ledger.NewAmount(5),
		To: []ledger.AccountPath{"hotel:a", "shop:a"}, Poster: "escrow", Expires: 9}
	placed := &ledger.Transaction{Signer: "acme", Hold: hold}
	voided := &ledger.Transaction{Signer: "escrow",
		HoldEnd: &ledger.HoldEnd{Hold: ledger.Hash{1}, From: "acme:a"}}
	for organisation, want := range map[string][3]bool{"acme": {true, true, true},
		"escrow": {true, true, true}, "hotel": {true, true, false}, "shop": {true, true, false},
		"ac": {}, "bank": {}} {
		got := [3]bool{holdConcerns(organisation, holdToProto(hold)),
			transactionConcerns(organisation, placed), transactionConcerns(organisation, voided)}
		summary := &ledgerdv1.TransactionSummary{Signer: "acme", Hold: holdToProto(hold)}
		if got != want || summaryConcerns(organisation, summary) != want[1] {
			t.Errorf("%s: %v", organisation, got)
		}
		summary = &ledgerdv1.TransactionSummary{Signer: "escrow",
			HoldEnd: holdEndToProto(voided.HoldEnd)}
		if summaryConcerns(organisation, summary) != want[2] {
			t.Errorf("%s: the end", organisation)
		}
	}
	if holdConcerns("acme", nil) {
		t.Error("no hold concerns somebody")
	}
}

// TestHoldsConvert: a hold comes back as it was, and what is none is refused.
func TestHoldsConvert(t *testing.T) {
	t.Parallel()
	hold := &ledger.Hold{From: "acme:a", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(5),
		To: []ledger.AccountPath{"shop:a"}, Poster: "shop", Expires: 9}
	message := holdToProto(hold)
	message.Asset = ""
	back, err := HoldFromProto(message)
	if err != nil || back.Validate() != nil || back.Asset != hold.Asset || back.From != hold.From ||
		back.Amount != hold.Amount || back.To[0] != hold.To[0] || back.Poster != hold.Poster ||
		back.Expires != hold.Expires {
		t.Errorf("%+v %v", back, err)
	}
	for name, wrong := range map[string]*ledgerdv1.Hold{"amount": {Amount: "x"},
		"time": {Amount: "1", ExpiresMs: 1 << 63}} {
		if _, err := HoldFromProto(wrong); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := holdEndFromProto(&ledgerdv1.HoldEnd{HoldHex: "12"}); err == nil {
		t.Error("an end without a hold is taken")
	}
}
