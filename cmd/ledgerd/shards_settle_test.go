package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// Operators settle only with a shard that is silent, below which there is no other one, and see
// what waits for it.
func TestReportSettle(t *testing.T) {
	t.Parallel()
	tree := func() *ledgerdv1.Tree {
		return &ledgerdv1.Tree{Shards: []*ledgerdv1.Shard{
			{Shard: 0, Root: true, Mode: "silent"},
			{Shard: 1, Mode: "ordering", WaitsFor: []*ledgerdv1.ShardWait{{Shard: 2, Count: 7},
				{Shard: 0, Count: 1}}},
			{Shard: 2, Mode: "silent", AccountsTotal: 9, LastHeardMs: 1_700_000_000_000},
			{Shard: 3, Parent: 2, Mode: "lost"},
		}}
	}
	report, err := reportSettle(tree(), 2)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report.write(&out); err != nil || !strings.Contains(out.String(), "7 in shard 1") ||
		!strings.Contains(out.String(), "Nothing was done") {
		t.Errorf("%s: %v", &out, err)
	}
	for shard, want := range map[uint32]string{0: "root", 1: "is ordering", 3: "already",
		4: "no shard 4"} {
		if _, err := reportSettle(tree(), shard); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("shard %d: %v", shard, err)
		}
	}
	above := tree()
	above.Shards[3].Mode = "silent"
	if _, err := reportSettle(above, 2); err == nil ||
		!strings.Contains(err.Error(), "shard 3 lies below") {
		t.Errorf("%v", err)
	}
}

// A settlement names its transaction as every change of the shards does.
func TestShardsSettle(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	if err := home.WriteKey(filepath.Join(s.folder, "operator.key"),
		ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	via := " --via=" + s.doors[0].URL
	book.Stand(2, true)
	book.Silence(2, true)
	wantKeys(t, s.object("shards settle 2"+via), "shard mode last_heard_ms accounts_total waiting")
	unsent := s.object("shards settle 2 --operator %d/operator.key --yes --out %d/settle.tx" + via)
	wantKeys(t, unsent, "transaction file signed_by missing_signatures")
	settled := s.object("shards settle 2 --operator %d/operator.key --yes" + via)
	wantKeys(t, settled, "transaction shard state height")
	if settled["shard"] != 2.0 || settled["state"] != "durable" {
		t.Error(settled)
	}
}

// Nobody settles with a shard from which another one still takes entries, although that hangs
// elsewhere: not before it has come to its new parent. The change that is under way is shown.
func TestShardsSettleWithAFormerParent(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0, 1), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	if err := home.WriteKey(filepath.Join(s.folder, "operator.key"),
		ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	via := " --operator %d/operator.key --via=" + s.doors[0].URL
	s.object("shards tree --shard 3 --parent 2 --out %d/hang.tx" + via)
	book.Stand(3, true)
	s.must("tx submit %d/hang.tx %n")
	settle := "shards settle 1 --yes" + via
	book.Stand(1, true)
	book.Silence(1, true)
	if result := s.run(settle); result.status != exitFailure || !strings.Contains(result.errs,
		"shard 3 was below shard 1, and lacks entries that only that one has") {
		t.Errorf("%+v", result)
	}
	if text := s.must("shards %n"); !strings.Contains(text, "shard 3 comes from below shard 1 to "+
		"below shard 2, since ") || !strings.Contains(text, ": it waits for shard 1\n") {
		t.Error(text)
	}
	if result := s.run("shards settle 1" + via); result.status != exitFailure {
		t.Errorf("%+v", result)
	}
	// Nothing was done, so shard 1 may come back, and shard 3 gets what it lacks.
	book.Silence(1, false)
	book.Stand(1, false)
	book.Stand(3, false)
	for begin := time.Now(); strings.Contains(s.must("shards %n"), "comes from below"); {
		if time.Since(begin) > time.Minute {
			t.Fatal("shard 3 has not come to its new parent")
		}
	}
	book.Stand(1, true)
	book.Silence(1, true)
	settled := s.object(settle)
	if settled["shard"] != 1.0 || settled["state"] != "durable" {
		t.Error(settled)
	}
}
