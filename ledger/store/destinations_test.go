package store

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// crossed returns a store of a shard with blocks of crossing transactions, most of them settled.
func crossed(t testing.TB, options Options, blocks, transactions int) *Store {
	random, b := rand.New(rand.NewPCG(7, 7)), newShardBook(1)
	s := openBook(t, t.TempDir(), shardGenesis(), options)
	for range blocks {
		b.apply(t, s, transactions, random)
	}
	return s
}

// A verdict goes to the shards for which execution made it. A store that can no longer read its
// disk knows them too.
func TestDestinationsAreThoseOfVerdicts(t *testing.T) {
	t.Parallel()
	s := crossed(t, small(), 30, 9)
	var blocks []*ledger.Block
	told := make(map[ledger.Height][][]state.OwnVerdict)
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, block)
		own, err := s.OwnVerdicts(height)
		if err != nil {
			t.Fatal(err)
		}
		// Those of the last blocks are known from their execution.
		told[height] = [][]state.OwnVerdict{own, s.ownVerdictsIn(block)}
	}
	if _, err := s.OwnVerdicts(s.AppendedHeight() + 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("above the head: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	replayed, verdicts := state.New(s.genesis), 0
	for _, block := range blocks {
		executed, changes := replayed.Execute(state.Redraft(block))
		if executed.Hash != block.Hash {
			t.Fatalf("block %d is another one", block.Header.Height)
		}
		for _, got := range told[block.Header.Height] {
			if !slices.EqualFunc(got, changes.Verdicts, func(a, b state.OwnVerdict) bool {
				return a.Verdict == b.Verdict && slices.Equal(a.To, b.To)
			}) {
				t.Errorf("block %d: %d own verdicts, want %d, or others", block.Header.Height,
					len(got), len(changes.Verdicts))
			}
		}
		for _, own := range changes.Verdicts {
			index := slices.IndexFunc(block.Unpacked, func(each ledger.Entry) bool {
				return each.ID == own.ID
			})
			var others []ledger.ShardID
			for _, shard := range s.Destinations(block, index) {
				if shard != s.Shard() {
					others = append(others, shard)
				}
			}
			if !slices.Equal(others, own.To) {
				t.Errorf("the verdict on %s goes to %v, want %v", own.ID, others, own.To)
			}
			verdicts++
		}
	}
	if verdicts < 100 {
		t.Errorf("only %d verdicts", verdicts)
	}
}

// BenchmarkDestinations finds out to which shards the verdicts of a block go: from the block, and
// by a look-up of each transaction's way. The index of the blocks is on the disk.
func BenchmarkDestinations(b *testing.B) {
	s := crossed(b, Options{}, 20, 3000)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	s = openBook(b, s.dir, s.genesis, Options{})
	block, err := s.Block(s.AppendedHeight() - 5)
	if err != nil {
		b.Fatal(err)
	}
	var indices []int
	for index, entry := range block.All() {
		if _, made := ledger.VerdictOf(entry, s.Shard()); made {
			indices = append(indices, index)
		}
	}
	measure := func(name string, destinations func(index int) []ledger.ShardID) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, index := range indices {
					if len(destinations(index)) == 0 {
						b.Fatal("no destination")
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(indices)),
				"ns/verdict")
		})
	}
	measure("block", func(index int) []ledger.ShardID { return s.Destinations(block, index) })
	measure("way", func(index int) []ledger.ShardID {
		crossing, err := s.Crossing(block.ID(index))
		if err != nil {
			b.Fatal(err)
		}
		return crossing.Destinations
	})
}
