package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/node/report"
)

// book is a root, shard 0, with the children 1 and 2. The root and shard 1 are here. Organisation
// org<k> lives in shard k and has the accounts issuer and a.
type book struct {
	t           testing.TB
	root, child *fixture
	// follower is another member of the root's shard. It takes blocks from its peer.
	follower  *fixture
	clients   [3]*ledgertest.Client
	heard     hearing // of the root
	followed  hearing
	misplaced []*ledger.Bundle // of the child's pool
}

// hearing records the calls of the hooks, and checks their order.
type hearing struct {
	mu        sync.Mutex
	applied   ledger.Height
	durable   ledger.Height
	exchanges int
	wrong     error
}

func (h *hearing) hooks() pipeline.Config {
	return pipeline.Config{
		Applied: func(block *ledger.Block) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if block.Header.Height != h.applied+1 {
				h.wrong = fmt.Errorf("block %d after block %d", block.Header.Height, h.applied)
			}
			h.applied = block.Header.Height
		},
		DurableTo: func(height ledger.Height) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if height <= h.durable || height > h.applied {
				h.wrong = fmt.Errorf("durable to %d, which was %d, with block %d", height,
					h.durable, h.applied)
			}
			h.durable = height
		},
		Exchanged: func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.exchanges++
			h.applied, h.durable = 0, 0
		},
	}
}

func (h *hearing) state() (applied, durable ledger.Height, exchanges int, wrong error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.applied, h.durable, h.exchanges, h.wrong
}

func newBook(t testing.TB) *book {
	t.Helper()
	genesis := ledgertest.ShardedGenesis(3, 0, 0, 0)
	first, err := genesis.ForShard(1)
	if err != nil {
		t.Fatal(err)
	}
	b := &book{t: t}
	b.root = fixtureOf(t, genesis, mempool.Config{}, b.heard.hooks())
	b.follower = fixtureOf(t, genesis, mempool.Config{}, b.followed.hooks())
	b.child = fixtureOf(t, first, mempool.Config{Misplaced: func(left *ledger.Bundle) {
		b.misplaced = append(b.misplaced, left)
	}}, pipeline.Config{})
	var registrations []ledger.Transaction
	for shard := range b.clients {
		b.clients[shard] = ledgertest.NewClient(genesis,
			ledger.OrganisationName(fmt.Sprintf("org%d", shard)))
		registration := b.clients[shard].Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
			ledger.ShardID(shard)
		registrations = append(registrations, registration)
	}
	b.rounds(b.root, ledger.Batch{Bundles: [][]byte{b.signed(registrations...).Encode()}})
	b.carry()
	for shard, f := range []*fixture{b.root, b.child} {
		opening := b.clients[shard].Next()
		opening.Openings = []ledger.Opening{{Account: b.clients[shard].Account("issuer"),
			Issuer: true}, {Account: b.clients[shard].Account("a")}}
		fund := b.clients[shard].Transfer(b.clients[shard].Account("issuer"),
			b.clients[shard].Account("a"), 100)
		b.rounds(f, ledger.Batch{Bundles: [][]byte{b.signed(opening, fund).Encode()}})
	}
	b.follow()
	return b
}

