// Package apitest is an api.Backend for tests: a chain in a temporary folder, executed by the real
// ledger, with one or more nodes as its doors. There is no network: a sealer puts the transactions
// that the doors admitted into blocks, in the order in which each door admitted them.
//
//	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
//	url := apitest.Serve(t, cluster.Node(0), api.Options{}).URL
//
// By default the sealer makes blocks by itself. With Options.Manual a test makes them with Order,
// Store and Durable. NewBook makes a book of several shards.
package apitest

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/rounds"
)

// Options of a Cluster.
type Options struct {
	Nodes   int            // default 1
	Manual  bool           // blocks are made by Order, Store and Durable only
	Genesis ledger.Genesis // default: a chain called test with a member for each node
	// PoolTransactions is how many transactions a node holds before it is overloaded; default
	// 65,536.
	PoolTransactions int
	// Uncertified keeps the members from certifying blocks, as those of older versions do.
	Uncertified bool

	book *Book
}

// Cluster is a chain and its nodes. It closes with its test.
type Cluster struct {
	store   *store.Store
	genesis *ledger.Genesis
	limit   int
	nodes   []*Node
	// uncertified is Options.Uncertified.
	uncertified bool

	mutex   sync.Mutex
	round   ledger.Round
	heights report.Heights
	expired map[ledger.Hash]bool
	changed chan struct{} // closed and replaced at every change
	work    chan struct{} // wakes the sealer
	err     error         // of the sealer

	// The book of several shards, or nil. The cluster asks its other shards for entries and
	// verdicts.
	book *Book
}

// Node is one door of the cluster; it implements api.Backend.
type Node struct {
	cluster *Cluster
	index   int

	// Guarded by the cluster's mutex.
	pool    []*ledger.Bundle
	pending map[ledger.Hash]bool
	mode    report.NodeMode
	reason  string
	held    bool
	refuse  int
	// foresees makes the node refuse what is certain to fail.
	foresees bool
	absent   ledger.Height

	rounds *rounds.Recorder
}

var _ api.Backend = (*Node)(nil)

// NewCluster makes a chain in a temporary folder.
func NewCluster(tb testing.TB, options Options) *Cluster {
	tb.Helper()
	options.Nodes = max(options.Nodes, 1)
	if options.PoolTransactions == 0 {
		options.PoolTransactions = 1 << 16
	}
	genesis := options.Genesis
	if genesis.Chain == "" {
		genesis = ledger.Genesis{Chain: "test", Time: 1_700_000_000_000}
		for i := range options.Nodes {
			name := fmt.Sprintf("node-%d", i)
			genesis.Members = append(genesis.Members, ledger.Member{Name: name,
				Key: memberKey(name).Public().(ed25519.PublicKey)})
		}
	}
	opened, err := store.Open(tb.TempDir(), &genesis, store.Options{})
	if err != nil {
		tb.Fatalf("opening the store: %v", err)
	}
	c := &Cluster{
		store: opened, genesis: &genesis, limit: options.PoolTransactions,
		expired: make(map[ledger.Hash]bool),
		changed: make(chan struct{}), work: make(chan struct{}, 1),
		uncertified: options.Uncertified,
	}
	for i := range options.Nodes {
		c.nodes = append(c.nodes, &Node{cluster: c, index: i, mode: report.ModeOrdering,
			pending: make(map[ledger.Hash]bool), rounds: rounds.New()})
	}
	c.book = options.book
	tb.Cleanup(func() {
		if err := errors.Join(c.err, c.store.Close()); err != nil {
			tb.Errorf("the chain: %v", err)
		}
	})
	if !options.Manual && c.book == nil {
		c.run(tb)
	}
	return c
}

// run makes blocks in a goroutine until the test ends.
func (c *Cluster) run(tb testing.TB) {
	stop := make(chan struct{})
	var sealer sync.WaitGroup
	sealer.Go(func() { c.seal(stop) })
	tb.Cleanup(func() {
		close(stop)
		sealer.Wait()
	})
}

