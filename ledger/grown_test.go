package ledger_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// grownGenesis returns the genesis of the second shard that was added to a book of two.
func grownGenesis() *ledger.Genesis {
	added := []ledger.AddedShard{{Parent: 1, Members: []ledger.Member{ledgertest.Member(10)},
		Directory: ledger.SeedHash([]byte("first"))}, {Parent: 2,
		Members:   []ledger.Member{ledgertest.Member(20), ledgertest.Member(21)},
		Directory: ledger.SeedHash([]byte("second"))}}
	genesis, err := ledgertest.ShardedGenesis(2, 0, 0).GrownTo(added, 3)
	if err != nil {
		panic(err)
	}
	return genesis
}

func TestGrownGenesis(t *testing.T) {
	t.Parallel()
	genesis, book := grownGenesis(), ledgertest.ShardedGenesis(2, 0, 0)
	if err := genesis.Validate(); err != nil {
		t.Fatal(err)
	}
	if genesis.Book() != book.Book() || genesis.BookShards() != 4 || genesis.Shard != 3 {
		t.Errorf("shard %d of %d of book %s", genesis.Shard, genesis.BookShards(), genesis.Book())
	}
	hashes := map[ledger.Hash]bool{}
	for shard := range ledger.ShardID(4) {
		one, err := genesis.ForShard(shard)
		if err != nil || one.Validate() != nil || one.Shard != shard || one.Book() != book.Book() {
			t.Fatalf("shard %d: %v", shard, err)
		}
		decoded, err := ledger.DecodeGenesis(one.Encode())
		if err != nil || !reflect.DeepEqual(decoded, one) ||
			!bytes.Equal(decoded.Encode(), one.Encode()) {
			t.Errorf("shard %d does not survive its encoding: %v", shard, err)
		}
		hashes[one.Hash()] = true
		if again, err := one.GrownTo(genesis.Grown, 3); err != nil ||
			again.Hash() != genesis.Hash() {
			t.Errorf("from shard %d, shard 3 is another one: %v", shard, err)
		}
	}
	if len(hashes) != 4 {
		t.Errorf("%d chains", len(hashes))
	}
	if _, err := genesis.ForShard(4); !errors.Is(err, ledger.ErrGenesis) {
		t.Errorf("shard 4: %v", err)
	}
	if _, err := ledgertest.Genesis().GrownTo(genesis.Grown, 1); !errors.Is(err,
		ledger.ErrGenesis) {
		t.Errorf("a book of one shard: %v", err)
	}
	tree := genesis.ShardTree()
	if !slices.Equal(tree.Parents(), []ledger.ShardID{0, 0, 1, 2}) || tree.GenesisShards() != 2 {
		t.Errorf("the tree is %v", tree.Parents())
	}
}

func TestBadGrownGenesis(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(g *ledger.Genesis){
		"another shard":     func(g *ledger.Genesis) { g.Shard = 2 },
		"a shard of before": func(g *ledger.Genesis) { g.Shard, g.Members = 0, g.Shards[0] },
		"other members":     func(g *ledger.Genesis) { g.Members = g.Members[:1] },
		"below itself":      func(g *ledger.Genesis) { g.Grown[1].Parent = 3 },
		"below none":        func(g *ledger.Genesis) { g.Grown[0].Parent = 2 },
		"no members":        func(g *ledger.Genesis) { g.Grown[0].Members = nil },
		"a member of shard 0": func(g *ledger.Genesis) {
			g.Grown[0].Members[0] = ledgertest.Member(1)
		},
		"a member of shard 3": func(g *ledger.Genesis) {
			g.Grown[0].Members[0] = ledgertest.Member(20)
		},
		"a member without key": func(g *ledger.Genesis) { g.Grown[0].Members[0].Key = nil },
		"one without address":  func(g *ledger.Genesis) { g.Grown[0].Members[0].Address = "" },
		"a book of one shard": func(g *ledger.Genesis) {
			g.Shards, g.Tree = nil, nil
		},
	} {
		genesis := grownGenesis()
		genesis.Grown = slices.Clone(genesis.Grown)
		for i := range genesis.Grown {
			genesis.Grown[i].Members = slices.Clone(genesis.Grown[i].Members)
		}
		change(genesis)
		if err := genesis.Validate(); !errors.Is(err, ledger.ErrGenesis) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a book of one shard" {
			continue // it has no such encoding
		}
		if decoded, err := ledger.DecodeGenesis(genesis.Encode()); err == nil &&
			decoded.Hash() != grownGenesis().Hash() && name != "another shard" &&
			name != "other members" && name != "a shard of before" {
			t.Errorf("%s is decoded", name)
		}
	}
}

// No bytes near those of a genesis of an added shard decode to what encodes otherwise.
func TestDecodeGrownGenesis(t *testing.T) {
	t.Parallel()
	encoded := grownGenesis().Encode()
	rapid.Check(t, func(r *rapid.T) {
		data := bytes.Clone(encoded)
		for range rapid.IntRange(1, 3).Draw(r, "changes") {
			data[rapid.IntRange(0, len(data)-1).Draw(r, "at")] = rapid.Byte().Draw(r, "to")
		}
		data = data[:rapid.IntRange(len(data)-4, len(data)).Draw(r, "length")]
		if decoded, err := ledger.DecodeGenesis(data); err == nil &&
			!bytes.Equal(decoded.Encode(), data) {
			r.Fatalf("%x is decoded, and encoded as %x", data, decoded.Encode())
		}
	})
}

// Growing gives another tree and leaves the one from before as it is.
func TestTreeGrows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		tree := ledgertest.ShardedGenesis(1, drawParents(r, 6)...).ShardTree()
		began := tree.Shards()
		home := tree.Rendezvous("somebody")
		for range rapid.IntRange(1, 4).Draw(r, "additions") {
			before, parents := tree, tree.Parents()
			parent := ledger.ShardID(rapid.IntRange(0, tree.Shards()-1).Draw(r, "parent"))
			tree = before.Grow(parent)
			added := ledger.ShardID(before.Shards())
			if above, below := tree.Parent(added); above != parent || !below ||
				tree.Shards() != before.Shards()+1 || !tree.Reaches(parent, added) ||
				!slices.Equal(before.Parents(), parents) || tree.Root() != before.Root() {
				r.Fatalf("%v grows to %v", parents, tree.Parents())
			}
			if tree.GenesisShards() != began || tree.Rendezvous("somebody") != home {
				r.Fatalf("homes move")
			}
			if !slices.Equal(tree.Before(before.Shards(), 0).Parents(), parents) {
				r.Fatalf("the first shards of %v are not %v", tree.Parents(), parents)
			}
		}
	})
}
