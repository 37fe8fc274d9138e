package store

import (
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestEnginesInEveryStore: the engine of each height is the same in a store that executed the
// changes, once it is reopened, from a snapshot, and where the blocks came one by one. The changes
// add no certificates of members.
func TestEnginesInEveryStore(t *testing.T) {
	t.Parallel()
	b, genesis := oldBook(4)
	dir := t.TempDir()
	s := openBook(t, dir, genesis, small())
	b.apply(t, s, 3)
	if _, err := b.upgrade(s, ledger.EnginesVersion); err != nil {
		t.Fatal(err)
	}
	before := restoredFrom(t, s, filepath.Join(t.TempDir(), "before"))
	wanted := []ledger.EngineChoice{{}, {}, {}}
	for _, name := range []string{"allconcur", "allconcur+", "trains"} {
		b.round += ledger.ChangeRounds
		block, err := s.Apply(1, b.round, [][]byte{ledgertest.Batch(ledger.Milliseconds(b.round),
			b.operator.ChangeEngine(name))})
		if err != nil || block.MembershipChange() == nil {
			t.Fatalf("%v, %+v", err, block)
		}
		height := block.Header.Height
		for _, each := range []*ledger.Block{block, b.apply(t, s, 3)} {
			wanted = append(wanted, ledger.EngineChoice{Name: name, Height: height})
			if err := before.Append(each); err != nil {
				t.Fatal(err)
			}
		}
	}
	after := restoredFrom(t, s, filepath.Join(t.TempDir(), "after"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), dir, genesis, small(), nil); err != nil {
		t.Errorf("verify: %v", err)
	}
	s = openBook(t, dir, genesis, small())
	for name, each := range map[string]*Store{"reopened": s, "one by one": before,
		"from a snapshot": after} {
		if got := each.Engine(); got != wanted[len(wanted)-1] {
			t.Errorf("%s: %+v", name, got)
		}
		for height, want := range wanted {
			if got := each.EngineAt(ledger.Height(height)); got != want {
				t.Errorf("%s: block %d: %+v, want %+v", name, height, got, want)
			}
		}
		if changes := each.ChangeHeights(); len(changes) != 0 {
			t.Errorf("%s: members change at %v", name, changes)
		}
	}
}
