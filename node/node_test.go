package node_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// shard is a cluster of real nodes in this process, over the memory fabric.
type shard struct {
	t       testing.TB
	network *memory.Network
	homes   []*home.Home
	peers   []rdmanet.PeerID
	nodes   []*node.Node
	client  *ledgertest.Client
	store   store.Options
	clocks  []func() time.Time // by node; nil if all are right
	gone    map[int]bool       // departed members
	loads   int                // number of loads started
	// durable is the highest block that a call of submit waited for until it was durable.
	durable atomic.Uint64
	// hosts, if set, wraps the hosts of nodes.
	hosts func(i int, host rdmanet.Host) rdmanet.Host
	// beside, by node, replaces its input from other shards.
	beside map[int]func(mempool.Beside) mempool.Beside
}

func newShard(t testing.TB, nodes int, change func(i int, config *home.Config)) *shard {
	t.Helper()
	s := &shard{t: t, gone: map[int]bool{}, network: memory.NewNetwork(),
		nodes: make([]*node.Node, nodes), store: store.Options{MemTableBytes: 4 << 20,
			ReserveBytes: 1 << 20}}
	genesis := &ledger.Genesis{Chain: "test", Time: 1,
		Operators: []ledger.PublicKey{ledgertest.PublicKey("operator")}}
	var keys []ed25519.PrivateKey
	for i := range nodes {
		seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", t.Name(), i))
		key := ed25519.NewKeyFromSeed(seed[:])
		public := key.Public().(ed25519.PublicKey)
		peer, err := p2p.PeerID(public)
		if err != nil {
			t.Fatal(err)
		}
		keys, s.peers = append(keys, key), append(s.peers, peer)
		genesis.Members = append(genesis.Members, ledger.Member{Name: fmt.Sprintf("node-%d", i),
			Key: public, Address: "127.0.0.1:1"})
	}
	for i := range nodes {
		config := home.Default()
		config.API.Listen = "127.0.0.1:0"
		if change != nil {
			change(i, &config)
		}
		h, err := home.Create(filepath.Join(t.TempDir(), fmt.Sprintf("node-%d", i)), config,
			genesis, keys[i])
		if err != nil {
			t.Fatal(err)
		}
		s.homes = append(s.homes, h)
	}
	s.client = ledgertest.NewClient(genesis, "acme")
	t.Cleanup(func() {
		for i := range s.nodes {
			s.stop(i)
		}
	})
	return s
}

