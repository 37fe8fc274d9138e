package node_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// book is several shards of real nodes in this process, over the memory fabric. Node k is member k
// mod members of shard k div members. Organisation org<s> has its home in shard s, with the
// accounts issuer, a and b.
type book struct {
	*shard
	members int
	tree    []ledger.ShardID
	clients []*ledgertest.Client // by shard
	version int
}

// newBook returns a book with vouched crossings and of the newest version.
func newBook(t *testing.T, members int, tree ...ledger.ShardID) *book {
	t.Helper()
	return newBookOf(t, true, members, tree...)
}

func newBookOf(t testing.TB, vouched bool, members int, tree ...ledger.ShardID) *book {
	t.Helper()
	s := &shard{t: t, gone: map[int]bool{}, network: memory.NewNetwork(),
		nodes: make([]*node.Node, members*len(tree)),
		store: store.Options{MemTableBytes: 4 << 20, ReserveBytes: 1 << 20}}
	genesis := &ledger.Genesis{Chain: "test", Time: 1,
		Operators: []ledger.PublicKey{ledgertest.PublicKey("operator")}, Tree: tree,
		Shards: make([][]ledger.Member, len(tree)), VouchedCrossings: vouched}
	if vouched { // so is each new book, and a book that is not is an old one
		genesis.Version = ledger.NewestVersion
	}
	var keys []ed25519.PrivateKey
	for k := range members * len(tree) {
		seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", t.Name(), k))
		key := ed25519.NewKeyFromSeed(seed[:])
		public := key.Public().(ed25519.PublicKey)
		peer, err := p2p.PeerID(public)
		if err != nil {
			t.Fatal(err)
		}
		keys, s.peers = append(keys, key), append(s.peers, peer)
		genesis.Shards[k/members] = append(genesis.Shards[k/members],
			ledger.Member{Name: fmt.Sprintf("node-%d", k), Key: public, Address: "127.0.0.1:1"})
	}
	genesis.Members = genesis.Shards[0]
	b := &book{shard: s, members: members, tree: tree, version: genesis.Version}
	for k, key := range keys {
		config := home.Initial("")
		config.API.Listen = "127.0.0.1:0"
		own, err := genesis.ForShard(ledger.ShardID(k / members))
		if err != nil {
			t.Fatal(err)
		}
		h, err := home.Create(filepath.Join(t.TempDir(), fmt.Sprintf("node-%d", k)), config,
			own, key)
		if err != nil {
			t.Fatal(err)
		}
		s.homes = append(s.homes, h)
	}
	for shard := range tree {
		b.clients = append(b.clients, ledgertest.NewClient(genesis,
			ledger.OrganisationName(fmt.Sprintf("org%d", shard))))
	}
	t.Cleanup(func() {
		for k := range s.nodes {
			s.stop(k)
		}
	})
	return b
}

// of returns the nodes of a shard.
func (b *book) of(shard int) (which []int) {
	for k := range b.members {
		which = append(which, shard*b.members+k)
	}
	return which
}

// open starts all nodes, registers the organisations and opens their accounts, each through another
// node.
func (b *book) open() {
	b.t.Helper()
	b.start(b.all()...)
	for shard := range b.tree {
		b.ordering(b.of(shard)...)
	}
	for shard, c := range b.clients {
		registration := c.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
			ledger.ShardID(shard)
		b.executed(b.submitAt(shard*b.members, registration))
	}
	for shard, c := range b.clients {
		opening := c.Next()
		for _, name := range []string{"issuer", "a", "b"} {
			opening.Openings = append(opening.Openings,
				ledger.Opening{Account: c.Account(name), Issuer: name == "issuer"})
		}
		funding := c.Transfer(c.Account("issuer"), c.Account("a"), 1000)
		b.executed(b.submitAt((shard+1)%len(b.tree)*b.members, opening, funding))
	}
}

