package node_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// growing is a book that gets further shards while its organisations pay each other.
type growing struct {
	*book
	ctx    context.Context
	paying sync.WaitGroup
	mu     sync.Mutex
	paid   map[[2]int]int64 // payments that took effect, by payer and payee
	doors  map[int][]string // URLs of each shard's nodes that run
}

func newGrowing(t *testing.T, members int, tree ...ledger.ShardID) *growing {
	t.Helper()
	g := &growing{book: newBook(t, members, tree...), paid: map[[2]int]int64{},
		doors: map[int][]string{}}
	ctx, stop := context.WithCancel(t.Context())
	g.ctx = ctx
	t.Cleanup(func() {
		stop()
		g.paying.Wait()
	})
	g.open()
	g.tell()
	return g
}

// tell updates the addresses that payers use.
func (g *growing) tell() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.doors)
	for k, running := range g.nodes {
		if running != nil {
			g.doors[k/g.members] = append(g.doors[k/g.members], running.URL())
		}
	}
}

// flow pays one unit at a time from one organisation to another, through nodes of the shard via,
// until the test ends.
func (g *growing) flow(from, to, via int) {
	payer := *g.clients[from]
	payer.Stream, payer.Sequence = uint64(1+from*10+to), 0
	payee := g.clients[to].Account("a")
	g.paying.Go(func() {
		for g.ctx.Err() == nil {
			// An issuer never runs out of funds, however long the test takes.
			payment := payer.Transfer(payer.Account("issuer"), payee, 1)
			payment.Deadline = soon(time.Hour)
			if !g.payOne(payer.Bundle(payment), via) {
				return
			}
			g.mu.Lock()
			g.paid[[2]int{from, to}]++
			g.mu.Unlock()
		}
	})
}

// payOne repeats a payment until it has taken effect, whichever nodes come and go. It returns false
// if the test ends before.
func (g *growing) payOne(bundle *ledger.Bundle, via int) bool {
	for try := 0; g.ctx.Err() == nil; try++ {
		g.mu.Lock()
		urls := g.doors[via]
		url := urls[try%len(urls)]
		g.mu.Unlock()
		bounded, cancel := context.WithTimeout(g.ctx, 5*time.Second)
		nodes, err := client.New([]string{url}, client.Options{})
		var statuses []*ledgerdv1.TransactionStatus
		if err == nil {
			statuses, err = nodes.Submit(bounded, bundle, ledgerdv1.Level_LEVEL_DURABLE)
			nodes.Close()
		}
		cancel()
		switch {
		case err != nil:
		case statuses[0].GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE:
			return true
		case statuses[0].GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED:
			g.t.Errorf("a payment failed: %v", statuses[0])
			return false
		}
		select {
		case <-g.ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// paysOn waits until each of these pairs has paid since the call.
func (g *growing) paysOn(pairs ...[2]int) {
	g.t.Helper()
	count := func(pair [2]int) int64 {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.paid[pair]
	}
	for _, pair := range pairs {
		before := count(pair)
		g.eventually(fmt.Sprintf("organisation %d pays %d", pair[0], pair[1]), func() bool {
			return count(pair) > before+1 // the first one may have been under way
		})
	}
}

// candidates makes the homes of further nodes, which have no place in the book yet.
func (g *growing) candidates() (members []ledger.Member, homes []*home.Home) {
	g.t.Helper()
	for range g.members {
		k := len(g.peers)
		seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", g.t.Name(), k))
		key := ed25519.NewKeyFromSeed(seed[:])
		public := key.Public().(ed25519.PublicKey)
		peer, err := p2p.PeerID(public)
		if err != nil {
			g.t.Fatal(err)
		}
		config := home.Initial("")
		config.API.Listen = "127.0.0.1:0"
		h, err := home.CreateJoining(filepath.Join(g.t.TempDir(), fmt.Sprintf("node-%d", k)),
			config, g.homes[0].Genesis, key)
		if err != nil {
			g.t.Fatal(err)
		}
		g.peers, g.nodes = append(g.peers, peer), append(g.nodes, nil)
		homes = append(homes, h)
		members = append(members, ledger.Member{Name: fmt.Sprintf("node-%d", k), Key: public,
			Address: fmt.Sprintf("127.0.0.1:%d", 2+k)})
	}
	return members, homes
}

// add adds a shard below another one, through a node. Its nodes are not started.
func (g *growing) add(parent ledger.ShardID, via int) (shard int) {
	g.t.Helper()
	members, homes := g.candidates()
	opened := g.nodes[via].Store()
	operator := &ledgertest.Operator{Ledger: opened.Book(), Sequence: opened.BookChanges()}
	bundle := operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{
		Number:   opened.BookChanges() + 1,
		Addition: &ledger.ShardAddition{Parent: parent, Members: members}}))
	nodes := g.via(via)
	ctx, cancel := context.WithTimeout(g.t.Context(), 60*time.Second)
	defer cancel()
	statuses, err := nodes.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		g.t.Fatal(err)
	}
	g.executed(statuses)
	shard = len(g.tree)
	genesis, err := nodes.ShardGenesis(ctx, ledger.ShardID(shard))
	if err != nil {
		g.t.Fatal(err)
	}
	seed, err := nodes.Seed(ctx, genesis)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, h := range homes {
		if err := h.Begin(genesis, seed); err != nil {
			g.t.Fatal(err)
		}
		admitted, err := home.Load(h.Dir)
		if err != nil {
			g.t.Fatal(err)
		}
		g.homes = append(g.homes, admitted)
	}
	g.tree = append(g.tree, parent)
	g.clients = append(g.clients, ledgertest.NewClient(genesis,
		ledger.OrganisationName(fmt.Sprintf("org%d", shard))))
	return shard
}

