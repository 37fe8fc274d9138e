//go:build linux

package torture

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// add adds a home that a command made, and returns its node's index in the lists.
func (s *shard) add(dir string) int {
	s.t.Helper()
	h, err := home.Load(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	node, err := client.New([]string{testnet.URL(h)},
		client.Options{Tries: 1, CallTime: 20 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	i := len(s.homes)
	s.homes, s.processes, s.nodes = append(s.homes, h), append(s.processes, nil),
		append(s.nodes, node)
	s.t.Cleanup(func() { s.kill(i); node.Close() })
	return i
}

// freePort returns a --base-port for one node. Without it, nodes that join in tests that run at the
// same time would get the same ports.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := testnet.FreeBasePort(1)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// join lets a node join through a member, without starting it. It returns the node's index.
func (s *shard) join(via int) int {
	s.t.Helper()
	dir := filepath.Join(s.dir, fmt.Sprintf("node-%d", len(s.homes)))
	succeed(s.t, "cluster", "join", "--home", dir, "--base-port", freePort(s.t), "--via",
		testnet.URL(s.homes[via]), "--operator", filepath.Join(s.dir, testnet.OperatorKeyFile))
	return s.add(dir)
}

// writers starts writers at some nodes. stop ends them and returns the promises that they got.
func (s *shard) writers(owner *party, name string, at ...int) (stop func() []promise) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	kept := make([][]promise, len(at))
	for k, i := range at {
		writer := owner.at(s.clientOf(i))
		running.Go(func() { kept[k] = writer.writer(ctx, fmt.Sprintf("%s-%d", name, k)) })
	}
	return func() (all []promise) {
		cancel()
		running.Wait()
		for _, promises := range kept {
			all = append(all, promises...)
		}
		if len(all) == 0 {
			s.t.Errorf("%s: nothing was promised meanwhile", name)
		}
		return all
	}
}

// TestMembership lets nodes join, leave and be replaced while the others write. The joining node is
// killed in the middle.
func TestMembership(t *testing.T) {
	t.Parallel()
	s := newRunningShard(t, 3, "LEDGERD_NODE_ORDERING_HEARTBEAT=200ms",
		"LEDGERD_NODE_ORDERING_SUSPECT_AFTER=2s")
	acme := s.newParty("acme", []string{"cash"}, 0, 1, 2)
	var promises []promise

	// A node joins, and is killed at several moments meanwhile.
	stop := s.writers(acme, "join", 0, 1, 2)
	joiner := s.join(1)
	for _, after := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond,
		time.Second} {
		s.start(joiner)
		<-time.After(after) // a moment during its start or its entry
		s.kill(joiner)
	}
	begun := time.Now()
	s.start(joiner)
	s.ordering(0, 1, 2, joiner)
	t.Logf("node %d orders %v after its start", joiner, time.Since(begun).Round(time.Millisecond))
	promises = append(promises, stop()...)
	s.same(0, 1, 2, joiner)

	// A node leaves, and its process ends.
	stop = s.writers(acme, "leave", 0, 2)
	succeed(t, "cluster", "leave", "node-1", "--via", testnet.URL(s.homes[0]), "--operator",
		filepath.Join(s.dir, testnet.OperatorKeyFile))
	select {
	case <-s.processes[1].ended:
	case <-time.After(patience):
		t.Fatal("the node that left still runs")
	}
	if status := s.processes[1].command.ProcessState.ExitCode(); status != 3 {
		t.Errorf("the node that left ended with exit status %d", status)
	}
	s.processes[1] = nil
	s.ordering(0, 2, joiner)
	promises = append(promises, stop()...)
	s.same(0, 2, joiner)

	// A node is lost for good, and replaced.
	stop = s.writers(acme, "replace", 2, joiner)
	killed := time.Now()
	s.kill(0)
	s.ordering(2, joiner)
	t.Logf("node 0 is removed %v after kill -9", time.Since(killed).Round(time.Millisecond))
	dir := filepath.Join(s.dir, "node-4")
	succeed(t, "cluster", "replace", "node-0", "--home", dir, "--base-port", freePort(t), "--via",
		testnet.URL(s.homes[2]), "--operator", filepath.Join(s.dir, testnet.OperatorKeyFile))
	replacement := s.add(dir)
	begun = time.Now()
	s.start(replacement)
	s.ordering(2, joiner, replacement)
	t.Logf("node %d orders %v after its start", replacement,
		time.Since(begun).Round(time.Millisecond))
	promises = append(promises, stop()...)

	// The new nodes are members like the others: they have all promised writes, and one of the
	// three may fail.
	present := []int{2, joiner, replacement}
	s.same(present...)
	s.kill(2)
	writer := acme.at(s.clientOf(joiner, replacement))
	status := writer.post(t, writer.put("last", "last"), ledgerdv1.Level_LEVEL_DURABLE)
	promises = append(promises, promise{status.GetId(), status.GetHeight(), "last", "last"})
	s.start(2)
	s.ordering(present...)
	s.same(present...)
	s.keptBy(acme, promises, present...)
	s.exports(present...)
	s.stop(present...)
	s.verified(present...)
}
