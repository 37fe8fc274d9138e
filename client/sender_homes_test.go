package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// newShardedBank serves a book whose shards 1 and 2 are below 0. acme and globex live in shard 1,
// and bank in shard 2. All have the accounts a, an issuer, and b.
func newShardedBank(t *testing.T) (*Client, map[ledger.OrganisationName]Key) {
	t.Helper()
	return newShardedBankOf(t, ledger.NewestVersion)
}

// newShardedBankOf is newShardedBank with a version of the chains.
func newShardedBankOf(t *testing.T, version int) (*Client, map[ledger.OrganisationName]Key) {
	t.Helper()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = version
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	c := newTestClient(t, apitest.NewBook(t, genesis, api.Options{}).Door(1).URL)
	keys := map[ledger.OrganisationName]Key{}
	for _, of := range []struct {
		name  ledger.OrganisationName
		shard ledger.ShardID
	}{{"acme", 1}, {"globex", 1}, {"bank", 2}} {
		key := testKey(t, of.name)
		keys[of.name] = key
		for _, transaction := range []ledger.Transaction{
			{Registrations: []ledger.Registration{{Name: of.name,
				Keys: []ledger.PublicKey{key.Public()}, Pinned: true, Shard: of.shard}}},
			{Openings: []ledger.Opening{{Account: ledger.AccountPath(of.name + ":a"), Issuer: true},
				{Account: ledger.AccountPath(of.name + ":b")}}},
		} {
			status, err := c.Post(testContext(t), []Key{key}, transaction,
				ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE)
			if err != nil || status.GetReason() != "" {
				t.Fatalf("%v, %v", status, err)
			}
		}
	}
	return c, keys
}

// entryOf returns the shard where a transaction entered the tree.
func entryOf(t *testing.T, c *Client, id ledger.Hash) uint32 {
	t.Helper()
	shown, err := c.Transaction(testContext(t), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range shown.GetPlaces() {
		if place.GetEntry() {
			return place.GetShard()
		}
	}
	return shown.GetStatus().GetShard()
}

// Once the Sender has seen where the organisations live, a transaction of one shard stays there,
// whatever else is submitted at the same time. The chain need not take deadlines.
func TestSenderSplitsByEntry(t *testing.T) {
	t.Parallel()
	for _, version := range []int{ledger.DeadlineVersion - 1, ledger.NewestVersion} {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			t.Parallel()
			testSplitsByEntry(t, version)
		})
	}
}

func testSplitsByEntry(t *testing.T, version int) {
	c, keys := newShardedBankOf(t, version)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{keys["acme"]}})
	post := func(to ledger.AccountPath) (uint32, error) {
		answer, err := s.Post(testContext(t), transfer("acme:a", to, 1))
		if err != nil || !answer.Applied() {
			return 0, fmt.Errorf("to %s: %v, %w", to, answer, err)
		}
		return entryOf(t, c, answer.ID), nil
	}
	wanted := map[ledger.AccountPath]uint32{"acme:b": 1, "globex:b": 1, "bank:b": 0}
	for to, shard := range wanted { // each alone: the Sender learns
		if got, err := post(to); err != nil || got != shard {
			t.Fatalf("alone to %s: in shard %d, %v", to, got, err)
		}
	}
	var posting sync.WaitGroup
	for range 20 {
		for to, shard := range wanted {
			posting.Go(func() {
				if got, err := post(to); err != nil || got != shard {
					t.Errorf("to %s: enters at shard %d, want %d: %v", to, got, shard, err)
				}
			})
		}
	}
	posting.Wait()
	if len(s.queues) != 3 {
		t.Errorf("%d queues, want those of no known shard, of 1 and of 0", len(s.queues))
	}
}

