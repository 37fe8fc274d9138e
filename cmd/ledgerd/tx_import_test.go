package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// A file whose lines cross shards is imported and exported, and the export tells the outcomes of
// its lines apart.
func TestImportOverShards(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(2)}}
	var file strings.Builder
	fmt.Fprintln(&file,
		`{"postings":[{"account":"mint","amount":-7},{"account":"holder-1","amount":7}]}`)
	for i := 2; i <= 12; i++ { // each line spends all that the line before brought
		fmt.Fprintf(&file,
			`{"postings":[{"account":"holder-%d","amount":-7},{"account":"holder-%d","amount":7}]}`+
				"\n", i-1, i)
	}
	fmt.Fprintln(&file,
		`{"postings":[{"account":"holder-1","amount":-1},{"account":"holder-2","amount":1},{"account":"holder-3","amount":0},{"account":"holder-4","amount":0}]}`)
	if err := os.WriteFile(filepath.Join(s.folder, "file"), []byte(file.String()),
		0o600); err != nil {
		t.Fatal(err)
	}
	line := "tx import %d/file --plain --org acme --issuer mint --state %d/state %n %k --orgs "
	for range 2 {
		result := s.run(line + "5 --json")
		if report := object(t, result.out); result.status != exitFailure ||
			report["imported"] != 12.0 || report["failed"] != 1.0 ||
			!strings.Contains(result.errs, "line 13 failed (insufficient_funds)") {
			t.Fatal(result)
		}
	}
	for _, c := range []struct {
		orgs, says string
		status     int
	}{{"4", "--orgs 5", exitFailure}, {"1", "--orgs 5", exitFailure}, {"0", "1 to 64", exitUsage},
		{"65", "1 to 64", exitUsage}} {
		if result := s.run(line + c.orgs); result.status != c.status ||
			!strings.Contains(result.errs, c.says) {
			t.Errorf("--orgs %s: %+v", c.orgs, result)
		}
	}
	if balances := s.must("export --balances %n"); !strings.Contains(balances,
		`{"account":"holder-12","asset":"unit","amount":"7"}`) ||
		!strings.Contains(balances, `{"account":"mint","asset":"unit","amount":"-7"}`) ||
		strings.Count(balances, `"amount":"0"`) != 11 {
		t.Error(balances)
	}

	outcomes := map[entryLine]int{}
	for shard, cluster := range []*apitest.Cluster{book.Shard(0), book.Shard(1), book.Shard(2)} {
		s.doors = []*apitest.TestServer{book.Door(cluster.Genesis().Shard)}
		asked := s.must("export --blocks %n")
		var stored bytes.Buffer
		if err := export(t.Context(), &stored, storeExporter{cluster.Node(0).Store(), nil},
			true); err != nil || stored.String() != asked {
			t.Errorf("shard %d: its folder says\n%s\nand its node\n%s%v", shard, &stored, asked,
				err)
		}
		for text := range strings.Lines(asked) {
			var block blockLine
			if err := json.Unmarshal([]byte(text), &block); err != nil ||
				len(block.Entries) != len(block.Transactions) {
				t.Fatal(text, err)
			}
			for i, entry := range block.Entries {
				if entry.ID != block.Transactions[i] {
					t.Error(text)
				}
				entry.ID = [32]byte{}
				outcomes[entry]++
			}
		}
	}
	for _, want := range []entryLine{
		{Outcome: "applied"}, {Outcome: "applied", Crossed: true},
		{Outcome: "passed", Crossed: true}, {Outcome: "verdict"},
		{Outcome: "failed", Reason: "insufficient_funds", Crossed: true},
	} {
		if outcomes[want] == 0 {
			t.Errorf("no entry is %+v: %v", want, outcomes)
		}
		delete(outcomes, want)
	}
	if len(outcomes) > 0 {
		t.Error(outcomes)
	}
}

// A transaction that waits for a shard is exported as waiting.
func TestExportWaiting(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	for shard, name := range []string{"acme", "bank"} {
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":a --issuer %n %k")
	}
	s.run("tx transfer acme:a bank:nobody 1 %n %k")
	if blocks := s.must("export --blocks %n"); !strings.Contains(blocks,
		`"outcome":"failed","reason":"unknown_account","crossed":true`) {
		t.Error(blocks)
	}
	book.Stand(1, true)
	if waiting := s.run("tx transfer acme:a bank:a 1 --timeout 5s %n %k"); waiting.status !=
		exitFailure {
		t.Error(waiting)
	}
	var stored bytes.Buffer
	asked := s.must("export --blocks %n")
	if err := export(t.Context(), &stored, storeExporter{book.Shard(0).Node(0).Store(), nil},
		true); err != nil || stored.String() != asked ||
		!strings.Contains(asked, `"outcome":"waiting","crossed":true`) {
		t.Error(asked, &stored, err)
	}
	book.Stand(1, false)
}
