package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// balanceLines returns the balances of a ledger that are not zero, sorted.
func (s *shell) balanceLines() string {
	s.t.Helper()
	lines := slices.Collect(strings.Lines(s.must("export --balances %n")))
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return strings.HasSuffix(line, `"amount":"0"}`+"\n")
	})
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// journals writes the journals of all shards of a book, and returns their paths.
func journals(t *testing.T, book *apitest.Book, shards int, format string) []string {
	t.Helper()
	made, err := journal.FormatOf(format)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for shard := range shards {
		chain := book.Shard(ledger.ShardID(shard)).Node(0).Store()
		path := filepath.Join(t.TempDir(), fmt.Sprintf("shard-%d.%s", shard, format))
		if _, err := journal.ExportFile(t.Context(), path, journal.FromStore(chain), made,
			journal.Options{To: chain.Head().Height}); err != nil {
			t.Fatal(err)
		}
		if format == "jsonl" {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			found, err := journal.Verify(t.Context(), file, chain.Genesis(), nil)
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			if err != nil || found.Height != chain.Head().Height {
				t.Fatalf("shard %d: %+v %v", shard, found, err)
			}
		}
		paths = append(paths, path)
	}
	return paths
}

// The journals of a book of three shards, with entries that cross and entries that fail, go into
// ledgers of one shard and of two, twice, and the balances are the same there. hledger finds them
// in the journals, too.
func TestImportJournals(t *testing.T) {
	t.Parallel()
	const shards = 3
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(1)}}
	for shard := range shards {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
		s.must("account open " + name + ":a %n %k")
	}
	const wait = " --wait durable-everywhere %n %k"
	s.must("tx transfer org1:mint org1:a 9" + wait)
	for _, hop := range []string{"org1:a org2:a 9", "org2:a org0:a 8", "org0:a org1:a 7",
		"org1:a org2:a 6", "org2:a org1:a 2"} { // each spends what the one before brought
		s.must("tx transfer " + hop + wait)
	}
	if failed := s.run("tx transfer org1:a org2:a 1000" + wait); failed.status == exitDone {
		t.Fatal(failed)
	}
	if failed := s.run("tx transfer org0:a org0:mint 1000" + wait); failed.status == exitDone {
		t.Fatal(failed)
	}
	s.must("tx post --posting org0:mint=-3:EUR --posting org1:a=1:EUR --posting org2:a=2:EUR" +
		" --note hello" + wait)
	sale := s.object("tx transfer org1:mint org2:a 40 --effective-date 2026-01-31 " +
		"--idempotency-key order --refundable 24h" + wait)
	s.must(fmt.Sprintf("tx refund %v 15", sale["id"]) + wait)
	want := s.balanceLines()
	files := journals(t, book, shards, "jsonl")

	targets := map[string]*shell{"one shard": newShell(t, 1)}
	second := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	targets["two shards"] = &shell{t: t, folder: t.TempDir(),
		doors: []*apitest.TestServer{second.Door(0)}}
	for name, target := range targets {
		for range 2 {
			report := object(t, target.must("tx import "+strings.Join(files, " ")+
				" --plain --state %d/state --json --orgs 3 %n %k"))
			if report["imported"] != 9.0 || report["failed"] != 0.0 {
				t.Errorf("%s: %v", name, report)
			}
		}
		if got := target.balanceLines(); got != want || strings.Count(want, "\n") != 7 {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	for _, c := range []struct{ files, says string }{
		{files[0], "the journals of all of them"},
		{files[0] + " " + files[0], "second journal of shard 0"},
		{files[0] + " " + files[1] + " %d/x", "no such file"},
	} {
		if result := targets["one shard"].run("tx import " + c.files + " %n %k"); result.status !=
			exitFailure || !strings.Contains(result.errs, c.says) {
			t.Errorf("%s: %+v", c.files, result)
		}
	}

	program, err := exec.LookPath("hledger")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("hledger is not installed (Debian: apt-get install hledger)")
	}
	var arguments []string
	for _, path := range journals(t, book, shards, "hledger") {
		arguments = append(arguments, "-f", path)
	}
	out, err := exec.CommandContext(t.Context(), program, append(arguments, "balance",
		"--no-total", "--flat", "--layout=bare", "-O", "csv")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, row := range rows[1:] {
		_, account, _ := strings.Cut(row[0], ":")
		lines = append(lines, fmt.Sprintf(`{"account":%q,"asset":%q,"amount":"%s"}`+"\n", account,
			row[1], row[2]))
	}
	slices.Sort(lines)
	if got := strings.Join(lines, ""); got != want {
		t.Errorf("hledger says\n%s\nand the ledger has\n%s", got, want)
	}
}

// A journal of one shard goes into a fresh ledger, notes and issuers included.
func TestImportJournal(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.must("keys create acme --plain %k")
	s.must("org add acme %n %k")
	s.must("account open acme:mint --issuer %n %k")
	s.must("account open acme:a=b %n %k")
	s.must("tx transfer acme:mint acme:a=b 170141183460469231731687303715884105727 --note rent " +
		"%n %k")
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, `{"postings":[{"account":"mint","amount":-%d},{"account":"x","amount":%d}]}`+
			"\n", i+1, i+1)
	}
	s.must("tx import - --org old --issuer mint --plain %n %k", lines.String())
	chain := s.cluster.Node(0).Store()
	format, err := journal.FormatOf("jsonl")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.folder, "book.jsonl")
	if _, err := journal.ExportFile(t.Context(), path, journal.FromStore(chain), format,
		journal.Options{To: chain.Head().Height}); err != nil {
		t.Fatal(err)
	}
	target := newShell(t, 1)
	target.must("tx import " + path + " --plain %n %k")
	got := target.balanceLines()
	for _, want := range []string{
		`{"account":"acme:a=b","asset":"unit","amount":"170141183460469231731687303715884105727"}`,
		`{"account":"old:mint","asset":"unit","amount":"-820"}`,
		`{"account":"old:x","asset":"unit","amount":"820"}`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
}

// Journals of several shards that have grown since they were imported are in another order. They
// are not imported by halves, and nothing is imported twice.
func TestImportJournalsThatGrew(t *testing.T) {
	t.Parallel()
	const shards = 2
	book := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	for shard := range shards {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
		s.must("account open " + name + ":a %n %k")
	}
	transfer := func(org, amount int) {
		s.must(fmt.Sprintf("tx transfer org%d:mint org%d:a %d --wait durable-everywhere %%n %%k",
			org, org, amount))
	}
	transfer(0, 1)
	transfer(1, 10)
	target := newShell(t, 1)
	run := func(paths ...string) outcome {
		return target.run("tx import " + strings.Join(paths, " ") +
			" --plain --state %d/state --json %n %k")
	}
	early := journals(t, book, shards, "jsonl")[0]
	s.must("tx transfer org0:a org1:a 1 --wait durable-everywhere %n %k")
	transfer(1, 100)
	transfer(1, 100)
	late := journals(t, book, shards, "jsonl")
	if result := run(early, late[1]); result.status != exitFailure ||
		!strings.Contains(result.errs, "another journal ends before it") ||
		target.balanceLines() != "" {
		t.Fatal(result, target.balanceLines())
	}
	if first := run(late...); first.status != exitDone {
		t.Fatal(first)
	}
	before := target.balanceLines()
	transfer(0, 1000)
	second := run(journals(t, book, shards, "jsonl")...)
	if got := target.balanceLines(); !strings.Contains(second.errs, "must not grow") ||
		got != before {
		t.Errorf("%+v\n%s\nbefore\n%s", second, got, before)
	}
}
