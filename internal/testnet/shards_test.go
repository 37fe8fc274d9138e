package testnet

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
)

func TestMakeAndLoadShards(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net")
	layout := Layout{Dir: dir, Nodes: 2, Shards: 3, Tree: []ledger.ShardID{1, 1, 0},
		BasePort: 30200}
	made, err := Make(layout)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil || len(loaded) != 6 || Missing(loaded) != nil {
		t.Fatalf("%d homes, %v", len(loaded), err)
	}
	hashes := map[ledger.Hash]bool{}
	for i, h := range loaded {
		g := h.Genesis
		if h.Name() != Name(i) || filepath.Base(h.Dir) != Name(i) || int(g.Shard) != i/2 ||
			int(h.Self) != i%2 || g.Hash() != made[i].Genesis.Hash() ||
			g.Book() != made[0].Genesis.Book() {
			t.Errorf("home %d: %s, member %d of shard %d", i, h.Name(), h.Self, g.Shard)
		}
		if !slices.Equal(g.Tree, layout.Tree) || len(g.Shards) != 3 || len(g.Operators) != 1 ||
			g.Operators[0] != made[0].Genesis.Operators[0] {
			t.Errorf("home %d: tree %v, %d shards, operators %v", i, g.Tree, len(g.Shards),
				g.Operators)
		}
		if URL(h) != fmt.Sprintf("http://127.0.0.1:%d", 30200+2*i) ||
			h.FabricAddress() != fmt.Sprintf("127.0.0.1:%d", 30201+2*i) {
			t.Errorf("home %d: %s, %s", i, URL(h), h.FabricAddress())
		}
		hashes[g.Hash()] = true
	}
	if len(hashes) != 3 {
		t.Errorf("%d chains", len(hashes))
	}
	// A node of another shard has left, and one has joined shard 1.
	if err := os.RemoveAll(filepath.Join(dir, Name(5))); err != nil {
		t.Fatal(err)
	}
	joined := join(t, filepath.Join(dir, Name(6)), made[2].Genesis)
	loaded, err = Load(dir)
	if err != nil || len(loaded) != 6 || !slices.Equal(Missing(loaded), []string{Name(5)}) {
		t.Fatalf("%d homes, %v; missing %v", len(loaded), err, Missing(loaded))
	}
	if last := loaded[5]; last.Name() != joined || last.Genesis.Shard != 1 || last.Self != 2 {
		t.Errorf("%s, member %d of shard %d", last.Name(), last.Self, last.Genesis.Shard)
	}
	// The folders changed places.
	for _, rename := range [][2]string{{Name(0), "other"}, {Name(2), Name(0)}, {"other", Name(2)}} {
		if err := os.Rename(filepath.Join(dir, rename[0]),
			filepath.Join(dir, rename[1])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); !errors.Is(err, ErrForeign) ||
		!strings.Contains(err.Error(), "is the home of node-2") {
		t.Errorf("homes of two shards in each other's folders: %v", err)
	}
}

// join makes the home of a node that joined the chain of a genesis, and returns the node's name.
func join(t *testing.T, dir string, genesis *ledger.Genesis) string {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	joining, err := home.CreateJoining(dir, home.Default(), genesis, key)
	if err != nil {
		t.Fatal(err)
	}
	membership := genesis.Membership()
	index := ledger.MemberIndex(len(membership.Members))
	membership.Number, membership.Members = 1, append(slices.Clone(membership.Members),
		ledger.GroupMember{Index: index, Joined: 3, Member: ledger.Member{Name: "new", Key: public,
			Address: "127.0.0.1:1"}})
	if err := joining.Admit(membership); err != nil {
		t.Fatal(err)
	}
	return joining.Name()
}

// A book of one shard looks as if there were no shards.
func TestOneShardIsNone(t *testing.T) {
	t.Parallel()
	homes, err := Make(Layout{Dir: filepath.Join(t.TempDir(), "net"), Nodes: 2, Shards: 1,
		Tree: []ledger.ShardID{0}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(homes[1].Dir, home.GenesisFile))
	if err != nil || homes[1].Genesis.Sharded() || strings.Contains(string(text), "shard") ||
		strings.Contains(string(text), "tree") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestShardsRefused(t *testing.T) {
	t.Parallel()
	for says, layout := range map[string]Layout{
		"-1 shards": {Nodes: 1, Shards: -1},
		"3 shards of 22 nodes are 66 nodes, want at most 64": {Nodes: 22, Shards: 3},
		"65 shards":                    {Nodes: 1, Shards: NodesMax + 1},
		"a tree of 2 shards for 3":     {Nodes: 1, Shards: 3, Tree: []ledger.ShardID{0, 0}},
		"their own parents":            {Nodes: 1, Shards: 2, Tree: []ledger.ShardID{0, 1}},
		"a cycle":                      {Nodes: 1, Shards: 3, Tree: []ledger.ShardID{0, 2, 1}},
		"the parent of shard 1":        {Nodes: 1, Shards: 2, Tree: []ledger.ShardID{0, 7}},
		"12 nodes need the ports 6551": {Nodes: 4, Shards: 3, BasePort: 65514},
	} {
		layout.Dir = filepath.Join(t.TempDir(), "net")
		_, err := Make(layout)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
		if _, err := os.Stat(layout.Dir); err == nil {
			t.Errorf("%q left a folder", says)
		}
	}
	if _, err := Embed(t.Context(), EmbedOptions{Dir: t.TempDir(), Ports: make([]int, 4),
		Shards: 3}); !errors.Is(err, ErrLayout) {
		t.Errorf("4 ports for 3 shards: %v", err)
	}
}

// All shards use one fabric.
func TestEmbedShards(t *testing.T) {
	t.Parallel()
	started := make(chan string, 4)
	cluster, err := Embed(t.Context(), EmbedOptions{
		Dir: t.TempDir(), Ports: []int{100, 101, 102, 103}, Shards: 2, Tree: []ledger.ShardID{1, 1},
		Start: func(_ context.Context, at *home.Home, fabric rdmanet.Host) (Node, error) {
			started <- fmt.Sprintf("%s %d/%d %s", at.Name(), at.Genesis.Shard, at.Self,
				at.Config.API.Listen)
			return &imagined{mode: report.ModeOrdering, done: make(chan struct{}),
				stop: make(chan struct{})}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for range 4 {
		all = append(all, <-started)
	}
	slices.Sort(all)
	if want := []string{"node-0 0/0 127.0.0.1:100", "node-1 0/1 127.0.0.1:101",
		"node-2 1/0 127.0.0.1:102", "node-3 1/1 127.0.0.1:103"}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	if tree := cluster.Homes()[3].Genesis.Tree; !slices.Equal(tree, []ledger.ShardID{1, 1}) {
		t.Errorf("tree %v", tree)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