// Node returns a door.
func (c *Cluster) Node(index int) *Node { return c.nodes[index] }

// Genesis returns the chain's genesis.
func (c *Cluster) Genesis() *ledger.Genesis { return c.genesis }

func (c *Cluster) seal(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-c.work:
		}
		if err := c.Advance(); err != nil {
			c.err = err
			return
		}
	}
}

// Advance orders, stores and makes durable the transactions that the doors hold.
func (c *Cluster) Advance() error {
	if err := c.Order(); err != nil {
		return err
	}
	if err := c.Store(); err != nil {
		return err
	}
	c.Durable()
	return nil
}

// Order makes a block of the transactions that the doors hold. Held doors keep theirs.
func (c *Cluster) Order() error {
	if c.book != nil && c.book.stands(c.store.Shard()) {
		return nil
	}
	beside, err := c.beside()
	if err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.round++
	head := c.store.Head()
	header := ledger.BatchHeader{Time: head.Time + 1, Height: head.Height, Tip: head.Hash}
	var batches [][]byte
	for _, node := range c.nodes {
		if node.held || len(node.pool) == 0 {
			continue
		}
		var bundles [][]byte
		for _, bundle := range node.pool {
			if c.expire(bundle, head.Height+1) {
				continue
			}
			bundles = append(bundles, bundle.Encode())
		}
		node.pool = nil
		node.pending = make(map[ledger.Hash]bool)
		batches = append(batches, ledger.EncodeBatch(header, bundles))
	}
	if beside != nil {
		beside.Header = header
		batches = append(batches, beside.Encode())
	}
	if len(batches) == 0 {
		return nil
	}
	block, err := c.store.Apply(1, c.round, batches)
	if err != nil {
		return fmt.Errorf("applying a round: %w", err)
	}
	if block != nil {
		c.heights.Ordered = block.Header.Height
		if coming, _ := c.store.Coming(); c.store.PendingCount() > 0 || len(coming) > 0 {
			c.wanted() // the other shards may have given their verdicts before
		}
	}
	c.notify()
	return nil
}

// expire records the transactions of a bundle as expired and returns true, if a block of this
// height may apply none of them.
func (c *Cluster) expire(bundle *ledger.Bundle, height ledger.Height) bool {
	for i := range bundle.Len() {
		if last := bundle.Transaction(i).LastValid; last == 0 || last >= height {
			return false
		}
	}
	for _, id := range bundle.IDs() {
		c.expired[id] = true
	}
	return true
}

