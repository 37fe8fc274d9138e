package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
)

func TestTestnetOfShards(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	at := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dir, file := filepath.Join(folder, "net"), at("tree", "0 1\n1 1  # the root\n2 0\n")
	text := must(t, "testnet", "--dir", dir, "--shards", "3", "--nodes", "2", "--tree", file,
		"--base-port", "30600", "--json")
	var report testnetReport
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	if report.Shards != 3 || !slices.Equal(report.Tree, []ledger.ShardID{1, 1, 0}) ||
		len(report.Nodes) != 6 || report.Book == report.Genesis ||
		report.Genesis != report.Nodes[1].Genesis {
		t.Errorf("%s", text)
	}
	for i, node := range report.Nodes {
		if node.Shard == nil || int(*node.Shard) != i/2 {
			t.Errorf("node %d: %+v", i, node)
		}
	}
	for flag, value := range map[string]string{"nodes": "3", "shards": "2", "tree": "chain",
		"base-port": "30700"} {
		refuses(t, exitFailure, "leave --"+flag+" out", "testnet", "--dir", dir, "--run", "--"+flag,
			value)
	}
	refuses(t, exitUsage, "for 3 shards", "testnet", "--dir", dir, "--run", "--tree", "star")
	if out := must(t, "testnet", "--dir", filepath.Join(folder, "seen"), "--shards", "2", "--nodes",
		"1"); !strings.Contains(out, "2 nodes in 2 shards") ||
		!strings.Contains(out, "shard 1  below 0") {
		t.Error(out)
	}
	none := filepath.Join(folder, "none")
	for advice, flags := range map[string][]string{
		"--shards is 0":                     {"--shards", "0"},
		"20 shards of 4 nodes are 80 nodes": {"--shards", "20"},
		"there is no file of that name":     {"--shards", "3", "--tree", "star"},
		"group 3 has no line":               {"--shards", "4", "--tree", file},
		"line 3 names group \"2\"":          {"--shards", "2", "--tree", file},
		"as line 1 does": {"--shards", "2", "--tree",
			at("twice", "0 0\n0 0\n")},
		"both their own parent": {"--shards", "2", "--tree",
			at("roots", "0 0\n1 1\n")},
		"never ends at the root": {"--shards", "3", "--tree",
			at("circle", "0 0\n1 2\n2 1\n")},
		"want at most 64 in all":        {"--shards", "2", "--nodes", "33"},
		"need the ports 65500 to 65547": {"--shards", "6", "--base-port", "65500"},
		"write a group's number and its parent": {"--shards", "2", "--tree",
			at("words", "0 0\nshard 1 below 0\n")},
	} {
		refuses(t, exitUsage, advice, append([]string{"testnet", "--dir", none}, flags...)...)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a refused network left a folder")
	}
	// The genesis of any shard serves to make a member of any other.
	first, last := report.Nodes[0].Home, report.Nodes[5]
	other := filepath.Join(folder, "again")
	refuses(t, exitFailure, "in any of its 3 shards", "init", "--home", other, "--genesis",
		filepath.Join(first, home.GenesisFile), "--key",
		filepath.Join(dir, testnet.OperatorKeyFile))
	made := object(t, must(t, "init", "--home", other, "--genesis",
		filepath.Join(first, home.GenesisFile), "--key", filepath.Join(last.Home, home.KeyFile),
		"--json"))
	if made["name"] != "node-5" || made["shard"] != 2.0 || made["genesis_hash"] != last.Genesis {
		t.Errorf("%v", made)
	}
}

