package book

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// shards is a book of three shards, 0 above 1 above 2, whose chains hand entries and verdicts to
// each other in memory.
type shards struct {
	t       *testing.T
	random  *rand.Rand
	stores  []*store.Store
	clients []*ledgertest.Client
	rounds  int
	dir     string
	// start is the time of the genesis. deadlines says that transfers need one.
	start     ledger.Milliseconds
	deadlines bool
	// together says that the transactions of a round are one bundle.
	together bool
	// assets are further ones that some transfers move.
	assets []ledger.AssetName
	// copies says that some transactions enter at the root, too.
	copies bool
	// lost are those that were settled with, whose stores are nil.
	lost map[ledger.ShardID]*store.Store
	// forge may change what a shard hears from the others in a round.
	forge func(shard ledger.ShardID, batch *ledger.Batch)
}

func newShards(t *testing.T, seed uint64) *shards {
	t.Helper()
	version := 0
	if seed%2 == 0 {
		version = ledger.DeadlineVersion
	}
	return newShardsOf(t, seed, version, 0, 0, 1)
}

// newShardsOf makes a book of a version with a shard for each parent. 0 stands for version 1.
func newShardsOf(t *testing.T, seed uint64, version int, parents ...ledger.ShardID) *shards {
	t.Helper()
	genesis, dir := ledgertest.ShardedGenesis(1, parents...), t.TempDir()
	genesis.Version = version
	b := &shards{start: genesis.Time, deadlines: ledger.TakesDeadlines(version),
		t: t, random: rand.New(rand.NewPCG(seed, seed))}
	for shard := range ledger.ShardID(len(parents)) {
		own, err := genesis.ForShard(shard)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := store.Open(filepath.Join(dir, fmt.Sprint(shard)), own, store.Options{
			ReserveBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		b.closeLater(opened)
		b.stores = append(b.stores, opened)
		b.clients = append(b.clients, ledgertest.NewClient(own,
			ledger.OrganisationName(fmt.Sprintf("org%d", shard))))
	}
	b.dir = dir
	var registrations []ledger.Transaction
	for shard, client := range b.clients {
		registration := client.Register()
		registration.Registrations[0].Pinned = true
		registration.Registrations[0].Shard = ledger.ShardID(shard)
		registrations = append(registrations, registration)
	}
	b.round(0, registrations...)
	b.settle()
	for shard, client := range b.clients {
		opening := client.Next()
		opening.Openings = []ledger.Opening{{Account: client.Account("issuer"), Issuer: true},
			{Account: client.Account("a")}}
		b.round(ledger.ShardID(shard), opening)
	}
	return b
}

// reopen closes the store of a shard of the genesis and opens it again.
func (b *shards) reopen(shard ledger.ShardID) {
	b.t.Helper()
	genesis := b.stores[shard].Genesis()
	if err := b.stores[shard].Close(); err != nil {
		b.t.Fatal(err)
	}
	opened, err := store.Open(filepath.Join(b.dir, fmt.Sprint(shard)), genesis, store.Options{
		ReserveBytes: -1})
	if err != nil {
		b.t.Fatal(err)
	}
	b.closeLater(opened)
	b.stores[shard] = opened
}

// closeLater closes a store after the test, if that has not done so.
func (b *shards) closeLater(opened *store.Store) {
	b.t.Cleanup(func() {
		if err := opened.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			b.t.Error(err)
		}
	})
}

// round makes a block of a shard with everything that the other chains have for it, and bundles of
// one of these transactions each, or one bundle of all.
func (b *shards) round(shard ledger.ShardID, transactions ...ledger.Transaction) {
	b.t.Helper()
	own := b.stores[shard]
	b.rounds++
	batch := &ledger.Batch{Header: ledger.BatchHeader{Time: b.start +
		ledger.Milliseconds(b.rounds)}}
	if parent, below := own.ShardTree().Parent(shard); below {
		above := b.stores[parent]
		carried, err := above.Stream(shard, own.Carried()+1, 3, above.AppendedHeight())
		if err != nil {
			b.t.Fatal(err)
		}
		batch.Carried = carried
	}
	for _, waiting := range own.Awaiting() {
		batch.Verdicts = append(batch.Verdicts, b.testimonies(shard, &waiting)...)
		for _, other := range waiting.Waits {
			if b.stores[other] == nil {
				continue
			}
			verdict, made, err := b.stores[other].Verdict(waiting.ID, shard,
				b.stores[other].AppendedHeight())
			if err != nil {
				b.t.Fatal(err)
			}
			if made {
				batch.Verdicts = append(batch.Verdicts, verdict)
			}
		}
	}
	size := 1
	if b.together {
		size = max(len(transactions), 1)
	}
	for each := range slices.Chunk(transactions, size) {
		bundle, err := ledger.NewBundle(each...)
		for _, client := range b.clients {
			if err == nil {
				err = bundle.Sign(client.Organisation,
					ed25519.PrivateKey(ledgertest.Key(string(client.Organisation))))
			}
		}
		if err != nil {
			b.t.Fatal(err)
		}
		batch.Bundles = append(batch.Bundles, bundle.Encode())
	}
	if b.forge != nil {
		b.forge(shard, batch)
	}
	if _, err := own.Apply(1, ledger.Round(b.rounds), [][]byte{batch.Encode()}); err != nil {
		b.t.Fatal(err)
	}
}

// settle makes blocks until nothing is on its way between the shards.
func (b *shards) settle() {
	for range 12 {
		for shard := range b.stores {
			if b.stores[shard] != nil {
				b.round(ledger.ShardID(shard))
			}
		}
	}
}

// trade makes a round of a random shard with transfers that enter there, some of which cross and
// some of which fail.
func (b *shards) trade() {
	shard := ledger.ShardID(b.random.IntN(len(b.stores)))
	tree := b.stores[0].ShardTree()
	var transfers []ledger.Transaction
	for range b.random.IntN(4) {
		parties := [2]ledger.ShardID{shard, shard}
		for i := range parties {
			any := ledger.ShardID(b.random.IntN(len(b.stores)))
			if tree.Reaches(shard, any) {
				parties[i] = any
			}
		}
		client, to := b.clients[parties[0]], parties[1]
		if !b.together && parties[0] != shard && to != shard && tree.Entry(parties[:]) != shard {
			continue
		}
		from := client.Account("issuer")
		if b.random.IntN(2) == 0 {
			from = client.Account("a")
		}
		transfer := client.Transfer(from, b.clients[to].Account("a"), b.random.Int64N(40)+1)
		if b.deadlines && parties[0] != to {
			transfer.Deadline = b.start + ledger.Milliseconds(b.rounds) +
				ledger.Milliseconds(b.random.IntN(100))
		}
		if len(b.assets) > 0 && b.random.IntN(4) == 0 {
			asset := b.assets[b.random.IntN(len(b.assets))]
			for i := range transfer.Postings {
				transfer.Postings[i].Asset = asset
			}
		}
		transfers = append(transfers, transfer)
	}
	if b.copies && b.random.IntN(3) == 0 {
		b.round(tree.Root(), transfers...)
	}
	b.round(shard, transfers...)
}

func (b *shards) check() (Report, error) { return Check(b.t.Context(), b.stores, nil) }

// Whatever is on its way, each asset adds up.
func TestEverythingAddsUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			b, waited, onTheWay := newShards(t, seed), 0, 0
			for range 120 {
				b.trade()
				report, err := b.check()
				if err != nil {
					t.Fatalf("after %d rounds: %v", b.rounds, err)
				}
				waited, onTheWay = waited+report.Waiting, onTheWay+report.OnTheWay
			}
			if waited < 20 || onTheWay < 10 {
				t.Errorf("%d transactions waited, %d of them were on their way", waited, onTheWay)
			}
			b.settle()
			report, err := b.check()
			if err != nil || report.Waiting != 0 || report.Accounts != 6 || report.Assets != 1 ||
				report.Carried < 20 || report.Verdicts < 20 {
				t.Errorf("in the end: %+v, %v", report, err)
			}
		})
	}
}