// enter registers the organisation of an added shard, and opens its accounts, each through a node.
func (g *growing) enter(shard, via, home int) {
	g.t.Helper()
	c := g.clients[shard]
	registration := c.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
		ledger.ShardID(shard)
	g.executed(g.submitAt(via, registration))
	opening := c.Next()
	for _, name := range []string{"issuer", "a", "b"} {
		opening.Openings = append(opening.Openings,
			ledger.Opening{Account: c.Account(name), Issuer: name == "issuer"})
	}
	g.executed(g.submitAt(home, opening, c.Transfer(c.Account("issuer"), c.Account("a"), 1000)))
}

// balances checks that the balances at a cut of these places add up, at a node.
func (g *growing) balances(k int, height *uint64, places int) (cut []*ledgerdv1.Place) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 60*time.Second)
	defer cancel()
	nodes := g.via(k)
	found, err := nodes.Cut(ctx, height)
	if err != nil {
		g.t.Fatalf("a cut at node %d: %v", k, err)
	}
	if cut = found.GetPlaces(); len(cut) != places {
		g.t.Fatalf("a cut at node %d has %d places, want %d", k, len(cut), places)
	}
	g.balancesAt(k, cut)
	return cut
}

// balancesAt checks that the balances at a cut add up, at a node.
func (g *growing) balancesAt(k int, cut []*ledgerdv1.Place) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 60*time.Second)
	defer cancel()
	var sum ledger.Amount
	count := 0
	for account, err := range g.via(k).AccountsAt(ctx, "", cut) {
		if err != nil {
			g.t.Fatalf("the accounts at a cut at node %d: %v", k, err)
		}
		for _, balance := range account.GetBalances() {
			amount, err := ledger.ParseAmount(balance.GetAmount())
			if err == nil {
				sum, err = sum.Add(amount)
			}
			if err != nil {
				g.t.Fatal(err)
			}
		}
		count++
	}
	if count < 3*2 || sum.Sign() != 0 {
		g.t.Errorf("at node %d the balances of %d accounts add up to %s", k, count, sum)
	}
}

// reader takes a subscription to the book, and knows the blocks that came of each shard.
type reader struct {
	mu    sync.Mutex
	next  map[ledger.ShardID]ledger.Height
	ended error
}

