package journal_test

import (
	"encoding/csv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// need returns the path of a program. Without it the test is skipped, except where all tests have
// to run.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") != "":
		t.Fatalf("%s is not installed (Debian: apt-get install hledger beancount)", name)
	}
	t.Skipf("%s is not installed (Debian: apt-get install hledger beancount)", name)
	return ""
}

// balances returns the balances of a store that are not zero, by account and asset, with the
// decimals of the assets or in the smallest unit.
func balances(t *testing.T, s *store.Store, decimals bool) map[string]string {
	t.Helper()
	found := map[string]string{}
	for account, err := range s.AllAccounts() {
		if err != nil {
			t.Fatal(err)
		}
		for _, balance := range account.Balances {
			asset, _ := s.Asset(balance.Asset)
			if !decimals {
				asset.Decimals = 0
			}
			if balance.Settled().Sign() != 0 {
				found[string(account.Path)+" "+string(balance.Asset)] =
					balance.Settled().Decimal(int(asset.Decimals))
			}
		}
	}
	return found
}

// written writes a journal to a file.
func written(t *testing.T, s *store.Store, format string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "book."+format)
	if err := os.WriteFile(path, export(t, journal.FromStore(s), format,
		journal.Options{To: s.Head().Height}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// output runs a program and returns what it prints. The program must have no complaint.
func output(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	var out, errs strings.Builder
	command := exec.CommandContext(t.Context(), name, arguments...)
	command.Stdout, command.Stderr = &out, &errs
	command.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	if err := command.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("%s %v: %v\n%s%s", name, arguments, err, &errs, &out)
	}
	return out.String()
}

// hledger itself reads a journal, finds it strictly right, and computes the ledger's balances.
func TestHledger(t *testing.T) {
	t.Parallel()
	program := need(t, "hledger")
	s := chain(t)
	path := written(t, s, "hledger")
	output(t, program, "-f", path, "check", "--strict")
	rows, err := csv.NewReader(strings.NewReader(output(t, program, "-f", path, "balance",
		"--no-total", "--flat", "--layout=bare", "-O", "csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, row := range rows[1:] {
		_, account, _ := strings.Cut(row[0], ":")
		got[account+" "+row[1]] = row[2]
	}
	if want := balances(t, s, true); len(want) < 5 || !maps.Equal(got, want) {
		t.Errorf("hledger says\n%v\nand the ledger has\n%v", got, want)
	}
}

// sums prints the balances of a journal in Beancount, by the accounts' and assets' own names.
const sums = `
import decimal, sys
decimal.getcontext().prec = 60
from beancount import loader
from beancount.core import data, realization
entries, errors, options = loader.load_file(sys.argv[1])
for error in errors:
    print(error, file=sys.stderr)
accounts = {e.account: e.meta.get("account", e.account) for e in entries if isinstance(e, data.Open)}
assets = {e.currency: e.meta["asset"] for e in entries if isinstance(e, data.Commodity)}
sum = {}
for e in data.filter_txns(entries):
    for p in e.postings:
        key = accounts[p.account] + " " + assets[p.units.currency]
        sum[key] = sum.get(key, 0) + p.units.number
for key in sorted(sum):
    if sum[key] != 0:
        print(key, sum[key])
`

// Beancount itself reads a journal without a complaint, and computes the ledger's balances.
func TestBeancount(t *testing.T) {
	t.Parallel()
	need(t, "bean-check")
	python := "/usr/bin/python3" // of the system, which has Debian's package
	if _, err := os.Stat(python); err != nil {
		python = need(t, "python3")
	}
	s := chain(t)
	script := filepath.Join(t.TempDir(), "sums.py")
	if err := os.WriteFile(script, []byte(sums), 0o600); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(output(t, python, script, written(t, s, "beancount"))) {
		at := strings.LastIndexByte(line, ' ')
		got[line[:at]] = strings.TrimSpace(line[at:])
	}
	if want := balances(t, s, true); len(want) < 5 || !maps.Equal(got, want) {
		t.Errorf("Beancount says\n%v\nand the ledger has\n%v", got, want)
	}
}
