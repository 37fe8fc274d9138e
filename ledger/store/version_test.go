package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// oldBook returns a book, and the genesis of its chain, which begins with the first version.
func oldBook(accounts int) (*book, *ledger.Genesis) {
	genesis := ledgertest.OperatedGenesis(1)
	return &book{client: ledgertest.NewClient(genesis, "acme"),
		operator: ledgertest.NewOperator(genesis), accounts: accounts}, genesis
}

// upgrade applies a round in which the operator changes the version of the chain.
func (b *book) upgrade(s *Store, version int) (*ledger.Block, error) {
	b.round++
	charter := ledgertest.Charter(1, "operator")
	charter.Number, charter.Version = s.Charter().Number+1, version
	change := ledgertest.Signed(ledger.Operator, []string{"operator"},
		b.operator.ChangeCharter(charter))
	return s.Apply(1, b.round, [][]byte{ledgertest.Batch(ledger.Milliseconds(b.round), change)})
}

// TestUpgradedChain: a chain that changes its version goes on in every way in which a store can get
// its blocks: by rounds, after it was reopened, from a snapshot, and block by block.
func TestUpgradedChain(t *testing.T) {
	t.Parallel()
	b, genesis := oldBook(40)
	dir := t.TempDir()
	s := openBook(t, dir, genesis, small())
	for range 8 {
		b.apply(t, s, 30)
	}
	before := restoredFrom(t, s, filepath.Join(t.TempDir(), "before"))
	upgraded, err := b.upgrade(s, ledger.AccountTreeVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Append(upgraded); err != nil {
		t.Fatalf("a store from a snapshot of before: %v", err)
	}
	for range 8 {
		if err := before.Append(b.apply(t, s, 30)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := readAll(s)
	if err != nil {
		t.Fatal(err)
	}
	after := restoredFrom(t, s, filepath.Join(t.TempDir(), "after"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), dir, genesis, small(), nil); err != nil {
		t.Errorf("verify: %v", err)
	}
	s = openBook(t, dir, genesis, small())
	if got, err := readAll(s); err != nil || got != want {
		t.Errorf("reopened, it reads otherwise: %v", err)
	}
	for range 3 {
		block := b.apply(t, s, 30)
		for _, each := range []*Store{before, after} {
			if err := each.Append(block); err != nil {
				t.Fatal(err)
			}
		}
	}
	if version := s.Charter().Version; version != ledger.AccountTreeVersion {
		t.Errorf("version %d", version)
	}
}

// TestProgramTooOld: a store stops before the first block of a version that its program does not
// know, says so, and still serves what it has, also after it is opened again.
func TestProgramTooOld(t *testing.T) {
	t.Parallel()
	b, genesis := oldBook(5)
	dir := t.TempDir()
	s := openBook(t, dir, genesis, small())
	b.apply(t, s, 5)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	head := s.Head()
	for range 2 {
		_, err := b.upgrade(s, ledger.NewestVersion+1)
		if !errors.Is(err, ErrFailed) || !errors.Is(err, ledger.ErrVersion) ||
			!strings.Contains(err.Error(), "install a newer program") {
			t.Fatalf("upgrade: %v", err)
		}
		if s.AppendedHeight() != head.Height {
			t.Fatalf("the head is block %d", s.AppendedHeight())
		}
		if err := s.Close(); err != nil && !errors.Is(err, ErrFailed) {
			t.Fatal(err)
		}
		s = openBook(t, dir, genesis, small())
	}
	b.apply(t, s, 5)
}

// newerBlock returns the next block, by which the chain gets a version that this program does not
// know, as a program makes it that knows it: with another digest.
func (b *book) newerBlock(s *Store) (*ledger.Block, *state.Changes) {
	charter := ledgertest.Charter(1, "operator")
	charter.Number, charter.Version = s.Charter().Number+1, ledger.NewestVersion+1
	change := ledgertest.Signed(ledger.Operator, []string{"operator"},
		b.operator.ChangeCharter(charter))
	b.round++
	batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(ledger.Milliseconds(b.round),
		change)})
	block, changes := s.state.Execute(state.Seal(s.head, 1, b.round, batches,
		func(ledger.Hash, *ledger.Transaction) bool { return false }))
	block.Complete(ledger.Hash{1})
	return block, changes
}

// TestProgramTooOldForABlock: a store that cannot execute a block because its program is too old
// says so, and not that one of two nodes is wrong, or that its own disk is damaged.
func TestProgramTooOldForABlock(t *testing.T) {
	t.Parallel()
	b, genesis := oldBook(5)
	dir := t.TempDir()
	s := openBook(t, filepath.Join(dir, "newer"), genesis, small())
	older := openBook(t, t.TempDir(), genesis, small())
	if err := older.Append(b.apply(t, s, 5)); err != nil {
		t.Fatal(err)
	}
	block, changes := b.newerBlock(s)
	if err := older.Append(block); !errors.Is(err, ledger.ErrVersion) ||
		errors.Is(err, ErrMismatch) {
		t.Errorf("appending: %v", err)
	}
	if err := older.Append(block); !errors.Is(err, ErrFailed) ||
		!errors.Is(err, ledger.ErrVersion) {
		t.Errorf("appending again: %v", err)
	}
	// A newer program leaves the block in the journal.
	s.mutex.Lock()
	s.publish(block, changes)
	s.mutex.Unlock()
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(dir, "killed")
	if err := os.CopyFS(killed, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := snapshotOf(t, s)
	_, err := Restore(t.Context(), filepath.Join(dir, "restored"), genesis, small(),
		bytes.NewReader(snapshot), believe)
	if !errors.Is(err, ledger.ErrVersion) || errors.Is(err, ErrSnapshot) {
		t.Errorf("restoring: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, folder := range map[string]string{"killed": killed, "closed": s.dir} {
		var damage *DamageError
		if _, err := Open(folder, genesis, small()); !errors.Is(err, ledger.ErrVersion) ||
			errors.As(err, &damage) {
			t.Errorf("opening, %s: %v", name, err)
		}
	}
}