// signed signs with all organisations.
func (b *book) signed(transactions ...ledger.Transaction) *ledger.Bundle {
	bundle, err := ledger.NewBundle(transactions...)
	for _, client := range b.clients {
		if err == nil && client != nil {
			err = bundle.Sign(client.Organisation, ledgertest.Key(string(client.Organisation)))
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return bundle
}

func (b *book) transfer(from, to ledger.AccountPath) *ledger.Bundle {
	return b.signed(b.clients[from.Organisation()[3]-'0'].Transfer(from, to, 10))
}

// rounds delivers rounds and waits until they are executed.
func (b *book) rounds(f *fixture, batches ...ledger.Batch) {
	b.t.Helper()
	for i := range batches {
		batches[i].Header = f.genesisHeader()
		f.deliver(append(batches[i].Encode(), 0))
	}
	f.barrier()
}

// carry takes the root's stream to the child.
func (b *book) carry() {
	b.t.Helper()
	carried, err := b.root.pipeline.Store().Stream(1, b.child.store.Carried()+1, 100,
		b.root.pipeline.Tip().Height)
	if err != nil || len(carried) == 0 {
		b.t.Fatalf("%d entries, %v", len(carried), err)
	}
	b.rounds(b.child, ledger.Batch{Carried: carried})
}

// follow takes the root's blocks to the follower.
func (b *book) follow() {
	b.t.Helper()
	for height := b.follower.pipeline.Tip().Height +
		1; height <= b.root.pipeline.Tip().Height; height++ {
		block, err := b.root.pipeline.Store().Block(height)
		if err == nil {
			err = b.follower.pipeline.Append(b.t.Context(), block)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// verdict returns a batch with a shard's verdict on a transaction.
func (b *book) verdict(of *fixture, id ledger.Hash) ledger.Batch {
	b.t.Helper()
	verdict, made, err := of.pipeline.Store().Verdict(id, 0, of.pipeline.Tip().Height)
	if err != nil || !made {
		b.t.Fatalf("no verdict: %v", err)
	}
	return ledger.Batch{Verdicts: []ledger.Verdict{verdict}}
}

func (b *book) status(f *fixture, id ledger.Hash) report.Status {
	b.t.Helper()
	status, err := f.pipeline.Status(id)
	if err != nil {
		b.t.Fatal(err)
	}
	return status
}

// awaiting waits for one transaction beside the test.
func (b *book) awaiting(f *fixture, id ledger.Hash, level report.Level) <-chan report.Status {
	done := make(chan report.Status, 1)
	go func() {
		statuses, err := f.pipeline.Wait(b.t.Context(), []ledger.Hash{id}, level)
		if err != nil {
			b.t.Errorf("waiting: %v", err)
			close(done)
			return
		}
		done <- statuses[0]
	}()
	return done
}

func (b *book) still(waiting ...<-chan report.Status) {
	b.t.Helper()
	<-time.After(10 * time.Millisecond)
	for i, each := range waiting {
		select {
		case status := <-each:
			b.t.Fatalf("waiter %d got an answer: %+v", i, status)
		default:
		}
	}
}

var bothShards = []ledger.ShardID{0, 1}

// A transfer between shards waits in each for the other's verdict. Its waiters are notified of the
// verdict that settles it, at a node that orders and at one that takes blocks.
func TestWaitingIsSettled(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	bundle := b.transfer("org0:a", "org1:a")
	id := bundle.ID(0)
	early, durable, followed := b.awaiting(b.root, id, report.LevelOrdered),
		b.awaiting(b.root, id, report.LevelDurable), b.awaiting(b.follower, id, report.LevelStored)
	b.rounds(b.root, ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	place := b.root.pipeline.Tip().Height
	got := b.status(b.root, id)
	if got.Outcome != report.OutcomeWaiting || !slices.Equal(got.Waits, []ledger.ShardID{1}) ||
		!slices.Equal(got.Destinations, bothShards) || got.Height != place || got.Settled != 0 ||
		got.Result.Code != ledger.SetAside || got.Level < report.LevelOrdered {
		t.Fatalf("set aside: %+v", got)
	}
	if got.Final(report.LevelOrdered) || !got.Final(report.LevelAdmitted) {
		t.Error("final while it waits")
	}
	if status := b.status(b.child, id); status.Outcome != report.OutcomeUnknown {
		t.Errorf("not carried yet: %+v", status)
	}
	b.follow()
	b.carry()
	late := b.awaiting(b.root, id, report.LevelOrdered)
	b.still(early, durable, followed, late)
	if status := b.status(b.child, id); status.Outcome != report.OutcomeWaiting ||
		!slices.Equal(status.Waits, []ledger.ShardID{0}) {
		t.Errorf("carried: %+v", status)
	}
	b.rounds(b.root, b.verdict(b.child, id), b.verdict(b.child, id))
	settled := place + 1
	if b.root.pipeline.Tip().Height != settled {
		t.Fatalf("height %d: the second verdict made a block", b.root.pipeline.Tip().Height)
	}
	for _, waiting := range []<-chan report.Status{early, late} {
		got := <-waiting
		if got.Outcome != report.OutcomeExecuted || got.Height != place || got.Settled != settled ||
			!got.Result.OK() || got.Level < report.LevelOrdered || got.Waits != nil ||
			!slices.Equal(got.Destinations, bothShards) {
			t.Errorf("settled: %+v", got)
		}
	}
	b.root.eventually("the settling block is stored", func() bool {
		h, _ := b.root.pipeline.Heights()
		return h.Stored == settled
	})
	b.root.pipeline.PeerStored(1, 1, place) // the place alone is durable: not the end of the wait
	b.still(durable, followed)
	b.root.pipeline.PeerStored(1, 1, settled)
	if got := <-durable; got.Outcome != report.OutcomeExecuted || got.Level != report.LevelDurable {
		t.Errorf("durable: %+v", got)
	}
	b.follow()
	if got := <-followed; got.Outcome != report.OutcomeExecuted || got.Settled != settled ||
		got.Level < report.LevelStored {
		t.Errorf("at the follower: %+v", got)
	}
	b.rounds(b.child, b.verdict(b.root, id))
	if got := b.status(b.child, id); got.Outcome != report.OutcomeExecuted ||
		got.Settled != b.child.pipeline.Tip().Height {
		t.Errorf("at the child: %+v", got)
	}
	verdict, err := b.root.store.Block(settled)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.status(b.root, verdict.Entry(0).ID); got.Outcome != report.OutcomeExecuted ||
		got.Height != settled || got.Destinations != nil {
		t.Errorf("the verdict itself: %+v", got)
	}
	for _, heard := range []*hearing{&b.heard, &b.followed} {
		if applied, durable, _, wrong := heard.state(); wrong != nil || applied != settled ||
			heard == &b.heard && durable != settled {
			t.Errorf("heard of block %d, durable %d: %v", applied, durable, wrong)
		}
	}
}

// If a shard refuses its part, the other shards release theirs, with its reason. In the refusing
// shard the transaction has failed at once.
func TestWaitingIsReleased(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	bundle := b.transfer("org0:a", "org1:nowhere")
	id := bundle.ID(0)
	atRoot, atChild := b.awaiting(b.root, id, report.LevelOrdered),
		b.awaiting(b.child, id, report.LevelOrdered)
	b.rounds(b.root, ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	b.still(atRoot, atChild)
	b.carry()
	want := ledger.Result{Code: ledger.UnknownAccount, Item: 1}
	if got := <-atChild; got.Outcome != report.OutcomeFailed || got.Result != want ||
		got.Settled != 0 || !slices.Equal(got.Destinations, bothShards) {
		t.Errorf("where it is refused: %+v", got)
	}
	b.still(atRoot)
	b.rounds(b.root, b.verdict(b.child, id))
	got := <-atRoot
	if got.Outcome != report.OutcomeFailed || got.Result != want ||
		got.Settled != b.root.pipeline.Tip().Height || got.Height != got.Settled-1 {
		t.Errorf("where it is released: %+v", got)
	}
	if again := b.status(b.root, id); again.Outcome != got.Outcome || again.Settled != got.Settled {
		t.Errorf("asked again: %+v", again)
	}
}

// A transaction that only passes through is decided elsewhere.
func TestRelayed(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	bundle := b.transfer("org1:a", "org2:a")
	id, own := bundle.ID(0), b.transfer("org1:issuer", "org1:a")
	b.rounds(b.root, ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	got := b.status(b.root, id)
	if got.Outcome != report.OutcomeRelayed || got.Decisive() != 0 ||
		got.Final(report.LevelOrdered) || !slices.Equal(got.Destinations, []ledger.ShardID{1, 2}) {
		t.Fatalf("%+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	statuses, err := b.root.pipeline.Wait(ctx, []ledger.Hash{id}, report.LevelOrdered)
	if !errors.Is(err, context.DeadlineExceeded) || statuses[0].Outcome != report.OutcomeRelayed ||
		statuses[0].Level < report.LevelOrdered {
		t.Errorf("%+v %v", statuses, err)
	}
	b.carry()
	waiting := b.awaiting(b.child, id, report.LevelOrdered)
	good := ledger.Verdict{ID: id, Shard: 2, Result: ledger.Result{Code: ledger.SetAside,
		Item: ledger.NoItem}}
	b.rounds(b.child, ledger.Batch{Verdicts: []ledger.Verdict{good},
		Bundles: [][]byte{own.Encode()}})
	if got := <-waiting; got.Outcome != report.OutcomeExecuted ||
		!slices.Equal(got.Destinations, []ledger.ShardID{1, 2}) {
		t.Errorf("%+v", got)
	}
	if got := b.status(b.child, own.ID(0)); got.Outcome != report.OutcomeExecuted ||
		got.Destinations != nil || got.Settled != 0 {
		t.Errorf("a transaction of one shard: %+v", got)
	}
}

// Another chain replaces the one in which a transaction waits. Its waiters continue to wait, and
// are notified of the verdict in the new chain.
func TestExchangeWhileATransactionWaits(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	bundle := b.transfer("org0:a", "org1:a")
	id := bundle.ID(0)
	b.rounds(b.root, ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	place := b.root.pipeline.Tip().Height
	b.follow()
	b.carry()
	waiting := b.awaiting(b.follower, id, report.LevelOrdered)
	b.still(waiting)
	if err := b.follower.pipeline.Exchange(func(old *store.Store) (*store.Store, error) {
		return b.follower.open(), old.Close()
	}); err != nil {
		t.Fatal(err)
	}
	if got := b.status(b.follower, id); got.Outcome != report.OutcomeUnknown {
		t.Errorf("in an empty chain: %+v", got)
	}
	b.follow()
	b.still(waiting)
	if got := b.status(b.follower, id); got.Outcome != report.OutcomeWaiting ||
		got.Height != place {
		t.Errorf("in the new chain: %+v", got)
	}
	b.rounds(b.root, b.verdict(b.child, id))
	b.follow()
	if got := <-waiting; got.Outcome != report.OutcomeExecuted || got.Settled != place+1 {
		t.Errorf("%+v", got)
	}
	if applied, _, exchanges, wrong := b.followed.state(); applied != place+1 || exchanges != 1 ||
		wrong != nil {
		t.Errorf("heard of block %d and %d exchanges: %v", applied, exchanges, wrong)
	}
}

// A bundle that has to enter elsewhere by now leaves the pool, whether its round makes a block or
// not.
func TestMisplacedBundleIsHandedOver(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{true, false} {
		b := newBook(t)
		crossing, own := b.transfer("org1:a", "org0:a"), b.transfer("org1:a", "org1:issuer")
		bundles := []*ledger.Bundle{crossing}
		if !alone {
			bundles = append(bundles, own)
		}
		for _, bundle := range bundles {
			if err := b.child.pool.Add(bundle, bundle.Encode(),
				func(*ledger.Bundle) ([]bool, error) { return nil, nil }); err != nil {
				t.Fatal(err)
			}
		}
		payload := b.child.pool.Next(1 << 20)
		if alone {
			b.child.deliverOf(1, payload) // another node's batch is not ours
		}
		b.child.barrier()
		if len(b.misplaced) != 0 {
			t.Fatal("handed over for another node's batch")
		}
		b.child.deliverOf(0, payload)
		b.child.barrier()
		if transactions, _ := b.child.pool.Size(); transactions != 0 || len(b.misplaced) != 1 ||
			b.misplaced[0] != crossing {
			t.Errorf("alone %v: %d handed over, %d transactions stay", alone, len(b.misplaced),
				transactions)
		}
		if got := b.status(b.child, crossing.ID(0)); got.Outcome != report.OutcomeUnknown {
			t.Errorf("%+v", got)
		}
		if got := b.status(b.child, own.ID(0)); !alone && got.Outcome != report.OutcomeExecuted {
			t.Errorf("%+v", got)
		}
	}
}

// The fork alarm also reads batches with input from other shards.
func TestForkAlarmOfAShardedBatch(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	batch := ledger.Batch{Header: ledger.BatchHeader{Time: 1, Height: 1, Tip: ledger.Hash{1}},
		Carried: []ledger.Carried{{Number: 100, Bundle: []byte{1}}}}
	b.child.deliver(append(batch.Encode(), 0))
	if err := <-b.child.failed; !errors.Is(err, pipeline.ErrFork) {
		t.Fatal(err)
	}
}