// Two shards run as processes. Organisations live in the given shards and pay each other, and a
// node joins the named shard.
func TestTestnetRunOfShards(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(2)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	dir, keys := filepath.Join(folder, "net"), filepath.Join(folder, "keys")
	net := begin(t, "testnet", "--dir", dir, "--shards", "2", "--nodes", "1", "--base-port",
		strconv.Itoa(base), "--run")
	net.out.await(t, `all 2 nodes in 2 shards run and take (transactions)`)
	urls := []string{fmt.Sprintf("http://127.0.0.1:%d", base),
		fmt.Sprintf("http://127.0.0.1:%d", base+2)}
	here := []string{"--node", urls[0], "--keys", keys}
	do := func(words ...string) string { t.Helper(); return must(t, append(words, here...)...) }
	if out := do("org", "add", "acme", "--plain", "--shard", "1"); !strings.Contains(out,
		"shard 1 keeps its accounts") {
		t.Error(out)
	}
	do("org", "add", "globex", "--plain", "--shard", "0")
	refuses(t, exitFailure, "in shard 1, and does not move",
		append([]string{"org", "add", "acme", "--plain", "--shard", "0"}, here...)...)
	do("org", "add", "acme", "--plain", "--shard", "1")
	if out := must(t, "org", "list", "--node", urls[1]); !strings.Contains(out, "SHARD") {
		t.Error(out)
	}
	do("account", "open", "acme:mint", "--issuer")
	do("account", "open", "globex:cash")
	do("tx", "transfer", "acme:mint", "globex:cash", "5")
	if out := must(t, "account", "show", "globex:cash", "--node", urls[1]); !strings.Contains(out,
		"5  unit") {
		t.Error(out)
	}
	operator := filepath.Join(dir, testnet.OperatorKeyFile)
	join := []string{"cluster", "join", "--shard", "1", "--via", urls[0], "--operator", operator}
	refuses(t, exitFailure, "there is no shard 7", "cluster", "join", "--home",
		filepath.Join(folder, "new"), "--shard", "7", "--via", urls[0], "--operator", operator)
	refuses(t, exitFailure, "keeps shard 0: say --shard 1", "cluster", "leave", "--name", "node-1",
		"--via", urls[0], "--operator", operator)
	refuses(t, exitFailure, "keeps shard 0: say --shard 1", "cluster", "leave", "--home",
		filepath.Join(dir, testnet.Name(1)), "--via", urls[0], "--operator", operator)
	refuses(t, exitFailure, "has a member node-0 already",
		append(join, "--home", filepath.Join(folder, "node-0"))...)
	third := filepath.Join(dir, testnet.Name(2))
	free, err := testnet.FreeBasePort(1)
	if err != nil {
		t.Fatal(err)
	}
	joined := object(t, must(t, append(join, "--home", third, "--base-port", strconv.Itoa(free),
		"--json")...))
	if joined["shard"] != 1.0 || joined["index"] != 1.0 || joined["members"] != 2.0 {
		t.Errorf("%v", joined)
	}
	refuses(t, exitFailure, "a node of shard 1, and", "cluster", "join", "--home", third, "--via",
		urls[0], "--operator", operator)
	refuses(t, exitFailure, "a member node-2 already, in shard 1", "cluster", "join", "--home",
		filepath.Join(folder, "node-2"), "--via", urls[0], "--operator", operator)
	two := begin(t, "start", "--home", third, "--json")
	two.out.await(t, `"(shard)":1`)
	await(t, func() bool {
		return strings.Count(ledgerd(t, "cluster", "status", "--via", urls[1]).out, "ordering") == 2
	})
	two.end(t)
	net.end(t)
	for i := range 3 {
		must(t, "verify", "--home", filepath.Join(dir, testnet.Name(i)))
	}
}

