package store

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// growingGenesis returns the genesis of the root of a book of two shards that can grow.
func growingGenesis() *ledger.Genesis {
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	genesis.Version = ledger.GrowthVersion
	return genesis
}

// growing makes rounds of the root of a book that grows: transfers of an organisation of the root,
// registrations, which reach all shards, and additions of shards below the root.
type growing struct {
	genesis *ledger.Genesis
	client  *ledgertest.Client
	// added counts the changes of the book. lost are shards that get lost in some blocks.
	added uint64
	lost  map[ledger.Height]ledger.ShardID
}

func newGrowing() *growing {
	genesis := growingGenesis()
	return &growing{genesis: genesis, client: ledgertest.NewClient(genesis, "org")}
}

// next returns the next round of a store. Blocks 20 and 70 add a shard.
func (g *growing) next(s *Store) []byte {
	height := s.Head().Height + 1
	var bundles []*ledger.Bundle
	register := func(client *ledgertest.Client) {
		registration := client.Register()
		registration.Registrations[0].Pinned = true
		registration.Registrations[0].Shard = ledger.ShardID(int(height) / 30 % s.BookShards())
		if client == g.client {
			registration.Registrations[0].Shard = 0
		}
		bundles = append(bundles, client.Bundle(registration))
	}
	switch {
	case height == 1:
		register(g.client)
	case height == 2:
		opening := g.client.Next()
		opening.Openings = []ledger.Opening{{Account: "org:issuer", Issuer: true},
			{Account: "org:a"}}
		bundles = append(bundles, g.client.Bundle(opening))
	case height == 20 || height == 70:
		g.added++
		operator := &ledgertest.Operator{Ledger: g.genesis.Book(), Sequence: uint64(height)}
		bundles = append(bundles, operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{
			Number: g.added, Addition: &ledger.ShardAddition{
				Members: []ledger.Member{ledgertest.Member(50 + int(height))}}})))
	case g.lost[height] != 0:
		g.added++
		operator := &ledgertest.Operator{Ledger: g.genesis.Book(), Sequence: uint64(height)}
		bundles = append(bundles, operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{
			Number: g.added, Loss: &ledger.ShardLoss{Shard: g.lost[height]}})))
	case height%3 == 0:
		register(ledgertest.NewClient(g.genesis,
			ledger.OrganisationName(fmt.Sprintf("org%d", height))))
	default:
		bundles = append(bundles, g.client.Bundle(g.client.Transfer("org:issuer", "org:a",
			int64(height))))
	}
	return ledgertest.Batch(ledger.Milliseconds(height), bundles...)
}

func (g *growing) apply(t *testing.T, s *Store, count int) {
	t.Helper()
	for range count {
		if _, err := s.Apply(1, ledger.Round(s.Head().Height+1), [][]byte{g.next(s)}); err != nil {
			t.Fatal(err)
		}
	}
}

// A store that began with a snapshot and was filled in is the same as one that executed all blocks,
// also when shards were added before the snapshot and after it.
func TestGrownIsFilledIn(t *testing.T) {
	t.Parallel()
	g := newGrowing()
	filledInIsWhole(t, g.genesis, g.next)
}

// A store that was filled in has the streams to lost shards as far as they go, whether the loss is
// before the snapshot or after it.
func TestLostIsFilledIn(t *testing.T) {
	t.Parallel()
	g := newGrowing()
	g.lost = map[ledger.Height]ledger.ShardID{41: 2, 64: 1}
	ended := make(map[ledger.ShardID]uint64)
	filledInIsWhole(t, g.genesis, func(s *Store) []byte {
		for _, loss := range s.Losses() {
			at, before := ended[loss.Shard]
			if now := s.Streamed(loss.Shard); before && now != at || now == 0 {
				t.Errorf("the stream to lost shard %d goes on from %d to %d", loss.Shard, at, now)
			}
			ended[loss.Shard] = s.Streamed(loss.Shard)
		}
		return g.next(s)
	})
	if len(ended) != 2 {
		t.Errorf("%d shards were lost", len(ended))
	}
}

