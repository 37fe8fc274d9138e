package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// restoredFrom returns a state with the entries of another one, which has to have the same digest.
func restoredFrom(t *testing.T, genesis *ledger.Genesis, from *state.State) *state.State {
	t.Helper()
	restored := state.New(genesis)
	if err := from.Entries(func(key, value []byte) error {
		return restored.Restore(bytes.Clone(key), bytes.Clone(value))
	}); err != nil {
		t.Fatal(err)
	}
	if err := restored.Complete(nil); err != nil || restored.Digest() != from.Digest() {
		t.Fatalf("restored with another digest: %v", err)
	}
	if from.Version() >= ledger.AccountTreeVersion {
		restoreCold(t, genesis, from)
	}
	return restored
}

// restoreCold checks that a state whose accounts are restored cold has the digest and the counts of
// another one.
func restoreCold(t *testing.T, genesis *ledger.Genesis, from *state.State) {
	t.Helper()
	cold, leaves := state.New(genesis), state.AccountLeaves{}
	if err := from.Entries(func(key, value []byte) error {
		if state.IsAccountKey(key) {
			return leaves.Add(key, value)
		}
		return cold.Restore(key, value)
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cold.RestoreLeaves(&leaves, uint64(from.AccountCount())),
		cold.Complete(nil)); err != nil || cold.Digest() != from.Digest() {
		t.Fatalf("restored cold with another digest: %v", err)
	}
	for _, each := range from.Organisations() {
		if got, want := cold.Use(each.Name), from.Use(each.Name); got != want {
			t.Errorf("restored cold, %s uses %+v, want %+v", each.Name, got, want)
		}
	}
}

// TestDividedBlocks: blocks that touch thousands of accounts are the same, whatever processors hash
// which part of them.
func TestDividedBlocks(t *testing.T) {
	t.Parallel()
	const accounts = 3000
	genesis := packedGenesis()
	alone, client := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	together := newChain(t, genesis)
	if err := together.state.Complete(onAllProcessors); err != nil {
		t.Fatal(err)
	}
	name := func(number int) ledger.AccountPath {
		return client.Account(fmt.Sprintf("account-%d", number))
	}
	bundles := [][]*ledger.Bundle{{client.Bundle(client.Register())}}
	for first := 0; first < accounts; first += ledger.MaxOpenings {
		opening := client.Next()
		for i := first; i < min(accounts, first+ledger.MaxOpenings); i++ {
			opening.Openings = append(opening.Openings, ledger.Opening{Account: name(i),
				Issuer: true})
		}
		bundles[0] = append(bundles[0], client.Bundle(opening))
	}
	for range 3 {
		var transfers []ledger.Transaction
		for i := range accounts - 1 {
			transfers = append(transfers, client.Transfer(name(i), name(i+1), int64(i+1)))
		}
		bundles = append(bundles, []*ledger.Bundle{client.Packed(transfers...)})
	}
	for height, of := range bundles {
		if one, other := alone.block(of...), together.block(of...); one.Hash != other.Hash {
			t.Fatalf("block %d is %s alone, and %s together", height+1, one.Hash, other.Hash)
		}
	}
}