// The demo's book has three shards unless the number of nodes is given, and its organisations'
// transactions cross them.
func TestDemoOfShards(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var ended map[string]any
	for _, length := range []string{"3s", "15s", "45s"} { // longer for a busy machine
		result := ledgerd(t, "demo", "--shards", "3", "--nodes", "2", "--port", "0", "--rate", "20",
			"--for", length, "--json")
		if result.status != exitDone {
			t.Fatalf("%+v", result)
		}
		first, last, _ := strings.Cut(strings.TrimSpace(result.out), "\n")
		ready := object(t, first)
		ended = object(t, last)
		if len(ready["nodes"].([]any)) != 6 || len(ready["tree"].([]any)) != 3 ||
			len(ready["homes"].([]any)) != 5 || len(ended["heights"].([]any)) != 3 {
			t.Fatalf("%s", result.out)
		}
		if tally := ended["transactions"].(map[string]any); tally["crossed"].(float64) >= 2 &&
			tally["applied"].(float64) > tally["crossed"].(float64) {
			ended = nil
			break
		}
	}
	if ended != nil {
		t.Errorf("hardly anything crossed shards: %v", ended)
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	refuses(t, exitUsage, "5 shards of 4 nodes are 20 nodes", "demo", "--shards", "5")
	refuses(t, exitUsage, "at most 16", "demo", "--shards", "3", "--nodes", "6")
	refuses(t, exitUsage, "--shards is 0", "demo", "--shards", "0")
	refuses(t, exitUsage, "no shape", "demo", "--tree", "star")
}

// A shard of a running network, and a single node, are stopped and started while the others go on.
func TestTestnetStopAndStart(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(4)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	dir, keys := filepath.Join(folder, "net"), filepath.Join(folder, "keys")
	refuses(t, exitFailure, "there is no test network in", "testnet", "stop", dir)
	refuses(t, exitUsage, "DIR is missing", "testnet", "stop")
	refuses(t, exitUsage, "exclude each other", "testnet", "stop", dir, "--shard", "1", "--node",
		"node-1")
	net := begin(t, "testnet", "--dir", dir, "--shards", "2", "--nodes", "2", "--base-port",
		strconv.Itoa(base), "--run")
	net.out.await(t, `all 4 nodes in 2 shards run and take (transactions)`)
	url := func(node int) string { return fmt.Sprintf("http://127.0.0.1:%d", base+2*node) }
	pid := func(node string) string {
		return net.out.await(t, node+`  started, process (\d+)`)
	}
	kept := pid("node-0")
	here := []string{"--node", url(0), "--keys", keys}
	do := func(words ...string) string { t.Helper(); return must(t, append(words, here...)...) }
	do("org", "add", "acme", "--plain", "--shard", "0")
	do("account", "open", "acme:cash")
	do("account", "open", "acme:mint", "--issuer")
	do("org", "add", "bank", "--plain", "--shard", "1")
	do("account", "open", "bank:cash")

	refuses(t, exitFailure, "there is no shard 7 in "+dir+": it has the shards 0 to 1", "testnet",
		"stop", dir, "--shard", "7")
	refuses(t, exitFailure, "it has node-0, node-1, node-2, node-3", "testnet", "stop", dir,
		"--node", "node-9")
	refuses(t, exitFailure, "end that one first", "testnet", "--dir", dir, "--run")

	// Shard 1 stops, and shard 0 goes on.
	text := must(t, "testnet", "stop", dir, "--shard", "1")
	for _, node := range []string{"node-2", "node-3"} {
		if !strings.Contains(text, node+"   stopped\n") {
			t.Errorf("%s: %s", node, text)
		}
		net.out.await(t, node+`  (stopped); to start it`)
	}
	for _, home := range []string{"node-2", "node-3"} { // No process holds the stores.
		must(t, "verify", "--home", filepath.Join(dir, home))
	}
	old := filepath.Join(folder, "old")
	if err := os.CopyFS(old, os.DirFS(filepath.Join(dir, "node-2"))); err != nil {
		t.Fatal(err)
	}
	if o := ledgerd(t, "status", "--node", url(3), "--timeout", "1s"); o.status != exitFailure {
		t.Errorf("a stopped node answers: %+v", o)
	}
	do("account", "open", "acme:vault")
	again := object(t, must(t, "testnet", "stop", "--dir", dir, "--node", "node-2,node-3",
		"--json"))
	for _, each := range again["nodes"].([]any) {
		node := each.(map[string]any)
		if node["state"] != "stopped" || node["changed"] != false || node["shard"] != 1.0 {
			t.Errorf("%v", node)
		}
	}

	text = must(t, "testnet", "start", dir, "--shard", "1")
	if !strings.Contains(text, "node-2   running at "+url(2)) ||
		!strings.Contains(text, "node-3   running at "+url(3)) {
		t.Error(text)
	}
	await(t, func() bool { return ledgerd(t, "status", "--node", url(2)).status == exitDone })

	// One node stops. Its shard has no majority then, because it has two members.
	one := object(t, must(t, "testnet", "stop", dir, "--node", "node-1", "--json"))
	node := one["nodes"].([]any)[0].(map[string]any)
	if one["dir"] != dir || node["name"] != "node-1" || node["state"] != "stopped" ||
		node["changed"] != true || node["process"] != nil {
		t.Errorf("%v", one)
	}
	await(t, func() bool {
		o := ledgerd(t, "status", "--node", url(0))
		return o.status == exitFailure && strings.Contains(o.out, "survives no failure now")
	})
	refuses(t, exitFailure, "after 1ms these nodes are not running yet: node-1 (", "testnet",
		"start", dir, "--node", "node-1", "--timeout", "1ms")
	must(t, "testnet", "start", dir) // the request of before holds as well
	if text := must(t, "testnet", "start", dir); strings.Count(text, "running already") != 4 {
		t.Error(text)
	}
	await(t, func() bool { return ledgerd(t, "status", "--node", url(0)).status == exitDone })
	do("account", "open", "acme:later")
	do("tx", "transfer", "acme:mint", "bank:cash", "5")

	said := net.out.String()
	if strings.Contains(said, "ended: ") || strings.Count(said, "node-0  started") != 1 ||
		strings.Count(said, "node-2  started") != 2 || pid("node-0") != kept {
		t.Errorf("the runner took a stop for a crash:\n%s", said)
	}
	net.end(t)
	refuses(t, exitFailure, "no process runs the nodes of "+dir, "testnet", "start", dir)
	wholeBook(t, dir, old)
}

// wholeBook checks all shards of a network that was stopped after one payment of 5 from shard 0 to
// shard 1. old is a copy of shard 1's first home from before the payment.
func wholeBook(t *testing.T, dir, old string) {
	t.Helper()
	report := object(t, must(t, "verify", "--book", dir, "--json"))
	shards := report["shards"].([]any)
	if len(shards) != 2 || report["ok"] != true || report["accounts"] != 5.0 ||
		report["assets"] != 1.0 || report["verdicts"].(float64) < 2 ||
		report["carried"].(float64) < 1 || report["on_the_way"] != 0.0 || report["reason"] != "" {
		t.Errorf("%v", report)
	}
	first, second := filepath.Join(dir, "node-1"), filepath.Join(dir, "node-2")
	for _, words := range [][]string{{dir}, {"--home", first, "--home", second},
		{first, "--home", second, "--home", old}} {
		text := must(t, append([]string{"verify", "--book"}, words...)...)
		if !strings.Contains(text, "each asset adds up to zero (1 asset in 5 accounts)") ||
			!strings.Contains(text, "shard 1  ") {
			t.Error(text)
		}
	}
	refuses(t, exitFailure, "no home of shard 1", "verify", "--book", "--home", first)
	late := object(t, ledgerd(t, "verify", "--book", first, old, "--json").out)
	if late["ok"] != false || !strings.Contains(late["reason"].(string), "too old") {
		t.Errorf("%v", late)
	}
	text := ledgerd(t, "verify", "--book", first, old)
	if text.status != exitFailure || !strings.Contains(text.out, "the store of shard 1 does not "+
		"have") {
		t.Errorf("%+v", text)
	}
}

// A killed runner leaves nothing that stops the next one, and no request outlives it.
func TestTestnetStopAfterAKill(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(2)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "net")
	var out written
	net := exec.Command(os.Args[0], "testnet", "--dir", dir, "--nodes", "2", "--base-port",
		strconv.Itoa(base), "--run")
	net.Stdout = &out
	if err := net.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = net.Process.Kill() }) // it may have ended
	out.await(t, `all 2 nodes run and take (transactions)`)
	must(t, "testnet", "stop", dir, "--node", "node-1")
	if err := net.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = net.Wait() // it was killed
	refuses(t, exitFailure, "run them with `ledgerd testnet --dir "+dir+" --run`", "testnet",
		"start", dir, "--node", "node-1")
	await(t, func() bool { // node-0 sees the end of its input.
		return ledgerd(t, "verify", "--home", filepath.Join(dir, testnet.Name(0))).status ==
			exitDone
	})
	again := begin(t, "testnet", "--dir", dir, "--run")
	again.out.await(t, `all 2 nodes run and take (transactions)`)
	again.end(t)
}