func (s *shard) start(which ...int) {
	s.t.Helper()
	for _, i := range which {
		var host rdmanet.Host
		var err error
		if host, err = s.network.Host(s.peers[i]); err != nil {
			s.t.Fatal(err)
		}
		logger := slog.New(slog.DiscardHandler)
		if os.Getenv("LEDGERD_TEST_LOG") != "" {
			logger = slog.New(slog.NewTextHandler(os.Stderr,
				&slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		if s.hosts != nil {
			host = s.hosts(i, host)
		}
		options := node.Options{Home: s.homes[i], Host: host, Logger: logger, Store: s.store}
		if lie := s.beside[i]; lie != nil {
			options.Replace(lie)
		}
		if s.clocks != nil {
			options.Clock = s.clocks[i]
		}
		s.nodes[i], err = node.Start(s.t.Context(), options)
		if err != nil {
			s.t.Fatalf("node %d: %v", i, err)
		}
	}
}

func (s *shard) stop(i int) {
	if s.nodes[i] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.nodes[i].Stop(ctx); err != nil {
		s.t.Errorf("stop of node %d: %v", i, err)
	}
	s.nodes[i] = nil
}

// kill makes the others see a dead process, then cleans up the node.
func (s *shard) kill(i int) {
	s.network.Kill(s.peers[i])
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.nodes[i].Stop(ended) // errors are expected: its fabric is gone
	s.nodes[i] = nil
}

func (s *shard) eventually(what string, holds func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			for i, n := range s.nodes {
				if n != nil {
					state := n.State()
					s.t.Logf("node %d: mode %d (%s), %+v, %+v", i, state.Mode, state.Reason,
						state.Engine, state.Heights)
				}
			}
			s.t.Fatalf("not within a minute: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (s *shard) all() []int {
	var which []int
	for i := range s.nodes {
		if !s.gone[i] {
			which = append(which, i)
		}
	}
	return which
}

// ordering waits until these nodes, and no others, order together.
func (s *shard) ordering(which ...int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("nodes %v order", which), func() bool {
		for _, i := range which {
			state := s.nodes[i].State()
			if state.Mode != report.ModeOrdering || len(state.Engine.Members) != len(which) {
				return false
			}
		}
		return true
	})
}

// submit submits a bundle to a node and waits for a level. The node first executes what was durable
// before: a minority of the nodes may be behind, and not know the client yet.
func (s *shard) submit(i int, level report.Level,
	transactions ...ledger.Transaction) []report.Status {
	s.t.Helper()
	bundle := s.client.Bundle(transactions...)
	ctx, cancel := context.WithTimeout(s.t.Context(), 60*time.Second)
	defer cancel()
	s.caughtUp(i)
	for {
		refusal := s.nodes[i].Admit(ctx, []*ledger.Bundle{bundle}, false)[0]
		if refusal == nil {
			break
		}
		if !refusal.Retry() || ctx.Err() != nil {
			s.t.Fatalf("refused: %v", refusal)
		}
		<-time.After(5 * time.Millisecond)
	}
	statuses, err := s.nodes[i].Wait(ctx, bundle.IDs(), level)
	if err != nil {
		s.t.Fatalf("waiting for %v at node %d: %v", level, i, err)
	}
	for _, status := range statuses {
		if status.Outcome != report.OutcomeExecuted {
			s.t.Fatalf("%+v", status)
		}
		for known := s.durable.Load(); level == report.LevelDurable &&
			uint64(status.Height) > known; known = s.durable.Load() {
			if s.durable.CompareAndSwap(known, uint64(status.Height)) {
				break
			}
		}
	}
	return statuses
}

// caughtUp waits until a node has executed what calls of submit found durable. Durable blocks are
// on a majority of the nodes, and another node may be behind.
func (s *shard) caughtUp(i int) {
	s.t.Helper()
	s.eventually("the node has what was durable before", func() bool {
		return uint64(s.nodes[i].Store().AppendedHeight()) >= s.durable.Load()
	})
}

// same waits until all running nodes hold the same head, and returns its height.
func (s *shard) same() ledger.Height {
	s.t.Helper()
	var height ledger.Height
	s.eventually("all nodes hold the same chain", func() bool {
		var first *store.Head
		for _, n := range s.nodes {
			if n == nil {
				continue
			}
			head := n.Store().Head()
			if first == nil {
				first = &head
			}
			if head.Hash != first.Hash {
				return false
			}
			height = head.Height
		}
		return true
	})
	for i, n := range s.nodes {
		if n == nil {
			continue
		}
		// No member lied.
		if kept, err := n.Store().Evidence(); err != nil || len(kept) > 0 {
			s.t.Errorf("node %d has evidence %+v, %v", i, kept, err)
		}
	}
	return height
}

func TestEveryNodeTakesWritesAndHoldsTheSameChain(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"allconcur+", "allconcur", "trains", "dare"} {
		for _, nodes := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%s/%d", engine, nodes), func(t *testing.T) {
				t.Parallel()
				s := newShard(t, nodes, func(_ int, c *home.Config) { c.Ordering.Engine = engine })
				s.start(s.all()...)
				s.ordering(s.all()...)
				s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
				for round := range 5 {
					for i := range nodes {
						level := []report.Level{report.LevelOrdered, report.LevelStored,
							report.LevelDurable}[(round+i)%3]
						status := s.submit(i, level, s.client.Transfer(s.client.Account("a"),
							s.client.Account("b"), 1))[0]
						if status.Level < level {
							t.Fatalf("waited for %v, got %v", level, status.Level)
						}
						if found, err := s.nodes[i].Store().Transaction(status.ID); err != nil ||
							found.Height != status.Height {
							t.Fatalf("what was acknowledged cannot be read: %v", err)
						}
					}
				}
				s.same()
			})
		}
	}
}

// withEngines runs a test with the default engine, and with one that works on one-sided memory.
func withEngines(t *testing.T, run func(t *testing.T, change func(int, *home.Config))) {
	for _, engine := range []string{"allconcur+", "dare"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			run(t, func(_ int, config *home.Config) { config.Ordering.Engine = engine })
		})
	}
}

func TestKilledNodeComesBackByItself(t *testing.T) {
	t.Parallel()
	withEngines(t, killedNodeComesBackByItself)
}

func killedNodeComesBackByItself(t *testing.T, change func(int, *home.Config)) {
	s := newShard(t, 4, change)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	transfer := func() ledger.Transaction {
		return s.client.Transfer(s.client.Account("a"), s.client.Account("b"), 1)
	}
	for range 10 {
		s.submit(1, report.LevelDurable, transfer())
	}
	s.kill(2)
	for range 10 {
		s.submit(1, report.LevelDurable, transfer())
	}
	s.ordering(0, 1, 3)
	s.start(2)
	s.ordering(s.all()...)
	s.submit(2, report.LevelDurable, transfer())
	s.same()
}

func TestShardGoesOnAfterAllStopped(t *testing.T) {
	t.Parallel()
	withEngines(t, shardGoesOnAfterAllStopped)
}