// A verdict or an entry that its shard did not give is found, and so are amounts that do not add
// up.
func TestForgeriesAreFound(t *testing.T) {
	t.Parallel()
	good := ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}
	for name, forge := range map[string]func(b *shards, shard ledger.ShardID, batch *ledger.Batch){
		// Shard 0 believes that shard 1 said no. It said yes.
		"the verdict of shard 1": func(_ *shards, shard ledger.ShardID, batch *ledger.Batch) {
			for i := range batch.Verdicts {
				if shard == 0 && batch.Verdicts[i].Shard == 1 {
					batch.Verdicts[i].Result.Code = ledger.InsufficientFunds
				}
			}
		},
		// Shard 1 believes that shard 0 said yes, while shard 0 has not even seen it.
		"the store of shard 1": func(b *shards, shard ledger.ShardID, batch *ledger.Batch) {
			if waiting := b.stores[0].Pending(); shard == 0 && len(waiting) > 0 {
				batch.Verdicts = append(batch.Verdicts[:0], ledger.Verdict{ID: waiting[0].ID,
					Shard: waiting[0].Waits[0], Result: good})
			}
		},
		// Shard 1 takes one entry of the stream twice, under the number of the next one.
		"is another one": func(_ *shards, shard ledger.ShardID, batch *ledger.Batch) {
			if shard == 1 && len(batch.Carried) > 1 {
				batch.Carried[0].Bundle = batch.Carried[1].Bundle
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newShards(t, 7)
			b.forge = func(shard ledger.ShardID, batch *ledger.Batch) { forge(b, shard, batch) }
			for range 20 {
				b.round(0, b.clients[0].Transfer("org0:issuer", "org1:a", 5),
					b.clients[0].Transfer("org0:issuer", "org1:a", 6))
				if name == "the store of shard 1" {
					b.round(0)
					break
				}
				b.round(1)
			}
			_, err := b.check()
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Fatalf("%v", err)
			}
			if found := (*Contradiction)(nil); errors.As(err, &found) == errors.Is(err, ErrCut) {
				t.Errorf("neither a contradiction nor of two cuts, or both: %v", err)
			}
		})
	}
}

