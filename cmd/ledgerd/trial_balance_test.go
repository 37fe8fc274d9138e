package main

import (
	"encoding/csv"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// The accounts of all shards add up, now and at a moment before.
func TestTrialBalance(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	if text := s.must("trial-balance %n"); !strings.Contains(text, "no account has anything") {
		t.Error(text)
	}
	for shard, name := range []string{"acme", "bank"} {
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must(fmt.Sprintf("account open %s:mint --issuer %%n %%k", name))
		s.must(fmt.Sprintf("account open %s:cash %%n %%k", name))
	}
	s.must("tx transfer acme:mint bank:cash 30 --wait durable-everywhere %n %k")
	s.must("tx transfer bank:mint bank:cash 4 --asset gold %n %k")
	report := s.object("trial-balance --accounts %n")
	wantKeys(t, report, "balanced cut assets accounts")
	want := "[map[accounts:2 asset:gold credit:4 debit:4] " +
		"map[accounts:2 asset:unit credit:30 debit:30]]"
	if got := fmt.Sprint(report["assets"]); got != want || report["balanced"] != true ||
		len(report["accounts"].([]any)) != 4 {
		t.Errorf("%v", report)
	}
	rows, err := csv.NewReader(strings.NewReader(s.must(
		"trial-balance --format csv %n"))).ReadAll()
	if err != nil || fmt.Sprint(rows) != "[[kind account asset debit credit] "+
		"[total  gold 4 4] [total  unit 30 30]]" {
		t.Errorf("%v: %v", rows, err)
	}
	if text := s.must("trial-balance --accounts %n"); !strings.Contains(text,
		"total of 2 accounts") {
		t.Error(text)
	}
	if text := s.must("trial-balance --at 1970-01-02 %n"); !strings.Contains(text,
		"no account has anything") {
		t.Error(text)
	}
	now := s.must("account show bank:cash --at 2999-01-01T00:00:00Z %n")
	if !strings.Contains(now, "30  unit") || !strings.Contains(now, "4  gold") {
		t.Error(now)
	}
	for _, wrong := range []string{"--at someday", "--format pdf", "--at 3 --cut x"} {
		if result := s.run("trial-balance %n " + wrong); result.status != exitUsage {
			t.Errorf("%s: %+v", wrong, result)
		}
	}
	unequal := (&trialReport{}).sum([]client.TrialLine{{Asset: "gold", Debit: big.NewInt(3),
		Credit: big.NewInt(4)}})
	if unequal == nil || !strings.Contains(unequal.Error(), "gold") {
		t.Error(unequal)
	}
}
