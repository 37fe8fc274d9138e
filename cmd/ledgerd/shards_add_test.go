package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/home"
)

// A shard is added to a running test network, runs, and takes organisations that deal with others.
// A second one is added by hand, home by home.
func TestShardsAdd(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(8)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	dir, url := filepath.Join(folder, "net"), fmt.Sprintf("http://127.0.0.1:%d", base)
	running := begin(t, "testnet", "--dir", dir, "--shards", "2", "--nodes", "1", "--base-port",
		strconv.Itoa(base), "--run")
	running.out.await(t, `2 shards run and take (transactions)`)
	refuses(t, exitFailure, "no such shard", "testnet", "add-shard", dir, "--parent", "7",
		"--nodes", "1")
	// The homes of the refused addition serve the next one.
	var added shardAddedReport
	text := must(t, "testnet", "add-shard", dir, "--parent", "1", "--nodes", "1", "--json")
	if err := json.Unmarshal([]byte(text), &added); err != nil || added.Shard != 2 ||
		added.Parent != 1 || len(added.Homes) != 1 || added.Transaction == "" {
		t.Fatalf("%s: %v", text, err)
	}
	third := begin(t, "start", "--home", added.Homes[0])
	keys := filepath.Join(folder, "keys")
	client := func(arguments ...string) string {
		return must(t, append(arguments, "--node", url, "--keys", keys)...)
	}
	for shard, name := range []string{"near", "there", "far"} {
		must(t, "keys", "create", name, "--plain", "--keys", keys)
		client("org", "add", name, "--shard", fmt.Sprint(shard))
		client("account", "open", name+":mint", "--issuer")
		client("account", "open", name+":a")
	}
	client("tx", "transfer", "far:mint", "there:a", "5", "--wait", "durable-everywhere")
	client("tx", "transfer", "near:mint", "far:a", "3", "--wait", "durable-everywhere")

	// By hand: a home, the shard, the home again.
	at := filepath.Join(folder, "by-hand")
	port := freePair(t)
	prepare := []string{"shards", "home", "--home", at, "--via", url, "--base-port",
		strconv.Itoa(port)}
	if text := must(t, prepare...); !strings.Contains(text, "ready to be a node of a new shard") {
		t.Error(text)
	}
	if text := must(t, "shards", "home", "--home", at, "--via", url); !strings.Contains(text,
		"ready to be a node of a new shard") { // nothing has changed
		t.Error(text)
	}
	refuses(t, exitFailure, "has not joined its chain", "start", "--home", at)
	elsewhere := filepath.Join(folder, "member.json")
	member, err := os.ReadFile(filepath.Join(at, home.MemberFile))
	if err == nil {
		err = os.WriteFile(elsewhere, member, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	operator := filepath.Join(dir, testnet.OperatorKeyFile)
	add := []string{"shards", "add", "--parent", "2", "--member", elsewhere, "--operator", operator,
		"--via", url, "--json"}
	var byHand, again shardAddedReport
	if err := json.Unmarshal([]byte(must(t, add...)), &byHand); err != nil || byHand.Shard != 3 ||
		len(byHand.Homes) != 0 {
		t.Fatalf("%+v: %v", byHand, err)
	}
	if err := json.Unmarshal([]byte(must(t, add...)), &again); err != nil || again.Shard != 3 ||
		again.Transaction != "" || again.Genesis != byHand.Genesis {
		t.Errorf("once more: %+v: %v", again, err)
	}
	refuses(t, exitFailure, "ask another node", "shards", "home", "--home", at, "--via", url,
		"--genesis", strings.Repeat("0", 64))
	if text := must(t, "shards", "home", "--home", at, "--via", url, "--genesis",
		byHand.Genesis); !strings.Contains(text, "is a node of shard 3") {
		t.Error(text)
	}
	fourth := begin(t, "start", "--home", at)
	must(t, "keys", "create", "deep", "--plain", "--keys", keys)
	client("org", "add", "deep", "--shard", "3")
	client("account", "open", "deep:a")
	client("tx", "transfer", "far:mint", "deep:a", "4", "--wait", "durable-everywhere")
	if table := must(t, "shards", "--node", url); !strings.Contains(table, "shards  4") {
		t.Error(table)
	}
	balances := must(t, "export", "--balances", "--node", url)
	if !strings.Contains(balances, `{"account":"deep:a","asset":"unit","amount":"4"}`) {
		t.Error(balances)
	}
	// A node joins the added shard, and executes its blocks from the beginning.
	joining := filepath.Join(folder, "joining")
	must(t, "cluster", "join", "--home", joining, "--via", url, "--shard", "2", "--operator",
		operator)
	fifth := begin(t, "start", "--home", joining)
	client("tx", "transfer", "near:mint", "far:a", "2", "--wait", "durable-everywhere")
	fifth.end(t)
	fourth.end(t)
	third.end(t)
	running.end(t)
	if text := must(t, "verify", "--book", dir, "--home", at, "--home", joining); !strings.Contains(
		text, "all is well") {
		t.Error(text)
	}
	refuses(t, exitFailure, "name the home of a node of each shard", "verify", "--book", dir,
		"--home", filepath.Join(dir, "node-0"))
}

// An addition that was interrupted when only some homes were complete goes on when it is run again.
func TestTestnetAddShardGoesOn(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(6)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "net")
	running := begin(t, "testnet", "--dir", dir, "--shards", "2", "--nodes", "1", "--base-port",
		strconv.Itoa(base), "--run")
	running.out.await(t, `2 shards run and take (transactions)`)
	refuses(t, exitFailure, "no such shard", "testnet", "add-shard", dir, "--parent", "7",
		"--nodes", "2")
	last, kept := filepath.Join(dir, "node-3"), filepath.Join(t.TempDir(), "kept")
	if err := os.CopyFS(kept, os.DirFS(last)); err != nil {
		t.Fatal(err)
	}
	add := []string{"testnet", "add-shard", dir, "--parent", "0", "--nodes", "2", "--json"}
	var added, again shardAddedReport
	if err := json.Unmarshal([]byte(must(t, add...)), &added); err != nil {
		t.Fatal(err)
	}
	err = os.RemoveAll(last)
	if err == nil {
		err = os.CopyFS(last, os.DirFS(kept))
	}
	if err != nil {
		t.Fatal(err)
	}
	refuses(t, exitFailure, "", "start", "--home", last)
	if err := json.Unmarshal([]byte(must(t, add...)), &again); err != nil ||
		again.Shard != added.Shard || again.Parent != 0 || again.Genesis != added.Genesis ||
		again.Transaction != "" || !slices.Equal(again.Homes, added.Homes) {
		t.Errorf("%+v, first %+v: %v", again, added, err)
	}
	if _, err := home.Load(last); err != nil {
		t.Error(err)
	}
	running.end(t)
}

// freePair returns a free port before another one.
func freePair(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for port := listener.Addr().(*net.TCPAddr).Port + 1; port < 65000; port++ {
		if isFree(port) && isFree(port+1) {
			return port
		}
	}
	t.Fatal("no two free ports")
	return 0
}