func (g *growing) read(k int, begin map[ledger.ShardID]ledger.Height) *reader {
	g.t.Helper()
	r := &reader{next: map[ledger.ShardID]ledger.Height{}}
	nodes := g.via(k)
	g.paying.Go(func() {
		err := nodes.SubscribeBook(g.ctx, begin, false, func(m *ledgerdv1.SubscribeResponse) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, place := range m.GetBegin() {
				r.next[ledger.ShardID(place.GetShard())] = ledger.Height(place.GetHeight())
			}
			if block := m.GetBlock(); block != nil {
				r.next[ledger.ShardID(block.GetHeader().GetShard())]++
			}
			return nil
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		if !errors.Is(err, context.Canceled) {
			r.ended = err
		}
	})
	return r
}

func (r *reader) at(shard ledger.ShardID) ledger.Height {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next[shard]
}

func (r *reader) wrong() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// A running book gets a shard while its organisations pay each other and one of its nodes is down.
// The new shard's nodes start, an organisation registers there, and all shards pay each other. The
// node that was down catches up. Nodes of each shard restart. The balances at one cut add up at any
// node, also those of before.
func TestBookGrowsUnderLoad(t *testing.T) {
	t.Parallel()
	g := newGrowing(t, 3, 0, 0)
	g.flow(0, 1, 0)
	g.flow(1, 0, 1)
	g.paysOn([2]int{0, 1}, [2]int{1, 0})
	first := g.read(0, nil)
	g.stop(5)
	g.tell()
	before := uint64(g.nodes[0].Store().AppendedHeight())
	shard := g.add(1, 2) // below shard 1, through a node of the root
	g.paysOn([2]int{0, 1}, [2]int{1, 0})
	g.start(g.of(shard)...)
	g.ordering(g.of(shard)...)
	g.tell()
	g.enter(shard, 3, 0) // through nodes of both other shards
	g.flow(2, 0, 2)
	g.flow(0, 2, 1)
	g.flow(1, 2, 0)
	all := [][2]int{{0, 1}, {1, 0}, {2, 0}, {0, 2}, {1, 2}}
	g.paysOn(all...)
	g.start(5)
	g.tell()
	g.knows(5, "0(1(2))", 3, 3, 3)
	for _, k := range []int{1, 4, 7} {
		g.stop(k)
		g.tell()
		g.paysOn(all[2], all[4])
		g.start(k)
		g.tell()
	}
	for shard := range g.tree {
		g.ordering(g.of(shard)...)
	}
	g.paysOn(all...)
	cut := g.balances(5, nil, 3)
	for _, k := range []int{0, 7} {
		g.balancesAt(k, cut)
		g.balances(k, &before, 2)
	}
	resumed := g.read(5, map[ledger.ShardID]ledger.Height{0: 1, 1: 1})
	for shard := range g.tree {
		head := g.nodes[shard*g.members].Store().Head().Height
		for _, r := range []*reader{first, resumed} {
			g.eventually(fmt.Sprintf("block %d of shard %d is read", head, shard), func() bool {
				return r.at(ledger.ShardID(shard)) > head
			})
			if r.wrong() != nil {
				t.Error(r.wrong())
			}
		}
	}
}

// A shard is added below an added one, through a node of that one. A member joins an added shard,
// and the others believe it by its trail from the shard's genesis on. All nodes restart.
func TestAddedShardGrows(t *testing.T) {
	t.Parallel()
	g := newGrowing(t, 1, 0, 0)
	g.flow(0, 1, 0)
	second := g.add(1, 0)
	g.start(second)
	g.ordering(second)
	third := g.add(ledger.ShardID(second), second)
	g.start(third)
	g.ordering(third)
	g.tell()
	g.enter(second, third, 0)
	g.enter(third, 1, second)
	pairs := [][2]int{{0, 1}, {third, 0}, {0, third}, {second, third}, {1, second}}
	for _, pair := range pairs[1:] {
		g.flow(pair[0], pair[1], third-pair[0])
	}
	g.paysOn(pairs...)
	operator := ledgertest.NewOperator(g.homes[second].Genesis)
	seed, err := g.homes[second].Seed()
	if err != nil {
		t.Fatal(err)
	}
	joined := g.join(operator, second)
	if err := home.WriteFile(filepath.Join(g.homes[joined].Dir, home.SeedFile), seed,
		0o644); err != nil {
		t.Fatal(err)
	}
	g.start(joined)
	g.ordering(second, joined)
	for _, k := range []int{0, 1, third} {
		g.knows(k, "0(1(2(3)))", 1, 1, 2, 1)
	}
	g.paysOn(pairs...)
	for _, k := range g.all() {
		g.stop(k)
	}
	g.start(g.all()...)
	for _, k := range []int{0, 1, third} {
		g.ordering(k)
		g.knows(k, "0(1(2(3)))", 1, 1, 2, 1)
	}
	g.ordering(second, joined)
	g.tell()
	g.paysOn(pairs...)
	g.balancesAt(joined, g.balances(0, nil, 4))
}

// knows waits until a node shows this tree, and all these members of each shard order.
func (g *growing) knows(k int, shape string, members ...int) {
	g.t.Helper()
	nodes := g.via(k)
	g.eventually(fmt.Sprintf("node %d knows the tree %s", k, shape), func() bool {
		ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
		defer cancel()
		tree, err := nodes.Tree(ctx)
		if err != nil || tree.GetShape() != shape || len(tree.GetShards()) != len(members) {
			return false
		}
		for shard, count := range members {
			for _, member := range tree.GetShards()[shard].GetMembers() {
				if member.GetMode() == "ordering" {
					count--
				}
			}
			if count != 0 {
				return false
			}
		}
		return true
	})
}
