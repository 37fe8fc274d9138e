package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/home"
)

// All commands that change the shards refuse the same keys with the same words, and do nothing.
func TestCommandsThatChangeTheShards(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0, 1), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	for _, name := range []string{"operator", "stranger"} {
		if err := home.WriteKey(filepath.Join(s.folder, name+".key"),
			ledgertest.Key(name)); err != nil {
			t.Fatal(err)
		}
	}
	via := " --via=" + s.doors[0].URL
	s.must("keys create acme --plain %k")
	s.must("org add acme --shard 1 %n %k")
	s.must("shards home --home %d/new" + via)
	book.Stand(3, true)
	book.Silence(3, true)
	for _, line := range []string{"move acme --to 2", "split 1 --to 2 --organisation acme --yes",
		"merge 1 --to 2 --yes", "tree --shard 2 --parent 1 --yes", "settle 3 --yes",
		"add --parent 0 --member %d/new"} {
		result := s.run("shards " + line + " --operator %d/stranger.key" + via)
		if result.status != exitFailure ||
			!strings.Contains(result.errs, "stranger.key is no operator's key of chain ") {
			t.Errorf("%s: %+v", line, result)
		}
	}
	if shown := s.object("shards tree" + via); shown["changes"] != 0.0 {
		t.Error(shown)
	}
}
