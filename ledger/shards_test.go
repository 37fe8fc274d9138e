package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// drawParents draws a tree of shards. Any shard may be the root, and every other shard has a parent
// that is nearer to the root.
func drawParents(r *rapid.T, most int) []ledger.ShardID {
	count := rapid.IntRange(2, most).Draw(r, "shards")
	order := rapid.Permutation(numbered(count)).Draw(r, "order")
	parents := make([]ledger.ShardID, count)
	parents[order[0]] = order[0]
	for i := 1; i < count; i++ {
		parents[order[i]] = order[rapid.IntRange(0, i-1).Draw(r, "parent")]
	}
	return parents
}

func numbered(count int) []ledger.ShardID {
	all := make([]ledger.ShardID, count)
	for i := range all {
		all[i] = ledger.ShardID(i)
	}
	return all
}

// The tree's answers agree with walks from parent to parent.
func TestShardTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		parents := drawParents(r, 12)
		tree := ledgertest.ShardedGenesis(1, parents...).ShardTree()
		above := func(shard ledger.ShardID) []ledger.ShardID {
			path := []ledger.ShardID{shard}
			for parents[shard] != shard {
				shard = parents[shard]
				path = append(path, shard)
			}
			return path
		}
		for _, shard := range numbered(len(parents)) {
			path := above(shard)
			if tree.Depth(shard) != len(path)-1 || tree.Root() != path[len(path)-1] {
				r.Fatalf("shard %d: depth %d, root %d", shard, tree.Depth(shard), tree.Root())
			}
			parent, below := tree.Parent(shard)
			if parent != parents[shard] || below != (len(path) > 1) || below &&
				!slices.Contains(tree.Children(parent), shard) {
				r.Fatalf("shard %d: parent %d, %v", shard, parent, below)
			}
			for _, other := range numbered(len(parents)) {
				if tree.Reaches(other, shard) != slices.Contains(path, other) {
					r.Fatalf("shard %d reaches %d: %v", other, shard, tree.Reaches(other, shard))
				}
			}
		}
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(numbered(len(parents))), 1,
			4, rapid.ID).Draw(r, "some")
		entry := tree.Entry(some)
		if !tree.Covers(entry, some) {
			r.Fatalf("%d does not cover %v", entry, some)
		}
		for _, child := range tree.Children(entry) {
			if tree.Covers(child, some) {
				r.Fatalf("%d covers %v and lies below %d", child, some, entry)
			}
			if tree.Concerns(child, some) != slices.ContainsFunc(some,
				func(each ledger.ShardID) bool {
					return tree.Reaches(child, each)
				}) {
				r.Fatalf("%d and %v", child, some)
			}
		}
	})
}

// A tree from before the addition of a shard has answers on that shard: it lies right below the
// root. So a caller that reads the tree and the directory one after the other answers as of before.
func TestShardTreeBeforeAnAddition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		parents := drawParents(r, 12)
		tree := ledgertest.ShardedGenesis(1, parents...).ShardTree()
		added := ledger.ShardID(len(parents)) + ledger.ShardID(rapid.IntRange(0, 3).Draw(r, "by"))
		if parent, below := tree.Parent(added); parent != tree.Root() || !below ||
			tree.Depth(added) != 1 || len(tree.Children(added)) != 0 {
			r.Fatalf("shard %d is below shard %d", added, parent)
		}
		for _, other := range append(numbered(len(parents)), added, added+1) {
			want := tree.Root()
			if other == added {
				want = added
			}
			if entry := tree.Entry([]ledger.ShardID{added, other}); entry != want {
				r.Fatalf("shards %d and %d enter at %d", added, other, entry)
			}
			if tree.Reaches(other, added) != (other == added || other == tree.Root()) ||
				tree.Reaches(added, other) != (other == added) {
				r.Fatalf("shards %d and %d", added, other)
			}
		}
	})
}