// via returns a client of some nodes.
func (b *book) via(which ...int) *client.Client {
	b.t.Helper()
	var urls []string
	for _, k := range which {
		urls = append(urls, b.nodes[k].URL())
	}
	c, err := client.New(urls, client.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

// signed signs with all organisations that are debited or must sign.
func (b *book) signed(transactions ...ledger.Transaction) *ledger.Bundle {
	b.t.Helper()
	bundle, err := ledger.NewBundle(transactions...)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.clients {
		concerned := slices.ContainsFunc(transactions, func(t ledger.Transaction) bool {
			return t.Signer == c.Organisation ||
				slices.ContainsFunc(t.Postings, func(p ledger.Posting) bool {
					return p.Amount.Sign() < 0 && p.Account.Organisation() == c.Organisation
				})
		})
		if concerned {
			if err := bundle.Sign(c.Organisation, ledgertest.Key(string(c.Organisation))); err !=
				nil {
				b.t.Fatal(err)
			}
		}
	}
	return bundle
}

// submitAt submits transactions in one bundle to a node, and waits until they are durable.
func (b *book) submitAt(k int, transactions ...ledger.Transaction) []*ledgerdv1.TransactionStatus {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer cancel()
	statuses, err := b.via(k).Submit(ctx, b.signed(transactions...), ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		b.t.Fatalf("submitting to node %d: %v", k, err)
	}
	return statuses
}

func (b *book) executed(statuses []*ledgerdv1.TransactionStatus) {
	b.t.Helper()
	for _, status := range statuses {
		if status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
			b.t.Fatalf("%v", status)
		}
	}
}

// pay returns a payment from account a of one organisation to account a of another, with a deadline
// if the book asks for one.
func (b *book) pay(from, to int, amount int64) ledger.Transaction {
	payment := b.clients[from].Transfer(b.clients[from].Account("a"), b.clients[to].Account("a"),
		amount)
	if ledger.TakesDeadlines(b.version) {
		payment.Deadline = soon(time.Hour)
	}
	return payment
}

// holds waits until all running nodes of a shard see this balance in its organisation's account a.
func (b *book) holds(shard int, amount int64) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("shard %d has %d", shard, amount), func() bool {
		for _, k := range b.of(shard) {
			if b.nodes[k] == nil {
				continue
			}
			account, _ := b.nodes[k].Store().Account(b.clients[shard].Account("a"))
			if account.Balance(ledger.DefaultAsset) != ledger.NewAmount(amount) ||
				b.nodes[k].Store().PendingCount() > 0 {
				return false
			}
		}
		return true
	})
}

// status returns what a node knows of a transaction.
func (b *book) status(k int, id ledger.Hash) *ledgerdv1.Transaction {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	transaction, err := b.via(k).Transaction(ctx, id)
	if err != nil {
		b.t.Fatalf("node %d, transaction %s: %v", k, id, err)
	}
	return transaction
}

func TestPaymentsCrossShards(t *testing.T) {
	t.Parallel()
	for _, shape := range []struct {
		name    string
		vouched bool
		members int
		tree    []ledger.ShardID
	}{
		{"two of one", true, 1, []ledger.ShardID{0, 0}},
		{"three of two", true, 2, []ledger.ShardID{0, 0, 0}},
		{"chain of three", true, 1, []ledger.ShardID{0, 0, 1}},
		{"three of two, trusting", false, 2, []ledger.ShardID{0, 0, 0}},
	} {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			b := newBookOf(t, shape.vouched, shape.members, shape.tree...)
			b.open()
			last := len(shape.tree) - 1
			b.executed(b.submitAt(0, b.pay(0, last, 10)))
			b.executed(b.submitAt(last*b.members, b.pay(1, last, 20)))
			b.executed(b.submitAt(0, b.pay(last, 0, 5)))
			failed := b.submitAt(b.members, b.pay(0, last, 5000))
			if failed[0].GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED ||
				failed[0].GetReasonCode() != api.ReasonCode(ledger.InsufficientFunds) {
				t.Errorf("an overdraft: %v", failed)
			}
			want := make([]int64, len(shape.tree))
			for shard := range want {
				want[shard] = 1000
			}
			want[0] += 5 - 10
			want[1] -= 20
			want[last] += 10 + 20 - 5
			for shard, amount := range want {
				b.holds(shard, amount)
			}
		})
	}
}

