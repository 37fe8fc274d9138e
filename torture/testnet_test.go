//go:build linux

package torture

import (
	"bytes"
	"errors"
	"fmt"
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
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// fabricVariable selects the fabric of TestTestnet and TestTestnetOfShards, p2p-trusted by default.
// The other tests use the default fabric.
const fabricVariable = "LEDGERD_TEST_FABRIC"

// testnetInput is small enough for an emulated machine.
const testnetInput = "../client/importer/testdata/bitcoin-blocks-0-excerpt.jsonl.gz"

// story collects a program's output, so that tests can wait for it.
type story struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

// Write implements io.Writer.
func (s *story) Write(data []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.Write(data)
}

// all returns the output so far.
func (s *story) all() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.String()
}

// last finds the last match of a pattern, and returns its first group.
func (s *story) last(pattern string) (string, error) {
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(s.all(), -1)
	if len(found) == 0 {
		return "", fmt.Errorf("no %s in:\n%s", pattern, s.all())
	}
	return found[len(found)-1][1], nil
}

// network is `ledgerd testnet --run`, which restarts nodes that ended.
type network struct {
	*shard
	command *exec.Cmd
	says    story
	ended   chan error
}

// newNetwork makes a ledger of processes over the fabric that is selected and runs it, as an
// operator would. No process outlives the test.
func newNetwork(t *testing.T, shards, each int) *network {
	t.Helper()
	fabric := os.Getenv(fabricVariable)
	if fabric == "" {
		fabric = "p2p-trusted"
	}
	nodes := shards * each
	base, err := testnet.FreeBasePort(nodes)
	if err != nil {
		t.Fatal(err)
	}
	n := &network{shard: &shard{t: t, program: program, dir: filepath.Join(t.TempDir(), "net"),
		processes: make([]*process, nodes)}, ended: make(chan error, 1)}
	n.command = exec.Command(program, withEngine(*engineFlag, "testnet", "--dir", n.dir, "--shards",
		strconv.Itoa(shards), "--nodes", strconv.Itoa(each), "--base-port", strconv.Itoa(base),
		"--fabric", fabric, "--run")...)
	n.command.Stdout, n.command.Stderr = &n.says, &n.says
	if err := n.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { n.ended <- n.command.Wait() }()
	t.Cleanup(func() {
		_ = n.command.Process.Kill() // its nodes see the end of their standard input
		if t.Failed() {
			t.Logf("the network said:\n%s", n.says.all())
			for i := range nodes {
				// Ignore the error: show whatever there is.
				text, _ := os.ReadFile(filepath.Join(n.dir, testnet.Name(i), testnet.LogFile))
				t.Logf("the end of what %s said:\n%s", testnet.Name(i),
					text[max(0, len(text)-8<<10):])
			}
		}
	})
	n.eventually("the network is ready", func() error {
		select {
		case err := <-n.ended:
			t.Fatalf("it ended: %v\n%s", err, n.says.all())
		default:
		}
		_, err := n.says.last(`(ready: all .* run and take)`)
		return err
	})
	if n.homes, err = testnet.Load(n.dir); err != nil {
		t.Fatal(err)
	}
	for _, h := range n.homes {
		node, err := client.New([]string{testnet.URL(h)},
			client.Options{Tries: 1, CallTime: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(node.Close)
		n.nodes = append(n.nodes, node)
	}
	return n
}

// pid returns the process id of a running node, from the network's output.
func (n *network) pid(i int) int {
	n.t.Helper()
	text, err := n.says.last(testnet.Name(i) + `  started, process (\d+)`)
	if err != nil {
		n.t.Fatal(err)
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		n.t.Fatal(err)
	}
	return pid
}

// TestTestnet follows the manual for operators: `ledgerd testnet --run`, an import, and a kill of a
// node in its middle. The node comes back by itself, and all nodes export the same bytes.
func TestTestnet(t *testing.T) {
	t.Parallel()
	in := readInputOf(t, testnetInput)
	n := newNetwork(t, 1, 3)
	before := n.pid(1)
	imported := n.startImport(in.path, filepath.Join(t.TempDir(), "keys"), 0, 2)
	n.reached(uint64(in.lines/4), 0)
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	imported.wait(t, in.lines)
	n.eventually("the killed node is started again, and orders with the others", func() error {
		if n.pid(1) == before {
			return errors.New("it has no new process")
		}
		for i := range n.homes {
			state, err := n.state(i)
			if err != nil {
				return err
			}
			if state.GetMode() != ledgerdv1.NodeMode_NODE_MODE_ORDERING ||
				len(state.GetEngine().GetMembers()) != len(n.homes) {
				return fmt.Errorf("node %d: %v %q, members %v", i, state.GetMode(),
					state.GetReason(), state.GetEngine().GetMembers())
			}
		}
		return nil
	})
	n.same(n.all()...)
	blocks, balances := n.exports(n.all()...)
	in.matches(t, balances)
	in.complete(t, blocks)
	n.newParty("afterwards", []string{"cash"}, 1) // at the node that was killed
	n.same(n.all()...)
	n.exports(n.all()...)
	n.interrupt()
	n.verified(n.all()...)
}

// interrupt stops the network in good order.
func (n *network) interrupt() {
	t := n.t
	t.Helper()
	if err := n.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.ended:
		if err != nil {
			t.Errorf("the network, interrupted: %v", err)
		}
	case <-time.After(patience):
		t.Fatalf("the network did not stop within %v", patience)
	}
}

// testnetLines is how many lines of the input TestTestnetOfShards imports. Most of them cross
// shards.
const testnetLines = 300

// TestTestnetOfShards runs a book of two shards, which write to each other's memory over the
// fabric, and imports entries that cross from one to the other.
func TestTestnetOfShards(t *testing.T) {
	t.Parallel()
	const shards, each = 2, 2
	in := beginningOf(t, testnetInput, testnetLines)
	n := newNetwork(t, shards, each)
	n.startImportWith([]string{"--org", "chain", "--orgs", "4"}, in.path,
		filepath.Join(t.TempDir(), "keys"), 0, each).wait(t, in.lines)
	crossed := 0
	for shard := range shards {
		members := []int{shard * each, shard*each + 1}
		n.eventually("nothing waits for the other shard", func() error {
			state, err := n.state(members[0])
			if err == nil && state.GetPendingCrossings() > 0 {
				err = errors.New("something does")
			}
			return err
		})
		n.same(members...)
		blocks, balances := n.exports(members...)
		in.matches(t, balances) // each node exports the balances of both shards
		crossed += strings.Count(blocks, "verdict")
	}
	if crossed == 0 {
		t.Error("no entry crossed")
	}
	n.interrupt()
	n.verified(n.all()...)
}
