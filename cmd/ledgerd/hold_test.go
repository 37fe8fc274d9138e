package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// TestHolds: what is held, posted in part and voided from the command line, and what is refused.
func TestHolds(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	s := newShellOf(t, 1, apitest.Options{Genesis: genesis})
	for _, name := range []string{"acme", "shop"} {
		s.must("keys create " + name + " --plain %k")
		s.must("org add " + name + " %n %k")
		s.must(fmt.Sprintf("account open %s:mint --issuer %%n %%k", name))
		s.must(fmt.Sprintf("account open %s:cash %%n %%k", name))
	}
	s.must("account open shop:fees %n %k")
	s.must("asset register EUR --organisation acme --decimals 2 %n %k")
	s.must("tx transfer acme:mint acme:cash 100.00 EUR %n %k")
	if text := s.must("hold list %n"); !strings.Contains(text, "no such holds are open") {
		t.Error(text)
	}
	place := func(amount string) string {
		t.Helper()
		return fmt.Sprint(s.object("hold place acme:cash " + amount +
			" EUR --to shop:cash,shop:fees --expires 1h %n %k")["id"])
	}
	balance := func(account, want string) {
		t.Helper()
		if text := s.must("account show " + account + " %n"); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	first := place("60.00")
	balance("acme:cash", "40.00")
	shown := s.object("hold show " + first + " %n")
	wantKeys(t, shown, "id state account asset amount amount_decimal to poster expires_ms shard")
	if shown["amount_decimal"] != "60.00" || shown["poster"] != "shop" {
		t.Error(shown)
	}
	for flags, want := range map[string]int{"": 1, "--organisation acme": 1, "--poster shop": 1,
		"--account acme:cash": 1, "--organisation shop": 0, "--poster acme": 0,
		"--account acme:mint": 0} {
		if got := s.object("hold list " + flags + " %n")["holds"].([]any); len(got) != want {
			t.Errorf("%q lists %d holds, want %d", flags, len(got), want)
		}
	}
	if text := s.must("tx status " + first + " %n"); !strings.Contains(text, "holds") ||
		!strings.Contains(text, "shop may post it until") {
		t.Error(text)
	}
	never := strings.Repeat("ab", ledger.HashSize)
	for line, want := range map[string]string{
		"hold place acme:cash 40.01 EUR --to shop:cash":                "insufficient",
		"hold place acme:cash 1.00 EUR":                                "--to is missing",
		"hold place acme:cash 1.00 EUR --to shop:cash,acme:mint":       "--poster",
		"hold place acme:cash 1.00 EUR --to acme:cash":                 "its own account",
		"hold place acme:cash 1 EUR --to shop:cash":                    "write 1.00 for 1",
		"hold place acme:cash 1.00 EUR --to shop:cash --expires never": "a time to come",
		"hold place acme:cash 1.00 EUR --to shop:cash --expires 9999h": "400 days",
		"hold post " + first:                                           "choose with --to one of",
		"hold post " + first + " --to acme:mint":                       "cannot be posted to",
		"hold post " + first + " 5.00 --to shop:cash=1.00":             "not both",
		"hold post " + first + " --to shop:cash=0.00":                  "above zero",
		"hold post " + first + " 60.01 --to shop:cash":                 "cannot be posted",
		"hold post " + first + " --to shop:cash,shop:fees":             "account",
		"hold post " + never:                                           "is open: it was posted",
		"hold void xyz":                                                "the id of a hold",
		"tx transfer acme:cash shop:cash 40.01 EUR":                    "insufficient",
		"hold post " + first + " --to shop:cash --keyring x":           "",
	} {
		if got := s.run(line + " %n %k"); got.status == exitDone ||
			!strings.Contains(got.out+got.errs, want) {
			t.Errorf("%s: %d, %s%s", line, got.status, got.out, got.errs)
		}
	}
	if got := s.run("hold show " + never + " %n"); !strings.Contains(got.errs, "account tells") {
		t.Error(got)
	}
	posted := fmt.Sprint(s.object("hold post " + first +
		" --to shop:cash=20.00 --to shop:fees=0.50 %n %k")["id"])
	balance("acme:cash", "79.50")
	balance("shop:cash", "20.00")
	balance("shop:fees", "0.50")
	if text := s.must("tx status " + posted + " %n"); !strings.Contains(text, "hold "+first) {
		t.Error(text)
	}
	if text := s.must("account history acme:cash %n"); !strings.Contains(text, "-20.50") {
		t.Error(text)
	}
	outcome := func(hold, state, endedBy, posted, text string) {
		t.Helper()
		shown := s.object("hold show " + hold + " %n")
		if shown["state"] != state || shown["ended_by"] != endedBy ||
			shown["posted_decimal"] != posted || shown["amount_decimal"] == nil {
			t.Errorf("%s: %v", state, shown)
		}
		if got := s.must("hold show " + hold + " %n"); !strings.Contains(got, text) {
			t.Errorf("no %q in\n%s", text, got)
		}
	}
	outcome(first, "posted_in_part", posted, "20.50", "posted in part: what was left is free")
	second := place("79.50")
	balance("acme:cash", "0.00")
	voided := fmt.Sprint(s.object("hold void " + second + " %n %k")["id"])
	balance("acme:cash", "79.50")
	if text := s.must("tx status " + voided + " %n"); !strings.Contains(text, "voids") {
		t.Error(text)
	}
	if shown := s.object("hold show " + second + " %n"); shown["state"] != "voided" ||
		shown["ended_by"] != voided || shown["posted"] != nil {
		t.Error(shown)
	}
	if got := s.run("hold void " + second + " %n %k"); got.status == exitDone {
		t.Error(got)
	}
	whole := place("1.00")
	posted = fmt.Sprint(s.object("hold post " + whole + " --to shop:cash %n %k")["id"])
	outcome(whole, "posted", posted, "1.00", "ended by")
	if got := s.run("hold show " + posted + " %n"); got.status == exitDone ||
		!strings.Contains(got.errs, "no hold") {
		t.Errorf("a transaction that is no hold: %+v", got)
	}
}
