package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/home"
)

func TestShardsTree(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0, 1), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	if err := home.WriteKey(filepath.Join(s.folder, "operator.key"),
		ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	via := " --operator %d/operator.key --via=" + s.doors[0].URL
	if text := s.must("shards tree --via=" + s.doors[0].URL); text != "0\n├─ 1\n│  └─ 3\n└─ 2\n" {
		t.Errorf("%q", text)
	}
	for flags, want := range map[string]string{
		"--shard 0 --parent 1": "is the root", "--shard 1 --parent 3": "below itself",
		"--shard 1 --parent 1": "below itself", "--shard 3 --parent 1": "already",
		"--shard 3 --parent 9": "no shard 9",
	} {
		if result := s.run("shards tree " + flags + via); result.status != exitFailure ||
			!strings.Contains(result.errs, want) {
			t.Errorf("%s: %+v", flags, result)
		}
	}
	for _, flags := range []string{"--shard 3", "--parent 2", "--yes"} {
		if result := s.run("shards tree " + flags + via); result.status != exitUsage {
			t.Errorf("%s: %+v", flags, result)
		}
	}
	change := "shards tree --shard 3 --parent 2" + via
	if text := s.must(change); !strings.Contains(text, "then  0(1,2(3))") ||
		!strings.Contains(text, "Nothing was done") {
		t.Error(text)
	}
	made := s.object(change + " --yes")
	wantKeys(t, made, "transaction shard from parent shape milliseconds")
	if made["from"] != 1.0 || made["parent"] != 2.0 || made["shape"] != "0(1,2(3))" ||
		made["transaction"] == "" {
		t.Error(made)
	}
	shown := s.object("shards tree --via=" + s.doors[0].URL)
	wantKeys(t, shown, "shape changes shards")
	shards, _ := shown["shards"].([]any)
	if shown["shape"] != "0(1,2(3))" || shown["changes"] != 1.0 || len(shards) != 4 ||
		shards[3].(map[string]any)["parent"] != 2.0 {
		t.Error(shown)
	}
	// The summary of a test network has the present tree, or that of the genesis without an answer.
	genesis := []ledger.ShardID{0, 0, 0, 1}
	for url, want := range map[string][]ledger.ShardID{s.doors[0].URL: {0, 0, 0, 2},
		"http://127.0.0.1:1": genesis} {
		if tree := presentTree(t.Context(), []homeReport{{API: url}}, genesis); !slices.Equal(tree,
			want) {
			t.Errorf("%s: %v, want %v", url, tree, want)
		}
	}
	// What crosses goes by the new tree.
	s.must("keys create acme --plain %k")
	s.must("org add acme --shard 3 %n %k")
	s.must("account open acme:mint --issuer %n %k")
	s.must("keys create bank --plain %k")
	s.must("org add bank --shard 2 %n %k")
	s.must("account open bank:cash %n %k")
	s.must("tx transfer acme:mint bank:cash 9 %n %k")
	if rows := s.must("shards %n"); !strings.Contains(rows, "0(1,2(3))") {
		t.Error(rows)
	}
}
