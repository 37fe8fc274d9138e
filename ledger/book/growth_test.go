package book

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// add adds a shard with an organisation below another one.
func (b *shards) add(parent ledger.ShardID, dir string) {
	b.t.Helper()
	root, shard := b.stores[0], ledger.ShardID(len(b.stores))
	operator := &ledgertest.Operator{Ledger: root.Book(), Sequence: root.BookChanges()}
	bundle := operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{
		Number: root.BookChanges() + 1, Addition: &ledger.ShardAddition{Parent: parent,
			Members: []ledger.Member{ledgertest.Member(90 + int(shard))}}}))
	b.forge = func(_ ledger.ShardID, batch *ledger.Batch) {
		batch.Bundles = append(batch.Bundles, bundle.Encode())
	}
	b.round(0)
	b.forge = nil
	genesis, err := root.GenesisOf(shard)
	if err != nil {
		b.t.Fatal(err)
	}
	seed, err := root.Seed(shard)
	if err != nil {
		b.t.Fatal(err)
	}
	opened, err := store.Open(filepath.Join(dir, "added"), genesis, store.Options{ReserveBytes: -1,
		Seed: seed})
	if err != nil {
		b.t.Fatal(err)
	}
	b.closeLater(opened)
	client := ledgertest.NewClient(genesis, ledger.OrganisationName("added"))
	b.stores, b.clients = append(b.stores, opened), append(b.clients, client)
	registration := client.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, shard
	b.round(0, registration)
	b.settle()
	opening := client.Next()
	opening.Openings = []ledger.Opening{{Account: client.Account("issuer"), Issuer: true},
		{Account: client.Account("a")}}
	b.round(shard, opening)
}

// countsWithin checks that the added shard counts at the places after its addition within a block,
// and not before.
func (b *shards) countsWithin(own *store.Store) {
	b.t.Helper()
	at, _ := own.AddedAt(2)
	block, err := own.Block(at)
	if err != nil {
		b.t.Fatal(err)
	}
	want := 2
	for entries := range block.Len() + 1 {
		if entries > 0 {
			if entry := block.Entry(entries - 1); entry.Transaction().Book != nil {
				want = 3
			}
		}
		place := store.Place{Height: at - 1, Entries: uint32(entries)}
		if shards, err := own.ShardsAt(place); err != nil || shards != want {
			b.t.Errorf("at %+v the book has %d shards, want %d: %v", place, shards, want, err)
		}
	}
	if want != 3 {
		b.t.Error("the addition is not where the chain says")
	}
}

// A cut has the shards that the book has at its place in the root's chain, and its balances add up,
// before and after the addition of a shard. So does a cut of before that is read after.
func TestCutsWhileTheBookGrows(t *testing.T) {
	t.Parallel()
	var grown, before, late int
	for seed, parent := range []ledger.ShardID{0, 1} {
		b := newShardsOf(t, uint64(seed), ledger.NewestVersion, 0, 0)
		var cuts [][]Position
		for round := range 200 {
			if round == 60 {
				b.add(parent, t.TempDir())
			}
			b.trade()
			var height *ledger.Height
			if b.random.IntN(2) == 0 {
				height = new(ledger.Height)
				*height = ledger.Height(b.random.Uint64N(uint64(b.stores[0].AppendedHeight()) + 1))
			}
			cut, err := b.cut(height)
			if errors.Is(err, store.ErrNotYet) {
				late++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			shards, err := b.stores[0].ShardsAt(cut[0].Place)
			if err != nil || len(cut) != shards {
				t.Fatalf("a cut of %d places, where the book has %d shards: %v", len(cut), shards,
					err)
			}
			if len(cut) == 3 {
				grown++
			} else if len(b.stores) == 3 {
				before++
			}
			cuts = append(cuts, cut)
		}
		b.settle()
		for _, own := range b.stores[:2] {
			b.countsWithin(own)
		}
		for _, cut := range cuts {
			if err := b.judge(placesOf(cut)); err != nil {
				t.Fatal(err)
			}
			for shard, own := range b.stores {
				place, err := PlaceIn(t.Context(), own, cut, own.AppendedHeight())
				if shard >= len(cut) {
					if !errors.Is(err, ErrNoCut) {
						t.Errorf("shard %d is in a cut of %d: %v", shard, len(cut), err)
					}
				} else if err != nil || place != cut[shard].Place {
					t.Errorf("shard %d: %+v, %v", shard, place, err)
				}
			}
			// A shard less, or one that was not there yet, is found.
			other := append(append([]Position(nil), cut...), Position{})
			if len(cut) == 3 {
				other = cut[:2]
			}
			_, err := PlaceIn(t.Context(), b.stores[1], other, b.stores[1].AppendedHeight())
			if !errors.Is(err, ErrNoCut) {
				t.Errorf("%d places instead of %d: %v", len(other), len(cut), err)
			}
		}
	}
	t.Logf("%d cuts of three, %d of two that were found later; %d too early", grown, before, late)
	if grown < 50 || before < 20 {
		t.Error("the cuts are too much alike")
	}
}
