package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// Accounts of two shards are found by alias and metadata, keep their terms against entries from the
// other shard, and add up in a chart.
func TestChartAcrossShards(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	for shard, name := range []string{"acme", "bank"} {
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must(fmt.Sprintf("account open %s:mint --issuer %%n %%k", name))
	}
	s.must("account open bank:customers:1 bank:customers:2 bank:customers2 bank:customers %n %k")
	for to, amount := range map[string]int{"bank:customers:1": 30, "bank:customers:2": 5,
		"bank:customers2": 7, "bank:customers": 1} {
		s.must(fmt.Sprintf("tx transfer acme:mint %s %d --wait durable-everywhere %%n %%k", to,
			amount))
	}
	s.must("tx transfer bank:mint bank:customers:1 4 --asset gold %n %k")
	s.must("account label bank:customers:1 iban=DE1 --index iban --alias front %n %k")
	s.must("account label bank:customers:2 iban=DE1 --alias back %n %k")
	s.must("account label acme:mint iban=DE1 --index iban %n %k")

	// By alias and metadata, through a node of the other shard.
	if found := s.object("account show bank --alias front %n"); found["account"] !=
		"bank:customers:1" || found["shard"] != 1.0 {
		t.Error(found)
	}
	names := func(arguments string) (names []any) {
		for _, each := range s.object("account list " + arguments + " %n")["accounts"].([]any) {
			names = append(names, each.(map[string]any)["account"])
		}
		return names
	}
	if got := fmt.Sprint(names("--where iban=DE1")); got != "[acme:mint bank:customers:1]" {
		t.Error(got) // that of the third account is not indexed
	}
	if got := fmt.Sprint(names("bank: --where iban=DE1")); got != "[bank:customers:1]" {
		t.Error(got)
	}
	if got := names("--where iban=DE2"); len(got) != 0 {
		t.Error(got)
	}

	// An entry from another shard that the account does not take has no effect anywhere.
	s.must("account freeze bank:customers:1 %n %k")
	refused := s.run("tx transfer acme:mint bank:customers:1 1 --wait durable-everywhere %n %k")
	if refused.status == exitDone || !strings.Contains(refused.out+refused.errs, "is frozen") {
		t.Errorf("%+v", refused)
	}

	lines := func(arguments string) (text string) {
		chart := s.object("account list --totals " + arguments + " %n")
		for _, each := range chart["lines"].([]any) {
			line := each.(map[string]any)
			text += fmt.Sprintf("%s %v:", line["path"], line["accounts"])
			for _, total := range line["totals"].([]any) {
				total := total.(map[string]any)
				text += fmt.Sprintf(" %s %s", total["amount"], total["asset"])
			}
			text += "\n"
		}
		return text
	}
	want := "bank:customers 3: 4 gold 36 unit\nbank:customers:1 1: 4 gold 30 unit\n" +
		"bank:customers:2 1: 5 unit\n"
	for _, under := range []string{"bank:customers", "bank:customers:"} {
		if got := lines("--under " + under); got != want {
			t.Errorf("under %s:\n%s", under, got)
		}
	}
	want = " 6: 0 gold 0 unit\nacme 1: -43 unit\nbank 5: 0 gold 43 unit\n"
	if got := lines("--depth 1"); got != want {
		t.Errorf("all:\n%s", got)
	}
	if got := lines("--under bank:customers2 --depth 0"); got != "bank:customers2 1: 7 unit\n" {
		t.Error(got)
	}
	text := s.must("account list --totals --under bank %n")
	if !strings.Contains(text, "\n  bank:customers ") || !strings.Contains(text,
		"\n    bank:customers:1 ") || !strings.Contains(text, "at the cut") {
		t.Error(text)
	}
	if text := s.must("account list --totals --at 1970-01-02 %n"); !strings.Contains(text,
		"no such accounts") {
		t.Error(text)
	}
	for _, wrong := range []string{"list --where x", "list --under acme", "list --at 1",
		"list acme --totals", "list --totals --limit 3", "list --totals --depth -2",
		"show bank:mint --alias x", "show bank --alias x --proof"} {
		if result := s.run("account " + wrong + " %n"); result.status != exitUsage {
			t.Errorf("%s: %+v", wrong, result)
		}
	}
	if got := s.run("account show bank --alias nobody %n"); got.status == exitDone ||
		!strings.Contains(got.errs, "has the alias") {
		t.Errorf("%+v", got)
	}
}