func TestStoppedShardHoldsUpWhatConcernsIt(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.open()
	b.stop(2)
	crossing := b.signed(b.pay(1, 2, 30))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := b.via(1).SubmitInOrder(ctx, []*ledger.Bundle{crossing},
		ledger.Hash{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("it waits for shard 2", func() bool {
		return slices.Equal(b.status(0, crossing.ID(0)).GetStatus().GetWaitsFor(), []uint32{2})
	})
	b.executed(b.submitAt(1, b.pay(1, 0, 7))) // other payments continue
	b.executed(b.submitAt(0, b.pay(0, 1, 1)))
	b.start(2)
	b.executed([]*ledgerdv1.TransactionStatus{b.settled(1, crossing.ID(0))})
	b.holds(0, 1000+7-1)
	b.holds(1, 1000-30-7+1)
	b.holds(2, 1000+30)
}

// settled waits at a node until a transaction is durable or has failed.
func (b *book) settled(k int, id ledger.Hash) *ledgerdv1.TransactionStatus {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer cancel()
	transaction, err := b.via(k).Wait(ctx, id, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		b.t.Fatalf("waiting at node %d for %s: %v", k, id, err)
	}
	return transaction.GetStatus()
}

// The last valid block of a payment is a block of the signer's home. The shards where it enters and
// that it passes may be far ahead.
func TestLastValidBlockIsOneOfTheSignersHome(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.open()
	last := b.nodes[1].Store().Head().Height + 5
	for b.nodes[0].Store().Head().Height <= last+1 {
		b.executed(b.submitAt(0, b.clients[0].Transfer(b.clients[0].Account("a"),
			b.clients[0].Account("b"), 1)))
	}
	crossing := b.pay(1, 2, 10)
	crossing.LastValid = last
	b.executed(b.submitAt(2, crossing))
	late := b.pay(1, 2, 10)
	late.LastValid = 1
	if status := b.submitAt(0, late)[0]; status.GetReasonCode() != api.ReasonCode(ledger.Expired) {
		t.Errorf("valid up to block 1: %v", status)
	}
	b.holds(2, 1000+10)
}

// A node comes back with blocks that the majority of its shard never had. In them it refused a
// transaction that the majority takes. It gives these blocks up, and no other shard got its
// verdict.
func TestVerdictThatIsGivenUpIsNotHeard(t *testing.T) {
	t.Parallel()
	b := newBook(t, 3, 0, 0)
	b.open()
	for _, k := range b.of(1) {
		b.stop(k)
	}
	crossing := b.signed(b.pay(1, 0, 900))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := b.via(0).SubmitInOrder(ctx, []*ledger.Bundle{crossing},
		ledger.Hash{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("it waits", func() bool { return b.nodes[0].Store().PendingCount() == 1 })
	carried, err := b.nodes[0].Store().Stream(1, b.nodes[0].Store().Streamed(1), 1,
		b.nodes[0].Store().Head().Height)
	if err != nil {
		t.Fatal(err)
	}
	spent := b.clients[1].Bundle(b.clients[1].Transfer(b.clients[1].Account("a"),
		b.clients[1].Account("b"), 500))
	b.alone(3, &ledger.Batch{Bundles: [][]byte{spent.Encode()}}, ledger.Applied)
	b.alone(3, &ledger.Batch{Carried: carried}, ledger.InsufficientFunds)
	b.start(4, 5)
	b.executed([]*ledgerdv1.TransactionStatus{b.settled(4, crossing.ID(0))})
	b.start(3)
	b.ordering(b.of(1)...)
	b.holds(1, 1000-900)
	b.holds(0, 1000+900)
}

// alone appends a round to a stopped node's chain that no other node has, and checks the outcome of
// its transaction.
func (b *book) alone(k int, batch *ledger.Batch, want ledger.Code) {
	b.t.Helper()
	opened, err := store.Open(b.homes[k].Data(), b.homes[k].Genesis, b.store)
	if err != nil {
		b.t.Fatal(err)
	}
	header, _, err := opened.Header(opened.Head().Height)
	if err != nil {
		b.t.Fatal(err)
	}
	var payloads [][]byte
	for _, member := range b.of(k / b.members) {
		var vouched []ledger.Vouched
		for _, carried := range batch.Carried {
			vouched = append(vouched, ledger.Vouched{Number: carried.Number,
				Hash: ledger.CarriedHash(carried.Bundle)})
		}
		own := *batch
		own.Vouch(b.homes[member].Key, b.homes[member].Genesis.Hash(), vouched)
		payloads = append(payloads, own.Encode())
	}
	block, err := opened.Apply(header.Epoch, header.Round+1, payloads)
	if err != nil || block.Len() != 1 || block.Entry(0).Result.Code != want {
		b.t.Fatalf("a block of node %d alone: %+v, %v", k, block, err)
	}
	if err := opened.Close(); err != nil {
		b.t.Fatal(err)
	}
}
