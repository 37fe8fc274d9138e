package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/trains"
)

// Run a network of processes that order in a ring. One is killed: the others go on without it, it
// comes back, and the chain is the same everywhere.
func TestTestnetRing(t *testing.T) {
	t.Parallel()
	base, err := testnet.FreeBasePort(3)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "net")
	url := func(node int) string { return fmt.Sprintf("http://127.0.0.1:%d", base+2*node) }
	net := begin(t, "testnet", "--dir", dir, "--nodes", "3", "--base-port", strconv.Itoa(base),
		"--engine", trains.EngineName, "--run")
	net.out.await(t, `all 3 nodes run and take (transactions)`)
	h, err := home.Load(filepath.Join(dir, testnet.Name(1)))
	if err != nil || h.Config.Ordering.Engine != trains.EngineName ||
		h.Config.Ordering.Trains != 4 {
		t.Fatalf("%+v, %v", h, err)
	}
	refuses(t, exitFailure, "leave --engine out", "testnet", "--dir", dir, "--run", "--engine",
		"allconcur+")
	pid, err := strconv.Atoi(net.out.await(t, `node-1  started, process (\d+)`))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, newClient(t, url(0)))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	net.out.await(t, `node-1  ended: (signal: killed)`)
	register(t, newClient(t, url(2)), "more")
	net.out.await(t, `(?s)node-1  ended.*node-1  answers at (\S+)`)
	await(t, func() bool {
		status := ledgerd(t, "cluster", "status", "--via", url(1))
		return strings.Count(status.out, "ordering") == 3
	})
	blocks := must(t, "export", "--node", url(0), "--blocks")
	for _, node := range []int{1, 2} {
		await(t, func() bool {
			return ledgerd(t, "export", "--node", url(node), "--blocks").out == blocks
		})
	}
	net.end(t)
	for i := range 3 {
		must(t, "verify", "--home", filepath.Join(dir, testnet.Name(i)))
	}
}

// register registers an organisation, and waits until that is durable.
func register(t *testing.T, node *client.Client, name ledger.OrganisationName) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ring, err := client.OpenKeyring(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	key, err := ring.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	status, err := node.Post(ctx, []client.Key{key}, ledger.Transaction{
		Registrations: []ledger.Registration{{Name: name,
			Keys: []ledger.PublicKey{key.Public()}}}}, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil || status.GetReasonCode() != "" {
		t.Fatalf("%v, %v", status, err)
	}
}
