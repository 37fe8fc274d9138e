package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// monthly is a template whose entry has all details.
const monthly = `
[parameters.month]
kind = "text"
pattern = "[0-9]{4}-[0-9]{2}"

[entry]
effective_date = "{month}-01"
idempotency_key = "rent {month}"
refundable = "720h"

[[entry.postings]]
account = "acme:mint"
amount = "-7"

[[entry.postings]]
account = "acme:cash"
amount = "7"
`

// TestFormsOfDetails: a record, a JSON file and a template carry details, and a second entry with a
// key is told which entry has it.
func TestFormsOfDetails(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	s := newShellOf(t, 1, apitest.Options{Genesis: genesis})
	s.bank()
	details := func(id any) map[string]any {
		t.Helper()
		return s.object(fmt.Sprintf("tx status %v %%n", id))["details"].(map[string]any)
	}
	taken := func(command, holder string, input ...string) {
		t.Helper()
		result := s.run(command+" %n %k --json", input...)
		if result.status == exitDone || !strings.Contains(result.out,
			fmt.Sprintf(`"key_holder": %q`, holder)) {
			t.Errorf("%s: %+v", command, result)
		}
		id := object(t, result.out)["id"]
		shown := s.run(fmt.Sprintf("tx status %v %%n", id))
		if !strings.Contains(shown.errs, "it is there already, as "+holder) {
			t.Errorf("%+v", shown)
		}
	}
	const put = "tx put acme:rate 1.08 --effective-date 2026-01-31 --idempotency-key rate"
	rate := s.object(put + " %n %k")["id"].(string)
	if got := details(rate); got["effective"] != 1769817600000.0 || got["key"] != "rate" {
		t.Error(got)
	}
	taken(put, rate)
	taken("tx transfer acme:mint acme:cash 1 --idempotency-key rate", rate)

	const file = `{"postings": [{"account": "acme:mint", "amount": -5},
		{"account": "acme:cash", "amount": 5}], "effective_date": "2026-01-31",
		"idempotency_key": "invoice-7", "refundable": "24h"}`
	filed := s.object("tx post - %n %k", file)["id"].(string)
	if got := details(filed); got["effective"] != 1769817600000.0 || got["key"] != "invoice-7" ||
		got["refundable"] == nil {
		t.Error(got)
	}
	taken("tx post -", filed, file)
	flagged := s.object("tx post - --idempotency-key invoice-8 %n %k", file)["id"]
	if got := details(flagged); got["key"] != "invoice-8" || got["effective"] == nil {
		t.Error(got)
	}
	s.must("tx post - --idempotency-key invoice-9 --out %d/nine.tx %n %k", file)
	s.must("tx submit %d/nine.tx %n %k")
	s.must("tx submit %d/nine.tx %n %k") // the same entry again is no other one
	s.must("tx post - --idempotency-key invoice-7 --out %d/seven.tx %n %k", file)
	taken("tx submit %d/seven.tx", filed)

	if err := os.WriteFile(filepath.Join(s.folder, "rent.toml"), []byte(monthly),
		0o600); err != nil {
		t.Fatal(err)
	}
	const rent = "tx template post %d/rent.toml --set month=2026-01"
	entry := s.object("tx template show %d/rent.toml")["entry"].(map[string]any)
	if entry["idempotency_key"] != "rent {month}" || entry["effective_date"] != "{month}-01" ||
		entry["refundable"] != "720h" {
		t.Error(entry)
	}
	dry := s.must(rent + " --dry-run --json %n %k")
	posted := s.object(rent + " %n %k")["id"].(string)
	if got := details(posted); got["key"] != "rent 2026-01" ||
		got["effective"] != 1767225600000.0 || got["refundable"] == nil {
		t.Error(got)
	}
	taken(rent, posted)
	taken("tx post -", posted, dry)
	s.must("tx template post %d/rent.toml --set month=2026-02 %n %k")
	for bad, want := range map[string]string{
		`idempotency_key = "rent"` + "\n":           "",
		"idempotency_key = \"Miete für {month}\"\n": "standard input:8: idempotency key",
		"effective_date = \"{month}-41\"\n":         "input:7: effective date",
		"refundable = \"soon\"\n":                   "input:9: refundable",
	} {
		key, _, _ := strings.Cut(bad, " ")
		var lines []string
		for _, line := range strings.SplitAfter(monthly, "\n") {
			if strings.HasPrefix(line, key) {
				line = bad
			}
			lines = append(lines, line)
		}
		text := strings.Join(lines, "") + `
[[entry.records]]
key = "acme:r"
value = "{month}"
`
		result := s.run("tx template post - --set month=2026-01 --dry-run %n %k", text)
		if (want == "") != (result.status == exitDone) || !strings.Contains(result.errs, want) {
			t.Errorf("%s: %+v, want %q", bad, result, want)
		}
	}
}

// TestKeyThatWaits: an entry that has the key and waits for other shards may be refused yet, so
// nothing says that it is there already.
func TestKeyThatWaits(t *testing.T) {
	t.Parallel()
	report := statusReport{State: "failed", ReasonCode: "key_taken", KeyHolder: "6a0c"}
	for waits, want := range map[bool]string{false: "already, as 6a0c",
		true: "6a0c has it, and waits"} {
		report.KeyWaits = waits
		if err := report.failure(); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