func shardGoesOnAfterAllStopped(t *testing.T, change func(int, *home.Config)) {
	s := newShard(t, 3, change)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for range 3 {
		height := s.same()
		hash := s.nodes[0].Store().Head().Hash
		for i := range s.nodes {
			s.stop(i)
		}
		s.start(s.all()...)
		for _, n := range s.nodes {
			if _, got, err := n.Store().Header(height); err != nil || got != hash {
				t.Fatalf("block %d after the restart: %v, %v; want %v", height, got, err, hash)
			}
		}
		s.ordering(s.all()...)
		s.submit(2, report.LevelDurable, s.client.Transfer(s.client.Account("a"),
			s.client.Account("b"), 1))
	}
}

func TestShardWithoutMajorityHaltsAndGoesOn(t *testing.T) {
	t.Parallel()
	withEngines(t, shardWithoutMajorityHaltsAndGoesOn)
}

func shardWithoutMajorityHaltsAndGoesOn(t *testing.T, change func(int, *home.Config)) {
	s := newShard(t, 3, change)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.kill(1)
	s.kill(2)
	s.eventually("node 0 halts", func() bool {
		return s.nodes[0].State().Mode == report.ModeHalted
	})
	refusal := s.nodes[0].Admit(t.Context(),
		[]*ledger.Bundle{s.client.Bundle(s.client.Transfer(s.client.Account("a"),
			s.client.Account("b"), 1))}, false)[0]
	if refusal == nil || refusal.Code != report.RefusedNotWriting {
		t.Fatalf("a node without a majority says %v to a write", refusal)
	}
	s.start(1)
	s.ordering(0, 1)
	s.submit(1, report.LevelDurable, s.client.Transfer(s.client.Account("a"), s.client.Account("b"),
		1))
	s.start(2)
	s.ordering(s.all()...)
	s.same()
}

// A node reports that it orders only while its engine acts in the group that it shows.
func TestOrderingMeansThatTheEngineActs(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	defer func() { cancel(); watching.Wait() }()
	watch := func(n *node.Node) {
		watching.Go(func() {
			for ctx.Err() == nil {
				state := n.State()
				if state.Mode == report.ModeOrdering && len(state.Engine.Members) == 0 {
					t.Errorf("it orders, and its engine is %+v", state.Engine)
					return
				}
				select {
				case <-n.Done():
					return
				case <-time.After(100 * time.Microsecond):
				}
			}
		})
	}
	s.start(0)
	watch(s.nodes[0])
	s.start(1, 2)
	s.ordering(s.all()...)
	for range 3 {
		s.kill(2) // starts an eon without it, and later one with it
		s.ordering(0, 1)
		s.start(2)
		s.ordering(s.all()...)
	}
	s.kill(1)
	s.kill(2)
	s.eventually("node 0 halts", func() bool {
		return s.nodes[0].State().Mode == report.ModeHalted
	})
	s.start(1)
	s.ordering(0, 1)
}

// On a full disk, the node refuses writes, keeps serving reads, and recovers when there is space.
func TestFullDiskRefusesWritesAndRecovers(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	var mu sync.Mutex
	free := uint64(1 << 40)
	s.store.FreeSpace = func(dir string) (uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		if filepath.Base(filepath.Dir(dir)) == "node-0" || filepath.Base(dir) == "node-0" {
			return free, nil
		}
		return 1 << 40, nil
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	status := s.submit(0, report.LevelDurable, s.client.Register("a", "b"))[0]
	mu.Lock()
	free = 1000
	mu.Unlock()
	s.eventually("writes are refused", func() bool {
		refusal := s.nodes[0].Admit(t.Context(),
			[]*ledger.Bundle{s.client.Bundle(s.client.Transfer(s.client.Account("a"),
				s.client.Account("b"), 1))}, false)[0]
		return refusal != nil && refusal.Code == report.RefusedNotWriting &&
			len(refusal.Writers) == 2
	})
	if _, err := s.nodes[0].Store().Transaction(status.ID); err != nil {
		t.Fatalf("reads: %v", err)
	}
	// The others continue, without it if necessary.
	s.submit(1, report.LevelDurable, s.client.Transfer(s.client.Account("a"), s.client.Account("b"),
		1))
	mu.Lock()
	free = 1 << 40
	mu.Unlock()
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Transfer(s.client.Account("a"), s.client.Account("b"),
		1))
	s.same()
}

func TestOccupiedPort(t *testing.T) {
	t.Parallel()
	s := newShard(t, 1, nil)
	s.start(0)
	other := newShard(t, 1, func(_ int, c *home.Config) {
		c.API.Listen = s.nodes[0].URL()[len("http://"):]
	})
	host, err := other.network.Host(other.peers[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = node.Start(t.Context(), node.Options{Home: other.homes[0], Host: host,
		Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, node.ErrAddress) {
		t.Fatalf("got %v, want ErrAddress", err)
	}
}
