package store

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestCancellationsAreKept: a store remembers cancellations when it is reopened and when it begins
// with a snapshot. It drops copies of them, and forgets them when it should.
func TestCancellationsAreKept(t *testing.T) {
	t.Parallel()
	dir, genesis := t.TempDir(), testGenesis()
	client := ledgertest.NewClient(genesis, "acme")
	one := open(t, filepath.Join(dir, "one"), small())
	now, stores := genesis.Time, []*Store{one}
	apply := func(transactions ...ledger.Transaction) *ledger.Block {
		t.Helper()
		now += 10
		var made *ledger.Block
		for _, s := range stores {
			block, err := s.Apply(1, ledger.Round(now), [][]byte{ledgertest.Batch(now,
				client.Bundle(transactions...))})
			if err != nil {
				t.Fatal(err)
			}
			if block != nil && made != nil && block.Hash != made.Hash {
				t.Fatalf("block %d differs", block.Header.Height)
			}
			made = block
		}
		return made
	}
	expect := func(want ledger.Code, transaction ledger.Transaction) {
		t.Helper()
		if block := apply(transaction); block.Entry(0).Result.Code != want {
			t.Errorf("%s, want %s", block.Entry(0).Result, want)
		}
	}
	transfer := func() ledger.Transaction {
		transaction := client.Transfer("acme:issuer", "acme:a", 1)
		transaction.Deadline = genesis.Time + 1000
		return transaction
	}
	cancel := func(transaction ledger.Transaction) ledger.Transaction {
		return client.Cancel(client.Bundle(transaction).ID(0), transaction.Deadline, 0)
	}
	expect(ledger.Applied, client.Register("issuer", "a"))
	first, second, third := transfer(), transfer(), transfer()
	cancellation := cancel(first)
	expect(ledger.Applied, cancellation)
	expect(ledger.Applied, cancel(second))
	expect(ledger.Applied, third)
	expect(ledger.Applied, cancel(third)) // too late, and without effect

	snapshot, _ := snapshotOf(t, one)
	copied := filepath.Join(dir, "two")
	if _, err := Restore(t.Context(), copied, genesis, small(), bytes.NewReader(snapshot),
		believe); err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	stores = []*Store{open(t, filepath.Join(dir, "one"), small()), open(t, copied, small())}
	if block := apply(cancellation, third); block != nil {
		t.Errorf("copies make block %d", block.Header.Height)
	}
	expect(ledger.Cancelled, first)
	if block := apply(first); block != nil {
		t.Error("a cancelled transaction comes again")
	}
	now = genesis.Time + 990
	expect(ledger.DeadlinePassed, second)
	for _, s := range stores {
		if count := s.state.CancelledCount(); count != 0 {
			t.Errorf("%d cancellations are remembered after their deadline", count)
		}
	}
	if err := stores[0].verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
