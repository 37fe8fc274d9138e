package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/node/home"
)

// checkJournal exports the journal of a stopped node in all formats, and verifies it.
func checkJournal(t *testing.T, dir string, blocks int) {
	t.Helper()
	folder := t.TempDir()
	genesis := filepath.Join(dir, home.GenesisFile)
	for _, format := range journal.FormatNames() {
		path := filepath.Join(folder, format)
		whole := must(t, "export", "--home", dir, "--journal", "--format", format)
		first := ledgerd(t, "export", "--home", dir, "--journal", "--format", format, "--at", "5",
			"--out", path)
		second := ledgerd(t, "export", "--home", dir, "--journal", "--format", format, "--out",
			path)
		if text, err := os.ReadFile(path); err != nil || string(text) != whole ||
			!strings.Contains(first.errs, "up to block 5\n") ||
			!strings.Contains(second.errs, "it went on at block 5") {
			t.Errorf("%s: %+v %+v %v", format, first, second, err)
		}
		refuses(t, exitFailure, "name another one", "export", "--home", dir, "--journal",
			"--format", format, "--out", genesis)
	}
	parquets := filepath.Join(folder, "parquet")
	for range 2 {
		must(t, "export", "--home", dir, "--journal", "--format", "parquet", "--out", parquets)
		if files, err := os.ReadDir(parquets); err != nil || len(files) != 1 {
			t.Errorf("%d Parquet files: %v", len(files), err)
		}
	}
	statements := filepath.Join(folder, "statements.xml")
	refuses(t, exitFailure, "more than 18 digits", "export", "--home", dir, "--journal",
		"--format", "iso20022", "--out", statements)
	if left, err := filepath.Glob(statements + "*"); err != nil || len(left) > 0 {
		t.Errorf("refused statements left %v %v", left, err)
	}
	path := filepath.Join(folder, "jsonl")
	verified := ledgerd(t, "verify", "--journal", path, "--genesis", genesis, "--json")
	good := object(t, verified.out)
	wantKeys(t, good, "ok chain shard lines height hash transactions certificates "+
		"certified_height problems")
	// A node that ends early may have no certificate. Then nothing shows who made up the journal.
	certified := good["certified_height"] != 0.0
	if good["ok"] != certified || (verified.status == exitDone) != certified ||
		int(good["height"].(float64)) != blocks || len(good["problems"].([]any)) > 0 {
		t.Error(verified)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), `"amount":"-`, `"amount":"-1`, 1)
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := ledgerd(t, "verify", "--journal", path, "--genesis", genesis)
	if bad.status != exitFailure ||
		!strings.Contains(bad.out, "does not say what the block says") ||
		!strings.Contains(bad.out, path+":") || changed == string(text) {
		t.Error(bad)
	}
	refuses(t, exitUsage, "--genesis FILE", "verify", "--journal", path)
	refuses(t, exitFailure, "not so far", "export", "--home", dir, "--journal", "--at", "100000")
	for _, c := range []struct{ advice, line string }{
		{"one of jsonl", "--journal --format pdf"}, {"is for --journal", "--blocks --out x"},
		{"the folder for the Parquet files", "--journal --format parquet"},
		{"for --format jsonl", "--journal --format csv --proofs"},
		{"for --balances", "--journal --cut x"},
	} {
		refuses(t, exitUsage, c.advice, append(strings.Fields("export --home "+dir),
			strings.Fields(c.line)...)...)
	}
	refuses(t, exitUsage, "stop the node", "export", "--node", "http://127.0.0.1:1", "--journal")
}
