package book

import (
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

// An organisation moves on twice from a shard that is lost before anything arrived. All of its later
// homes learn that it never arrives, also those that were opened again, and those whose stores are
// checked.
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
	b.judgeLoss("in the end", "-6")
	b.pay(mover, "issuer", root, 1)
	b.settle()
	b.judgeLoss("nothing of it counts", "-6")
}
