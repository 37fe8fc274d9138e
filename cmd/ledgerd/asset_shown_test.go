package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestAmountsHaveTheirDecimals: statements, histories and trial balances write amounts with the
// decimals of their assets. JSON keeps exact integers, and says the decimals beside them.
func TestAmountsHaveTheirDecimals(t *testing.T) {
	t.Parallel()
	s := newAssetShell(t)
	s.must("tx transfer acme:mint acme:cash 250 EUR %n %k") // an amount before the registration
	before := s.object("account statement acme:cash %n")
	if got, want := fmt.Sprint(before["totals"]), "[map[asset:EUR in:250 out:0]]"; got != want {
		t.Errorf("before the registration: %s, want %s", got, want)
	}
	if text := s.must("trial-balance --format csv %n"); !strings.Contains(text,
		"total,,EUR,250,250\n") {
		t.Errorf("before the registration:\n%s", text)
	}
	s.must("asset register EUR --organisation acme --decimals 2 %n %k")
	s.must("tx transfer acme:mint acme:cash 12345.50 EUR --note lunch %n %k")
	s.must("tx transfer acme:cash acme:mint 0.05 EUR %n %k")
	s.must("tx transfer acme:mint acme:cash 7 gold %n %k")

	const whole = "account statement acme:cash %n"
	text := s.must(whole)
	for _, want := range []string{" 2.50 ", "12345.50", "12348.00", "0.05", "12347.95", " 7 "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(s.must(whole +
		" --asset EUR --format csv"))).ReadAll()
	if err != nil || len(rows) != 7 || fmt.Sprint(rows[3][6:10]) != "[12345.50  12348.00 EUR]" ||
		fmt.Sprint(rows[5][6:10]) != "[12348.00 0.05  EUR]" || rows[6][8] != "12347.95" {
		t.Errorf("%v: %v", rows, err)
	}
	statement := s.object(whole)
	if got, want := fmt.Sprint(statement["closing"]), "[map[amount:1234795 "+
		"amount_decimal:12347.95 asset:EUR decimals:2] map[amount:7 asset:gold]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(statement["totals"]), "[map[asset:EUR decimals:2 in:1234800 "+
		"in_decimal:12348.00 out:5 out_decimal:0.05] map[asset:gold in:7 out:0]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.must(whole + " --format pdf --out %d/a.pdf")
	if document, err := os.ReadFile(filepath.Join(s.folder, "a.pdf")); err != nil ||
		!strings.HasPrefix(string(document), "%PDF-") {
		t.Errorf("%d bytes: %v", len(document), err)
	}

	proven := s.object("account show acme:cash --proof --genesis %d/genesis --out %d/kept %n")
	if got, want := fmt.Sprint(proven["balances"]), "[map[amount:1234795 "+
		"amount_decimal:12347.95 asset:EUR decimals:2] map[amount:7 asset:gold]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A file proves the account alone: nothing in it says how many decimals an asset has.
	if text := s.must("verify --proof %d/kept --genesis %d/genesis"); !strings.Contains(text,
		"1234795  EUR") {
		t.Error(text)
	}

	if text := s.must("trial-balance --accounts --format csv %n"); !strings.Contains(text,
		"account,acme:mint,EUR,,12347.95\n") || !strings.Contains(text,
		"total,,EUR,12347.95,12347.95\n") || !strings.Contains(text, "total,,gold,7,7\n") {
		t.Error(text)
	}
	if text := s.must("trial-balance %n"); !strings.Contains(text, "12347.95") {
		t.Error(text)
	}
	if got, want := fmt.Sprint(s.object("trial-balance %n")["assets"]), "[map[accounts:2 "+
		"asset:EUR credit:1234795 credit_decimal:12347.95 debit:1234795 debit_decimal:12347.95 "+
		"decimals:2] map[accounts:2 asset:gold credit:7 debit:7]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	for flags, want := range map[string]int{"--asset EUR --min 12345.50": 1,
		"--asset EUR --max 0.05": 1, "--asset EUR --min 1.00 --max 3.00": 1, "--min 1234550": 1,
		"--asset gold --min 7": 1} {
		found := s.object("account history acme:cash %n " + flags)["entries"].([]any)
		if len(found) != want {
			t.Errorf("%s: %d entries, want %d", flags, len(found), want)
		}
	}
	for flags, want := range map[string]string{"--min 0.5": "--asset",
		"--asset EUR --min 0.005":  "amounts are never rounded",
		"--asset gold --max 1.5":   "write a whole number",
		"--asset EUR --max 1,5":    "1,5",
		"--asset EUR --min -12.50": "without their signs"} {
		if got := s.run("account history acme:cash %n " + flags); got.status == exitDone ||
			!strings.Contains(got.errs, want) {
			t.Errorf("%s: %d, %s", flags, got.status, got.errs)
		}
	}
}

// TestImpossibleIssuance: figures of a node whose difference is no amount are refused, and not
// wrapped around.
func TestImpossibleIssuance(t *testing.T) {
	t.Parallel()
	for _, figures := range [][2]string{{ledger.MinAmount.String(), "1"}, {"x", "1"}, {"1", ""}} {
		_, err := reportAsset(&ledgerdv1.Asset{Name: "EUR", Terms: &ledgerdv1.AssetTerms{
			Issuers: []*ledgerdv1.AssetIssuer{{Organisation: "acme"}}},
			Issuances: []*ledgerdv1.Issuance{{Issued: figures[0], Redeemed: figures[1]}}})
		if err == nil || !strings.Contains(err.Error(), "acme issued of EUR") {
			t.Errorf("%s: %v", figures, err)
		}
	}
}

// TestSumsHaveDecimals: also sums of more digits than an amount has, and groups of digits.
func TestSumsHaveDecimals(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 45)
	for text, want := range map[string]string{"5": "0.05", "-5": "-0.05", "0": "0.00",
		long: long[:43] + ".99", "": "", "x": "x", "-": "-"} {
		if got := withDecimals(text, 2); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{"1234567.50": "1 234 567.50", "-1000": "-1 000",
		"999": "999", "": "", "0.12345678": "0.12345678"} {
		if got := strings.ReplaceAll(grouped(text), "\u00a0", " "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestReasonsHaveTheDecimalsOfAssets: failures, schedules and limits of assets that an account does
// not have write amounts with their decimals.
func TestReasonsHaveTheDecimalsOfAssets(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	s := newShellOf(t, 1, apitest.Options{Genesis: genesis})
	s.must("keys create acme --plain %k")
	s.must("org add acme %n %k")
	s.must("account open acme:a acme:b %n %k")
	s.must("asset register EUR --organisation acme --decimals 2 %n %k")
	for _, line := range []string{"tx transfer acme:a acme:b 12.50 EUR",
		"tx transfer acme:a acme:b 12.50 EUR --dry-run"} {
		if got := s.run(line + " %n %k"); !strings.Contains(got.errs, "-12.50 EUR for acme:a") {
			t.Errorf("%s: %+v", line, got)
		}
	}
	for _, text := range []string{"1,250.00", "1e3", strings.Repeat("9", 40) + ".00"} {
		if got := s.run("tx transfer acme:a acme:b " + text + " EUR %n %k"); got.status !=
			exitUsage || !strings.Contains(got.errs, "such as 1250.00, up to 39 digits") {
			t.Errorf("%s: %+v", text, got)
		}
	}
	s.must("account limit acme:a --asset EUR --floor 5.00 %n %k")
	if text := s.must("account show acme:a %n"); !strings.Contains(text, "at least 5.00") {
		t.Error(text)
	}
	id := s.object("schedule place acme:a acme:b 7.00 EUR --first 72h %n %k")["id"]
	if text := s.must(fmt.Sprintf("schedule show %s %%n", id)); !strings.Contains(text,
		"acme:a -7.00 EUR") {
		t.Error(text)
	}
}
