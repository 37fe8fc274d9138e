package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
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
