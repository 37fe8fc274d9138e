package store

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestRecordOfAPackedBundle: a run of ids finds all transfers of packed bundles by one record each,
// and no others, among ids that begin alike.
func TestRecordOfAPackedBundle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		model := make(map[ledger.Hash]position)
		var records []record
		for index := range rapid.IntRange(1, 40).Draw(t, "records") {
			id := ledger.Hash{0: byte(index / 9), 7: byte(index / 3), 29: byte(index), 30: 0}
			where := position{height: 5, index: uint32(100 * index)}
			count := rapid.IntRange(0, 5).Draw(t, "transfers") // 0: an id of its own
			if where.packed = count > 0; !where.packed {
				id[31] = rapid.Byte().Draw(t, "last")
				model[id] = where
			}
			for place := range count {
				id[31] = byte(place)
				model[id] = position{height: 5, index: where.index + uint32(place)}
			}
			records = append(records, record{id, where})
		}
		var chunk []byte
		for i := range records {
			value := records[i].value()
			chunk = append(append(chunk, records[i].id[:]...), value[:]...)
			if decoded := decodeRecord(chunk[i*recordSize:]); decoded != records[i] {
				t.Fatalf("%+v is decoded as %+v", records[i], decoded)
			}
		}
		for i := range records {
			for last := range 8 {
				id := records[i].id
				id[31] = byte(last)
				want, there := model[id]
				where, found, err := findRecord(chunk, id)
				if err != nil || found != there || found && where != want {
					t.Fatalf("%s is at %+v, %v, %v; want %+v, %v", id, where, found, err, want,
						there)
				}
			}
		}
	})
}

// TestPackedBundleIsKnown: a packed bundle in the chain is known as a whole, also if its first
// transfer failed, and is in no further block: before it is in the database, after it is, and after
// the store was opened again.
func TestPackedBundleIsKnown(t *testing.T) {
	t.Parallel()
	dir, options := t.TempDir(), small()
	s, b := open(t, dir, options), newBook(3)
	b.apply(t, s, 0)
	taking := func(first, second ledger.AccountPath) *ledger.Bundle {
		return b.client.Packed(b.client.Transfer(first, b.account(1), 5_000_000),
			b.client.Transfer(second, b.account(1), 1))
	}
	issuer := b.client.Account("issuer")
	bundles := []*ledger.Bundle{taking(b.account(0), issuer), taking(issuer, b.account(0)),
		taking(b.account(0), b.account(2))}
	round := ledger.Round(2)
	apply := func(bundles ...*ledger.Bundle) *ledger.Block {
		t.Helper()
		round++
		block, err := s.Apply(1, round, [][]byte{ledgertest.Batch(5, bundles...)})
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	check := func() {
		t.Helper()
		for i, bundle := range bundles {
			known, err := s.KnownIn(bundle)
			if err != nil || len(known) != 2 || !known[0] || !known[1] {
				t.Errorf("bundle %d: known %v, %v", i, known, err)
			}
			for place, id := range bundle.IDs() {
				found, err := s.Transaction(id)
				if err != nil || found.Entry.ID != id || found.Entry.Place != place {
					t.Errorf("bundle %d, transfer %d: %+v, %v", i, place, found, err)
				}
			}
			beyond := bundle.ID(1)
			beyond[31]++
			if _, err := s.Transaction(beyond); !errors.Is(err, ErrNotFound) {
				t.Errorf("bundle %d has a third transfer: %v", i, err)
			}
			if block := apply(bundle); block != nil {
				t.Errorf("bundle %d is in the chain again, in block %d", i, block.Header.Height)
			}
		}
	}
	fresh := taking(issuer, issuer+"x")
	if block := apply(bundles...); len(block.Bundles) != 3 || block.Entry(0).Result.OK() ||
		!block.Entry(1).Result.OK() || block.Entry(4).Result.OK() ||
		block.Entry(5).Result.OK() {
		t.Fatalf("the block is %+v", block)
	}
	if known, err := s.KnownIn(fresh); known != nil || err != nil {
		t.Errorf("a bundle that was never sent: %v, %v", known, err)
	}
	check()
	if err := s.move(missing{}); err != nil {
		t.Fatal(err)
	}
	check()
	for _, all := range []bool{false, true} {
		closeStore(t, s)
		options.CheckAll = all
		s = open(t, dir, options)
		check()
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
