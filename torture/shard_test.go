//go:build linux

package torture

import (
	"bytes"
	"context"
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

const (
	// patience limits how long anything may take on a machine that is busy with other work.
	patience = 90 * time.Second
	// lookEvery is the pause between two checks of a condition.
	lookEvery = 20 * time.Millisecond
	// logShown limits how many lines of a node's log are shown when a test fails.
	logShown = 60
)

// shard is a ledger of several processes.
type shard struct {
	t         *testing.T
	dir       string
	homes     []*home.Home
	processes []*process // nil if not running
	nodes     []*client.Client
	// environment is added to the environment of every process.
	environment []string
	// program is the binary that the nodes run.
	program string
	// volumes hold the homes. It is nil if their power cannot be cut.
	volumes []*volume
}

// process is one process of a node.
type process struct {
	command *exec.Cmd
	input   io.Closer
	log     *os.File
	ended   chan struct{}
	err     error // the reason of its end; read it after ended is closed
}

// newShard makes the homes of a shard.
func newShard(t *testing.T, nodes int, environment ...string) *shard {
	t.Helper()
	return newShardBy(t, *engineFlag, nodes, environment...)
}

// newShardBy is newShard with an engine of its own; empty means the default.
func newShardBy(t *testing.T, engine string, nodes int, environment ...string) *shard {
	t.Helper()
	return newHomes(t, nodes, environment, withEngine(engine, "--nodes", strconv.Itoa(nodes))...)
}

// withEngine returns flags of `ledgerd testnet` with an engine; empty means the default.
func withEngine(engine string, flags ...string) []string {
	if engine != "" {
		flags = append(flags, "--engine", engine)
	}
	return flags
}

// newHomes makes the homes of a network with the given number of nodes in all, by the flags of
// `ledgerd testnet`. It starts nothing. All processes end with the test, whatever happens.
func newHomes(t *testing.T, nodes int, environment []string, flags ...string) *shard {
	t.Helper()
	base, err := testnet.FreeBasePort(nodes)
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{
		t: t, dir: filepath.Join(t.TempDir(), "net"), processes: make([]*process, nodes),
		environment: environment, program: program,
	}
	succeed(t, append([]string{"testnet", "--dir", s.dir, "--base-port", strconv.Itoa(base)},
		flags...)...)
	if s.homes, err = testnet.Load(s.dir); err != nil {
		t.Fatal(err)
	}
	for _, h := range s.homes {
		node, err := client.New([]string{testnet.URL(h)},
			client.Options{Tries: 1, CallTime: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.nodes = append(s.nodes, node)
	}
	t.Cleanup(func() {
		for i := range s.processes {
			s.kill(i)
			s.nodes[i].Close()
		}
		if t.Failed() {
			s.showLogs()
		}
	})
	return s
}

// newRunningShard is newShard with all nodes started and ordering.
func newRunningShard(t *testing.T, nodes int, environment ...string) *shard {
	t.Helper()
	s := newShard(t, nodes, environment...)
	s.start(s.all()...)
	s.ordering(s.all()...)
	return s
}

func (s *shard) all() []int {
	which := make([]int, len(s.homes))
	for i := range which {
		which[i] = i
	}
	return which
}

// others returns all nodes except some.
func (s *shard) others(but ...int) []int {
	return slices.DeleteFunc(s.all(), func(i int) bool { return slices.Contains(but, i) })
}

// urls returns the addresses of nodes, for --node.
func (s *shard) urls(which ...int) []string {
	var urls []string
	for _, i := range which {
		urls = append(urls, testnet.URL(s.homes[i]))
	}
	return urls
}

func (s *shard) logPath(i int) string { return filepath.Join(s.dir, testnet.Name(i)+".log") }

// log returns the output of a node from all its processes.
func (s *shard) log(i int) string {
	text, err := os.ReadFile(s.logPath(i))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(text)
}

func (s *shard) showLogs() {
	for i := range s.homes {
		lines := strings.Split(strings.TrimSpace(s.log(i)), "\n")
		from := slices.IndexFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		})
		if from < 0 {
			from = max(0, len(lines)-logShown)
		}
		s.t.Logf("the end of what node %d said:\n%s", i,
			strings.Join(lines[from:min(len(lines), from+logShown)], "\n"))
	}
}

// start starts nodes, without waiting for anything.
func (s *shard) start(which ...int) {
	s.t.Helper()
	for _, i := range which {
		if s.processes[i] != nil {
			s.t.Fatalf("node %d runs already", i)
		}
		log, err := os.OpenFile(s.logPath(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			s.t.Fatal(err)
		}
		// If the test's own process dies, the nodes see the end of their standard input.
		command := exec.Command(s.program, "start", "--until-input-ends", "--home", s.homes[i].Dir)
		if strings.HasPrefix(s.homes[i].Config.API.Listen, farHost) {
			command = exec.Command("ip", append([]string{"netns", "exec", farName},
				command.Args...)...)
		}
		command.Env = append(os.Environ(), s.environment...)
		command.Stdout, command.Stderr = log, log
		input, err := command.StdinPipe()
		if err != nil {
			s.t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			s.t.Fatal(err)
		}
		p := &process{command: command, input: input, log: log, ended: make(chan struct{})}
		go func() {
			p.err = errors.Join(command.Wait(), log.Close())
			close(p.ended)
		}()
		s.processes[i] = p
	}
}

// signal sends a signal to nodes, all at once.
func (s *shard) signal(signal os.Signal, which ...int) {
	for _, i := range which {
		if p := s.processes[i]; p != nil {
			_ = p.command.Process.Signal(signal) // the process may have ended
		}
	}
}

// kill ends nodes as kill -9 does, all at once, and waits for their ends.
func (s *shard) kill(which ...int) {
	s.signal(syscall.SIGKILL, which...)
	for _, i := range which {
		if p := s.processes[i]; p != nil {
			<-p.ended
			s.processes[i] = nil
		}
	}
}

// stop asks nodes to stop, all at once, and checks that each ends with exit status 0.
func (s *shard) stop(which ...int) {
	s.t.Helper()
	s.signal(syscall.SIGTERM, which...)
	for _, i := range which {
		p := s.processes[i]
		if p == nil {
			continue
		}
		select {
		case <-p.ended:
			if p.err != nil {
				s.t.Errorf("node %d, asked to stop: %v", i, p.err)
			}
		case <-time.After(patience):
			s.t.Errorf("node %d did not stop within %v", i, patience)
			s.kill(i)
		}
		s.processes[i] = nil
	}
}

// alive fails the test if one of the nodes has ended.
func (s *shard) alive(which ...int) {
	s.t.Helper()
	for _, i := range which {
		if s.hasEnded(i) {
			s.t.Fatalf("node %d ended: %v", i, s.processes[i].err)
		}
	}
}

func (s *shard) hasEnded(i int) bool {
	p := s.processes[i]
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// eventually waits until holds returns no error.
func (s *shard) eventually(what string, holds func() error) {
	s.t.Helper()
	begun := time.Now()
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Since(begun) > patience {
			s.t.Fatalf("not within %v: %s: %v", patience, what, err)
		}
		<-time.After(lookEvery)
	}
}

// state asks a node for its state.
func (s *shard) state(i int) (*ledgerdv1.NodeState, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.nodes[i].Node(ctx)
}

// ordering waits until these nodes, and no others, order together.
func (s *shard) ordering(which ...int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("nodes %v order together", which), func() error {
		s.alive(which...)
		for _, i := range which {
			state, err := s.state(i)
			switch {
			case err != nil:
				return err
			case state.GetMode() != ledgerdv1.NodeMode_NODE_MODE_ORDERING ||
				len(state.GetEngine().GetMembers()) != len(which):
				return fmt.Errorf("node %d: %v %q, members %v", i, state.GetMode(),
					state.GetReason(), state.GetEngine().GetMembers())
			}
		}
		return nil
	})
}

// same waits until the nodes have the same head, and all of the chain is on a majority of disks. It
// returns the height.
func (s *shard) same(which ...int) uint64 {
	s.t.Helper()
	var height uint64
	s.eventually(fmt.Sprintf("nodes %v hold the same chain", which), func() error {
		var first *ledgerdv1.NodeState
		s.alive(which...)
		for _, i := range which {
			state, err := s.state(i)
			if err != nil {
				return err
			}
			if first == nil {
				first = state
			}
			if !bytes.Equal(first.GetHeadHash(), state.GetHeadHash()) ||
				state.GetOrderedHeight() != first.GetOrderedHeight() {
				return fmt.Errorf("node %d is at %d (%x), node %d at %d (%x)", which[0],
					first.GetOrderedHeight(), first.GetHeadHash(), i, state.GetOrderedHeight(),
					state.GetHeadHash())
			}
			if state.GetDurableHeight() != state.GetOrderedHeight() {
				return fmt.Errorf("node %d: of %d blocks %d are durable", i,
					state.GetOrderedHeight(), state.GetDurableHeight())
			}
			if state.GetPoolTransactions() != 0 {
				return fmt.Errorf("node %d: %d transactions wait", i, state.GetPoolTransactions())
			}
		}
		height = first.GetOrderedHeight()
		return nil
	})
	return height
}

// exports checks that the exports of the given nodes are equal, and returns them.
func (s *shard) exports(which ...int) (blocks, balances string) {
	s.t.Helper()
	for k, i := range which {
		url := testnet.URL(s.homes[i])
		b, a := succeed(s.t, "export", "--node", url, "--blocks"),
			succeed(s.t, "export", "--node", url, "--balances")
		if k == 0 {
			blocks, balances = b, a
		}
		if b != blocks {
			s.t.Errorf("nodes %d and %d export different blocks", which[0], i)
		}
		if a != balances {
			s.t.Errorf("nodes %d and %d export different balances", which[0], i)
		}
	}
	return blocks, balances
}

// verified checks with `ledgerd verify` that the homes of stopped nodes are intact.
func (s *shard) verified(which ...int) {
	s.t.Helper()
	for _, i := range which {
		if o := ledgerdWith(s.t, s.environment, "verify", "--home", s.homes[i].Dir); o.status != 0 {
			s.t.Errorf("verify of node %d: exit status %d\n%s%s", i, o.status, o.out, o.errs)
		}
	}
}

// party is an organisation with its key and a client.
type party struct {
	client.Key
	nodes *client.Client
}

// newParty registers an organisation with accounts at the given nodes. The first account is an
// issuer, and the first node is preferred.
func (s *shard) newParty(name string, accounts []string, which ...int) *party {
	s.t.Helper()
	_, private, err := ed25519.GenerateKey(cryptorand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &party{Key: client.NewKey(ledger.OrganisationName(name), private),
		nodes: s.clientOf(which...)}
	p.post(s.t, ledger.Transaction{Registrations: []ledger.Registration{{Name: p.Organisation,
		Keys: []ledger.PublicKey{p.Public()}}}}, ledgerdv1.Level_LEVEL_DURABLE)
	if len(accounts) == 0 {
		return p
	}
	var transaction ledger.Transaction
	for k, account := range accounts {
		transaction.Openings = append(transaction.Openings,
			ledger.Opening{Account: p.account(account), Issuer: k == 0})
	}
	p.post(s.t, transaction, ledgerdv1.Level_LEVEL_DURABLE)
	return p
}

// clientOf returns a client that asks these nodes, the first one first.
func (s *shard) clientOf(which ...int) *client.Client {
	s.t.Helper()
	nodes, err := client.New(s.urls(which...), client.Options{Tries: 40})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nodes.Close)
	return nodes
}

// at returns the same organisation with another client.
func (p *party) at(nodes *client.Client) *party { return &party{p.Key, nodes} }

func (p *party) account(name string) ledger.AccountPath {
	return ledger.AccountPath(string(p.Organisation) + ":" + name)
}

func (p *party) record(name string) ledger.RecordKey {
	return ledger.RecordKey(string(p.Organisation) + ":" + name)
}

// post posts a transaction, which must succeed.
func (p *party) post(t *testing.T, transaction ledger.Transaction,
	level ledgerdv1.Level) *ledgerdv1.TransactionStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, err := p.nodes.Post(ctx, []client.Key{p.Key}, transaction, level)
	if err != nil {
		t.Fatalf("a transaction of %s: %v", p.Organisation, err)
	}
	if !client.Reached(status, level) || status.GetReasonCode() != "" {
		t.Fatalf("a transaction of %s: %v", p.Organisation, status)
	}
	return status
}

// put returns a transaction that sets a record.
func (p *party) put(name, value string) ledger.Transaction {
	return ledger.Transaction{Records: []ledger.Record{{Key: p.record(name), Value: []byte(value)}}}
}

// transfer returns a transaction that moves an amount.
func (p *party) transfer(from, to string, amount int64) ledger.Transaction {
	value := ledger.NewAmount(amount)
	negative := ledger.NewAmount(-amount)
	return ledger.Transaction{Postings: []ledger.Posting{{Account: p.account(from), Asset: "unit",
		Amount: negative}, {Account: p.account(to), Asset: "unit", Amount: value}}}
}

// fabricHost opens a host on the fabric, possibly with a node's key.
func fabricHost(t *testing.T, options p2p.Options) *p2p.Host {
	t.Helper()
	host, err := p2p.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = host.Close(ended) // at once: its frames need not arrive
	})
	return host
}
