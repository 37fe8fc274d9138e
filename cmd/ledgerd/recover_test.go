package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/home"
)

// Of three nodes, two lose their data. The command shows what is left, and does nothing without the
// right word. After the recovery, the nodes go on with everything.
func TestRecover(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(3)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "net")
	must(t, "testnet", "--dir", dir, "--nodes", "3", "--base-port", strconv.Itoa(base))
	operator := filepath.Join(dir, home.OperatorKeyFile)
	recovering := []string{"recover"}
	var homes []string
	for i := range 3 {
		homes = append(homes, filepath.Join(dir, testnet.Name(i)))
		recovering = append(recovering, "--home", homes[i])
	}
	with := func(more ...string) []string { return slices.Concat(recovering, more) }
	var nodes []*running
	var urls []string
	start := func() {
		nodes, urls = nil, nil
		for i := range homes {
			nodes = append(nodes, begin(t, "start", "--home", homes[i]))
		}
		for _, node := range nodes {
			urls = append(urls, node.out.await(t, `ready (http\S+)`))
		}
		await(t, func() bool { return ledgerd(t, "status", "--node", urls[0]).status == exitDone })
	}
	stop := func() {
		for _, node := range nodes {
			node.end(t)
		}
	}
	start()
	fill(t, newClient(t, urls[0]))
	refuses(t, exitFailure, "a node of the ledger is running", recovering...)
	stop()

	refuses(t, exitUsage, "--home is missing", "recover")
	refuses(t, exitUsage, "want NAME=DISK", with("--disk", "node-1=abc")...)
	unneeded := ledgerd(t, recovering...)
	if unneeded.status != exitFailure || !strings.Contains(unneeded.out, "No recovery is needed") {
		t.Errorf("%+v", unneeded)
	}
	for _, i := range []int{0, 2} {
		if err := os.RemoveAll(filepath.Join(homes[i], home.DataFolder)); err != nil {
			t.Fatal(err)
		}
	}
	shown := ledgerd(t, recovering...)
	for _, want := range []string{"the data folder was removed", "goes on from block", "of node-1",
		"node-2 counts with a new disk",
		"Nothing was changed", "--confirm node-1"} {
		if !strings.Contains(shown.out, want) {
			t.Errorf("no %q in\n%s", want, shown.out)
		}
	}
	report := object(t, ledgerd(t, with("--json")...).out)
	wantKeys(
		t,
		report,
		"homes furthest members needed durable lost changes refused word recovered height hash",
	)
	if shown.status != exitFailure || report["needed"] != true || report["recovered"] != false ||
		report["word"] != "node-1" {
		t.Errorf("exit status %d, %v", shown.status, report)
	}
	refuses(
		t,
		exitFailure,
		"the confirming word is node-1",
		with("--confirm", "node-0", "--operator", operator)...)
	refuses(t, exitFailure, "an operator has to sign", with("--confirm", "node-1")...)
	refuses(
		t,
		exitFailure,
		"the operator's key",
		with("--confirm", "node-1", "--operator", filepath.Join(dir, "none"))...)
	passphrase := filepath.Join(dir, "passphrase")
	if err := os.WriteFile(passphrase, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "keys", "passphrase", "--file", operator, "--new-passphrase-file", passphrase)
	recovering = with("--passphrase-file", passphrase)
	refuses(
		t,
		exitFailure,
		"does not belong to an operator",
		with("--confirm", "node-1", "--operator", filepath.Join(homes[0], home.KeyFile))...)
	missing := ledgerd(
		t,
		"recover",
		"--home",
		homes[0],
		"--home",
		homes[2],
		"--confirm",
		"node-0",
		"--operator",
		operator,
	)
	if missing.status != exitFailure || !strings.Contains(missing.out,
		"nothing is said of node-1") {
		t.Errorf("%+v", missing)
	}

	done := object(t, must(t, with("--confirm", "node-1", "--operator", operator, "--json")...))
	if done["recovered"] != true || done["height"] == nil {
		t.Errorf("%v", done)
	}
	again := ledgerd(t, with("--confirm", "node-1", "--operator", operator)...)
	if again.status != exitFailure || !strings.Contains(again.out, "No recovery is needed") {
		t.Errorf("%+v", again)
	}
	start()
	for _, url := range urls {
		await(
			t,
			func() bool {
				return strings.Contains(ledgerd(t, "account", "list", "--node", url).out, "acme:c")
			},
		)
	}
	height := fmt.Sprint(done["height"])
	if text := must(t, "block", height, "--node", urls[0]); !strings.Contains(
		text,
		"counts with disk",
	) {
		t.Errorf("block %s does not show the mark:\n%s", height, text)
	}
	keys := filepath.Join(dir, "keys")
	must(t, "keys", "create", "later", "--plain", "--keys", keys)
	must(t, "org", "add", "later", "--keys", keys, "--node", urls[2])
	stop()
}

// The only node of a ledger that lost its promises comes back with its identity.
func TestRecoverTheOnlyMember(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ledger")
	must(
		t,
		"init", "--plain",
		"--registration",
		"open",
		"--home",
		dir,
		"--listen",
		"127.0.0.1:0",
		"--fabric-address",
		"127.0.0.1:0",
		"--name",
		"alone",
	)
	node := begin(t, "start", "--home", dir)
	fill(t, newClient(t, node.out.await(t, `ready (http\S+)`)))
	node.end(t)
	if err := os.Remove(filepath.Join(dir, home.GenerationFile)); err != nil {
		t.Fatal(err)
	}
	lonely := begin(t, "start", "--home", dir)
	url := lonely.out.await(t, `(http://\S+)`)
	await(
		t,
		func() bool {
			return strings.Contains(ledgerd(t, "status", "--node", url).out, "ledgerd recover")
		},
	)
	lonely.end(t)
	if text := must(t, "recover", "--home", dir, "--confirm", "alone"); !strings.Contains(
		text,
		"Recovered",
	) {
		t.Error(text)
	}
	node = begin(t, "start", "--home", dir)
	url = node.out.await(t, `ready (http\S+)`)
	if text := must(t, "account", "list", "--node", url); !strings.Contains(text, "acme:c") {
		t.Error(text)
	}
	node.end(t)
}
