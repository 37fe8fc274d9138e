package book

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// lose makes the operators settle with a shard, of which nobody hears any more.
func (b *shards) lose(shard ledger.ShardID) {
	b.t.Helper()
	if b.lost == nil {
		b.lost = make(map[ledger.ShardID]*store.Store)
	}
	b.lost[shard], b.stores[shard] = b.stores[shard], nil
	b.with(0, b.signed(ledger.Transaction{Ledger: b.stores[0].Book(), Book: &ledger.BookChange{
		Number: b.stores[0].BookChanges() + 1, Loss: &ledger.ShardLoss{Shard: shard}}},
		ledger.Operator))
}

// testimonies returns what a transaction waits for because a shard is lost.
func (b *shards) testimonies(shard ledger.ShardID, waiting *state.Pending) (
	all []ledger.Verdict) {
	b.t.Helper()
	for _, inquiry := range waiting.Inquiries {
		for _, of := range inquiry.Of {
			if of == shard {
				all = append(all, inquiry.Verdict(waiting.ID, shard, false))
				continue
			}
			said, made, err := b.stores[of].Testimony(waiting.ID, inquiry.Testimony,
				b.stores[of].AppendedHeight())
			if err != nil {
				b.t.Fatal(err)
			}
			if made {
				all = append(all, said)
			}
		}
	}
	return all
}

// enter submits a transaction where it enters.
func (b *shards) enter(t ledger.Transaction, from *ledgertest.Client) {
	b.t.Helper()
	bundle := b.signed(t, from.Organisation)
	b.with(b.stores[0].BundleEntry(bundle), bundle)
}

// pay submits a payment where it enters.
func (b *shards) pay(from *ledgertest.Client, account string, to *ledgertest.Client,
	amount int64) {
	b.t.Helper()
	transfer := from.Transfer(from.Account(account), to.Account("a"), amount)
	transfer.Deadline = b.start + 100_000
	b.enter(transfer, from)
}

// arrive makes rounds until an organisation has arrived in a shard.
func (b *shards) arrive(name ledger.OrganisationName, to ledger.ShardID) {
	b.t.Helper()
	for range 5 {
		b.settle()
		b.deliver(to)
	}
	if !b.stores[to].LivesHere(name) {
		b.t.Fatalf("%s has not arrived in shard %d", name, to)
	}
}

// arriveBy makes rounds until an organisation has arrived in a shard by way of another one.
func (b *shards) arriveBy(name ledger.OrganisationName, by, to ledger.ShardID) {
	b.t.Helper()
	for range 5 {
		b.settle()
		b.deliver(by)
	}
	b.arrive(name, to)
}

// judgeLoss checks the book, and what the lost shards have.
func (b *shards) judgeLoss(when, want string) {
	b.t.Helper()
	report, err := b.check()
	if err != nil {
		b.t.Fatalf("%s: %v", when, err)
	}
	if got := report.LostAmounts["unit"]; got != want {
		b.t.Errorf("%s: the lost shards have %q, want %q", when, got, want)
	}
}

// An organisation moves to a shard that is lost then, before it arrived there or after it.
func TestLossAfterAMoveThere(t *testing.T) {
	t.Parallel()
	for name, arrived := range map[string]bool{"on its way": false, "arrived": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newShardsOf(t, 3, ledger.GrowthVersion, 0, 0, 0)
			b.settle()
			root, mover, lost := b.clients[0], b.clients[1], b.clients[2]
			b.pay(mover, "issuer", mover, 50)
			b.pay(mover, "issuer", root, 7)
			b.pay(lost, "issuer", mover, 4)
			b.settle()
			b.move(1, mover.Organisation, 2)
			b.settle()
			want := int64(-3 - 4) // the mover has 50 - 57 + 4, and the other one is short of 4
			if arrived {
				b.arrive(mover.Organisation, 2)
				b.pay(mover, "a", root, 5)
				b.pay(mover, "a", lost, 11)
				b.settle()
				want -= 5
			}
			b.judgeLoss("before", "")
			b.lose(2)
			b.settle()
			b.judgeLoss("after", ledger.NewAmount(want).String())
			b.pay(root, "issuer", root, 3)
			b.judgeLoss("later", ledger.NewAmount(want).String())
		})
	}
}

