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

// TestUpgradeDropsAccountsInParts: after the upgrade of a chain whose accounts were all in memory,
// no block drops many of them, since nobody can read meanwhile. In the end few are in memory.
func TestUpgradeDropsAccountsInParts(t *testing.T) {
	t.Parallel()
	const accounts, perBlock = 3 * droppedTogether, 10
	b, genesis := oldBook(accounts)
	dir := t.TempDir()
	s := openBook(t, dir, genesis, small())
	b.apply(t, s, 0)
	closeStore(t, s)
	s = openBook(t, dir, genesis, small())
	before := s.AccountsInMemory()
	if before != accounts+1 {
		t.Fatalf("%d of %d accounts are in memory", before, accounts+1)
	}
	if _, err := b.upgrade(s, ledger.AccountTreeVersion); err != nil {
		t.Fatal(err)
	}
	for blocks := 0; ; blocks++ {
		after := s.AccountsInMemory()
		if before-after > droppedTogether {
			t.Fatalf("block %d drops %d accounts", blocks, before-after)
		}
		if before = after; after <= small().AccountsInMemory+2*perBlock {
			break
		}
		if blocks == 20 {
			t.Fatalf("%d accounts are in memory after %d blocks", after, blocks)
		}
		b.apply(t, s, perBlock)
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
	}
}

// blockWith returns the block after the head, as a program makes it that takes packed bundles and
// deadlines in any version of a chain.
func blockWith(t *testing.T, s *Store, genesis *ledger.Genesis,
	bundles ...*ledger.Bundle) *ledger.Block {
	t.Helper()
	replayed, parent := state.New(genesis), state.Parent{Packed: true,
		Version: ledger.NewestVersion}
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		replayed.Execute(state.Redraft(block))
		parent.Header, parent.Hash = block.Header, block.Hash
	}
	draft := state.Seal(parent, 1, parent.Header.Round+1, ledger.VerifyBatches([][]byte{
		ledgertest.Batch(parent.Header.Time, bundles...)}), func(ledger.Hash,
		*ledger.Transaction) bool {
		return false
	})
	block, _ := replayed.Execute(draft)
	return block
}

// TestChainBeginsToTakePackedBundles: a packed bundle that comes with the change is left out, and
// one after it is in a block, once. The roots of both blocks are by bundle. A block of another node
// that has a packed bundle beside the change is refused.
func TestChainBeginsToTakePackedBundles(t *testing.T) {
	t.Parallel()
	b, genesis := oldBook(5)
	dir := t.TempDir()
	s := openBook(t, dir, genesis, small())
	b.apply(t, s, 5)
	packed := b.client.Packed(b.client.Transfer(b.client.Account("issuer"), b.account(0), 1),
		b.client.Transfer(b.client.Account("issuer"), b.account(1), 1))
	plain := b.client.Bundle(b.client.Transfer(b.client.Account("issuer"), b.account(2), 1))
	if err := ledger.VerifyBundle(packed, genesis, genesis.Book(), s); !errors.Is(err,
		ledger.ErrInvalidTransaction) {
		t.Errorf("before the change it is admitted: %v", err)
	}
	change := ledgertest.Charter(1, "operator")
	change.Number, change.Version = 1, ledger.PackedVersion
	upgrade := ledgertest.Signed(ledger.Operator, []string{"operator"},
		b.operator.ChangeCharter(change))
	apply := func(bundles ...*ledger.Bundle) *ledger.Block {
		t.Helper()
		b.round++
		block, err := s.Apply(1, b.round, [][]byte{ledgertest.Batch(ledger.Milliseconds(b.round),
			bundles...)})
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	early := blockWith(t, s, genesis, upgrade, packed)
	if !early.Header.ByBundle || early.Len() != 3 {
		t.Fatalf("%d transactions", early.Len())
	}
	if err := s.Append(early); !errors.Is(err, ErrMismatch) {
		t.Errorf("a block that takes packed bundles too early: %v", err)
	}
	first := apply(upgrade, packed, plain)
	if first.Len() != 2 || !first.Header.ByBundle {
		t.Fatalf("the block with the change is %+v", first)
	}
	if known, err := s.KnownIn(packed); known != nil || err != nil {
		t.Errorf("the packed bundle is in it: %v, %v", known, err)
	}
	if err := ledger.VerifyBundle(packed, genesis, genesis.Book(), s); err != nil {
		t.Errorf("after the change: %v", err)
	}
	second := apply(packed, plain, packed)
	if second.Len() != 2 || !second.Entry(1).Result.OK() || !second.Header.ByBundle {
		t.Fatalf("the block after it is %+v", second)
	}
	copied := restoredFrom(t, s, filepath.Join(t.TempDir(), "copied"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), dir, genesis, small(), nil); err != nil {
		t.Errorf("verify: %v", err)
	}
	s = openBook(t, dir, genesis, small())
	for name, each := range map[string]*Store{"reopened": s, "copied": copied} {
		batch := ledgertest.Batch(ledger.Milliseconds(b.round), packed, plain)
		if block, err := each.Apply(1, b.round+1, [][]byte{batch}); block != nil || err != nil {
			t.Errorf("%s, it takes them again: %+v, %v", name, block, err)
		}
		if known, err := each.KnownIn(packed); err != nil || len(known) != 2 || !known[1] {
			t.Errorf("%s, it knows %v: %v", name, known, err)
		}
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

// TestDeadlinesThatComeTooEarly: a chain that does not take deadlines yet refuses another node's
// block with one.
func TestDeadlinesThatComeTooEarly(t *testing.T) {
	t.Parallel()
	b, genesis := oldBook(5)
	s := openBook(t, t.TempDir(), genesis, small())
	defer closeStore(t, s)
	b.apply(t, s, 5)
	timed := b.client.Transfer(b.client.Account("issuer"), b.account(0), 1)
	timed.Deadline = 1 << 40
	early := blockWith(t, s, genesis, b.client.Bundle(timed))
	if early.Len() != 1 {
		t.Fatalf("%d transactions", early.Len())
	}
	if err := s.Append(early); !errors.Is(err, ErrMismatch) ||
		!strings.Contains(err.Error(), "deadlines") {
		t.Errorf("a block that takes a deadline too early: %v", err)
	}
}
