package main

import (
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

func TestShardsMove(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	if err := home.WriteKey(filepath.Join(s.folder, "operator.key"),
		ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	via := " --operator %d/operator.key --via=" + s.doors[0].URL
	s.must("keys create acme --plain %k")
	s.must("org add acme --shard 1 %n %k")
	s.must("account open acme:mint --issuer %n %k")
	s.must("account open acme:cash %n %k")
	s.must("tx transfer acme:mint acme:cash 9 %n %k")
	if result := s.run("shards move acme --to 1" + via); result.status != exitFailure ||
		!strings.Contains(result.errs, "lives in shard 1 already") {
		t.Errorf("%+v", result)
	}
	if result := s.run("shards move acme" + via); result.status != exitUsage {
		t.Errorf("%+v", result)
	}
	s.must("tx post --posting acme:mint=-7 --posting acme:cash=7 --out %d/before.tx %n %k")
	s.must("keys create bank --plain %k")
	s.must("org add bank --shard 1 %n %k")
	unsent := s.object("shards move bank --to 2 --out %d/bank.tx" + via)
	wantKeys(t, unsent, "transaction file signed_by missing_signatures")
	book.Silence(2, true)
	if result := s.run("shards move acme --to 2" + via); result.status != exitFailure ||
		!strings.Contains(result.errs, "shard 2 is silent: acme could not arrive there") {
		t.Errorf("%+v", result)
	}
	book.Silence(2, false)
	before := s.object("tx submit %d/before.tx %n")
	moved := s.object("shards move acme --to 2" + via)
	wantKeys(t, moved, "transaction organisation from to milliseconds")
	if moved["from"] != 1.0 || moved["to"] != 2.0 {
		t.Error(moved)
	}
	// A move that fails after its admission, because another change came first.
	if result := s.run("tx submit %d/bank.tx %n"); result.status != exitFailure {
		t.Errorf("%+v", result)
	}
	nodes, err := client.New([]string{s.doors[0].URL}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id, err := hex.DecodeString(unsent["transaction"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if err := awaitHome(t.Context(), nodes, &ledgerdv1.TransactionStatus{Id: id}, "bank",
		2); err == nil || !strings.Contains(err.Error(), "bank does not move") {
		t.Errorf("%v", err)
	}
	if err := awaitHome(t.Context(), nodes, &ledgerdv1.TransactionStatus{Id: id}, "none",
		2); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("%v", err)
	}
	if text := s.must("org show acme %n"); !strings.Contains(text, "2; before in 1, where") {
		t.Error(text)
	}
	shown := s.object("org show acme %n")
	if earlier, _ := shown["earlier_shards"].([]any); shown["shard"] != 2.0 ||
		shown["moving"] != nil || len(earlier) != 1 || earlier[0] != 1.0 {
		t.Error(shown)
	}
	// A copy of what took effect before the move is no new payment, and did not fail.
	again := s.object("tx submit %d/before.tx %n")
	if again["id"] != before["id"] || again["state"] != before["state"] || again["shard"] != 1.0 {
		t.Errorf("%v, then %v", before, again)
	}
	if status := s.object("tx status " + before["id"].(string) + " %n"); status["state"] !=
		before["state"] {
		t.Error(status)
	}
	s.must("tx transfer acme:mint acme:cash 1 %n %k")
	if text := s.must("account show acme:cash %n"); !strings.Contains(text, "  17  unit") {
		t.Error(text)
	}
	if text := s.must("account list %n"); strings.Count(text, "acme:cash") != 1 {
		t.Error(text)
	}
	if result := s.run("shards move acme --to 1" + via); result.status != exitFailure ||
		!strings.Contains(result.errs, "lived in shard 1 before") {
		t.Errorf("%+v", result)
	}
}
