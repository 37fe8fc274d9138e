package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// placesOf returns how many entries of the parent's stream the blocks up to each height have, as
// the store says, and some of the places with so many. It compares the first with the blocks.
func placesOf(t *testing.T, s *Store) (text string) {
	t.Helper()
	head, carried := s.AppendedHeight(), uint64(0)
	for height := range head + 1 {
		if height > 0 {
			block, err := s.Block(height)
			if err != nil {
				t.Fatal(err)
			}
			for _, seal := range block.Bundles {
				carried = max(carried, seal.Number)
			}
		}
		if found, err := s.CarriedAt(t.Context(), height); err != nil || found != carried {
			t.Fatalf("up to block %d there are %d entries, and not %d: %v", height, carried, found,
				err)
		}
	}
	for number := range carried + 1 {
		for _, near := range []ledger.Height{0, head / 2, head + 1} {
			place, err := s.PlaceWith(t.Context(), number, near, head)
			if err != nil {
				t.Fatal(err)
			}
			if has, err := s.HasCarried(t.Context(), place, number); err != nil || !has {
				t.Errorf("%+v is not with %d entries: %v", place, number, err)
			}
			text += fmt.Sprintln(number, near, place)
		}
	}
	return text
}

// A look-up in blocks of an earlier version, which have no rows for the entries of the parent's
// stream, does a bounded work.
func TestWalkToEntriesIsBounded(t *testing.T) {
	t.Parallel()
	dir, genesis, random := t.TempDir(), shardGenesis(), rand.New(rand.NewPCG(5, 5))
	s := openBook(t, dir, genesis, small())
	b := newShardBook(1)
	for s.state.Carried() == 0 {
		b.apply(t, s, 2, random)
	}
	first := s.AppendedHeight()
	last := first + 40
	for s.AppendedHeight() < last { // blocks without entries
		batch := b.batch(s, 1, random)
		batch.Carried = nil
		if _, err := s.Apply(1, ledger.Round(s.Head().Height+1),
			[][]byte{batch.Encode()}); err != nil {
			t.Fatal(err)
		}
	}
	carried := s.state.Carried()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, dir, without(rowCarried))
	for walk, far := range map[int]bool{200: true, 5000: false} {
		options := small()
		options.walk = walk
		s = openBook(t, dir, genesis, options)
		found, err := s.CarriedAt(t.Context(), first+20)
		_, placeErr := s.PlaceWith(t.Context(), carried, first+20, s.AppendedHeight())
		for _, err := range []error{err, placeErr} {
			if far != errors.Is(err, ErrFarBack) || !far && err != nil {
				t.Errorf("with %d: %v", walk, err)
			}
		}
		if !far && found != carried {
			t.Errorf("with %d: %d entries, want %d", walk, found, carried)
		}
		if near, err := s.CarriedAt(t.Context(), first); err != nil || near > carried {
			t.Errorf("with %d, at an entry: %d, %v", walk, near, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The places of a chain are the same in memory and on disk, and in a store of an earlier version,
// which has no rows for them, or some. Only a row that is wrong is damage.
func TestPlacesOfEarlierVersions(t *testing.T) {
	t.Parallel()
	dir, genesis, random := t.TempDir(), shardGenesis(), rand.New(rand.NewPCG(5, 4))
	s := openBook(t, dir, genesis, small())
	b := newShardBook(1)
	for range 25 {
		b.apply(t, s, random.IntN(3), random)
		if random.IntN(2) == 0 { // a block without entries
			batch := b.batch(s, 1, random)
			batch.Carried = nil
			if _, err := s.Apply(1, ledger.Round(s.Head().Height+1),
				[][]byte{batch.Encode()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := placesOf(t, s)
	for _, each := range []struct {
		name   string
		change func(batch *badger.WriteBatch, key, value []byte) error
		wrong  bool
	}{
		{"as it was", func(*badger.WriteBatch, []byte, []byte) error { return nil }, false},
		{"without some", func(batch *badger.WriteBatch, key, value []byte) error {
			if key[len(key)-1]%3 == 0 {
				return without(rowCarried)(batch, key, value)
			}
			return nil
		}, false},
		{"with other places", func(batch *badger.WriteBatch, key, _ []byte) error {
			if key[0] != rowCarried {
				return nil
			}
			return batch.Set(key, seal(slices.Clone(key), appendPlace(nil, 1, 0)))
		}, true},
		{"without all", without(rowCarried), false},
	} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		edit(t, dir, each.change)
		s = openBook(t, dir, genesis, small())
		if err := s.verify(t.Context(), nil); (err != nil) != each.wrong {
			t.Errorf("%s: verify: %v", each.name, err)
		}
		if each.wrong {
			continue
		}
		if got := placesOf(t, s); got != want {
			t.Errorf("%s: places\n%s, want\n%s", each.name, got, want)
		}
	}
}
