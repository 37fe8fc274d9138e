package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// newAssetShell returns a shell on a chain that takes assets, with acme's and the bank's accounts.
func newAssetShell(t *testing.T) *shell {
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.AssetsVersion
	s := newShellOf(t, 1, apitest.Options{Genesis: genesis})
	writeGenesis(t, filepath.Join(s.folder, "genesis"), &genesis)
	for _, name := range []string{"acme", "bank"} {
		s.must("keys create " + name + " --plain %k")
		s.must("org add " + name + " %n %k")
		s.must(fmt.Sprintf("account open %s:mint --issuer %%n %%k", name))
		s.must(fmt.Sprintf("account open %s:cash %%n %%k", name))
	}
	return s
}

// TestAssets: amounts are written with their decimals from registration to redemption, exactly.
func TestAssets(t *testing.T) {
	t.Parallel()
	s := newAssetShell(t)
	if text := s.must("asset list %n"); !strings.Contains(text, "no registered assets") {
		t.Error(text)
	}
	s.must("asset register EUR --organisation acme --decimals 2 --cap 1000.00 --issuer acme " +
		"--issuer bank=250.50 %n %k")
	s.must("tx transfer acme:mint acme:cash 12.50 EUR %n %k")
	s.must("tx transfer acme:mint acme:cash 7.00 EUR %n %k")
	s.must("tx transfer acme:cash acme:mint 0.25 EUR %n %k")
	s.must("tx post --posting bank:mint=-0.05:EUR --posting acme:cash=0.05:EUR %n %k")
	if text := s.must("account show acme:cash %n"); !strings.Contains(text, "19.30  EUR") {
		t.Error(text)
	}
	account := s.object("account show acme:cash %n")
	if shown := fmt.Sprint(account["balances"]); shown !=
		"[map[amount:1930 amount_decimal:19.30 asset:EUR decimals:2]]" {
		t.Error(shown)
	}
	if text := s.must("account history acme:cash %n"); !strings.Contains(text, "+12.50 ") ||
		!strings.Contains(text, "-0.25 ") {
		t.Error(text)
	}
	if text := s.must("block head %n"); !strings.Contains(text, "0.05 EUR from bank:mint") {
		t.Error(text)
	}
	text := s.must("asset show EUR %n")
	for _, want := range []string{"by acme", "capped: at most 1000.00 outstanding", "19.55",
		"749.50", "19.25"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	asset := s.object("asset show EUR %n")
	wantKeys(t, asset, "name number organisation revision registered_height decimals supply cap "+
		"closed issued redeemed outstanding issuers")
	if asset["outstanding"] != "1930" || asset["outstanding_decimal"] != "19.30" {
		t.Error(asset)
	}
	proven := s.object("asset show EUR --genesis %d/genesis %n")
	if proven["outstanding_decimal"] != "19.30" || len(proven["proven"].([]any)) != 1 {
		t.Error(proven)
	}
	for line, want := range map[string]string{
		"tx transfer acme:mint acme:cash 1.505 EUR":            "amounts are never rounded",
		"tx transfer acme:mint acme:cash 1.5 gold":             "write a whole number",
		"tx transfer acme:mint acme:cash 900.00 EUR":           "more of the asset",
		"tx transfer acme:mint acme:cash -1.00 EUR":            "above zero",
		"asset register EUR --organisation bank":               "registered already",
		"asset register unit --organisation bank":              "never registered",
		"asset register X --organisation acme --cap 1.5":       "write a whole number",
		"asset register X --organisation acme --issuer acme=5": "the supply is unlimited",
		"asset cap EUR 2000.00":                                "never raised",
		"asset cap EUR 800.00 --lower acme=500.00":             "at most 750.50",
		"asset close EUR":                                      "--yes",
		"asset issuers EUR --withdraw shop":                    "it is no issuer",
		"asset issuers EUR --withdraw bank --admit bank":       "leave one out",
		"asset issuers EUR --add bank=300":                     "300.00 for 300",
		"asset cap EUR 800":                                    "800.00 for 800",
		"asset register X --organisation acme --cap=":          "unlimited for good",
		"asset register X --organisation acme --fixed=":        "unlimited for good",
		"tx transfer acme:mint acme:cash 7 EUR": "EUR has 2 decimals: write 7.00 for 7, or 0.07 " +
			"for 7 of the smallest unit",
		"tx transfer acme:mint acme:cash 1.5 EUR":                         "of them, 1.50",
		"tx post --posting acme:mint=-7:EUR --posting acme:cash=7.00:EUR": "write -7.00 for -7",
		"tx post --posting acme:mint=-7.00:EUR --posting acme:cash=7:EUR": "write 7.00 for 7",
		"org policy acme --limit EUR:7=1":                                 "write 7.00 for 7",
	} {
		if got := s.run(line + " %n %k"); got.status == exitDone ||
			!strings.Contains(got.out+got.errs, want) {
			t.Errorf("%s: %d, %s%s", line, got.status, got.out, got.errs)
		}
	}
	if got := s.run("asset show gold %n"); !strings.Contains(got.errs, "is not registered") {
		t.Error(got)
	}
	withdrawn := s.run("asset issuers EUR --withdraw bank --genesis %d/genesis %n %k")
	if withdrawn.status != exitDone {
		t.Error(withdrawn.errs)
	}
	for _, want := range []string{"change 2 of EUR, by acme", "capped, 1000.00\n",
		"up to 749.50\n", "up to 250.50, withdrawn (was: up to 250.50)"} {
		if !strings.Contains(withdrawn.errs, want) {
			t.Errorf("no %q in\n%s", want, withdrawn.errs)
		}
	}
	other := *ledgertest.OperatedGenesis(1)
	other.Version, other.Chain = ledger.AssetsVersion, "other"
	writeGenesis(t, filepath.Join(s.folder, "other"), &other)
	if got := s.run("asset close EUR --yes --genesis %d/other %n %k"); got.status == exitDone ||
		!strings.Contains(got.errs, "do not trust") {
		t.Error(got)
	}
	if text := s.must("asset issuers EUR %n %k"); !strings.Contains(text, "withdrawn") {
		t.Error(text)
	}
	s.must("asset cap EUR 750.50 --lower acme=500.00 %n %k")
	s.must("asset close EUR --yes %n %k")
	if text := s.must("asset list %n"); !strings.Contains(text, "nothing is issued any more") {
		t.Error(text)
	}
	id := s.object("asset register SHARE --organisation bank --fixed 10 %n %k")["id"].(string)
	if text := s.must("tx status " + id + " %n"); !strings.Contains(text,
		"registers SHARE: 0 decimals, supply fixed at 10, 1 issuer") {
		t.Error(text)
	}
	registered := int(asset["registered_height"].(float64))
	at := fmt.Sprintf(" --at %d %%n", registered)
	then := s.object("asset show EUR" + at)
	if then["outstanding"] != "0" || then["revision"] != 1.0 || then["closed"] != false ||
		then["cap_decimal"] != "1000.00" || then["terms_at_cut"] != true {
		t.Error(then)
	}
	if text := s.must("asset list" + at); !strings.Contains(text, "at most 1000.00") ||
		strings.Contains(text, "SHARE") {
		t.Error(text)
	}
	if list := s.object("asset list" + at)["assets"].([]any); len(list) != 1 ||
		list[0].(map[string]any)["terms_at_cut"] != true {
		t.Error(list)
	}
	if got := s.run(fmt.Sprintf("asset show EUR --at %d %%n", registered-1)); !strings.Contains(
		got.errs, "was not registered at the cut") {
		t.Error(got)
	}
	if got := s.run("asset show EUR --genesis %d/genesis" + at); got.status != exitUsage {
		t.Error(got)
	}
}

// TestAssetsAcrossShards: issuers in several shards share a cap. The supply is that of all of them,
// and what a shard that does not answer issued is missing.
func TestAssetsAcrossShards(t *testing.T) {
	t.Parallel()
	book, s := cancelBook(t, 0, 0, 0)
	s.must("asset register EUR --organisation org1 --decimals 2 --cap 100 --issuer org1=60 " +
		"--issuer org2=40 %n %k")
	s.must("tx transfer org1:mint org2:a 60.00 EUR --wait durable-everywhere %n %k")
	s.must("tx transfer org2:mint org0:a 12.34 EUR --wait durable-everywhere %n %k")
	for _, line := range []string{"tx transfer org1:mint org2:a 0.01 EUR",
		"tx transfer org2:mint org1:a 40.00 EUR", "tx transfer org0:mint org1:a 1.00 EUR"} {
		if got := s.run(line + " --wait durable-everywhere %n %k"); got.status == exitDone ||
			!strings.Contains(got.errs, "supply_exceeded") &&
				!strings.Contains(got.errs, "not_issuer") {
			t.Errorf("%s: %d, %s%s", line, got.status, got.out, got.errs)
		}
	}
	asset := s.object("asset show EUR %n")
	if asset["outstanding_decimal"] != "72.34" ||
		fmt.Sprint(asset["unanswered_shards"]) != "<nil>" {
		t.Error(asset)
	}
	for shard := range 3 {
		if got := book.Shard(ledger.ShardID(shard)).Node(0).Store().Assets(0, 9); len(got) != 1 ||
			got[0].Owner != "org1" {
			t.Errorf("shard %d has %+v", shard, got)
		}
	}
	writeGenesis(t, filepath.Join(s.folder, "genesis"), book.Shard(1).Genesis())
	other := *book.Shard(0).Genesis()
	other.Chain = "other"
	writeGenesis(t, filepath.Join(s.folder, "other"), &other)
	proven := s.object("asset show EUR --proof --genesis %d/genesis --out %d/kept %n")
	if proven["outstanding_decimal"] != "72.34" || len(proven["proven"].([]any)) != 3 ||
		fmt.Sprint(proven["issuers"]) != fmt.Sprint(asset["issuers"]) {
		t.Error(proven)
	}
	if kept := s.object("verify --proof %d/kept --genesis %d/genesis"); fmt.Sprint(kept) !=
		fmt.Sprint(proven) {
		t.Errorf("%v, want %v", kept, proven)
	}
	if text := s.must("verify --proof %d/kept --genesis %d/genesis"); !strings.Contains(text,
		"capped: at most 100.00 outstanding") || !strings.Contains(text, "for shard 2, as of") {
		t.Error(text)
	}
	proof, err := os.ReadFile(filepath.Join(s.folder, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := ledger.DecodeSupplyProof(proof)
	if err != nil {
		t.Fatal(err)
	}
	twice := ledger.SupplyProof{Shards: slices.Repeat(decoded.Shards[:1], 3)}
	fewer := ledger.SupplyProof{Shards: decoded.Shards[:2]}
	for name, forged := range map[string][]byte{
		"short": proof[:len(proof)-1], "long": append(slices.Clone(proof), 0), "version": {5},
		"renamed": bytes.Replace(proof, []byte("EUR"), []byte("USD"), 1),
		"more": bytes.Replace(proof, []byte{3, 'E', 'U', 'R', 4, 'o', 'r', 'g', '1'},
			[]byte{3, 'E', 'U', 'R', 4, 'o', 'r', 'g', '2'}, 1),
		"a shard that stands for others": twice.Encode(), "a shard is missing": fewer.Encode(),
	} {
		if err := os.WriteFile(filepath.Join(s.folder, "forged"), forged, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := s.run("verify --proof %d/forged --genesis %d/genesis"); got.status !=
			exitFailure {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for line, want := range map[string]string{
		"verify --proof %d/kept --genesis %d/other":                   "proves nothing",
		"asset show EUR --proof %n":                                   "--genesis",
		"asset show EUR --out %d/x %n":                                "--genesis",
		"asset show gold --proof --genesis %d/genesis %n":             "is not registered",
		"asset show EUR --proof --genesis %d/other --out %d/never %n": "do not trust",
	} {
		if got := s.run(line); got.status == exitDone || !strings.Contains(got.errs, want) {
			t.Errorf("%s: %+v", line, got)
		}
	}
	if text := s.must("asset list %n"); !strings.Contains(text, "72.34") {
		t.Error(text)
	}
	book.Silence(2, true)
	got := s.run("asset show EUR --json %n")
	if got.status != exitFailure ||
		!strings.Contains(got.errs, "what was issued there is missing") {
		t.Errorf("shard 2 is silent: %d, %s%s", got.status, got.out, got.errs)
	}
}