// An organisation leaves a shard that is lost then, before it arrived elsewhere or after it.
func TestLossAfterAMoveAway(t *testing.T) {
	t.Parallel()
	for name, arrived := range map[string]bool{"on its way": false, "arrived": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newShardsOf(t, 3, ledger.GrowthVersion, 0, 0, 0)
			b.settle()
			root, mover := b.clients[0], b.clients[2]
			stays := ledgertest.NewClient(b.stores[2].Genesis(), "stays")
			b.clients = append(b.clients, stays)
			registration := stays.Register()
			registration.Registrations[0].Pinned = true
			registration.Registrations[0].Shard = 2
			b.round(0, registration)
			b.settle()
			opening := stays.Next()
			opening.Openings = []ledger.Opening{{Account: stays.Account("issuer"), Issuer: true},
				{Account: stays.Account("a")}}
			b.round(2, opening)
			b.pay(stays, "issuer", mover, 20) // inside the shard
			b.pay(mover, "issuer", root, 6)
			b.pay(root, "issuer", mover, 2)
			b.settle()
			b.move(1, mover.Organisation, 1)
			b.settle()
			want := int64(-6 + 2)
			if arrived {
				b.arrive(mover.Organisation, 1)
				b.pay(mover, "a", root, 9)
				b.pay(stays, "issuer", mover, 1)
				b.settle()
				want = -20 - 1 // what the other one is short of
			}
			b.judgeLoss("before", "")
			b.lose(2)
			b.settle()
			b.judgeLoss("after", ledger.NewAmount(want).String())
			if arrived {
				b.move(3, mover.Organisation, 0)
				b.arrive(mover.Organisation, 0)
				b.pay(mover, "a", mover, 1)
				b.judgeLoss("it moved on", ledger.NewAmount(want).String())
			}
		})
	}
}

// What has arrived of an organisation does not count if the rest is lost.
func TestLossAfterAPartOfTheArrivals(t *testing.T) {
	t.Parallel()
	b := newShardsOf(t, 3, ledger.GrowthVersion, 0, 0, 0)
	b.settle()
	root, mover := b.clients[0], b.clients[2]
	b.pay(mover, "issuer", mover, 20)
	b.pay(mover, "issuer", root, 6)
	for i := range 3 {
		noted := mover.Next()
		noted.Records = []ledger.Record{{Value: bytes.Repeat([]byte{byte(i)}, 50_000),
			Key: ledger.RecordKey(mover.Account(string(rune('x' + i))))}}
		b.enter(noted, mover)
	}
	b.settle()
	b.move(1, mover.Organisation, 1)
	b.settle()
	arrivals, err := b.stores[2].Arrivals(t.Context(), 1, 1, b.stores[2].AppendedHeight())
	if err != nil || len(arrivals) < 2 {
		t.Fatalf("%d arrivals: %v", len(arrivals), err)
	}
	b.with(1, arrivals[:len(arrivals)-1]...)
	if _, err := b.stores[1].Account(mover.Account("a")); err != nil {
		t.Fatalf("its accounts have not arrived: %v", err)
	}
	b.judgeLoss("before", "")
	b.lose(2)
	b.settle()
	b.judgeLoss("after", "-6")
	if b.stores[1].LivesHere(mover.Organisation) {
		t.Error("it lives in its new home")
	}
	at := store.Place{Height: b.stores[1].AppendedHeight()}
	account, err := b.stores[1].AccountAt(t.Context(), mover.Account("a"), at, nil)
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what arrived in part is read at a place: %+v, %v", account, err)
	}
}

// An organisation moves through a shard that is lost later, and has come out of it.
func TestLossOfAShardOnTheWay(t *testing.T) {
	t.Parallel()
	b := newShardsOf(t, 4, ledger.GrowthVersion, 0, 0, 0)
	b.settle()
	root, mover, lost := b.clients[0], b.clients[1], b.clients[2]
	b.pay(mover, "issuer", mover, 30)
	b.pay(mover, "issuer", root, 8)
	b.settle()
	b.move(1, mover.Organisation, 2)
	b.arrive(mover.Organisation, 2)
	b.pay(lost, "issuer", mover, 13)
	b.pay(mover, "a", root, 2)
	b.settle()
	b.move(2, mover.Organisation, 0)
	b.arrive(mover.Organisation, 0)
	b.pay(mover, "a", root, 1)
	b.judgeLoss("before", "")
	b.lose(2)
	b.settle()
	b.judgeLoss("after", "-13")
	account, err := b.stores[0].Account(mover.Account("a"))
	if got := account.Balance("unit"); err != nil || got != ledger.NewAmount(30+13-2-1) {
		t.Errorf("it has %v: %v", got, err)
	}
}

