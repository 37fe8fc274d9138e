package store

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// hanging makes rounds of the root of a book of three shards, in which shard 2 hangs below the
// root, then below shard 1, and below the root again.
type hanging struct {
	genesis *ledger.Genesis
	changes uint64
}

func newHanging() *hanging {
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.GrowthVersion
	return &hanging{genesis: genesis}
}

// next returns the next round of a store. Blocks 20, 50 and 70 change the tree. In each third block
// an organisation is registered, of which all shards learn.
func (h *hanging) next(s *Store) []byte {
	height := s.Head().Height + 1
	if height == 20 || height == 50 || height == 70 {
		h.changes++
		operator := &ledgertest.Operator{Ledger: h.genesis.Book(), Sequence: uint64(height)}
		return ledgertest.Batch(ledger.Milliseconds(height), operator.Bundle("operator",
			operator.ChangeBook(ledger.BookChange{Number: h.changes, Rehang: &ledger.ShardRehang{
				Shard: 2, Parent: ledger.ShardID(h.changes % 2)}})))
	}
	client := ledgertest.NewClient(h.genesis, ledger.OrganisationName(fmt.Sprintf("org%d", height)))
	registration := client.Register()
	registration.Registrations[0].Pinned = true
	registration.Registrations[0].Shard = ledger.ShardID(height % 3)
	return ledgertest.Batch(ledger.Milliseconds(height), client.Bundle(registration))
}

func (h *hanging) apply(t *testing.T, s *Store, count int) {
	t.Helper()
	for range count {
		if _, err := s.Apply(1, ledger.Round(s.Head().Height+1), [][]byte{h.next(s)}); err != nil {
			t.Fatal(err)
		}
	}
}

// A store that began with a snapshot and was filled in is the same as one that executed all blocks,
// also if a child was hung elsewhere and back before the snapshot and after it.
func TestRehungIsFilledIn(t *testing.T) {
	t.Parallel()
	h := newHanging()
	filledInIsWhole(t, h.genesis, h.next)
}

// A store has all entries for a former child, in a stream with gaps, and knows which it lacks.
func TestFormerChildIsFed(t *testing.T) {
	t.Parallel()
	h, dir := newHanging(), t.TempDir()
	whole := openBook(t, filepath.Join(dir, "whole"), h.genesis, small())
	h.apply(t, whole, 90)
	second := ledger.StreamBase(2)
	// 19 blocks and the change, then those of 51 to 69 and the change of 70.
	for taken, want := range map[uint64][2]uint64{0: {1, 20}, 19: {20, 20},
		20: {second + 1, second + 20}, ledger.StreamBase(1) + 9: {second + 1, second + 20},
		second + 5: {second + 6, second + 20}, second + 20: {}, ledger.StreamBase(3): {}} {
		first, last, any := whole.FirstUntaken(2, taken)
		if first != want[0] || last != want[1] || any != (want[1] > 0) {
			t.Errorf("with %d, it lacks %d to %d, want %v", taken, first, last, want)
		}
		wait, err := whole.Untaken(2, taken, 100)
		if err != nil || any && wait.Count != last-first+1 {
			t.Errorf("with %d: %+v, %v", taken, wait, err)
		}
	}
	for from, want := range map[uint64]int{1: 20, 20: 1, 21: 0, ledger.StreamBase(1) + 1: 0,
		second: 0, second + 1: 20, second + 21: 0} {
		page, err := whole.Stream(2, from, 100, 90)
		if err != nil || len(page) != want {
			t.Errorf("from %d: %d entries, want %d: %v", from, len(page), want, err)
		}
	}
	if fed := whole.Fed(); len(fed) != 2 || whole.Streamed(2) != second+20 {
		t.Errorf("it feeds %v, shard 2 up to %d", fed, whole.Streamed(2))
	}
	for height, want := range map[ledger.Height]uint64{0: 0, 19: 19, 20: 20, 49: 20, 50: second,
		51: second + 1, 69: second + 19, 70: second + 20, 90: second + 20} {
		got, err := whole.StreamedAt(2, Place{Height: height})
		if err != nil || got != want {
			t.Errorf("at block %d: entry %d, want %d: %v", height, got, want, err)
		}
	}
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), filepath.Join(dir, "whole"), h.genesis, small(),
		nil); err != nil {
		t.Fatal(err)
	}
}