// Store makes the ordered blocks stored.
func (c *Cluster) Store() error {
	if err := c.store.Sync(); err != nil {
		return fmt.Errorf("syncing: %w", err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.heights.Stored != c.heights.Ordered {
		c.heights.Stored = c.heights.Ordered
		c.notify()
	}
	return nil
}

// Durable makes the stored blocks durable.
func (c *Cluster) Durable() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.heights.Durable != c.heights.Stored {
		c.heights.Durable = c.heights.Stored
		if err := c.certify(c.heights.Durable); err != nil {
			c.err = errors.Join(c.err, err)
		}
		c.notify()
		c.book.moved(c)
	}
}

// memberKey returns the key of the member with a name, as package ledgertest makes it.
func memberKey(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// certify makes the certificate of a block, and of the changes of the members before it. Members
// with other keys than memberKey's do not sign.
func (c *Cluster) certify(height ledger.Height) error {
	if height == 0 || c.uncertified {
		return nil
	}
	for _, at := range append(c.store.ChangeHeights(), height) {
		if at > height {
			continue
		}
		_, hash, err := c.store.Header(at)
		if err != nil {
			return fmt.Errorf("certifying block %d: %w", at, err)
		}
		members := c.store.MembersAt(at)
		before := c.store.MembershipAt(at - 1)
		var statements []ledger.Statement
		for i := range before.Members {
			member := &before.Members[i]
			key := memberKey(member.Name)
			if string(key.Public().(ed25519.PublicKey)) == string(member.Key) {
				statements = append(statements, ledger.SignStatement(key, members.Chain,
					member.Index, members.Epoch, at, hash))
			}
		}
		if len(statements) < members.Majority() {
			return nil
		}
		if err := c.store.PutCertificate(ledger.Certify(statements)); err != nil {
			return fmt.Errorf("certifying block %d: %w", at, err)
		}
	}
	return nil
}

func (c *Cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Cluster) wanted() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

// SetMode changes the mode that the node reports. Only an ordering node takes writes.
func (n *Node) SetMode(mode report.NodeMode, reason string) {
	n.cluster.mutex.Lock()
	defer n.cluster.mutex.Unlock()
	n.mode, n.reason = mode, reason
	n.cluster.notify()
}

// Hold keeps admitted bundles in the node's pool, until Release or Crash.
func (n *Node) Hold() {
	n.cluster.mutex.Lock()
	defer n.cluster.mutex.Unlock()
	n.held = true
}

// Release lets the sealer take the node's pool again.
func (n *Node) Release() {
	n.cluster.mutex.Lock()
	n.held = false
	n.cluster.mutex.Unlock()
	n.cluster.wanted()
}

// Crash empties the node's pool, as a crash or a restart does, and releases it.
func (n *Node) Crash() {
	n.cluster.mutex.Lock()
	defer n.cluster.mutex.Unlock()
	n.pool, n.held = nil, false
	n.pending = make(map[ledger.Hash]bool)
}

// Foresee makes the node refuse bundles that must fail, as a real one does.
func (n *Node) Foresee() {
	n.cluster.mutex.Lock()
	defer n.cluster.mutex.Unlock()
	n.foresees = true
}

// Overload makes the node refuse the given number of next bundles as overloaded.
func (n *Node) Overload(bundles int) {
	n.cluster.mutex.Lock()
	defer n.cluster.mutex.Unlock()
	n.refuse = bundles
}

// SetAbsent makes the node report that it lacks the blocks up to a height. It still serves them.
func (n *Node) SetAbsent(height ledger.Height) {
	n.cluster.mutex.Lock()
	defer n.cluster.mutex.Unlock()
	n.absent = height
	n.cluster.notify()
}

// Rounds implements api.Backend. What it holds is for a test to note.
func (n *Node) Rounds() *rounds.Recorder { return n.rounds }

// RoundEdges implements api.Backend: a complete digraph.
func (n *Node) RoundEdges(members int) (edges [][2]int) {
	for from := range members {
		for to := range members {
			if from != to {
				edges = append(edges, [2]int{from, to})
			}
		}
	}
	return edges
}

// FetchAbsent implements api.Backend. No other node has more blocks.
func (n *Node) FetchAbsent(_ context.Context, height ledger.Height) error {
	return fmt.Errorf("no other node has block %d", height)
}

// Store implements api.Backend.
func (n *Node) Store() *store.Store { return n.cluster.store }

// Admit implements api.Backend.
func (n *Node) Admit(_ context.Context, bundles []*ledger.Bundle, inOrder bool) []*report.Refusal {
	c := n.cluster
	refusals := make([]*report.Refusal, len(bundles))
	failures := ledger.VerifyBundles(bundles, c.genesis, c.store.Book(), c.store)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for i, bundle := range bundles {
		refusals[i] = n.admit(bundle, failures[i])
		if refusals[i] != nil && inOrder {
			for later := i + 1; later < len(bundles); later++ {
				refusals[later] = &report.Refusal{Code: report.RefusedPredecessor,
					Reason: "a bundle before it was refused"}
			}
			break
		}
	}
	c.wanted()
	return refusals
}

func (n *Node) admit(bundle *ledger.Bundle, failure error) *report.Refusal {
	c := n.cluster
	switch {
	case n.mode != report.ModeOrdering:
		return &report.Refusal{Code: report.RefusedNotWriting,
			Reason: "this node takes no writes now: " + n.reason, Writers: c.writers()}
	case errors.Is(failure, ledger.ErrUnknownOrganisation):
		return &report.Refusal{Code: report.RefusedUnknownOrganisation, Reason: failure.Error()}
	case errors.Is(failure, ledger.ErrSignature), errors.Is(failure, ledger.ErrUnauthorised):
		return &report.Refusal{Code: report.RefusedSignature, Reason: failure.Error()}
	case failure != nil:
		return &report.Refusal{Code: report.RefusedMalformed, Reason: failure.Error()}
	case n.refuse > 0:
		n.refuse--
		return &report.Refusal{Code: report.RefusedOverloaded,
			Reason: "the node is overloaded: retry in a moment"}
	case len(n.pending)+bundle.Len() > c.limit:
		return &report.Refusal{Code: report.RefusedOverloaded,
			Reason: "the node's pool is full: retry in a moment"}
	}
	if n.foresees {
		if foreseen, err := c.store.Foreseen(bundle); err == nil &&
			foreseen.Code != ledger.Applied {
			return &report.Refusal{Code: report.RefusedForeseen, Reason: "it would fail",
				Foreseen: api.ReasonCode(foreseen.Code)}
		}
	}
	head := c.store.Head().Height
	fresh := false
	for i := range bundle.Len() {
		known, err := c.store.Known(bundle.ID(i))
		if err != nil {
			return &report.Refusal{Code: report.RefusedNotWriting, Reason: err.Error()}
		}
		if known || n.pending[bundle.ID(i)] {
			continue
		}
		if last := bundle.Transaction(i).LastValid; last != 0 && last <= head && c.book == nil {
			return &report.Refusal{Code: report.RefusedExpired,
				Reason: fmt.Sprintf("transaction %d was valid up to block %d, and block %d is "+
					"final: sign it again with a later one", i, last, head)}
		}
		fresh = true
	}
	if fresh {
		n.pool = append(n.pool, bundle)
		for _, id := range bundle.IDs() {
			n.pending[id] = true
		}
	}
	return nil
}

func (c *Cluster) writers() []string {
	var addresses []string
	for _, node := range c.nodes {
		if node.mode == report.ModeOrdering {
			addresses = append(addresses, fmt.Sprintf("http://127.0.0.1:%d", 8080+2*node.index))
		}
	}
	return addresses
}

// Status implements api.Backend.
func (n *Node) Status(id ledger.Hash) (report.Status, error) {
	c := n.cluster
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return n.status(id)
}

func (n *Node) status(id ledger.Hash) (report.Status, error) {
	c := n.cluster
	found, err := c.store.Crossing(id)
	switch {
	case err == nil:
		return c.inChain(id, &found), nil
	case !errors.Is(err, store.ErrNotFound):
		return report.Status{ID: id}, fmt.Errorf("reading a transaction: %w", err)
	case n.pending[id]:
		return report.Status{ID: id, Outcome: report.OutcomePending,
			Level: report.LevelAdmitted}, nil
	case c.expired[id]:
		return report.Status{ID: id, Outcome: report.OutcomeExpired}, nil
	}
	return report.Status{ID: id}, nil
}

// inChain returns the status of a transaction that this chain has.
func (c *Cluster) inChain(id ledger.Hash, found *store.Crossing) report.Status {
	status := report.Status{ID: id, Height: found.Height, Index: uint32(found.Index),
		Result: found.Entry.Result, Waits: found.Waits}
	status.Outcome = map[store.Outcome]report.Outcome{
		store.TookEffect: report.OutcomeExecuted, store.Refused: report.OutcomeFailed,
		store.Waiting: report.OutcomeWaiting, store.PassedThrough: report.OutcomeRelayed,
	}[found.Outcome]
	if len(found.Destinations) > 1 || found.Outcome == store.PassedThrough {
		status.Destinations = found.Destinations
	}
	if settled := found.Settled; settled != nil {
		status.Settled = settled.Height
		if found.Outcome == store.Refused {
			status.Result = settled.Entry.Transaction().Verdict.Result
		}
	}
	status.Level = c.heights.Level(max(status.Height, status.Settled))
	return status
}

// Wait implements api.Backend.
func (n *Node) Wait(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	for {
		statuses := make([]report.Status, len(ids))
		done := true
		n.cluster.mutex.Lock()
		changed := n.cluster.changed
		for i, id := range ids {
			var err error
			if statuses[i], err = n.status(id); err != nil {
				n.cluster.mutex.Unlock()
				return nil, err
			}
			done = done && statuses[i].Final(level)
		}
		n.cluster.mutex.Unlock()
		if done {
			return statuses, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return statuses, ctx.Err()
		}
	}
}

// Heights implements api.Backend.
func (n *Node) Heights() (report.Heights, <-chan struct{}) {
	n.cluster.mutex.Lock()
	defer n.cluster.mutex.Unlock()
	return n.cluster.heights, n.cluster.changed
}

// NodeState implements api.Backend.
func (n *Node) NodeState() report.NodeState {
	n.cluster.mutex.Lock()
	defer n.cluster.mutex.Unlock()
	return n.state()
}

func (n *Node) state() report.NodeState {
	c := n.cluster
	members := make([]uint32, len(c.nodes))
	for i := range members {
		members[i] = uint32(i)
	}
	var lacks *report.Backfill
	if n.absent > 0 {
		lacks = &report.Backfill{Snapshot: n.absent + 1, Absent: n.absent, Source: "node-0"}
	}
	heights := c.heights
	heights.Recorded = heights.Stored // as if each round had been on the disk before its block
	return report.NodeState{
		Backfill: lacks, Waiting: c.waiting(),
		Index: uint32(n.index), Name: fmt.Sprintf("node-%d", n.index), Mode: n.mode,
		Reason: n.reason,
		Engine: report.EngineState{Engine: c.engine().Name, Generation: 1, Epoch: 1,
			Round: uint64(c.round), Members: members},
		Heights: heights, Records: uint64(c.round), HeadHash: c.store.Head().Hash,
		Started: time.UnixMilli(1_700_000_000_000), Version: "test",
		PoolTransactions: uint64(len(n.pending)),
	}
}

// engine returns the engine that the chain names, or the one of all settings.
func (c *Cluster) engine() ledger.EngineChoice {
	choice := c.store.Engine()
	choice.Name = cmp.Or(choice.Name, "allconcur+")
	return choice
}

// ClusterState implements api.Backend.
func (n *Node) ClusterState() report.ClusterState {
	c := n.cluster
	c.mutex.Lock()
	defer c.mutex.Unlock()
	state := report.ClusterState{
		Chain: c.genesis.Chain, GenesisHash: c.genesis.Hash(),
		Digraph: fmt.Sprintf("complete(%d)", len(c.nodes)), Node: n.state(),
		TransactionsTotal: c.store.Head().Total,
		Ordering: report.OrderingSettings{Engine: c.engine().Name,
			EngineHeight: c.engine().Height},
		Engines: []string{"allconcur+", "allconcur"},
	}
	for i, node := range c.nodes {
		state.Members = append(state.Members, report.MemberState{
			Index: uint32(i), Name: fmt.Sprintf("node-%d", i), Self: node == n, Connected: true,
			Member:        true,
			OrderedHeight: c.heights.Ordered, StoredHeight: c.heights.Stored,
			AbsentHeight: node.absent,
		})
		for j := range c.nodes {
			if i != j {
				state.Edges = append(state.Edges,
					report.DigraphEdge{From: uint32(i), To: uint32(j)})
			}
		}
	}
	return state
}