// A caller's transactions keep their order, though some cross shards and others do not: each spends
// what the one before brought.
func TestSenderKeepsOrderAcrossShards(t *testing.T) {
	t.Parallel()
	c, keys := newShardedBank(t)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{keys["acme"]}, MaxBundle: 3})
	for _, to := range []ledger.AccountPath{"acme:b", "bank:b"} { // the Sender learns
		if answer, err := s.Post(testContext(t), transfer("acme:a", to, 1)); err != nil ||
			!answer.Applied() {
			t.Fatalf("%v, %v", answer, err)
		}
	}
	var callers sync.WaitGroup
	for number := range 3 {
		caller := s.Caller()
		callers.Go(func() {
			path, amount := ledger.AccountPath("acme:b"), int64(10+number)
			var under []*Submission
			for range 8 {
				for _, what := range []ledger.Transaction{transfer("acme:a", path, amount),
					transfer(path, "bank:b", amount)} {
					submission, err := caller.Begin(testContext(t), what)
					if err != nil {
						t.Error(err)
						return
					}
					s.mutex.Lock()
					if last := len(under) - 1; last >= 0 && !under[last].over &&
						submission.queue != under[last].queue {
						t.Errorf("transaction %d of caller %d may overtake the one before", last+1,
							number)
					}
					s.mutex.Unlock()
					under = append(under, submission)
				}
			}
			for i, submission := range under {
				answer, err := submission.Wait(testContext(t))
				if err != nil || !answer.Applied() {
					t.Errorf("transaction %d of caller %d: %v, %v", i, number, answer, err)
				}
			}
			s.mutex.Lock()
			defer s.mutex.Unlock()
			if caller.queued != 0 {
				t.Errorf("%d of the caller's transactions are not over", caller.queued)
			}
		})
	}
	callers.Wait()
}

// What homes say of an entry, before and after they learn.
func TestHomes(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0, 1, 1) // 3 and 4 are below 1
	own := transfer("acme:a", "acme:b", 1)
	to := func(names ...ledger.OrganisationName) *ledger.Transaction {
		all := own
		all.Signer, all.Postings = "acme", nil
		for _, name := range names {
			all.Postings = append(all.Postings, ledger.Posting{
				Account: ledger.AccountPath(name + ":x")})
		}
		return &all
	}
	var h homes
	check := func(want int, names ...ledger.OrganisationName) {
		t.Helper()
		shard, known := h.entry(to(names...))
		if known != (want >= 0) || known && int(shard) != want {
			t.Errorf("%v: enters at %d, known: %v, want %d", names, shard, known, want)
		}
	}
	h.learn(to("acme", "bank"), applied(3, 4)) // too early
	check(-1, "acme")
	h.book.Store(&bookOf{tree: genesis.ShardTree(), own: 3})
	check(3, "acme")
	check(-1, "acme", "bank")
	h.learn(to("acme", "bank"), applied(3, 4))
	check(1, "acme", "bank")
	h.learn(to("acme", "shop"), applied()) // in the signer's shard
	check(3, "acme", "shop")
	check(1, "acme", "shop", "bank")
	h.learn(to("acme", "mill"), applied(2, 3))
	check(0, "bank", "mill", "acme")
	// Of two unknown ones nobody can say which lives where, and a failure says nothing.
	h.learn(to("acme", "east", "west"), applied(2, 3))
	failed := applied(2, 3)
	failed.State = ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
	h.learn(to("acme", "east"), failed)
	check(-1, "acme", "east")
	// A later outcome corrects an earlier one, a shard that there is not is not believed, and the
	// memory is bounded.
	h.learn(to("acme", "bank"), applied(2, 3))
	check(0, "acme", "bank")
	h.learn(to("acme", "bank"), applied(3, 99))
	check(0, "acme", "bank")
	for i := range homesMax {
		h.learn(to("acme", ledger.OrganisationName(fmt.Sprint("o", i))), applied(3, 4))
	}
	if len(h.known) > homesMax {
		t.Errorf("%d homes are remembered", len(h.known))
	}
}

// applied returns the status of a transaction that took effect in shards.
func applied(shards ...uint32) *ledgerdv1.TransactionStatus {
	return &ledgerdv1.TransactionStatus{Destinations: shards,
		State: ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE}
}

// elsewhereNode is a node that puts every organisation in a shard.
type elsewhereNode struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
	genesis *ledger.Genesis
	shard   uint32
	added   []*ledgerdv1.Shard // since the genesis
}

// GetGenesis implements LedgerServiceHandler.
func (n *elsewhereNode) GetGenesis(context.Context,
	*connect.Request[ledgerdv1.GetGenesisRequest]) (
	*connect.Response[ledgerdv1.GetGenesisResponse], error) {
	hash := n.genesis.Hash()
	return connect.NewResponse(&ledgerdv1.GetGenesisResponse{Canonical: n.genesis.Encode(),
		Hash: hash[:]}), nil
}

