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

// TestDetails: an entry with a date and a key from the command line, which is refunded in part and
// then reversed, and what is refused.
func TestDetails(t *testing.T) {
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
	sale := fmt.Sprint(s.object("tx transfer acme:mint shop:cash 100 --effective-date 2026-01-31 " +
		"--idempotency-key order-4711 --refundable 720h %n %k")["id"])
	text := s.must("tx status " + sale + " %n")
	for _, want := range []string{"2026-01-31", "order-4711", "refundable"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, command := range []string{"account history shop:cash", "account statement shop:cash",
		"account statement shop:cash --format csv"} {
		if text := s.must(command + " %n"); !strings.Contains(text, "2026-01-31") {
			t.Errorf("%s has no effective date:\n%s", command, text)
		}
	}
	if text := s.must("account statement shop:cash --json %n"); !strings.Contains(text,
		`"effective_ms": 1769817600000`) {
		t.Error(text)
	}
	rate := fmt.Sprint(s.object("tx put acme:rate 1.08 --effective-date 2026-01-31 " +
		"--idempotency-key rate-0131 %n %k")["id"])
	if text := s.must("tx status " + rate + " %n"); !strings.Contains(text, "rate-0131") {
		t.Error(text)
	}
	refused := func(command, want string) {
		t.Helper()
		if result := s.run(command + " %n %k"); result.status == exitDone ||
			!strings.Contains(result.errs+result.out, want) {
			t.Errorf("%s: %+v, want %q", command, result, want)
		}
	}
	refused("tx post --posting acme:mint=-5 --posting acme:cash=5 --idempotency-key order-4711",
		"key_taken")
	refused("tx transfer acme:mint acme:cash 5 --effective-date yesterday", "effective date")
	refused("tx refund "+sale+" 101", "refund_exceeded")
	refund := fmt.Sprint(s.object("tx refund " + sale + " 30 --note torn %n %k")["id"])
	if text := s.must("tx status " + refund + " %n"); !strings.Contains(text, sale) {
		t.Errorf("no %s in\n%s", sale, text)
	}
	refused("tx refund "+refund+" 5", "cannot be refunded")
	s.must("tx reverse " + sale + " %n %k")
	refused("tx reverse "+sale, "cannot be refunded")
	if text := s.must("account show shop:cash %n"); strings.Contains(text, "70") {
		t.Error(text)
	}
}
