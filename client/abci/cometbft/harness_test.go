package cometbft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cometbft/cometbft/rpc/client/http"
)

// The programs under test, which TestMain makes, and the addresses of the running nodes.
var (
	ledgerd, abciCLI string
	nodes            []string
)

// patience bounds each wait. What is waited for takes far less, on a quiet machine.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	status, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// run makes the programs, runs a ledger of three nodes, and the tests on it.
func run(m *testing.M) (status int, err error) {
	folder, err := os.MkdirTemp("", "ledgerd-cometbft")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	abciCLI = filepath.Join(folder, "abci-cli")
	builds := [][]string{{"build", "-o", abciCLI,
		"github.com/cometbft/cometbft/abci/cmd/abci-cli"}}
	if ledgerd = os.Getenv("LEDGERD_BINARY"); ledgerd == "" {
		ledgerd = filepath.Join(folder, "ledgerd")
		builds = append(builds, []string{"build", "-C", "../../..", "-o", ledgerd, "./cmd/ledgerd"})
	}
	for _, arguments := range builds {
		if text, err := exec.Command("go", arguments...).CombinedOutput(); err != nil {
			return 1, fmt.Errorf("go %v: %w: %s", arguments, err, text)
		}
	}
	const count = 3
	port, err := freePorts(2 * count)
	if err != nil {
		return 1, err
	}
	for i := range count {
		nodes = append(nodes, fmt.Sprintf("http://127.0.0.1:%d", port+2*i))
	}
	net, err := start(filepath.Join(folder, "net.log"), ledgerd, "testnet", "--dir",
		filepath.Join(folder, "net"), "--nodes", fmt.Sprint(count), "--base-port",
		fmt.Sprint(port), "--run")
	if err != nil {
		return 1, err
	}
	defer net.stop(syscall.SIGTERM)
	if err := awaitNodes(); err != nil {
		text, _ := os.ReadFile(net.log)
		return 1, fmt.Errorf("%w\n%s", err, text)
	}
	return m.Run(), nil
}

// awaitNodes waits until the nodes order.
func awaitNodes() error {
	for _, each := range nodes {
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			text, err := exec.Command(ledgerd, "cut", "--timeout", "5s", "--node",
				each).CombinedOutput()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s does not answer: %w: %s", each, err, text)
			}
		}
	}
	return nil
}

// freePorts returns the first of so many free ports in a row.
func freePorts(count int) (int, error) {
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := first.Addr().(*net.TCPAddr).Port
		taken := []net.Listener{first}
		for i := 1; i < count; i++ {
			next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
			if err != nil {
				break
			}
			taken = append(taken, next)
		}
		for _, each := range taken {
			each.Close()
		}
		if len(taken) == count {
			return port, nil
		}
	}
	return 0, errors.New("no free ports")
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// process is a process of the tests, with its output in a file.
type process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{}
}

func start(log, name string, arguments ...string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	p := &process{command: exec.Command(name, arguments...), log: log, ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = output, output
	// kvstore leaves a folder behind.
	p.command.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(log))
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.command.Wait()
	}()
	return p, nil
}

// stop ends the process with a signal, and kills it if that does not help.
func (p *process) stop(signal syscall.Signal) {
	_ = p.command.Process.Signal(signal)
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

// ledger runs a command of ledgerd, and returns its output.
func ledger(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.Command(ledgerd, arguments...)
	command.Env = append(os.Environ(), "LEDGERD_NODE="+strings.Join(nodes, ","))
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("ledgerd %v: %v: %s", arguments, err, text)
	}
	return string(text)
}

// owner is an organisation that posts. Its name is new in each run of a test.
type owner struct{ name, keys string }

// owners counts them.
var owners atomic.Int64

// newOwner registers an organisation.
func newOwner(t *testing.T, name string) owner {
	t.Helper()
	made := owner{fmt.Sprint(name, owners.Add(1)), filepath.Join(t.TempDir(), "keys")}
	ledger(t, "keys", "create", made.name, "--plain", "--keys", made.keys)
	ledger(t, "org", "add", made.name, "--keys", made.keys)
	return made
}

// replica is kvstore with its adapter.
type replica struct {
	t       *testing.T
	folder  string
	keys    string
	persist bool
	app     int // ports
	rpc     int
	nodes   []string // which the adapter asks, in this order

	kvstore, adapter *process
	client           *http.HTTP
}

// newReplica starts kvstore and an adapter. The owner signs what clients post. Lines are further
// ones of the adapter's configuration; without any, the chain has the owner's name.
func newReplica(t *testing.T, by owner, node int, persist bool, lines ...string) *replica {
	t.Helper()
	order := append(append([]string(nil), nodes[node:]...), nodes[:node]...)
	return newReplicaOver(t, by, order, persist, lines...)
}