// GetTree implements LedgerServiceHandler.
func (n *elsewhereNode) GetTree(context.Context, *connect.Request[ledgerdv1.GetTreeRequest]) (
	*connect.Response[ledgerdv1.GetTreeResponse], error) {
	tree := &ledgerdv1.Tree{}
	for shard, parent := range n.genesis.Tree {
		tree.Shards = append(tree.Shards, &ledgerdv1.Shard{Shard: uint32(shard),
			Parent: uint32(parent)})
	}
	tree.Shards = append(tree.Shards, n.added...)
	return connect.NewResponse(&ledgerdv1.GetTreeResponse{Tree: tree}), nil
}

// GetOrganisation implements LedgerServiceHandler.
func (n *elsewhereNode) GetOrganisation(context.Context,
	*connect.Request[ledgerdv1.GetOrganisationRequest]) (
	*connect.Response[ledgerdv1.GetOrganisationResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetOrganisationResponse{
		Organisation: &ledgerdv1.Organisation{Shard: n.shard}}), nil
}

// A node that puts the signer in a shard that there is not is not believed.
func TestSenderAndAHomeThatThereIsNot(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	payment := transfer("acme:a", "acme:b", 1)
	payment.Signer = "acme"
	for shard, believed := range map[uint32]bool{2: true, 3: false, 1<<32 - 1: false} {
		mux := http.NewServeMux()
		mux.Handle(ledgerdv1connect.NewLedgerServiceHandler(&elsewhereNode{genesis: genesis,
			shard: shard}))
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		var h homes
		h.ask(testContext(t), newTestClient(t, server.URL), "acme")
		if at, known := h.entry(&payment); known != believed || known && uint32(at) != shard {
			t.Errorf("shard %d: enters at %d, known: %v", shard, at, known)
		}
	}
}

// Once an outcome names a shard that was added to the book since, the Sender asks for the tree
// again.
func TestHomesInAnAddedShard(t *testing.T) {
	t.Parallel()
	node := &elsewhereNode{genesis: ledgertest.ShardedGenesis(1, 0, 0, 0), shard: 1}
	mux := http.NewServeMux()
	mux.Handle(ledgerdv1connect.NewLedgerServiceHandler(node))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	nodes := newTestClient(t, server.URL)
	payment := transfer("acme:a", "bank:b", 1)
	payment.Signer = "acme"
	var h homes
	for _, step := range []struct {
		added []*ledgerdv1.Shard
		want  int
	}{{nil, -1}, {[]*ledgerdv1.Shard{{Shard: 3, Parent: 1}}, 1}} {
		node.added = step.added
		h.asked = time.Time{}
		h.ask(testContext(t), nodes, "acme")
		h.learn(&payment, applied(1, 3))
		if shard, known := h.entry(&payment); known != (step.want >= 0) ||
			known && int(shard) != step.want {
			t.Errorf("with %d added shards it enters at %d, known: %v", len(step.added), shard,
				known)
		}
	}
	h.asked = time.Time{}
	before := h.book.Load()
	if h.ask(testContext(t), nodes, "acme"); h.book.Load() != before {
		t.Error("the Sender asks again for nothing")
	}
}

// What a node says of the tree is believed as far as it can be.
func TestTreeOf(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	shown := &ledgerdv1.Tree{Shards: []*ledgerdv1.Shard{{Shard: 0, Parent: 1}, {Shard: 1},
		{Shard: 4}, {Shard: 2, Parent: 1}, {Shard: 3, Parent: 7}, {Shard: 3, Parent: 3},
		{Shard: 3, Parent: 2}}}
	tree := TreeOf(genesis, shown)
	if parent, _ := tree.Parent(3); tree.Shards() != 4 || parent != 2 || tree.Root() != 0 {
		t.Errorf("%d shards, shard 3 below %d", tree.Shards(), parent)
	}
	swapped := &ledgerdv1.Tree{Shards: []*ledgerdv1.Shard{{Shard: 0, Root: true},
		{Shard: 1, Parent: 3}, {Shard: 2, Parent: 0}, {Shard: 3, Parent: 2}}}
	if got := TreeOf(genesis, swapped).Parents(); !slices.Equal(got, []ledger.ShardID{0, 3, 0, 2}) {
		t.Errorf("the parents %v", got)
	}
	if TreeOf(genesis, nil).Shards() != 2 || TreeOf(ledgertest.Genesis(), shown) != nil {
		t.Error("a tree of nothing")
	}
}
