package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/home"
)

func TestClusterEngine(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 1)
	via := " --via=" + s.doors[0].URL
	shown := s.object("cluster engine" + via)
	wantKeys(t, shown, "chain engine since_height orders_by engines")
	if shown["engine"] != "allconcur+" || shown["since_height"] != 0.0 {
		t.Errorf("%v", shown)
	}
	if text := s.must("cluster engine" + via); !strings.Contains(text,
		"allconcur+, the nodes' setting") || !strings.Contains(text, "allconcur\n") {
		t.Error(text)
	}
	change := func(name string) string {
		return "cluster engine " + name + " --operator %d/operator.key" + via
	}
	s.refuses("run ledgerd cluster upgrade first", change("allconcur"))
	s.must("cluster upgrade --operator %d/operator.key" + via)
	s.refuses("does not run engine raft (it runs allconcur+, allconcur)", change("raft"))
	s.refuses("no operator's key", "cluster engine allconcur --operator %d/other.key"+via)
	if result := s.run(change("two words")); result.status != exitUsage {
		t.Errorf("two words: %+v", result)
	}
	for _, line := range []string{change("a+b") + " more", change("+a"),
		"cluster engine --force" + via, "cluster engine --dry-run" + via} {
		if result := s.run(line); result.status != exitUsage {
			t.Errorf("%s: %+v", line, result)
		}
	}

	if text := s.must(change("allconcur") + " --dry-run"); !strings.Contains(text,
		"would take effect; nothing was ordered") {
		t.Error(text)
	}
	if shown = s.object("cluster engine" + via); shown["since_height"] != 0.0 {
		t.Errorf("a dry run changed it: %v", shown)
	}
	changed := s.object(change("allconcur"))
	if changed["engine"] != "allconcur" || changed["orders_by"] != "allconcur" ||
		changed["since_height"] == 0.0 || changed["durable"] != true {
		t.Errorf("%v", changed)
	}
	if again := s.object(change("allconcur")); again["already_so"] != true ||
		again["since_height"] != changed["since_height"] {
		t.Errorf("%v", again)
	}
	block := s.must("block head %n")
	if !strings.Contains(block, "the members order by engine allconcur") {
		t.Error(block)
	}
	status := s.object("cluster status" + via)
	if status["engine"] != "allconcur" || status["engine_height"] != changed["since_height"] {
		t.Errorf("%v", status)
	}
	if text := s.must("cluster status" + via); !strings.Contains(text, "allconcur, since block ") {
		t.Error(text)
	}
	// Changes are some rounds apart, which the command waits for.
	if changed = s.object(change("allconcur+")); changed["engine"] != "allconcur+" {
		t.Errorf("%v", changed)
	}
}

// TestEngineAsksAllPrograms: while one member cannot be asked, the engine stays as it is.
func TestEngineAsksAllPrograms(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 2)
	via := " --operator %d/operator.key --via=" + s.doors[0].URL
	s.must("cluster upgrade --force" + via)
	s.refuses("node-1 cannot be asked", "cluster engine allconcur"+via)
	if changed := s.object("cluster engine allconcur --force" + via); changed["engine"] !=
		"allconcur" {
		t.Errorf("%v", changed)
	}
}

// TestEngineOfShards: the shards of a running ledger have engines of their own. They change while
// organisations of both pay each other, and stay after a restart, whatever the homes say.
func TestEngineOfShards(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(6)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	dir, keys := filepath.Join(folder, "net"), filepath.Join(folder, "keys")
	begun := func(arguments ...string) *running {
		net := begin(t, append([]string{"testnet", "--dir", dir, "--run"}, arguments...)...)
		net.out.await(t, `all 6 nodes in 2 shards run and take (transactions)`)
		return net
	}
	net := begun("--shards", "2", "--nodes", "3", "--base-port", strconv.Itoa(base), "--fabric",
		"p2p-trusted")
	node := fmt.Sprintf("http://127.0.0.1:%d", base)
	do := func(words ...string) string {
		t.Helper()
		return must(t, append(words, "--node", node, "--keys", keys)...)
	}
	cluster := func(words ...string) map[string]any {
		t.Helper()
		return object(t, must(t, append(append([]string{"cluster"}, words...), "--via", node,
			"--json")...))
	}
	operator := filepath.Join(dir, testnet.OperatorKeyFile)
	for shard, name := range []string{"acme", "shop"} {
		do("org", "add", name, "--plain", "--shard", strconv.Itoa(shard))
		do("account", "open", name+":cash", "--issuer")
	}
	pay := func() {
		t.Helper()
		do("tx", "transfer", "acme:cash", "shop:cash", "1")
	}
	pay()
	changed := cluster("engine", "allconcur", "--shard", "1", "--operator", operator)
	if changed["engine"] != "allconcur" || changed["shard"] != 1.0 ||
		changed["orders_by"] != "allconcur" {
		t.Errorf("%v", changed)
	}
	pay()
	for shard, want := range []string{"allconcur+", "allconcur"} {
		shown := cluster("engine", "--shard", strconv.Itoa(shard))
		if shown["engine"] != want || shown["orders_by"] != want {
			t.Errorf("shard %d: %v", shard, shown)
		}
	}
	net.end(t)
	net = begun()
	pay()
	if shown := cluster("engine", "--shard", "1"); shown["engine"] != "allconcur" ||
		shown["since_height"] != changed["since_height"] {
		t.Errorf("after a restart: %v", shown)
	}
	if at, err := home.Load(filepath.Join(dir, "node-4")); err != nil ||
		at.Config.Ordering.Engine != "allconcur+" {
		t.Errorf("the home says %v, %v", at.Config.Ordering, err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "node-4", testnet.LogFile))
	if err != nil || !strings.Contains(string(log), "this node's setting of it has no effect") {
		t.Errorf("%v, %s", err, log)
	}
	net.end(t)
	must(t, "verify", "--home", filepath.Join(dir, "node-3"))
}
