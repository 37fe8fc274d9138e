package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	reported "github.com/ledgerd/ledgerd/node/report"
)

// newestGenesis returns the genesis of a new book with one shard for each parent. It is of now,
// because clients set deadlines by their clocks.
func newestGenesis(parents ...ledger.ShardID) *ledger.Genesis {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version, genesis.Time = ledger.NewestVersion,
		ledger.Milliseconds(time.Now().UnixMilli())
	return genesis
}

// Run the commands on a ledger of three shards, of which two are below the root: payments across
// shards, waiting transactions, and the place of each.
func TestCommandsOnShards(t *testing.T) {
	t.Parallel()
	genesis := newestGenesis(0, 0, 0)
	genesis.Time -= 2 * 3600 * 1000 // so that what waits has waited for long at once
	book := apitest.NewBook(t, genesis, api.Options{AlarmAfter: time.Minute})
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
	s.must("tx post --posting org1:a=-1 --posting org2:a=1 --out %d/waits.tx %n %k")
	waiting := s.run("tx submit %d/waits.tx --timeout 2s %n")
	for longer := 4 * time.Second; waiting.out == "" && longer < time.Minute; longer *= 2 {
		// The machine was too slow for an answer. Submitting again is safe.
		waiting = s.run(fmt.Sprintf("tx submit %%d/waits.tx --timeout %v %%n", longer))
	}
	if waiting.status != exitFailure || !strings.Contains(waiting.out, "waiting for shard 2") ||
		!strings.Contains(waiting.errs, "waiting for shard 2") {
		t.Fatal(waiting)
	}
	if text := s.must("account show org1:a %n"); !strings.Contains(text, "3  unit  1 set aside") ||
		!strings.Contains(text, "shard") {
		t.Error(text)
	}
	if text := s.must("shards %n"); !strings.Contains(text, "├─ 1 *") ||
		!strings.Contains(text, "└─ 2") || !strings.Contains(text, "0(1,2)") {
		t.Error(text)
	}
	const hour = 3600.0
	overdue := func(of map[string]any) bool {
		waits, listed := of["waits_for"].([]any)
		if !listed || len(waits) != 1 || of["overdue"] != 1.0 ||
			of["oldest_waiting_seconds"].(float64) < hour {
			return false
		}
		wait := waits[0].(map[string]any)
		return wait["shard"] == 2.0 && wait["count"] == 1.0 && wait["overdue"] == 1.0 &&
			wait["oldest_waiting_seconds"].(float64) > hour
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

	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	book.Obstruct(reported.Obstacle{Shard: 2, Since: since},
		reported.Obstacle{Shard: 1, Since: since, Full: true, Awaited: 2})
	if text := s.must("shards %n"); !strings.Contains(text, "refused: transactions that cross to "+
		"shard 2, which is down since 2026-03-04T05:06:07Z\nrefused: transactions between shards "+
		"1 and 2, since too many wait there already, from 2026-03-04T05:06:07Z on\n") {
		t.Error(text)
	}
	if refuses := s.object("shards %n")["refuses"]; fmt.Sprint(refuses) != "[map[reason:"+
		"shard_down shard:2 since:2026-03-04T05:06:07Z] map[awaited:2 reason:shard_full shard:1 "+
		"since:2026-03-04T05:06:07Z]]" {
		t.Error(refuses)
	}
	book.Obstruct()

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
	for _, test := range []struct{ line, want string }{
		{"block 1 --follow --book %n", "shard 2  block 1  "},
		{"block 1 --follow --book --json %n", `"shard":1,"height":2,`},
		{"block 1 --follow --book --begin 0:2,1:2 %n", "shard 0  block 2  "},
	} {
		result := s.longer(test.line, test.want)
		if result.status != exitDone || !strings.Contains(result.out, test.want) ||
			strings.Contains(test.line, "--begin") &&
				strings.Contains(result.out, "shard 1  block 1  ") {
			t.Errorf("%s: %v", test.line, result)
		}
	}
	book.Silence(2, true)
	const silent = "no answer from shard 2 now"
	if result := s.longer("block 1 --follow --book %n", silent); !strings.Contains(result.errs,
		silent) || !strings.Contains(result.out, "shard 1  block 1") {
		t.Error(result)
	}
	const silentJSON = `{"silent_shards":[2]}`
	if result := s.longer("block 1 --follow --book --json %n", silentJSON); !strings.Contains(
		result.out, silentJSON) {
		t.Error(result)
	}
	book.Silence(2, false)
	for _, line := range []string{"block --book %n", "block --follow --begin 0:1 %n",
		"block --follow --book --shard 1 %n", "block --follow --book --begin 0 %n",
		"block --follow --book --begin 0:1,0:2 %n", "block --follow --book --begin 3:1 %n"} {
		if result := s.run(line); result.status != exitUsage {
			t.Errorf("%s: %v", line, result)
		}
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

// A change is told while it is under way.
func TestShardChangeLines(t *testing.T) {
	t.Parallel()
	from := uint32(1)
	for want, change := range map[string]*ledgerdv1.ShardChange{
		"acme moves from shard 1 to shard 2: it waits for shard 1": {Kind: "move",
			Organisation: "acme", From: &from, To: 2, State: "departing", WaitsFor: []uint32{1}},
		"acme moves from shard 1 to shard 2, since 1970-01-01T00:00:01Z: what it has is on its " +
			"way": {Kind: "move", Organisation: "acme", From: &from, To: 2, State: "arriving",
			WaitsFor: []uint32{1}, SinceMs: 1000},
		"acme moves from shard 1 to shard 3: no node there says whether it has arrived": {
			Kind: "move", Organisation: "acme", From: &from, To: 3, State: "unknown",
			WaitsFor: []uint32{3}},
		"shard 4 is added below shard 2: it waits for shard 4": {Kind: "addition", Shard: 4, To: 2,
			State: "ordered", WaitsFor: []uint32{4}},
		"": {Kind: "move", Organisation: "acme", From: &from, To: 2, State: "done"},
	} {
		reports := reportChanges([]*ledgerdv1.ShardChange{change})
		if got := reports[0].line(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
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

// A transfer that is too late in one of its shards, and one whose deadline is too far ahead: what
// the commands say of them. The book's time is an hour ahead of the client's clock.
func TestTransfersThatAreTooLate(t *testing.T) {
	t.Parallel()
	genesis := newestGenesis(0, 0, 0)
	genesis.Time += 3_600_000
	book := apitest.NewBook(t, genesis, api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(1)}}
	for shard := range 3 {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
	}
	for deadline, want := range map[string]struct{ code, words string }{
		"30m":  {"deadline_passed", "its deadline has passed"},
		"200h": {"deadline_too_far", "its deadline is too far ahead"},
	} {
		refused := s.run("tx transfer org1:mint org2:mint 5 --deadline " + deadline + " %n %k")
		if refused.status != exitFailure ||
			!strings.Contains(refused.out+refused.errs, want.words) {
			t.Errorf("%s: %+v", deadline, refused)
		}
		id := strings.Fields(refused.out)[1]
		text := s.run("tx status " + id + " %n")
		if text.status != exitFailure || !strings.Contains(text.errs, want.words) ||
			!strings.Contains(text.out, "\ndeadline  ") ||
			!strings.Contains(text.out, "2  refused") {
			t.Errorf("%s: %+v", deadline, text)
		}
		shown := object(t, s.run("tx status "+id+" --json %n").out)
		if shown["state"] != "failed" || shown["reason_code"] != want.code ||
			shown["deadline_ms"].(float64) < 1e12 {
			t.Errorf("%s: %v", deadline, shown)
		}
		if blocks := s.must("export --blocks %n"); !strings.Contains(blocks,
			`"outcome":"failed","reason":"`+want.code) {
			t.Errorf("%s: %s", deadline, blocks)
		}
	}
	if balances := s.must("export --balances %n"); strings.Contains(balances, `"amount":"5"`) {
		t.Error(balances)
	}
}
