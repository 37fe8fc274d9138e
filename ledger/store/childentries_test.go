package store

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// Which bundles are entries of a stream depends on which organisations were registered at their
// place, and not on which ones are registered now.
func TestEntriesFollowTheDirectoryOfTheirPlace(t *testing.T) {
	t.Parallel()
	b, dir := newShardBook(1), t.TempDir()
	genesis := shardGenesis()
	whole := openBook(t, filepath.Join(dir, "whole"), genesis, small())
	// Until it is registered in shard 1, its name belongs to shard 2.
	var name ledger.OrganisationName
	for i := 0; name == "" || whole.HomeShard(name) != 2; i++ {
		name = ledger.OrganisationName(fmt.Sprintf("later%d", i))
	}
	pay := func() []byte {
		return b.signed(b.above[1].Transfer("org1:a", ledger.AccountPath(name+":a"), 1))
	}
	registration := ledgertest.NewClient(genesis, name).Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 1
	registered, err := ledger.NewBundle(registration)
	if err == nil {
		err = registered.Sign(name, ed25519.PrivateKey(ledgertest.Key(string(name))))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.grow(1)
	b.round++
	b.order(&ledger.Batch{Header: ledger.BatchHeader{Time: ledger.Milliseconds(b.round)},
		Bundles: [][]byte{pay(), pay(), registered.Encode(), pay()}})
	if len(b.stream) != 5 {
		t.Fatalf("the root's stream has %d entries", len(b.stream))
	}
	for _, carried := range [][]ledger.Carried{b.stream[:1], b.stream[1:2], b.stream[2:5], nil} {
		batch := &ledger.Batch{Carried: carried,
			Header: ledger.BatchHeader{Time: ledger.Milliseconds(whole.Head().Height + 1)}}
		if carried == nil {
			batch.Bundles = [][]byte{pay()}
		}
		if _, err := whole.Apply(1, ledger.Round(whole.Head().Height+1),
			[][]byte{batch.Encode()}); err != nil {
			t.Fatal(err)
		}
	}
	if height, streamed := whole.Head().Height, whole.Streamed(2); height != 4 || streamed != 4 {
		t.Fatalf("%d blocks, with %d entries of the stream to shard 2", height, streamed)
	}
	s := restoredFrom(t, whole, filepath.Join(dir, "filled"))
	for s.Absent() > 0 {
		if err := fillFrom(s, whole, 1); err != nil {
			t.Fatal(err)
		}
		sameStream(t, s, whole)
	}
	page, err := s.Stream(2, 1, 10, s.AppendedHeight())
	if err != nil || len(page) != 4 || s.Unindexed() == 0 {
		t.Errorf("%d entries without an index: %v", len(page), err)
	}
}

// A store that was begun by a version that did not keep the positions of streams finds the entries
// once it is indexed, and gives no wrong ones before.
func TestEntriesWithoutPositions(t *testing.T) {
	t.Parallel()
	b, dir := newShardBook(1), t.TempDir()
	random := rand.New(rand.NewPCG(8, 8))
	whole := openBook(t, filepath.Join(dir, "whole"), shardGenesis(), small())
	for range 20 {
		b.apply(t, whole, 3, random)
	}
	s := restoredFrom(t, whole, filepath.Join(dir, "old"))
	err := s.db.Update(func(transaction *badger.Txn) error {
		key := []byte{rowAbsent}
		return transaction.Set(key, seal(key, missing{absent: 20, unindexed: 20}.row()))
	})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s = openBook(t, filepath.Join(dir, "old"), shardGenesis(), small())
	for s.Absent() > 0 {
		if err := fillFrom(s, whole, 7); err != nil {
			t.Fatal(err)
		}
		for number := uint64(1); number <= s.Streamed(2); number++ {
			if _, err := s.Stream(2, number, 1, 20); !errors.Is(err, ErrAbsent) {
				t.Fatalf("entry %d, absent to %d: %v", number, s.Absent(), err)
			}
		}
	}
	if err := s.Index(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	sameStream(t, s, whole)
	sameRows(t, s, whole)
}

// Entries that a crash left behind, of blocks that are not announced as filled in, do no harm. They
// are not given to the child, and are written again in pieces of other sizes.
func TestEntriesOfAPieceThatIsRepeated(t *testing.T) {
	t.Parallel()
	b, dir := newShardBook(1), t.TempDir()
	random := rand.New(rand.NewPCG(8, 8))
	whole := openBook(t, filepath.Join(dir, "whole"), shardGenesis(), small())
	for range 20 {
		b.apply(t, whole, 3, random)
	}
	s, key := restoredFrom(t, whole, filepath.Join(dir, "filled")), []byte{rowAbsent}
	if err := fillFrom(s, whole, 3); err != nil {
		t.Fatal(err)
	}
	var before missing
	err := s.db.View(func(transaction *badger.Txn) (err error) {
		before, err = readMissing(transaction, 20)
		return err
	})
	if err == nil {
		err = fillFrom(s, whole, 7)
	}
	if err == nil {
		err = s.db.Update(func(transaction *badger.Txn) error {
			return transaction.Set(key, seal(key, before.row()))
		})
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s = openBook(t, filepath.Join(dir, "filled"), shardGenesis(), small())
	if s.Absent() != 17 {
		t.Fatalf("absent to %d", s.Absent())
	}
	sameStream(t, s, whole)
	for s.Absent() > 0 {
		if err := fillFrom(s, whole, 4); err != nil {
			t.Fatal(err)
		}
		sameStream(t, s, whole)
	}
}

// A state that tells of more or fewer entries than the blocks have is damage.
func TestEntriesAreCounted(t *testing.T) {
	t.Parallel()
	b, dir := newShardBook(1), t.TempDir()
	random := rand.New(rand.NewPCG(8, 8))
	whole := openBook(t, filepath.Join(dir, "whole"), shardGenesis(), small())
	for range 10 {
		b.apply(t, whole, 3, random)
	}
	for _, position := range []uint64{whole.Streamed(2) - 1, whole.Streamed(2) + 1} {
		s := restoredFrom(t, whole, filepath.Join(dir, fmt.Sprint(position)))
		err := s.db.Update(func(transaction *badger.Txn) error {
			key := []byte{rowAbsent}
			return transaction.Set(key, seal(key, missing{absent: 10, unindexed: 10,
				streamed: []uint64{position}}.row()))
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := fillFrom(s, whole, 10); !errors.Is(err, ErrDamaged) || s.Absent() != 10 {
			t.Errorf("position %d of %d: absent to %d, %v", position, whole.Streamed(2),
				s.Absent(), err)
		}
	}
}
