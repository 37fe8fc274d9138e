package ledger_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestVelocityAgainstAllDebits: within the time of a velocity, wherever it begins, no more is
// allowed than its amount, and a debit is refused only if the last time and a quarter have too
// much with it.
func TestVelocityAgainstAllDebits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		velocity := &ledger.Velocity{Amount: ledger.NewAmount(rapid.Int64Range(0, 20).Draw(r, "x")),
			Seconds: rapid.Uint32Range(1, 9).Draw(r, "seconds")}
		limit, _ := velocity.Amount.Int64()
		length := ledger.Milliseconds(velocity.Seconds) * 1000
		type debit struct {
			at     ledger.Milliseconds
			amount int64
		}
		var debits []debit
		within := func(from, to ledger.Milliseconds) (sum int64) { // (from, to]
			for _, each := range debits {
				if each.at > from && each.at <= to {
					sum += each.amount
				}
			}
			return sum
		}
		var spent ledger.Spent
		now := ledger.Milliseconds(rapid.Int64Range(0, 1<<40).Draw(r, "now"))
		for range rapid.IntRange(1, 40).Draw(r, "debits") {
			now += ledger.Milliseconds(rapid.Int64Range(0, int64(length)/2).Draw(r, "later"))
			amount := rapid.Int64Range(1, 8).Draw(r, "amount")
			after, allowed := spent.After(velocity, now, ledger.NewAmount(amount))
			switch {
			case allowed && within(now-length, now)+amount > limit:
				r.Fatalf("%d more than %d in %v", amount, limit, debits)
			case !allowed && within(now-length-length/4, now)+amount <= limit:
				r.Fatalf("%d is refused at %d after %v", amount, now, debits)
			case !allowed && after != spent:
				r.Fatal("a refused debit counts")
			case allowed:
				debits = append(debits, debit{now, amount})
			}
			spent = after
		}
		if earlier := spent.At(velocity, 0); earlier != spent {
			r.Fatal("it goes back in time")
		}
	})
}