// cutsAfter finds the cuts of all blocks of the root, and of now, and returns what their balances
// add up to, by block, without the lost shards.
func (b *shards) cutsAfter() (sums []int64) {
	b.t.Helper()
	head := b.stores[0].AppendedHeight()
	for at := range head + 2 {
		height := &at
		if at > head {
			height = nil
		}
		cut, err := b.cut(height)
		if err != nil {
			b.t.Fatalf("block %d: %v", at, err)
		}
		if want, err := b.stores[0].ShardsAt(cut[0].Place); err != nil || len(cut) != want {
			b.t.Fatalf("block %d: %d places of %d: %v", at, len(cut), want, err)
		}
		sum := ledger.Amount{}
		for shard := range cut {
			own := b.stores[shard]
			if own == nil {
				continue
			}
			place, err := PlaceIn(b.t.Context(), own, cut, own.AppendedHeight())
			if err != nil || place != cut[shard].Place {
				b.t.Fatalf("block %d, shard %d: %+v, %v", at, shard, place, err)
			}
			balances, err := b.read(ledger.ShardID(shard), place)
			if err != nil {
				b.t.Fatal(err)
			}
			for _, amount := range balances {
				if sum, err = sum.Add(amount); err != nil {
					b.t.Fatal(err)
				}
			}
		}
		small, _ := sum.Int64()
		sums = append(sums, small)
	}
	return sums
}

// Cuts after a loss and an addition, in either order, have the shards of their places. Without what
// the lost shard has the balances add up, before the changes and after them.
func TestCutsAfterALossAndAnAddition(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"lost first": true, "added first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newShardsOf(t, 6, ledger.GrowthVersion, 0, 0, 0)
			b.settle()
			b.pay(b.clients[0], "issuer", b.clients[2], 7)
			b.settle()
			lose := func() {
				b.pay(b.clients[1], "issuer", b.clients[2], 3) // nothing comes of it
				b.lose(2)
				b.settle()
			}
			if first {
				lose()
			}
			b.add(1, t.TempDir())
			if !first {
				lose()
			}
			added := b.clients[3]
			b.settle()
			b.pay(added, "issuer", b.clients[0], 5)
			b.pay(b.clients[1], "issuer", added, 4)
			b.settle()
			sums := b.cutsAfter()
			paid := false
			for height, sum := range sums {
				if sum != 0 && sum != -7 || paid && sum == 0 {
					t.Errorf("the balances at block %d add up to %d", height, sum)
				}
				paid = paid || sum != 0
			}
			if !paid {
				t.Error("nothing was lost")
			}
			b.judgeLoss("at last", "7")
			account, err := b.stores[3].Account(added.Account("a"))
			if got := account.Balance("unit"); err != nil || got != ledger.NewAmount(4) {
				t.Errorf("the added shard has %v: %v", got, err)
			}
		})
	}
}

