package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/home"
)

// A shard is split by load and by hand, and is merged into another one.
func TestShardsSplitAndMerge(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	if err := home.WriteKey(filepath.Join(s.folder, "operator.key"),
		ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	via := " --via=" + s.doors[0].URL
	signed := via + " --operator %d/operator.key --yes"
	for _, name := range []string{"acme", "bank", "corp", "dorp"} {
		s.must("keys create " + name + " --plain %k")
		s.must("org add " + name + " --shard 1 %n %k")
		s.must("account open " + name + ":mint --issuer %n %k")
		s.must("account open " + name + ":cash %n %k")
	}
	pay := func(from, to string) { s.must("tx transfer " + from + ":mint " + to + ":cash 1 %n %k") }
	for range 3 {
		pay("acme", "bank")
		pay("corp", "dorp")
	}
	pay("acme", "acme")

	planned := s.object("shards split 1 --to 2" + via)
	wantKeys(t, planned, "from to organisations stay transactions moved")
	if fmt.Sprint(planned["organisations"]) != "[corp dorp]" || planned["stay"] != 2.0 ||
		len(planned["moved"].([]any)) != 0 || planned["transactions"].(float64) < 7 {
		t.Error(planned)
	}
	if text := s.must("shards split 1 --to 2" + via); !strings.Contains(text, "--yes") {
		t.Error(text)
	}
	split := s.object("shards split 1 --to 2" + signed)
	if moved := split["moved"].([]any); len(moved) != 2 ||
		moved[0].(map[string]any)["organisation"] != "corp" {
		t.Error(split)
	}
	text := s.must("shards split 1 --to 2 --organisation acme --organisation corp" + signed)
	if !strings.Contains(text, "acme moved") || strings.Contains(text, "corp moved") {
		t.Error(text)
	}
	pay("corp", "bank")

	if text := s.must("shards merge 2 --to 0" + signed); strings.Count(text, "moved from") != 3 {
		t.Error(text)
	}
	if text := s.must("shards merge 2 --to 0" + signed); !strings.Contains(text, "nothing moves") {
		t.Error(text)
	}
	pay("corp", "bank")
	if text := s.must("account show bank:cash %n"); !strings.Contains(text, "  5  unit") {
		t.Error(text)
	}

	for arguments, want := range map[string]string{
		"shards split x --to 2":                     "is a number",
		"shards split 1 --to 1":                     "itself",
		"shards split 1 --to 9":                     "there are shards 0 to 2",
		"shards split 1 --to 2 --organisation acme": "lives in shard 0",
		"shards split 1 --to 2 --organisation none": "not registered",
		"shards split 1 --to 2 --transactions 0":    "--transactions",
	} {
		if result := s.run(arguments + via); result.status == exitDone ||
			!strings.Contains(result.errs, want) {
			t.Errorf("%s: %+v", arguments, result)
		}
	}
}