func TestShardedGenesis(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(2, 0, 0, 1)
	hashes := map[ledger.Hash]bool{genesis.Book(): true}
	for shard := range ledger.ShardID(3) {
		one, err := genesis.ForShard(shard)
		if err != nil || one.Validate() != nil {
			t.Fatalf("shard %d: %v %v", shard, err, one.Validate())
		}
		decoded, err := ledger.DecodeGenesis(one.Encode())
		if err != nil || !reflect.DeepEqual(decoded, one) {
			t.Fatalf("shard %d does not survive its encoding: %v", shard, err)
		}
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		var read ledger.Genesis
		if err := json.Unmarshal(text, &read); err != nil ||
			!bytes.Equal(read.Encode(), one.Encode()) {
			t.Fatalf("shard %d does not survive JSON: %v", shard, err)
		}
		if one.Book() != genesis.Book() || hashes[one.Hash()] {
			t.Fatalf("shard %d: book %s, chain %s", shard, one.Book(), one.Hash())
		}
		hashes[one.Hash()] = true
	}
	if _, err := genesis.ForShard(3); !errors.Is(err, ledger.ErrGenesis) {
		t.Errorf("shard 3 of 3: %v", err)
	}
	if one := ledgertest.OperatedGenesis(2); one.Book() != one.Hash() || one.ShardTree() != nil ||
		one.Sharded() {
		t.Error("a book of one shard has an identity beside its genesis hash")
	}
	for name, spoil := range map[string]func(*ledger.Genesis){
		"one shard": func(g *ledger.Genesis) {
			g.Shards, g.Tree = g.Shards[:1], g.Tree[:1]
		},
		"no such shard":     func(g *ledger.Genesis) { g.Shard = 3 },
		"other members":     func(g *ledger.Genesis) { g.Members = g.Shards[1] },
		"short tree":        func(g *ledger.Genesis) { g.Tree = g.Tree[:2] },
		"two roots":         func(g *ledger.Genesis) { g.Tree = []ledger.ShardID{0, 1, 1} },
		"no root":           func(g *ledger.Genesis) { g.Tree = []ledger.ShardID{1, 2, 0} },
		"cycle":             func(g *ledger.Genesis) { g.Tree = []ledger.ShardID{0, 2, 1} },
		"parent of nowhere": func(g *ledger.Genesis) { g.Tree = []ledger.ShardID{0, 3, 0} },
		"name twice":        func(g *ledger.Genesis) { g.Shards[2][1].Name = "node-0" },
		"key twice":         func(g *ledger.Genesis) { g.Shards[2][1].Key = g.Shards[0][0].Key },
		"empty shard":       func(g *ledger.Genesis) { g.Shards[2] = nil },
		"shard without any": func(g *ledger.Genesis) { g.Shards, g.Tree, g.Shard = nil, nil, 1 },
	} {
		spoiled := ledgertest.ShardedGenesis(2, 0, 0, 1)
		spoil(spoiled)
		if err := spoiled.Validate(); !errors.Is(err, ledger.ErrGenesis) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The home of an organisation is part of the protocol. It never changes, homes are spread evenly,
// and an additional shard takes only the organisations for which it has the highest score.
func TestRendezvous(t *testing.T) {
	t.Parallel()
	for name, want := range map[ledger.OrganisationName]ledger.ShardID{"acme": 3, "bank": 0,
		"lufthansa": 1, "x": 3} {
		if got := ledger.Rendezvous(name, 4); got != want {
			t.Errorf("%q: %d,", name, got)
		}
	}
	var held [4]int
	for i := range 4000 {
		name := ledger.OrganisationName("organisation-" + string(rune('a'+i%26)) +
			ledger.NewAmount(int64(i)).String())
		home := ledger.Rendezvous(name, 4)
		held[home]++
		if more := ledger.Rendezvous(name, 5); more != home && more != 4 {
			t.Fatalf("%s moves from %d to %d when shard 4 is added", name, home, more)
		}
	}
	for shard, count := range held {
		if count < 900 || count > 1100 {
			t.Errorf("shard %d holds %d of 4000", shard, count)
		}
	}
}
