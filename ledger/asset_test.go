package ledger_test

import (
	"encoding/json"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestDecimals: amounts are written and read exactly, whatever their decimals.
func TestDecimals(t *testing.T) {
	t.Parallel()
	for _, each := range []struct {
		text     string
		decimals int
		want     string
		err      error
	}{
		{"12.50", 2, "1250", nil}, {"12.5", 2, "1250", nil}, {"12", 2, "1200", nil},
		{"-0.01", 2, "-1", nil}, {"0.00", 2, "0", nil}, {"0", 0, "0", nil},
		{"0.000000000000000000000000000001", 30, "1", nil},
		{"17014118.346046923173168730371588410572", 30, "17014118346046923173168730371588410572",
			nil},
		{"12.505", 2, "", ledger.ErrDecimals}, {"12.500", 2, "", ledger.ErrDecimals},
		{"12.0", 0, "", ledger.ErrDecimals}, {"12.", 2, "", ledger.ErrAmount},
		{".5", 2, "", ledger.ErrAmount}, {"1,5", 2, "", ledger.ErrAmount},
		{"01.5", 2, "", ledger.ErrAmount}, {"1.-5", 2, "", ledger.ErrAmount},
		{"-0.00", 2, "", ledger.ErrAmount}, {"-0", 2, "", ledger.ErrAmount},
		{"+1", 2, "", ledger.ErrAmount}, {"1e2", 2, "", ledger.ErrAmount},
		{"", 2, "", ledger.ErrAmount}, {"-", 2, "", ledger.ErrAmount},
		{"1701411834604692317316873037158841058", 2, "", ledger.ErrOverflow},
		{"1701411834604692317316873037158841057.27", 2, ledger.MaxAmount.String(), nil},
		{"1701411834604692317316873037158841057.28", 2, "", ledger.ErrOverflow},
		{"-1701411834604692317316873037158841057.28", 2, ledger.MinAmount.String(), nil},
	} {
		got, err := ledger.ParseDecimal(each.text, each.decimals)
		if !errors.Is(err, each.err) || err == nil && got.String() != each.want {
			t.Errorf("%q with %d decimals: %s, %v", each.text, each.decimals, got, err)
		}
	}
	for _, wrong := range []int{-1, ledger.MaxDecimals + 1, 1<<32 - 1} {
		if _, err := ledger.ParseDecimal("1", wrong); !errors.Is(err, ledger.ErrDecimals) {
			t.Errorf("%d decimals: %v", wrong, err)
		}
		if got := ledger.PlacePoint("15", wrong); got != "15" {
			t.Errorf("%d decimals: %.60s", wrong, got)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		negative := rapid.Bool().Draw(r, "negative")
		amount, fits := ledger.AmountOf(negative, rapid.Uint64().Draw(r, "high")>>
			rapid.IntRange(1, 63).Draw(r, "shift"), rapid.Uint64().Draw(r, "low"))
		decimals := rapid.IntRange(0, ledger.MaxDecimals).Draw(r, "decimals")
		text := amount.Decimal(decimals)
		if again, err := ledger.ParseDecimal(text, decimals); !fits || err != nil ||
			again != amount {
			r.Fatalf("%s is written %s, which reads %s: %v", amount, text, again, err)
		}
	})
}

// TestAssetForm: terms that promise what cannot be kept have no encoding.
func TestAssetForm(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	for name, change := range map[string]func(*ledger.Transaction){
		"too many decimals": func(t *ledger.Transaction) { t.Asset.Decimals = 31 },
		"no policy":         func(t *ledger.Transaction) { t.Asset.Supply = 3 },
		"a cap that is too low": func(t *ledger.Transaction) {
			t.Asset.Cap = ledger.NewAmount(9)
		},
		"a cap below zero": func(t *ledger.Transaction) {
			t.Asset.Cap, t.Asset.Issuers = ledger.NewAmount(-1), nil
		},
		"a cap without a bound": func(t *ledger.Transaction) {
			t.Asset.Supply = ledger.SupplyUnlimited
		},
		"an issuer twice": func(t *ledger.Transaction) {
			t.Asset.Issuers[1].Organisation = "acme"
		},
		"an allowance below zero": func(t *ledger.Transaction) {
			t.Asset.Issuers[0].Allowance = ledger.NewAmount(-1)
		},
		"allowances that overflow": func(t *ledger.Transaction) {
			t.Asset.Cap = ledger.MaxAmount
			t.Asset.Issuers[0].Allowance = ledger.MaxAmount
		},
		"number 0":         func(t *ledger.Transaction) { t.Asset.Number = 0 },
		"the asset unit":   func(t *ledger.Transaction) { t.Asset.Asset = "unit" },
		"a malformed name": func(t *ledger.Transaction) { t.Asset.Asset = "€" },
		"a deadline":       func(t *ledger.Transaction) { t.Deadline = 1 },
		"a last height":    func(t *ledger.Transaction) { t.LastValid = 1 },
		"a policy beside":  func(t *ledger.Transaction) { t.Policy = &ledger.PolicyChange{} },
		"a charter beside": func(t *ledger.Transaction) { t.Charter = &ledger.CharterChange{} },
		"an opening beside": func(t *ledger.Transaction) {
			t.Openings = client.Register("a").Openings
		},
	} {
		transaction := client.ChangeAsset("EUR", 1, ledgertest.Capped(5, "acme", "bank"))
		if _, err := transaction.EncodeBody(); err != nil {
			t.Fatal(err)
		}
		change(&transaction)
		if _, err := transaction.EncodeBody(); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

// TestAssetJSON: what programs read of an asset says its policy in words and its amounts exactly.
func TestAssetJSON(t *testing.T) {
	t.Parallel()
	terms := ledgertest.Capped(5, "acme")
	encoded, err := json.Marshal(terms)
	const want = `{"decimals":2,"supply":"capped","cap":"5","issuers":[{"organisation":"acme",` +
		`"allowance":"5"}]}`
	if err != nil || string(encoded) != want {
		t.Errorf("%s: %v", encoded, err)
	}
	var again ledger.AssetTerms
	if err := json.Unmarshal(encoded, &again); err != nil || !terms.MayBecome(&again) {
		t.Errorf("%+v: %v", again, err)
	}
}