// A chain begins with the directory that another chain kept, goes on from it after a restart and
// after a snapshot, and can be executed again.
func TestGrownShardIsKept(t *testing.T) {
	t.Parallel()
	g, dir := newGrowing(), t.TempDir()
	root := openBook(t, filepath.Join(dir, "root"), g.genesis, small())
	g.apply(t, root, 20)
	fresh, err := root.Seed(2) // before the block is written
	if err != nil {
		t.Fatal(err)
	}
	g.apply(t, root, 70)
	if err := root.Close(); err != nil {
		t.Fatal(err)
	}
	root = openBook(t, filepath.Join(dir, "root"), g.genesis, small())
	seed, err := root.Seed(2)
	if err != nil || !bytes.Equal(seed, fresh) {
		t.Fatalf("the directory of shard 2 is lost: %v", err)
	}
	if _, err := root.Seed(1); !errors.Is(err, ErrNotFound) {
		t.Errorf("the directory of a shard of the genesis: %v", err)
	}
	genesis, err := root.GenesisOf(2)
	if err != nil {
		t.Fatal(err)
	}
	home, options := filepath.Join(dir, "two"), small()
	if _, err := Open(home, genesis, options); !errors.Is(err, ErrNoSeed) {
		t.Errorf("without a directory: %v", err)
	}
	options.Seed = append(bytes.Clone(seed), 0)
	if _, err := Open(home, genesis, options); !errors.Is(err, state.ErrSeed) {
		t.Errorf("with another directory: %v", err)
	}
	options.Seed = seed
	s := openBook(t, home, genesis, options)
	if s.Head().Height != 0 || s.BookShards() != 3 || s.Carried() != 0 || s.AccountCount() != 0 {
		t.Errorf("the chain begins at block %d with %d shards", s.Head().Height, s.BookShards())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openBook(t, home, genesis, small()) // it needs no directory any more
	for s.Carried() < root.Streamed(2) {
		page, err := root.Stream(2, s.Carried()+1, 2, root.AppendedHeight())
		if err != nil {
			t.Fatal(err)
		}
		batch := &ledger.Batch{Header: ledger.BatchHeader{Time: s.Head().Time + 1}, Carried: page}
		if _, err := s.Apply(1, ledger.Round(s.Head().Height+1),
			[][]byte{batch.Encode()}); err != nil {
			t.Fatal(err)
		}
	}
	organisations := root.Organisations()
	if got := s.Organisations(); len(got) != len(organisations) {
		t.Errorf("shard 2 knows %d of %d organisations", len(got), len(organisations))
	}
	if !slices.EqualFunc(s.Additions(), root.Additions(), func(a, b ledger.AddedShard) bool {
		return a.Directory == b.Directory && a.Parent == b.Parent
	}) {
		t.Errorf("shard 2 knows other additions: %+v", s.Additions())
	}
	began := restoredFrom(t, s, filepath.Join(dir, "began"))
	if err := fillFrom(began, s, 1000); err != nil {
		t.Fatal(err)
	}
	if err := began.Index(t.Context(), nil); !errors.Is(err, ErrNoSeed) {
		t.Errorf("executing the blocks without the directory: %v", err)
	}
	if err := began.Close(); err != nil {
		t.Fatal(err)
	}
	options.Seed = seed
	began = openBook(t, filepath.Join(dir, "began"), genesis, options)
	if err := began.Index(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	sameRows(t, began, s)
	for name, each := range map[string]*Store{"root": root, "shard 2": s, "restored": began} {
		if err := each.verify(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What concerns all shards concerns those that the book had then.
func TestDestinationsBeforeAnAddition(t *testing.T) {
	t.Parallel()
	g := newGrowing()
	s := openBook(t, t.TempDir(), g.genesis, small())
	g.apply(t, s, 40)
	for height, want := range map[ledger.Height]int{3: 2, 18: 2, 20: 2, 21: 3, 39: 3} {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Destinations(block, 0); len(got) != want {
			t.Errorf("block %d concerns shards %v, want %d", height, got, want)
		}
	}
	if height, known := s.AddedAt(2); height != 20 || !known {
		t.Errorf("shard 2 was added in block %d", height)
	}
}
