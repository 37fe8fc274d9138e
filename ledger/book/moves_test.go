package book

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// with makes a round of a shard with a bundle beside what the other chains have for it.
func (b *shards) with(shard ledger.ShardID, bundles ...*ledger.Bundle) {
	b.t.Helper()
	b.forge = func(_ ledger.ShardID, batch *ledger.Batch) {
		for _, bundle := range bundles {
			batch.Bundles = append(batch.Bundles, bundle.Encode())
		}
	}
	b.round(shard)
	b.forge = nil
}

// signed signs a transaction with the keys of these names, "" for an operator.
func (b *shards) signed(t ledger.Transaction,
	organisations ...ledger.OrganisationName) *ledger.Bundle {
	b.t.Helper()
	bundle, err := ledger.NewBundle(t)
	for _, name := range organisations {
		key := string(name)
		if name == ledger.Operator {
			key = "operator"
		}
		if err == nil {
			err = bundle.Sign(name, ed25519.PrivateKey(ledgertest.Key(key)))
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return bundle
}

// move submits a move to the root.
func (b *shards) move(number uint64, name ledger.OrganisationName, to ledger.ShardID) {
	b.t.Helper()
	b.with(0, b.signed(ledger.Transaction{Ledger: b.stores[0].Book(), Book: &ledger.BookChange{
		Number: number, Move: &ledger.OrganisationMove{Organisation: name, To: to}}},
		ledger.Operator))
}

// deliver makes rounds of a shard with the next arrivals of organisations that come to it.
func (b *shards) deliver(shard ledger.ShardID) (delivered int) {
	b.t.Helper()
	for {
		coming, next := b.stores[shard].Coming()
		at := slices.IndexFunc(next, func(id ledger.Hash) bool { return id != ledger.Hash{} })
		if at < 0 {
			return delivered
		}
		from := b.stores[coming[at].From]
		arrivals, err := from.Arrivals(b.t.Context(), coming[at].Number, shard,
			from.AppendedHeight())
		if err != nil {
			b.t.Fatal(err)
		}
		for i, arrival := range arrivals {
			if arrival.ID(0) == next[at] {
				b.with(shard, arrivals[i:min(i+2, len(arrivals))]...)
				delivered += 2
				break
			}
		}
	}
}

// sums judges that at a cut the balances add up to zero, unless it is too early to tell.
func (b *shards) sums() (told bool) {
	b.t.Helper()
	for height := range b.stores[0].AppendedHeight() + 1 {
		cut, err := b.cut(&height)
		if err != nil {
			continue
		}
		sum, early := ledger.Amount{}, false
		for shard, place := range placesOf(cut) {
			balances, err := b.read(ledger.ShardID(shard), place)
			if errors.Is(err, store.ErrNotYet) {
				early = true
				break
			}
			if err != nil {
				b.t.Fatal(err)
			}
			for _, amount := range balances {
				if sum, err = sum.Add(amount); err != nil {
					b.t.Fatal(err)
				}
			}
		}
		if told = !early; told && sum.Sign() != 0 {
			b.t.Fatalf("at the cut of block %d the balances add up to %v", height, sum)
		}
	}
	return told
}

// An organisation moves while its transactions wait, and everything adds up at each place.
func TestOrganisationMoves(t *testing.T) {
	t.Parallel()
	b := newShardsOf(t, 1, ledger.GrowthVersion, 0, 0, 1)
	mover, other := b.clients[2], b.clients[1]
	b.settle()
	pay := func(from, to *ledgertest.Client, account string, amount int64) *ledger.Bundle {
		transfer := from.Transfer(from.Account(account), to.Account("a"), amount)
		transfer.Deadline = b.start + 100_000
		return b.signed(transfer, from.Organisation)
	}
	enter := func(bundle *ledger.Bundle) { b.with(b.stores[0].BundleEntry(bundle), bundle) }
	for range 3 {
		enter(pay(mover, mover, "issuer", 10))
	}
	wide := mover.Next()
	for i := range 250 {
		wide.Openings = append(wide.Openings, ledger.Opening{
			Account: mover.Account("wide-" + string(rune('a'+i%26)) + string(rune('a'+i/26)))})
	}
	enter(b.signed(wide, mover.Organisation))
	noted := mover.Next()
	value := bytes.Repeat([]byte("value"), 10_000)
	noted.Records = []ledger.Record{{Key: ledger.RecordKey(mover.Account("note")), Value: value}}
	enter(b.signed(noted, mover.Organisation))
	before := pay(mover, mover, "a", 1)
	enter(before)
	crossing := pay(mover, other, "a", 7)
	enter(crossing) // its verdicts are on their way
	b.round(2)
	b.move(1, mover.Organisation, 0)
	b.round(1)
	b.round(2)
	if !b.sums() {
		t.Log("the last cut is too early") // the new home does not know yet what arrives
	}
	if _, err := b.check(); err != nil {
		t.Fatal(err)
	}
	early := pay(mover, mover, "a", 1)
	b.with(0, early)
	if known, err := b.stores[0].Known(early.ID(0)); err != nil || known {
		t.Errorf("a transaction of an organisation on its way is in a block: %v, %v", known, err)
	}
	b.settle()
	if _, err := b.stores[2].Arrivals(t.Context(), 1, 1, b.stores[2].AppendedHeight()); !errors.Is(
		err, store.ErrNotForShard) {
		t.Errorf("a shard gets what is for another one: %v", err)
	}
	if delivered := b.deliver(0); delivered < 2 {
		t.Errorf("only %d arrivals", delivered)
	}
	if !b.sums() {
		t.Error("the last cut cannot be read")
	}
	if _, err := b.check(); err != nil {
		t.Fatal(err)
	}
	enter(early)
	enter(before) // again, where it is not known
	later := pay(mover, other, "a", 3)
	enter(later)
	b.settle()
	for bundle, want := range map[*ledger.Bundle][]ledger.ShardID{crossing: {1, 2}, later: {0, 1}} {
		found, err := b.stores[1].Transaction(bundle.ID(0))
		if err != nil {
			t.Fatal(err)
		}
		if got := b.stores[1].Concerned(found.Entry.Transaction(),
			found.Height); !slices.Equal(got, want) {
			t.Errorf("block %d concerned shards %v, want %v", found.Height, got, want)
		}
	}
	if _, err := b.check(); err != nil {
		t.Fatal(err)
	}
	b.sums()
	account, err := b.stores[0].Account(mover.Account("a"))
	if got := account.Balance("unit"); err != nil || got != ledger.NewAmount(20) {
		t.Errorf("it has %v after the move (%v), want 20", got, err)
	}
	record, err := b.stores[0].Record(ledger.RecordKey(mover.Account("note")))
	if err != nil || !bytes.Equal(record.Value, value) {
		t.Errorf("the record has %d bytes: %v", len(record.Value), err)
	}
	if found, err := b.stores[0].Transaction(before.ID(0)); err != nil ||
		found.Entry.Result.Code != ledger.StaleNonce {
		t.Errorf("what was applied before the move is applied again: %v, %v", found.Entry, err)
	}
}

// Much is packed beside: the new home is told a little later, and gets all of it.
func TestMuchMoves(t *testing.T) {
	t.Parallel()
	b := newShardsOf(t, 2, ledger.GrowthVersion, 0, 0)
	b.settle()
	const each, times = ledger.MaxOpenings, 17
	for i := range times {
		open := b.clients[1].Next()
		for j := range each {
			open.Openings = append(open.Openings, ledger.Opening{
				Account: b.clients[1].Account(fmt.Sprintf("%d-%d", i, j))})
		}
		b.with(1, b.signed(open, b.clients[1].Organisation))
	}
	b.move(1, b.clients[1].Organisation, 0)
	for deadline := time.Now().Add(time.Minute); ; b.settle() {
		if b.deliver(0); b.stores[0].LivesHere(b.clients[1].Organisation) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it has not arrived")
		}
	}
	if count := b.stores[0].AccountCount(); count != each*times+2+2 {
		t.Errorf("%d accounts", count)
	}
	if _, err := b.check(); err != nil {
		t.Fatal(err)
	}
	b.reopen(1) // nothing is packed any more
	if _, err := b.check(); err != nil {
		t.Fatal(err)
	}
}
