package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/demo"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
)

// The test binary acts as ledgerd when it is run as a process.
func init() {
	if len(os.Args) > 1 && (os.Args[1] == "start" || os.Args[1] == "testnet") {
		main()
	}
}

// ledgerd runs a command line to its end.
func ledgerd(t *testing.T, arguments ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	status := execute(ctx, arguments, strings.NewReader(""), &out, &errs)
	return outcome{out.String(), errs.String(), status}
}

// patience limits how long anything may take on a machine that is busy with other work.
const patience = 90 * time.Second

// written is a writer whose text tests can wait for.
type written struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (w *written) Write(data []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.text.Write(data)
}

func (w *written) String() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.text.String()
}

// await waits until the pattern has been written, and returns its last group.
func (w *written) await(t *testing.T, pattern string) string {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if found := wanted.FindStringSubmatch(w.String()); found != nil {
			return found[len(found)-1]
		}
	}
	t.Fatalf("no %s in:\n%s", pattern, w.String())
	return ""
}

// running is a command line that runs until it is interrupted.
type running struct {
	out, errs written
	interrupt context.CancelFunc
	status    chan int
}

func begin(t *testing.T, arguments ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{interrupt: cancel, status: make(chan int, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.status <- execute(ctx, arguments, strings.NewReader(""), &r.out, &r.errs)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

// end interrupts the command, which must end well.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.interrupt()
	if status := <-r.status; status != exitDone {
		t.Errorf("exit status %d\n%s%s", status, r.out.String(), r.errs.String())
	}
}

func newClient(t *testing.T, url string) *client.Client {
	t.Helper()
	// A group that has just started takes no writes for a moment.
	node, err := client.New([]string{url}, client.Options{Tries: 40})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	return node
}

// fill puts the demo's beginning and an account with an alias into a ledger.
func fill(t *testing.T, node *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	actors, err := demo.NewActors(rand.Reader, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := actors.Begin(ctx, node); err != nil {
		t.Fatal(err)
	}
	ring, err := client.OpenKeyring(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	key, err := ring.Create("acme")
	if err != nil {
		t.Fatal(err)
	}
	status, err := node.Post(ctx, []client.Key{key}, ledger.Transaction{
		Registrations: []ledger.Registration{{Name: "acme",
			Keys: []ledger.PublicKey{key.Public()}}},
		Openings: []ledger.Opening{{Account: "acme:a=20b", Issuer: true, Alias: `a "b" <ü>`},
			{Account: "acme:c"}},
		Postings: []ledger.Posting{
			{Account: "acme:a=20b", Asset: "unit", Amount: ledger.NewAmount(-1 << 62)},
			{Account: "acme:c", Asset: "unit", Amount: ledger.NewAmount(1 << 62)},
		},
	}, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil || status.GetReasonCode() != "" {
		t.Fatal(status, err)
	}
}

// A node's life: made, started, used, stopped, checked, exported, damaged.
func TestOneNode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ledger")
	made := object(t, must(t, "init", "--plain", "--home", dir, "--listen", "127.0.0.1:0",
		"--fabric-address", "127.0.0.1:0", "--chain", "alone", "--registration", "open",
		"--json"))
	wantKeys(t, made, "name home api fabric chain genesis_hash peer_id operator_key operators "+
		"threshold registration")
	refuses(t, exitFailure, "is there already", "init", "--home", dir)
	refuses(t, exitFailure, "has no blocks", "verify", "--home", dir)
	refuses(t, exitFailure, "has no blocks", "export", "--home", dir, "--blocks")

	node := begin(t, "start", "--home", dir)
	url := node.out.await(t, `ready (http\S+)`)
	checkReload(t, dir, node)
	fill(t, newClient(t, url))
	refuses(t, exitFailure, "stop it first", "verify", "--home", dir)
	refuses(t, exitFailure, "stop it first", "export", "--home", dir, "--blocks")
	refuses(t, exitFailure, "is this node running already", "start", "--home", dir)
	refuses(t, exitFailure, "stop it first", "forget", "--home", dir)
	blocks, balances := must(t, "export", "--node", url, "--blocks"),
		must(t, "export", "--node", url, "--balances")
	cut := filepath.Join(t.TempDir(), "cut.json")
	if err := os.WriteFile(cut, []byte(must(t, "cut", "--node", url, "--json")),
		0o600); err != nil {
		t.Fatal(err)
	}
	node.end(t)

	if home := must(t, "export", "--home", dir, "--blocks"); home != blocks {
		t.Errorf("blocks differ:\n%s\n%s", home, blocks)
	}
	if home := must(t, "export", "--home", dir, "--balances"); home != balances {
		t.Errorf("balances differ:\n%s\n%s", home, balances)
	}
	if at := must(t, "export", "--home", dir, "--balances", "--cut", cut); at != balances {
		t.Errorf("balances at the cut differ:\n%s\n%s", at, balances)
	}
	if at := must(t, "export", "--home", dir, "--balances", "--at", "0"); at != "" {
		t.Errorf("balances at the beginning:\n%s", at)
	}
	refuses(t, exitFailure, "not so far", "export", "--home", dir, "--balances", "--at", "100000")
	checkExports(t, blocks, balances)
	checkJournal(t, dir, strings.Count(blocks, "\n"))

	good := object(t, must(t, "verify", "--home", dir, "--json"))
	wantKeys(t, good, "ok height hash first_bad_block reason transactions")
	if good["ok"] != true || int(good["height"].(float64)) != strings.Count(blocks, "\n") {
		t.Errorf("%v", good)
	}
	if text := must(t, "verify", "--home", dir); !strings.Contains(text, "all is well") {
		t.Error(text)
	}
	checkForget(t, dir)
	flip(t, filepath.Join(dir, home.DataFolder))
	bad := ledgerd(t, "verify", "--home", dir, "--json")
	if report := object(t, bad.out); bad.status != exitFailure || report["ok"] != false ||
		report["first_bad_block"] == nil || report["reason"] == "" {
		t.Errorf("%+v", bad)
	}
	failure := object(t, bad.errs)
	if next, _ := failure["next"].(string); !strings.HasPrefix(next, "move ") ||
		!strings.HasPrefix(fmt.Sprint(failure["error"]), "damaged at block") {
		t.Error(failure)
	}
	refuses(t, exitFailure, "", "verify", "--home", dir)
	refuses(t, exitFailure, "ledgerd verify", "start", "--home", dir)
}

// checkForget makes the disk of a stopped node forget, twice, and checks the effect.
func checkForget(t *testing.T, dir string) {
	t.Helper()
	refuses(t, exitUsage, "--home is missing", "forget")
	first := object(t, must(t, "forget", "--home", dir, "--json"))
	wantKeys(t, first, "name home disk before")
	if first["before"] == nil || first["disk"] == first["before"] {
		t.Errorf("%v", first)
	}
	text := must(t, "forget", "--home", dir)
	h, err := home.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := h.Disk()
	if err != nil || disk.Original || disk.Learner != forgetReason || disk.Renewed ||
		!strings.Contains(text, disk.ID.String()) {
		t.Errorf("%q leaves %+v, %v", text, disk, err)
	}
	node := begin(t, "start", "--home", dir)
	url := node.out.await(t, `ready (http\S+)`)
	// The exit status is 1 while the node takes no transactions yet.
	status := ledgerd(t, "status", "--node", url, "--json").out
	if !strings.Contains(status, disk.ID.String()) || !strings.Contains(status, forgetReason) {
		t.Errorf("the status does not tell of the disk:\n%s", status)
	}
	if text := ledgerd(t, "status", "--node", url).out; !strings.Contains(text,
		"may have forgotten") {
		t.Errorf("the status does not tell of the disk:\n%s", text)
	}
	node.end(t)
	if text := must(t, "verify", "--home", dir); !strings.Contains(text, "all is well") {
		t.Error(text)
	}
}

func must(t *testing.T, arguments ...string) string {
	t.Helper()
	result := ledgerd(t, arguments...)
	if result.status != exitDone {
		t.Fatalf("ledgerd %v: exit status %d\n%s%s", arguments, result.status, result.out,
			result.errs)
	}
	return result.out
}

// refuses checks that a command line fails with the given advice.
func refuses(t *testing.T, status int, advice string, arguments ...string) {
	t.Helper()
	result := ledgerd(t, arguments...)
	if result.status != status || !strings.Contains(result.errs, advice) {
		t.Errorf("ledgerd %v: exit status %d, want %d and %q\n%s%s", arguments, result.status,
			status, advice, result.out, result.errs)
	}
}

// checkExports checks the fields of the lines.
func checkExports(t *testing.T, blocks, balances string) {
	t.Helper()
	previous := ""
	for i, line := range strings.Split(strings.TrimSpace(blocks), "\n") {
		block := object(t, line)
		if len(block) != 5 || len(block["entries"].([]any)) != len(block["transactions"].([]any)) ||
			int(block["height"].(float64)) != i+1 || previous != "" &&
			block["previous"] != previous || len(block["transactions"].([]any)) == 0 {
			t.Errorf("%s after %s", line, previous)
		}
		previous = block["hash"].(string)
	}
	for _, want := range []string{
		`{"account":"a \"b\" <ü>","asset":"unit","amount":"-4611686018427387904"}`,
		`{"account":"acme:c","asset":"unit","amount":"4611686018427387904"}`,
		`{"account":"northgate:members:atlas-fund","asset":"EUR","amount":"300000000"}`,
	} {
		if !strings.Contains(balances, want+"\n") {
			t.Errorf("no %s in\n%s", want, balances)
		}
	}
}

// flip changes a bit in the middle of the largest table of a store.
func flip(t *testing.T, data string) {
	t.Helper()
	var largest string
	var size int64
	if err := filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".sst" {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	}); err != nil || largest == "" {
		t.Fatalf("no table in %s: %v", data, err)
	}
	text, err := os.ReadFile(largest)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/3] ^= 4
	if err := os.WriteFile(largest, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInitOfAMember(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, "testnet", "--dir", dir, "--nodes", "2")
	genesis, key := filepath.Join(dir, "node-1", home.GenesisFile),
		filepath.Join(dir, "node-1", home.KeyFile)
	made := object(t, must(t, "init", "--home", filepath.Join(dir, "copy"), "--genesis", genesis,
		"--key", key, "--json"))
	if made["name"] != "node-1" || made["fabric"] != fmt.Sprintf("127.0.0.1:%d",
		testnet.DefaultBasePort+3) {
		t.Errorf("%v", made)
	}
	refuses(t, exitFailure, "none of the genesis's", "init", "--home", filepath.Join(dir, "x"),
		"--genesis", genesis, "--key", filepath.Join(dir, testnet.OperatorKeyFile))
	refuses(t, exitFailure, "no private key", "init", "--home", filepath.Join(dir, "x"),
		"--genesis", genesis, "--key", genesis)
	refuses(t, exitUsage, "--name", "init", "--home", filepath.Join(dir, "x"), "--genesis", genesis,
		"--key", key, "--name", "me")
}

// A new chain gets a new operator, or an existing one.
func TestInitNamesAnOperator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	first := object(t, must(t, "init", "--home", at("first"), "--plain", "--json"))
	file, key := first["operator_key"].(string), first["operators"].([]any)[0].(string)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 ||
		file != at("first/operator.key") {
		t.Errorf("%s: %v, %v", file, info, err)
	}
	private, err := readNodeKey(file)
	if err != nil || hex.EncodeToString(publicOf(private)) != key {
		t.Errorf("the operator's key is not %s: %v", key, err)
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("public.pem"),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, operator := range map[string]string{"hex": key, "private": file,
		"public": at("public.pem")} {
		made := object(t, must(t, "init", "--home", at(name), "--operator", operator, "--json"))
		if list := made["operators"].([]any); len(list) != 1 || list[0] != key ||
			made["operator_key"] != nil {
			t.Errorf("%s: %v", name, made)
		}
		if _, err := os.Stat(at(name + "/operator.key")); err == nil {
			t.Errorf("%s: a key was made that nobody needs", name)
		}
	}
	if text := must(t, "init", "--plain", "--home", at("text")); !strings.Contains(text,
		"operator.key") || !strings.Contains(text, "safe place") ||
		!strings.Contains(text, "NAME --operator") {
		t.Error(text)
	}
	several := object(t, must(t, "init", "--home", at("several"), "--operator", key, "--operator",
		strings.Repeat("7", 64), "--threshold", "2", "--json"))
	if several["threshold"] != 2.0 || several["registration"] != "operators" {
		t.Errorf("%v", several)
	}
	refuses(t, exitUsage, "1 to 1", "init", "--home", at("x"), "--threshold", "2")
	refuses(t, exitUsage, "open (anybody", "init", "--home", at("x"), "--registration", "none")
	if text := must(t, "init", "--plain", "--home", at("open"), "--registration",
		"open"); strings.Contains(text, "NAME --operator") {
		t.Error(text)
	}
	must(t, "init", "--plain", "--home", at("quota"), "--quota", "accounts=7,records=none")
	h, err := home.Load(at("quota"))
	if err != nil || h.Genesis.Quotas.Accounts != 7 || h.Genesis.Quotas.Records != 0 ||
		h.Genesis.Quotas.Streams != ledger.DefaultQuotas().Streams {
		t.Errorf("%+v, %v", h.Genesis, err)
	}
	refuses(t, exitUsage, "NAME=NUMBER", "init", "--home", at("x"), "--quota", "accounts:7")
	// An existing key may be in use.
	if err := os.Mkdir(at("taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file, at("taken/operator.key")); err != nil {
		t.Fatal(err)
	}
	refuses(t, exitFailure, "operator.key is there already", "init", "--plain", "--home",
		at("taken"))
	refuses(t, exitUsage, "64 hex digits", "init", "--home", at("x"), "--operator", "abc")
	refuses(t, exitFailure, "no private key", "init", "--home", at("x"), "--operator",
		at("first/genesis.json"))
	refuses(t, exitUsage, "operator", "init", "--home", at("x"), "--operator", key, "--genesis",
		at("first/genesis.json"), "--key", at("first/node.key"))
	refuses(t, exitUsage, "10.0.0.1:7946", "init", "--home", at("x"), "--fabric-address",
		"0.0.0.0:7946")
	refuses(t, exitUsage, "no such fabric", "init", "--home", at("x"), "--fabric", "tcp")
	refuses(t, exitUsage, "one process", "init", "--home", at("x"), "--fabric", "memory")
	refuses(t, exitUsage, "give one address", "init", "--home", at("x"), "--fabric",
		"10.0.0.1:7946", "--fabric-address", "10.0.0.1:7947")
	if _, err := os.Stat(at("x")); err == nil {
		t.Error("a refused init left a folder")
	}
	for i, test := range []struct {
		flags   []string
		kind    fabric.Kind
		address string
	}{
		{nil, fabric.P2P, defaultFabric},
		{[]string{"--fabric", "p2p-trusted", "--fabric-address", "10.0.0.1:7946"},
			fabric.P2PTrusted, "10.0.0.1:7946"},
		// The spelling from before --fabric named a kind.
		{[]string{"--fabric", "10.0.0.1:7946"}, fabric.P2P, "10.0.0.1:7946"},
	} {
		dir := at(fmt.Sprintf("fabric-%d", i))
		must(t, append([]string{"init", "--plain", "--home", dir}, test.flags...)...)
		h, err := home.Load(dir)
		if err != nil || h.Config.Fabric.Kind != test.kind || h.FabricAddress() != test.address {
			t.Errorf("%v: %+v, %v", test.flags, h, err)
		}
	}
}

// A chain of one grows: a second node joins the chain that init made, and both order.
func TestClusterJoinOfAnInitMadeChain(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(2)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	made := object(t, must(t, "init", "--plain", "--home", first, "--listen",
		fmt.Sprintf("127.0.0.1:%d", base), "--fabric-address", fmt.Sprintf("127.0.0.1:%d", base+1),
		"--registration", "open", "--json"))
	one := begin(t, "start", "--home", first)
	url := one.out.await(t, `ready (http\S+)`)
	joined := object(t, must(t, "cluster", "join", "--home", second, "--base-port",
		strconv.Itoa(base+2), "--via", url, "--operator", made["operator_key"].(string), "--json"))
	if joined["members"] != 2.0 || joined["name"] != "second" {
		t.Errorf("%v", joined)
	}
	for _, dir := range []string{first, second} {
		if at, err := home.Load(dir); err != nil || !at.Config.Ordering.Prompt {
			t.Errorf("%s orders promptly: %v", dir, err)
		}
	}
	two := begin(t, "start", "--home", second)
	two.out.await(t, `ready (http\S+)`)
	await(t, func() bool {
		status := ledgerd(t, "cluster", "status", "--via", url)
		return strings.Count(status.out, "ordering") == 2
	})
	fill(t, newClient(t, url))
	two.end(t)
	one.end(t)
}

func TestTestnetLayout(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net")
	text := must(t, "testnet", "--dir", dir, "--nodes", "2", "--base-port", "30500", "--engine",
		"allconcur", "--chain", "books", "--json")
	var report testnetReport
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Nodes) != 2 || report.Nodes[1].API != "http://127.0.0.1:30502" ||
		report.Nodes[1].Fabric != "127.0.0.1:30503" || report.Engine != "allconcur" ||
		report.Chain != "books" || report.Nodes[1].Home != filepath.Join(dir, "node-1") {
		t.Errorf("%+v", report)
	}
	refuses(t, exitFailure, "is there already", "testnet", "--dir", dir, "--nodes", "2")
	for flag, value := range map[string]string{"nodes": "3", "base-port": "30600",
		"engine": "allconcur+", "chain": "other"} {
		refuses(t, exitFailure, "leave --"+flag+" out", "testnet", "--dir", dir, "--run", "--"+flag,
			value)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:30503")
	if err != nil {
		t.Skip("somebody has the port")
	}
	defer taken.Close()
	refuses(t, exitFailure, "node-1 cannot listen for its fabric", "testnet", "--dir", dir, "--run")
}

// Run a network of processes: one is killed and comes back, all stop, and the chain is the same
// everywhere.
func TestTestnetRun(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(3)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "net")
	net := begin(t, "testnet", "--dir", dir, "--nodes", "3", "--base-port", strconv.Itoa(base),
		"--run")
	net.out.await(t, `all 3 nodes run and take (transactions)`)
	pid, err := strconv.Atoi(net.out.await(t, `node-2  started, process (\d+)`))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, newClient(t, fmt.Sprintf("http://127.0.0.1:%d", base)))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	net.out.await(t, `node-2  ended: (signal: killed)`)
	net.out.await(t, `(?s)node-2  ended.*node-2  answers at (\S+)`)
	blocks := must(t, "export", "--node", fmt.Sprintf("http://127.0.0.1:%d", base), "--blocks")
	await(t, func() bool {
		return ledgerd(t, "export", "--node", fmt.Sprintf("http://127.0.0.1:%d", base+4),
			"--blocks").out == blocks
	})
	net.end(t)
	for i := range 3 {
		path := filepath.Join(dir, testnet.Name(i))
		if got := must(t, "export", "--home", path, "--blocks"); got != blocks {
			t.Errorf("node %d has other blocks:\n%s\n%s", i, got, blocks)
		}
		must(t, "verify", "--home", path)
	}
	again := begin(t, "testnet", "--dir", dir, "--run", "--json")
	again.errs.await(t, `holds a ledger already: running its 3 nodes (as they are)`)
	again.out.await(t, `"(operator_key)"`)
	if got := must(t, "export", "--node", fmt.Sprintf("http://127.0.0.1:%d", base+2),
		"--blocks"); got != blocks {
		t.Errorf("after a restart the blocks are\n%s\nnot\n%s", got, blocks)
	}
	// One node is removed: it is not restarted, not even without its home.
	must(t, "cluster", "leave", "node-1", "--via", fmt.Sprintf("http://127.0.0.1:%d", base),
		"--operator", filepath.Join(dir, testnet.OperatorKeyFile))
	again.errs.await(t, `node-1  is no member any (more)`)
	<-time.After(2 * time.Second) // longer than the pause before a restart
	if said := again.errs.String(); strings.Count(said, "node-1  started") != 1 ||
		strings.Count(said, "any more") != 1 || strings.Contains(said, "node-1  ended") {
		t.Error(said)
	}
	again.end(t)
	if err := os.RemoveAll(filepath.Join(dir, "node-1")); err != nil {
		t.Fatal(err)
	}
	without := begin(t, "testnet", "--dir", dir, "--run")
	without.out.await(t, `the homes of node-1 are not (here)`)
	without.out.await(t, `all 2 nodes run and take (transactions)`)
	without.end(t)
}

// TestTestnetOfLeaders runs a network of processes whose engine has a leader. Each node is killed
// in turn, so the leader is, too. The others go on, it comes back, and the chain is the same
// everywhere.
func TestTestnetOfLeaders(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(3)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "net")
	net := begin(t, "testnet", "--dir", dir, "--nodes", "3", "--base-port", strconv.Itoa(base),
		"--engine", "dare", "--fabric", "p2p-trusted", "--run")
	net.out.await(t, `all 3 nodes run and take (transactions)`)
	for i := range 3 {
		started := net.out.await(t, fmt.Sprintf(`node-%d  started, process (\d+)`, i))
		pid, err := strconv.Atoi(started)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		net.out.await(t, fmt.Sprintf(`node-%d  ended: (signal: killed)`, i))
		register(t, newClient(t, fmt.Sprintf("http://127.0.0.1:%d", base+2*((i+1)%3))),
			ledger.OrganisationName(fmt.Sprintf("org-%d", i)))
		net.out.await(t, fmt.Sprintf(`(?s)node-%d  ended.*node-%d  answers at (\S+)`, i, i))
		await(t, func() bool {
			status := ledgerd(t, "cluster", "status", "--via",
				fmt.Sprintf("http://127.0.0.1:%d", base+2*i))
			return strings.Count(status.out, "ordering") == 3
		})
	}
	blocks := must(t, "export", "--node", fmt.Sprintf("http://127.0.0.1:%d", base), "--blocks")
	net.end(t)
	for i := range 3 {
		path := filepath.Join(dir, testnet.Name(i))
		if got := must(t, "export", "--home", path, "--blocks"); got != blocks {
			t.Errorf("node %d has other blocks:\n%s\n%s", i, got, blocks)
		}
		must(t, "verify", "--home", path)
	}
}

// If the process that runs the nodes is killed, they stop in good order and are not left behind.
func TestTestnetRunKilled(t *testing.T) {
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
	if err := net.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = net.Wait() // it was killed
	for i := range 2 {
		// A running node holds its store, so no other process can check it.
		await(t, func() bool {
			return ledgerd(t, "verify", "--home", filepath.Join(dir,
				testnet.Name(i))).status == exitDone
		})
		log, err := os.ReadFile(filepath.Join(dir, testnet.Name(i), testnet.LogFile))
		if err != nil || len(log) == 0 {
			t.Errorf("log of node %d: %q, %v", i, log, err)
		}
	}
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatal("waited in vain")
}

func TestDemo(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	for _, length := range []string{"2s", "15s", "45s"} { // longer for a busy machine
		result := ledgerd(t, "demo", "--nodes", "3", "--port", "0", "--rate", "100", "--for",
			length, "--json")
		if result.status != exitDone {
			t.Fatalf("%+v", result)
		}
		first, last, _ := strings.Cut(strings.TrimSpace(result.out), "\n")
		ready, ended := object(t, first), object(t, last)
		tally, _ := ended["transactions"].(map[string]any)
		if len(ready["nodes"].([]any)) != 3 || ready["event"] != "ready" ||
			ended["event"] != "ended" {
			t.Errorf("%s", result.out)
		}
		if ended["height"].(float64) >= 5 && tally["applied"].(float64) >= 5 {
			break
		}
		if length == "45s" {
			t.Errorf("hardly anything was applied: %s", result.out)
		}
	}
	interrupted := begin(t, "demo", "--nodes", "3", "--port", "0")
	url := interrupted.out.await(t, `node-1    (http\S+)`)
	operators, _ := filepath.Glob(filepath.Join(temporary, "*", testnet.OperatorKeyFile))
	must(t, "cluster", "leave", "node-0", "--via", url, "--operator", operators[0])
	interrupted.out.await(t, `node-0 is no member any (more)`)
	interrupted.end(t)
	if out := interrupted.out.String(); !strings.Contains(out, "Nothing is left") {
		t.Error(out)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	refuses(t, exitFailure, "--port", "demo", "--port", port)
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestBenchLedger(t *testing.T) {
	t.Parallel()
	for _, fabric := range []string{"memory", "p2p"} {
		dir := t.TempDir()
		var result outcome
		for _, window := range windows {
			result = ledgerd(t, "bench", "ledger", "--nodes", "3", "--clients", "6", "--bundle",
				"4", "--for", window, "--fabric", fabric, "--dir", dir, "--json")
			if !nothingMeasured(result.errs) {
				break
			}
		}
		if result.status != exitDone {
			t.Fatalf("%+v", result)
		}
		report := object(t, result.out)
		wantKeys(t, report, strings.Join(commonBenchKeys,
			" ")+" nodes clients bundle ack fabric engine")
		if report["requests_per_second"].(float64) <= 0 ||
			report["latency_p50_us"].(float64) <= 0 || report["compared_height"].(float64) < 7 {
			t.Errorf("%v", report)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	}
}

func TestNodeCommandsRefuse(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for line, want := range map[string]struct {
		status int
		advice string
	}{
		"start":                            {exitUsage, "--home is missing"},
		"start --home " + empty:            {exitFailure, "ledgerd init"},
		"start --home " + empty + "/none":  {exitFailure, "ledgerd init"},
		"verify --home " + empty:           {exitFailure, "ledgerd init"},
		"verify":                           {exitUsage, "--home is missing"},
		"verify here":                      {exitUsage, "--book"},
		"verify --home a --home b":         {exitUsage, "--home is given 2 times"},
		"verify --book":                    {exitUsage, "the homes are missing"},
		"verify --book " + empty:           {exitFailure, "has no homes of nodes"},
		"verify --book " + empty + "/none": {exitFailure, "no such file"},
		"init":                             {exitUsage, "--home is missing"},
		"init --home " + empty + "/a --listen here":     {exitFailure, "127.0.0.1:8080"},
		"init --home " + empty + "/a --chain a:b":       {exitFailure, "chain name"},
		"init --home " + empty + "/a --key k":           {exitUsage, "genesis"},
		"testnet":                                       {exitUsage, "--dir is missing"},
		"testnet --dir " + empty + " --nodes 0":         {exitUsage, "1 to 64"},
		"testnet --dir " + empty + " --engine raft":     {exitFailure, "allconcur+"},
		"testnet --dir " + empty + " --base-port 65535": {exitUsage, "65535"},
		"demo --nodes 0":                                {exitUsage, "1 to 16"},
		"demo --rate -1":                                {exitUsage, "--rate"},
		"demo --rate NaN":                               {exitUsage, "--rate"},
		"demo --port 70000":                             {exitUsage, "--port"},
		"demo --for -1s":                                {exitUsage, "--for"},
		"export --blocks":                               {exitUsage, "node"},
		"export --home " + empty:                        {exitUsage, "balances"},
		"export --home " + empty + " --blocks":          {exitFailure, "ledgerd init"},
		"export --node http://127.0.0.1:1 --blocks":     {exitFailure, "is the node running"},
		"export --node ftp://x --blocks":                {exitUsage, "looks like"},
		"export --blocks --balances --home " + empty:    {exitUsage, "balances"},
		"bench ledger --nodes 0":                        {exitUsage, "1 to 64"},
		"bench ledger --ack admitted":                   {exitUsage, "durable"},
		"bench ledger --fabric pigeon":                  {exitUsage, "memory"},
		"bench ledger --bundle 9999":                    {exitUsage, "4096"},
		"bench ledger --clients 0":                      {exitUsage, "clients"},
		"bench ledger --engine raft":                    {exitUsage, "allconcur"},
		"bench ledger --for 0s":                         {exitUsage, "0s"},
	} {
		refuses(t, want.status, want.advice, strings.Fields(line)...)
	}
	if left, _ := os.ReadDir(empty); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