// newReplicaOver is newReplica with the addresses of the nodes that the adapter asks.
func newReplicaOver(t *testing.T, by owner, order []string, persist bool,
	lines ...string) *replica {
	t.Helper()
	r := &replica{t: t, folder: t.TempDir(), keys: by.keys, persist: persist, app: freePort(t),
		nodes: order}
	r.rpc = freePort(t)
	text := fmt.Sprintf("application = \"tcp://127.0.0.1:%d\"\nfolder = \"adapter\"\npost = %q\n"+
		"listen = \"127.0.0.1:%d\"\n%s\n", r.app, by.name, r.rpc, strings.Join(lines, "\n"))
	if len(lines) == 0 {
		text = fmt.Sprintf("chain_id = %q\n", by.name) + text
	}
	if err := os.WriteFile(filepath.Join(r.folder, "adapter.toml"), []byte(text),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, each := range []*process{r.adapter, r.kvstore} {
			if each != nil {
				each.stop(syscall.SIGTERM)
			}
		}
		if t.Failed() {
			for _, name := range []string{"adapter.log", "kvstore.log"} {
				text, _ := os.ReadFile(filepath.Join(r.folder, name))
				t.Logf("%s of %d:\n%s", name, r.rpc, text[max(len(text)-4000, 0):])
			}
		}
	})
	var err error
	if r.client, err = http.New(fmt.Sprintf("tcp://127.0.0.1:%d", r.rpc),
		"/websocket"); err != nil {
		t.Fatal(err)
	}
	r.startApp()
	r.startAdapter()
	return r
}

func (r *replica) startApp() {
	r.t.Helper()
	arguments := []string{"kvstore", "--log_level", "error", "--address",
		fmt.Sprintf("tcp://127.0.0.1:%d", r.app)}
	if r.persist {
		arguments = append(arguments, "--persist", filepath.Join(r.folder, "db"))
	}
	var err error
	if r.kvstore, err = start(filepath.Join(r.folder, "kvstore.log"), abciCLI,
		arguments...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) startAdapter() {
	r.t.Helper()
	var err error
	if r.adapter, err = start(filepath.Join(r.folder, "adapter.log"), ledgerd, "abci", "--config",
		filepath.Join(r.folder, "adapter.toml"), "--keys", r.keys, "--node",
		strings.Join(r.nodes, ",")); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the adapter has caught up", func() error {
		status, err := r.client.Status(context.Background())
		if err == nil && status.SyncInfo.CatchingUp {
			err = fmt.Errorf("at %d", status.SyncInfo.LatestBlockHeight)
		}
		select {
		case <-r.adapter.ended:
			r.t.Fatal("the adapter ended")
		default:
		}
		return err
	})
}

// adapterLog returns what the adapter has said.
func (r *replica) adapterLog() string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.folder, "adapter.log"))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// door passes what comes on to a node, until it is closed: for its clients, the node is dead then.
type door struct {
	url      string
	listener net.Listener
	mutex    sync.Mutex
	streams  []net.Conn
	closed   bool
}

func newDoor(t *testing.T, node string) *door {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{url: "http://" + listener.Addr().String(), listener: listener}
	t.Cleanup(d.close)
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(node, "http://"))
			if err != nil || !d.keep(from, to) {
				from.Close()
				continue
			}
			for _, each := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(each[0], each[1]) // until one of them is closed
					from.Close()
					to.Close()
				}()
			}
		}
	}()
	return d
}

// keep keeps connections to close them, unless the door is closed.
func (d *door) keep(streams ...net.Conn) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.closed {
		for _, each := range streams {
			each.Close()
		}
		return false
	}
	d.streams = append(d.streams, streams...)
	return true
}

func (d *door) close() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.closed = true
	d.listener.Close()
	for _, each := range d.streams {
		each.Close()
	}
}

// get returns what kvstore has for a key.
func (r *replica) get(key string) string {
	r.t.Helper()
	answer, err := r.client.ABCIQuery(context.Background(), "/store", []byte(key))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(answer.Response.Value)
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond) // a poll of other processes
	}
}

// agree waits until all replicas are at the height of the first one or above, and compares their
// application hashes there. It returns the hash.
func agree(t *testing.T, replicas ...*replica) []byte {
	t.Helper()
	status, err := replicas[0].client.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	height := status.SyncInfo.LatestBlockHeight
	for _, each := range replicas[1:] {
		eventually(t, fmt.Sprint("the other replica reaches ", height), func() error {
			status, err := each.client.Status(context.Background())
			if err == nil && status.SyncInfo.LatestBlockHeight < height {
				err = fmt.Errorf("at %d", status.SyncInfo.LatestBlockHeight)
			}
			return err
		})
		found, err := each.client.ABCIInfo(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if found.Response.LastBlockHeight == height &&
			!bytes.Equal(found.Response.LastBlockAppHash, status.SyncInfo.LatestAppHash) {
			t.Fatalf("at height %d the hashes are %X and %X", height,
				found.Response.LastBlockAppHash, status.SyncInfo.LatestAppHash)
		}
	}
	return status.SyncInfo.LatestAppHash
}
