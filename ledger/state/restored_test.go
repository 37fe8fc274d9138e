package state_test

import (
	"bytes"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
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
	return restored
}