// An organisation's cancellations move with it, twice, also if the second move comes before the
// first arrival. So what it cancelled at its first home never takes effect at the last one.
func TestCancellationsOverTwoMoves(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]bool{"one by one": true, "at once": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newShardsOf(t, 7, ledger.GrowthVersion, 0, 0, 0, 0)
			b.settle()
			root, mover := b.clients[0], b.clients[1]
			deadline := b.start + 100_000
			var cancelled []*ledger.Bundle
			for _, to := range []*ledgertest.Client{mover, root} {
				transfer := mover.Transfer(mover.Account("issuer"), to.Account("a"), 1)
				transfer.Deadline = deadline
				bundle := b.signed(transfer, mover.Organisation)
				cancelled = append(cancelled, bundle)
				cancellation := mover.Next()
				cancellation.Deadline = deadline
				cancellation.Cancellation = &ledger.Cancellation{Transaction: bundle.ID(0),
					Shard: 1}
				b.enter(cancellation, mover)
			}
			free := mover.Transfer(mover.Account("issuer"), mover.Account("a"), 5)
			b.move(1, mover.Organisation, 2)
			if between {
				b.arrive(mover.Organisation, 2)
				b.reopen(2)
			}
			b.move(2, mover.Organisation, 3)
			b.settle()
			b.arriveBy(mover.Organisation, 2, 3)
			b.reopen(3)
			for i, bundle := range cancelled {
				b.with(b.stores[0].BundleEntry(bundle), bundle)
				b.settle()
				found, err := b.stores[3].Transaction(bundle.ID(0))
				if err != nil || found.Entry.Result.Code != ledger.Cancelled {
					t.Errorf("transaction %d: %v, %v", i, found.Entry, err)
				}
			}
			b.enter(free, mover)
			b.settle()
			account, err := b.stores[3].Account(mover.Account("a"))
			if got := account.Balance("unit"); err != nil || got != ledger.NewAmount(5) {
				t.Errorf("it has %v: %v", got, err)
			}
			if _, err := b.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An organisation that was coming from a lost shard is refused at its new home, also after that was
// opened again, and by a store that began with a snapshot of it.
func TestStrandedOrganisation(t *testing.T) {
	t.Parallel()
	b := newShardsOf(t, 8, ledger.GrowthVersion, 0, 0, 0)
	b.settle()
	root, mover := b.clients[0], b.clients[2]
	b.pay(mover, "issuer", root, 9)
	b.settle()
	opening := mover.Next()
	opening.Openings = []ledger.Opening{{Account: mover.Account("new")}}
	again := b.signed(opening, mover.Organisation)
	old := b.signed(mover.Transfer(root.Account("a"), mover.Account("a"), 0), mover.Organisation)
	b.move(1, mover.Organisation, 0)
	b.with(0, again) // it may still come
	if known, err := b.stores[0].Known(again.ID(0)); err != nil || known {
		t.Errorf("it is in a block before the organisation arrived: %v", err)
	}
	b.lose(2)
	b.settle()
	refused := func(when string, own *store.Store) {
		t.Helper()
		if own.IsComing(mover.Organisation) || own.LivesHere(mover.Organisation) ||
			own.AwaitingCount() > 0 || own.HasMoves() != true {
			t.Errorf("%s: it is on its way, or here", when)
		}
		if _, holds := own.Holds(mover.Organisation); holds {
			t.Errorf("%s: something of it counts", when)
		}
	}
	refused("at once", b.stores[0])
	b.reopen(0)
	refused("opened again", b.stores[0])
	restored, _ := b.restored()
	refused("restored", restored)
	b.stores[0] = restored
	b.with(0, again, old)
	for _, bundle := range []*ledger.Bundle{again, old} {
		found, err := restored.Transaction(bundle.ID(0))
		if err != nil || found.Entry.Result.Code != ledger.ShardLost {
			t.Errorf("%v: %v", found.Entry, err)
		}
	}
}

// An organisation moves on twice from a shard that is lost before anything arrived. All of its
// later homes learn that it never arrives, also those that were opened again, and those whose
// stores are checked.
func TestNothingArrivesAnywhere(t *testing.T) {
	t.Parallel()
	b := newShardsOf(t, 5, ledger.GrowthVersion, 0, 0, 0, 0)
	b.settle()
	root, mover := b.clients[0], b.clients[3]
	b.pay(mover, "issuer", root, 6)
	b.settle()
	b.move(1, mover.Organisation, 1)
	b.move(2, mover.Organisation, 2)
	b.lose(3)
	b.move(4, mover.Organisation, 0)
	for _, shard := range []ledger.ShardID{1, 2} {
		b.round(shard)
		b.reopen(shard)
	}
	b.settle()
	for shard, own := range b.stores[:3] {
		if coming, _ := own.Coming(); len(coming) > 0 || own.IsComing(mover.Organisation) ||
			own.AwaitingCount() > 0 || own.LivesHere(mover.Organisation) {
			t.Errorf("shard %d: it is still on its way: %+v", shard, coming)
		}
	}
	b.judgeLoss("at last", "-6")
	b.pay(mover, "issuer", root, 1)
	b.settle()
	b.judgeLoss("nothing of it counts", "-6")
}