func TestFormOfTerms(t *testing.T) {
	t.Parallel()
	amount := func(value int64) *ledger.Amount {
		of := ledger.NewAmount(value)
		return &of
	}
	limit := func(limits ...ledger.AccountLimit) ledger.AccountTerms {
		return ledger.AccountTerms{Limits: limits}
	}
	for _, bad := range []ledger.AccountTerms{
		{Freeze: 4}, {Freeze: ledger.FreezeGuardian}, {Freeze: ledger.FreezeBoth},
		{Guardian: "a b"},
		limit(ledger.AccountLimit{Asset: "EUR"}),
		limit(ledger.AccountLimit{Asset: "", Floor: amount(1)}),
		limit(ledger.AccountLimit{Asset: "EUR", Floor: amount(2), Ceiling: amount(1)}),
		limit(ledger.AccountLimit{Asset: "EUR", Velocity: &ledger.Velocity{}}),
		limit(ledger.AccountLimit{Asset: "EUR", Velocity: &ledger.Velocity{
			Amount: ledger.NewAmount(-1), Seconds: 1}}),
		limit(ledger.AccountLimit{Asset: "EUR", Velocity: &ledger.Velocity{
			Seconds: ledger.MaxVelocitySeconds + 1}}),
		limit(ledger.AccountLimit{Asset: "b", Floor: amount(1)},
			ledger.AccountLimit{Asset: "a", Floor: amount(1)}),
		{Metadata: []ledger.Metadatum{{Key: "", Value: "x"}}},
		{Metadata: []ledger.Metadatum{{Key: "a", Value: "x\n"}}},
		{Metadata: []ledger.Metadatum{{Key: "a"}, {Key: "a"}}},
		{Limits: make([]ledger.AccountLimit, ledger.MaxAccountLimits+1)},
		{Metadata: make([]ledger.Metadatum, ledger.MaxMetadata+1)},
	} {
		if err := bad.Validate(); !errors.Is(err, ledger.ErrMalformed) &&
			!errors.Is(err, ledger.ErrName) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	for _, bad := range []func(*ledger.Transaction){
		func(t *ledger.Transaction) { t.Account.Number = 0 },
		func(t *ledger.Transaction) { t.Account.Guardian = "acme" },
		func(t *ledger.Transaction) { t.Signer = "bank" }, // a guardian that does not name itself
		func(t *ledger.Transaction) {
			t.Signer, t.Account.Guardian, t.Account.Alias = "bank", "bank", "till"
		},
		func(t *ledger.Transaction) {
			t.Signer, t.Account.Guardian, t.Account.NoDebits = "bank", "bank", true
		},
		func(t *ledger.Transaction) {
			t.Signer, t.Account.Guardian, t.Account.Freeze = "bank", "bank", ledger.FreezeBoth
		},
		func(t *ledger.Transaction) { t.Account.Alias = "\x00" },
		func(t *ledger.Transaction) { t.Account.Account = "acme" },
		func(t *ledger.Transaction) { t.Signer = ledger.Operator },
		func(t *ledger.Transaction) { t.LastValid = 1 },
		func(t *ledger.Transaction) { t.Deadline = 1 },
		func(t *ledger.Transaction) { t.Note = make([]byte, ledger.MaxNote+1) },
		func(t *ledger.Transaction) {
			t.Postings = client.Transfer("acme:a", "acme:b", 1).Postings
		},
	} {
		transaction := client.ChangeAccount("acme:a", 1, "", ledger.AccountTerms{})
		bad(&transaction)
		if err := transaction.Validate(); err == nil {
			t.Errorf("%+v is well-formed", transaction.Account)
		}
	}
	for freeze := ledger.FreezeNone; freeze <= ledger.FreezeBoth; freeze++ {
		text, _ := freeze.MarshalText()
		var again ledger.Freeze
		if err := again.UnmarshalText(text); err != nil || again != freeze {
			t.Errorf("%s: %s, %v", freeze, again, err)
		}
	}
	if err := new(ledger.Freeze).UnmarshalText([]byte("ice")); err == nil {
		t.Error("ice is a freeze")
	}
}

// TestFreezesAreTheirOwners: a guardian neither makes nor lifts the freeze of the organisation, on
// no way, and the organisation not that of the guardian.
func TestFreezesAreTheirOwners(t *testing.T) {
	t.Parallel()
	has := func(freeze ledger.Freeze, who string) bool {
		return freeze.String() == who || freeze.String() == "both"
	}
	for from := range ledger.FreezeBoth + 1 {
		for to := range ledger.FreezeBoth + 1 {
			before := ledger.AccountTerms{Guardian: "bank", Freeze: from}
			after := before
			after.Freeze = to
			guardians := has(from, "guardian") != has(to, "guardian")
			if may := before.MayGuard(to); may != guardians {
				t.Errorf("the guardian may make %s of %s: %t", to, from, may)
			}
			standing := ledger.AccountStanding{Revision: 7, AccountTerms: before}
			next := standing.Next(&ledger.AccountChange{Number: 3, AccountTerms: after}, true)
			if has(next.Freeze, "owner") != has(from, "owner") ||
				has(next.Freeze, "guardian") != has(to, "guardian") || next.Revision != 8 ||
				next.Guarded != 3 {
				t.Errorf("the guardian makes %s of %s: %s", to, from, next)
			}
			if may := before.MayBecome(&after); may != (!guardians &&
				!has(from, "guardian")) {
				t.Errorf("the organisation may make %s of %s: %t", to, from, may)
			}
		}
	}
}

func FuzzAccountChange(f *testing.F) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	terms := ledgertest.Limited(1, 20, 3, 60)
	terms.Guardian, terms.Freeze = "bank", ledger.FreezeGuardian
	terms.Metadata = []ledger.Metadatum{{Key: "iban", Value: "DE12", Indexed: true}}
	f.Add(client.Bundle(client.ChangeAccount("acme:a", 1, "cash", terms)).Body(0)[1:])
	f.Fuzz(func(t *testing.T, data []byte) {
		transaction, err := ledger.DecodeBody(append([]byte{16}, data...))
		if err != nil {
			return
		}
		if again, err := transaction.EncodeBody(); err != nil || !bytes.Equal(again[1:], data) {
			t.Fatalf("a change of an account has two encodings: %v", err)
		}
		change := transaction.Account
		standing := (&ledger.AccountStanding{}).Next(change, false)
		if change.Guards(transaction.Signer) {
			standing = (&ledger.AccountStanding{Revision: change.Number,
				AccountTerms: change.Clone()}).Next(change, true)
		}
		encoded := standing.AppendStanding(nil)
		again, err := ledger.DecodeStanding(encoded)
		if err != nil || !bytes.Equal(again.AppendStanding(nil), encoded) {
			t.Fatalf("terms have two encodings: %v", err)
		}
	})
}
