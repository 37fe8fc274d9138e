package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// Run the commands on a ledger of three shards, of which two are below the root: payments across
// shards, waiting transactions, and the place of each.
func TestCommandsOnShards(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, ledgertest.ShardedGenesis(1, 0, 0, 0),
		api.Options{AlarmAfter: time.Minute})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(1)}}
	for shard := range 3 {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
		s.must("account open " + name + ":a %n %k")
	}
	s.must("tx transfer org1:mint org1:a 9 %n %k")
	paid := s.object("tx transfer org1:a org2:a 5 %n %k")
	if paid["state"] != "durable" || fmt.Sprint(paid["destinations"]) != "[1 2]" ||
		paid["shard"] != 1.0 {
		t.Error(paid)
	}
	id := paid["id"].(string)
	shown := s.object("tx status " + id + " %n")
	if places := shown["places"].([]any); len(places) != 3 ||
		places[1].(map[string]any)["state"] != "settled" ||
		places[1].(map[string]any)["home"] != true || places[0].(map[string]any)["entry"] != true {
		t.Error(shown)
	}
	if text := s.must("tx status " + id + " --proof %n"); !strings.Contains(text, " of shard 1") ||
		!strings.Contains(text, "SHARD") || !strings.Contains(text, "passed") ||
		!strings.Contains(text, "holds") {
		t.Error(text)
	}

	// Shard 2 stands still.
	book.Stand(2, true)
	waiting := s.run("tx transfer org1:a org2:a 1 --timeout 2s %n %k")
	if waiting.status != exitFailure || !strings.Contains(waiting.out, "waiting for shard 2") ||
		!strings.Contains(waiting.errs, "waiting for shard 2") {
		t.Error(waiting)
	}
	if text := s.must("account show org1:a %n"); !strings.Contains(text, "3  unit  1 set aside") ||
		!strings.Contains(text, "shard") {
		t.Error(text)
	}
	if text := s.must("shards %n"); !strings.Contains(text, "├─ 1 *") ||
		!strings.Contains(text, "└─ 2") || !strings.Contains(text, "0(1,2)") {
		t.Error(text)
	}
	const years = 24 * 365 * 3600.0 // the blocks are of 2023
	overdue := func(of map[string]any) bool {
		waits, listed := of["waits_for"].([]any)
		if !listed || len(waits) != 1 || of["overdue"] != 1.0 ||
			of["oldest_waiting_seconds"].(float64) < years {
			return false
		}
		wait := waits[0].(map[string]any)
		return wait["shard"] == 2.0 && wait["count"] == 1.0 && wait["overdue"] == 1.0 &&
			wait["oldest_waiting_seconds"].(float64) > years
	}
	for _, command := range []string{"shards %n", "status %n"} {
		if text := s.must(command); !strings.Contains(text, "alarm: 1 transaction of shard 1 "+
			"overdue, waiting for shard 2, the oldest for ") ||
			!strings.Contains(text, alarmAdvice) {
			t.Error(text)
		}
	}
	if text := s.must("shards %n"); !strings.Contains(text, "alarm: 1 entry of shard 0 overdue, "+
		"not taken by shard 2, the oldest for ") {
		t.Error(text)
	}
	if node := s.object("status %n")["nodes"].([]any)[0].(map[string]any); !overdue(node) {
		t.Error(node)
	}
	if text := s.must("tx status " + strings.Fields(waiting.out)[1] + " %n"); !strings.Contains(
		text, "waiting for shard 2, overdue") {
		t.Error(text)
	}
	tree := s.object("shards %n")
	if list := tree["shards"].([]any); !overdue(list[1].(map[string]any)) ||
		list[0].(map[string]any)["overdue"] != 0.0 ||
		len(list[0].(map[string]any)["untaken_by"].([]any)) != 1 {
		t.Error(tree)
	}
	if second := tree["shards"].([]any)[2].(map[string]any); tree["own"] != 1.0 ||
		second["parent"] != 0.0 || second["behind"] != 1.0 || second["mode"] != "ordering" {
		t.Error(tree)
	}
	book.Silence(2, true)
	list := s.run("account list %n")
	if list.status != exitFailure || !strings.Contains(list.out, "org0:a") ||
		strings.Contains(list.out, "org2:a") || !strings.Contains(list.errs, "shard 2") {
		t.Error(list)
	}
	if text := s.must("account list --shard 1 %n"); strings.Contains(text, "org0:a") ||
		!strings.Contains(text, "org1:a") {
		t.Error(text)
	}
	book.Silence(2, false)
	book.Stand(2, false)
	waited := s.object("tx status " + strings.Fields(waiting.out)[1] + " --wait durable %n")
	all := s.object("tx status " + strings.Fields(waiting.out)[1] + " --wait durable-everywhere %n")
	if all["state"] != "durable" || all["everywhere"] != true || all["waits_for"] != nil {
		t.Errorf("%v", all)
	}
	if text := s.run("tx transfer org1:a org2:a 1 --wait durable-everywhere %n %k"); text.status !=
		exitDone || !strings.Contains(text.out, ", and in all shards that it concerns") {
		t.Error(text)
	}
	if waited["state"] != "durable" {
		t.Error(waited)
	}
	if text := s.must("shards %n") + s.must("status %n"); strings.Contains(text, "alarm") {
		t.Error(text)
	}

	if text := s.must("block --shard 2 %n"); !strings.Contains(text, "BLOCK") {
		t.Error(text)
	}
	if block := s.object("block head --shard 2 %n"); block["shard"] != 2.0 ||
		len(block["transactions"].([]any)) == 0 {
		t.Error(block)
	}
	settled := s.object(fmt.Sprintf("block %.0f --shard 1 %%n", waited["settled_height"]))
	if entry := settled["transactions"].([]any)[0].(map[string]any); entry["verdict"] != "good" ||
		entry["verdict_shard"] != 2.0 || entry["verdict_transaction"] != waited["id"] {
		t.Error(settled)
	} else if text := s.must("tx status " + entry["id"].(string) + " %n"); !strings.Contains(text,
		"shard 2 says good of "+waited["id"].(string)) {
		t.Error(text)
	}
	if text := s.must("cluster status --shard 2 --via " + book.Door(1).URL); !strings.Contains(text,
		"shard 2 of 3") {
		t.Error(text)
	}
	if text := s.must("status %n"); !strings.Contains(text, "shard 1 of 3") {
		t.Error(text)
	}
	if wrong := s.run("block --shard 3 %n"); wrong.status != exitFailure ||
		!strings.Contains(wrong.errs, "there is no shard 3") {
		t.Error(wrong)
	}
	if wrong := s.run("block --shard x %n"); wrong.status != exitUsage {
		t.Error(wrong)
	}
}

// A ledger of one shard is a tree of one, and nothing else about it has changed.
func TestOneShardIsATreeOfOne(t *testing.T) {
	t.Parallel()
	s := newShell(t, 2)
	s.bank()
	tree := s.object("shards %n")
	if shards := tree["shards"].([]any); len(shards) != 1 || tree["shape"] != "0" ||
		len(shards[0].(map[string]any)["members"].([]any)) != 2 {
		t.Error(tree)
	}
	if text := s.must("shards %n"); !strings.Contains(text, "0 *    ordering  ") {
		t.Error(text)
	}
	status := s.object("tx transfer acme:cash acme:vault 1 %n %k")
	shown := s.object("tx status " + status["id"].(string) + " %n")
	for _, key := range strings.Fields("places shard destinations waits_for settled_height") {
		if _, present := shown[key]; present {
			t.Errorf("a ledger of one shard shows %s: %v", key, shown)
		}
	}
	if text := s.must("tx status " + status["id"].(string) + " %n"); strings.Contains(
		strings.ToLower(text), "shard") {
		t.Error(text)
	}
}