// Amounts that do not add up are a contradiction: the sum is shown with its sign.
func TestSum(t *testing.T) {
	t.Parallel()
	c := &check{totals: make(sums)}
	for range 3 {
		c.totals.add("gold", ledger.MaxAmount)
		c.totals.add("iron", ledger.MinAmount)
	}
	if err := c.conserved(); err == nil || !strings.Contains(err.Error(),
		"asset gold in all accounts add up to 510423550381407695195061911147652317181") {
		t.Error(err)
	}
	for range 3 {
		c.totals.add("gold", ledger.MinAmount)
	}
	c.totals.add("gold", ledger.NewAmount(2))
	if err := c.conserved(); err == nil || !strings.Contains(err.Error(), "gold in all accounts "+
		"add up to -1,") {
		t.Error(err)
	}
	c.totals.add("gold", ledger.NewAmount(1))
	if err := c.conserved(); err == nil || !strings.Contains(err.Error(), "iron in all accounts "+
		"add up to -510423550381407695195061911147652317184,") {
		t.Error(err)
	}
	for range 3 {
		c.totals.add("iron", ledger.MaxAmount)
	}
	c.totals.add("iron", ledger.NewAmount(3))
	if err := c.conserved(); err != nil {
		t.Error(err)
	}
}

// Check needs one store of each shard, in their order, and ends with its context.
func TestStoresOfTheBook(t *testing.T) {
	t.Parallel()
	b := newShards(t, 1)
	for _, stores := range [][]*store.Store{nil, b.stores[:2], {b.stores[1], b.stores[0],
		b.stores[2]}} {
		if _, err := Check(t.Context(), stores, nil); !errors.Is(err, ErrStores) {
			t.Errorf("%d stores: %v", len(stores), err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Check(ended, b.stores, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	seen := make(map[ledger.ShardID]ledger.Height)
	if _, err := Check(t.Context(), b.stores, func(shard ledger.ShardID, height,
		head ledger.Height) {
		if seen[shard]++; seen[shard] != height || head != b.stores[shard].AppendedHeight() {
			t.Errorf("progress of shard %d: %d of %d", shard, height, head)
		}
	}); err != nil || len(seen) != 3 {
		t.Errorf("%v %v", seen, err)
	}
}
