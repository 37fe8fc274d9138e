package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// A proof of a balance holds with the genesis alone, online and in a file, also in another shard.
func TestProofsOfBalances(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	writeGenesis(t, filepath.Join(s.folder, "genesis"), book.Shard(0).Genesis())
	other := *book.Shard(0).Genesis()
	other.Chain = "other"
	writeGenesis(t, filepath.Join(s.folder, "other"), &other)
	s.must("keys create acme --plain %k")
	s.must("org add acme --shard 1 %n %k")
	s.must("account open acme:mint --issuer %n %k")
	for i := range 7 {
		s.must(fmt.Sprintf("account open acme:cash%d %%n %%k", i))
	}
	s.must("tx transfer acme:mint acme:cash3 100 %n %k")
	shown := s.object("account show acme:cash3 --proof --genesis %d/genesis --out %d/kept %n")
	wantKeys(t, shown, "account organisation issuer opened_height balances height shard "+
		"block_hash block_time_ms certificate")
	if fmt.Sprint(shown["balances"]) != "[map[amount:100 asset:unit]]" || shown["shard"] != 1.0 {
		t.Error(shown)
	}
	if text := s.must("account show acme:mint --proof --genesis %d/genesis %n"); !strings.Contains(
		text, "-100  unit") || !strings.Contains(text, "certified by") {
		t.Error(text)
	}
	if kept := s.object("verify --proof %d/kept --genesis %d/genesis"); fmt.Sprint(kept) !=
		fmt.Sprint(shown) {
		t.Errorf("%v, want %v", kept, shown)
	}
	proof, err := os.ReadFile(filepath.Join(s.folder, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string][]byte{
		"short": proof[:len(proof)-1], "empty": {},
		"more": []byte(strings.Replace(string(proof), "unit", "unix", 1)),
	} {
		if err := os.WriteFile(filepath.Join(s.folder, name), forged, 0o644); err != nil {
			t.Fatal(err)
		}
		if result := s.run("verify --proof %d/" + name + " --genesis %d/genesis"); result.status !=
			exitFailure {
			t.Errorf("%s: %+v", name, result)
		}
	}
	for line, want := range map[string]string{
		"verify --proof %d/kept --genesis %d/other":                            "certificate",
		"verify --proof %d/kept":                                               "name the ledger's",
		"account show acme:cash3 --proof %n":                                   "--genesis",
		"account show acme:cash3 --proof --at 3 --genesis %d/genesis %n":       "newest block only",
		"account show acme:cash3 --out %d/x %n":                                "for --proof",
		"account show acme:none --proof --genesis %d/genesis %n":               "acme:none",
		"account show acme:cash3 --proof --genesis %d/other --out %d/never %n": "do not trust",
	} {
		if result := s.run(line); result.status == exitDone || !strings.Contains(result.errs,
			want) {
			t.Errorf("%s: %+v", line, result)
		}
	}
}
