package store_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// TestTry: a trial says what the next block makes of a transaction, and leaves the chain as it is,
// also if no account is in memory.
func TestTry(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	s, err := store.Open(t.TempDir(), genesis, store.Options{MemTableBytes: 1 << 20,
		ReserveBytes: 1, AccountsInMemory: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	acme := ledgertest.NewClient(genesis, "acme")
	round := ledger.Round(0)
	add := func(bundle *ledger.Bundle) *ledger.Block {
		t.Helper()
		round++
		block, err := s.Apply(1, round, [][]byte{ledgertest.Batch(genesis.Time+
			ledger.Milliseconds(round), bundle)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		return block
	}
	try := func(bundle *ledger.Bundle) store.Trial {
		t.Helper()
		head0, count := s.Head(), s.AccountCount()
		trials, head, err := s.Try(bundle, genesis.Time)
		if err != nil || len(trials) != bundle.Len() || head != s.Head().Height {
			t.Fatalf("%+v after block %d: %v", trials, head, err)
		}
		if s.Head() != head0 || s.AccountCount() != count {
			t.Fatal("a trial has changed the chain")
		}
		return trials[0]
	}
	both := func(bundle *ledger.Bundle, want ledger.Code) store.Trial {
		t.Helper()
		trial := try(bundle)
		if again := try(bundle); again.Result != trial.Result {
			t.Errorf("tried again: %s, before %s", again.Result, trial.Result)
		}
		if got := add(bundle).Entry(0).Result; got != trial.Result || got.Code != want {
			t.Errorf("tried: %s, executed: %s, want %s", trial.Result, got, want)
		}
		if !try(bundle).Known {
			t.Error("the trial of what a block has does not say so")
		}
		return trial
	}
	balances := func(trial store.Trial, want ...store.TrialBalance) {
		t.Helper()
		if len(trial.Balances) != len(want) {
			t.Fatalf("%v, want %v", trial.Balances, want)
		}
		for i := range want {
			if trial.Balances[i] != want[i] {
				t.Errorf("%v, want %v", trial.Balances[i], want[i])
			}
		}
	}
	balance := func(path ledger.AccountPath, before, after int64) store.TrialBalance {
		return store.TrialBalance{Account: path, Asset: ledger.DefaultAsset,
			Before: ledger.NewAmount(before), After: ledger.NewAmount(after)}
	}
	both(acme.Bundle(acme.Register("mint", "a", "b")), ledger.Applied)
	balances(both(acme.Bundle(acme.Transfer("acme:mint", "acme:a", 10)), ledger.Applied),
		balance("acme:mint", 0, -10), balance("acme:a", 0, 10))
	balances(both(acme.Bundle(acme.Transfer("acme:a", "acme:b", 11)), ledger.InsufficientFunds))
	twice := acme.Transfer("acme:a", "acme:b", 3)
	twice.Postings = append(twice.Postings, acme.Transfer("acme:a", "acme:b", 4).Postings...)
	balances(both(acme.Bundle(twice), ledger.Applied), balance("acme:a", 10, 3),
		balance("acme:b", 0, 7))
	opening := acme.Transfer("acme:a", "acme:c", 1)
	opening.Openings = []ledger.Opening{{Account: "acme:c", Alias: "till"}}
	balances(both(acme.Bundle(opening), ledger.Applied), balance("acme:a", 3, 2),
		balance("acme:c", 0, 1))
	again := acme.Next()
	again.Openings = []ledger.Opening{{Account: "acme:d", Alias: "till"}}
	both(acme.Bundle(again), ledger.AliasTaken)
	packed := acme.Packed(acme.Transfer("acme:b", "acme:a", 2))
	balances(both(packed, ledger.Applied), balance("acme:b", 7, 5), balance("acme:a", 2, 4))
	if s.Close() != nil {
		t.Fatal("not closed")
	}
	if _, _, err := s.Try(packed, genesis.Time); err == nil {
		t.Error("a closed store tries")
	}
}
