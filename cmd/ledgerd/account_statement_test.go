package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/home"
)

// ends returns the opening and closing balances of a statement, and its entries' balances.
func ends(statement map[string]any) string {
	text := fmt.Sprint(statement["opening"])
	for _, entry := range statement["entries"].([]any) {
		for _, balance := range entry.(map[string]any)["balances"].([]any) {
			text += " " + fmt.Sprint(balance.(map[string]any)["amount"])
		}
	}
	return text + fmt.Sprint(" ", statement["closing"])
}

func TestStatement(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	s.must("tx transfer acme:cash acme:vault 30 --note lunch %n %k")
	middle := s.object("tx transfer acme:cash acme:vault 5 %n %k")
	s.must("tx transfer acme:mint acme:cash 2 --asset gold %n %k")
	whole := "account statement acme:cash %n"
	statement := object(t, s.must(whole+" --json"))
	wantKeys(t, statement, "account period height time_ms open opening closing totals entries")
	if got, want := ends(statement), "[] 100 70 65 2 "+
		"[map[amount:2 asset:gold] map[amount:65 asset:unit]]"; got != want ||
		statement["open"] != true {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(statement["totals"]), "[map[asset:gold in:2 out:0] "+
		"map[asset:unit in:100 out:35]]"; got != want {
		t.Errorf("totals %s, want %s", got, want)
	}
	// Consecutive statements join.
	height := middle["height"].(float64)
	first := object(t, s.must(fmt.Sprintf("%s --format json --to %.0f", whole, height-1)))
	second := object(t, s.must(fmt.Sprintf("%s --format json --from %.0f --to %.0f --asset unit",
		whole, height, height)))
	if got, want := ends(first), "[] 100 70 [map[amount:70 asset:unit]]"; got != want ||
		first["open"] != false {
		t.Errorf("%s, want %s", got, want)
	}
	want := "[map[amount:70 asset:unit]] 65 [map[amount:65 asset:unit]]"
	if got := ends(second); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A period before and one after everything.
	past := object(t, s.must(whole+" --format json --to 1970-02-01"))
	future := object(t, s.must(whole+" --format json --from 2999-01-01T00:00:00+01:00"))
	if ends(past) != "[] []" || fmt.Sprint(future["opening"]) != fmt.Sprint(statement["closing"]) ||
		fmt.Sprint(future["closing"]) != fmt.Sprint(statement["closing"]) {
		t.Errorf("%v, %v", past, future)
	}
	text := s.must(whole)
	for _, part := range []string{"all of its history", "opening", "lunch",
		"the period is not over", "closing", "gold"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(s.must(whole + " --format csv"))).ReadAll()
	if err != nil || len(rows) != 1+1+4+2+2 || rows[3][7] != "30" || rows[3][8] != "70" {
		t.Errorf("%v: %v", rows, err)
	}
	s.must(whole + " --format pdf --out %d/a.pdf")
	document, err := os.ReadFile(filepath.Join(s.folder, "a.pdf"))
	if err != nil || !strings.HasPrefix(string(document), "%PDF-") || len(document) < 5000 {
		t.Errorf("%d bytes: %v", len(document), err)
	}
	for _, wrong := range []string{"--from yesterday", "--from 0", "--format doc",
		"--from 9 --to 3", "--from 2026-01-31 --to 2026-01-30",
		"--zone Moon", "--from 1969-01-01"} {
		if result := s.run(whole + " " + wrong); result.status != exitUsage {
			t.Errorf("%s: %+v", wrong, result)
		}
	}
	// The same flags choose entries of the history.
	for flags, want := range map[string]int{"": 4, "--note LUN": 1, "--min 6 --max 99": 1,
		"--with acme:vault": 2, "--with acme:v:": 0, "--with globex": 0, "--asset gold": 1,
		fmt.Sprintf("--from %.0f --oldest-first", height): 2, "--with acme --max 5": 2} {
		found := s.object("account history acme:cash %n " + flags)["entries"].([]any)
		if len(found) != want {
			t.Errorf("%s: %d entries, want %d", flags, len(found), want)
		}
	}
	if text := s.must("account history acme:cash --note none %n"); text != "no such entries\n" {
		t.Error(text)
	}
}

// A statement over a move of the organisation has the entries of both homes.
func TestStatementOverAMove(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	if err := home.WriteKey(filepath.Join(s.folder, "operator.key"),
		ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	s.must("keys create acme --plain %k")
	s.must("org add acme --shard 1 %n %k")
	s.must("account open acme:mint --issuer %n %k")
	s.must("account open acme:cash %n %k")
	s.must("tx transfer acme:mint acme:cash 9 %n %k")
	s.must("shards move acme --to 2 --operator %d/operator.key --via=" + s.doors[0].URL)
	s.must("tx transfer acme:cash acme:mint 2 %n %k")
	s.must("account open acme:late %n %k")
	s.must("tx transfer acme:cash acme:late 3 %n %k")
	statement := object(t, s.must("account statement acme:cash --format json %n"))
	if got, want := ends(statement), "[] 9 7 4 [map[amount:4 asset:unit]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	entries := statement["entries"].([]any)
	if entries[0].(map[string]any)["earlier_home"] != 1.0 ||
		entries[1].(map[string]any)["earlier_home"] != nil {
		t.Error(entries)
	}
	for line, want := range map[string]string{
		"acme:cash --shard 1":       "[] 9 [map[amount:9 asset:unit]]",
		"acme:cash --from 1":        "[map[amount:9 asset:unit]] 7 4 [map[amount:4 asset:unit]]",
		"acme:late":                 "[] 3 [map[amount:3 asset:unit]]",
		"acme:cash --to 1970-01-05": "[] []",
		"acme:cash --from 2999-01-01": "[map[amount:4 asset:unit]] " +
			"[map[amount:4 asset:unit]]",
	} {
		got := ends(object(t, s.must("account statement "+line+" --format json %n")))
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// Notes are texts in a spreadsheet, whatever they look like, and amounts are numbers.
func TestStatementHasNoFormulas(t *testing.T) {
	t.Parallel()
	report := &statementReport{}
	for _, note := range []string{"=1+1", "+1", "-1", "@x", "\t=1", "rent", ""} {
		report.Entries = append(report.Entries, statementEntryReport{note: note,
			historyReport: historyReport{Changes: []balanceReport{{Amount: "-1", Asset: "unit"}},
				Balances: []balanceReport{{Amount: "-2", Asset: "unit"}}}})
	}
	var out strings.Builder
	if err := report.writeCSV(&out, &periodFlags{}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"'=1+1", "'+1", "'-1", "'@x", "'\t=1", "rent", ""} {
		if row := rows[2+i]; row[len(row)-1] != want || row[8] != "-2" {
			t.Errorf("%q, want %q", row, want)
		}
	}
}
