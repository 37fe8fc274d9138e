package bench

import (
	"errors"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// treeOfSeven is a binary tree: shard k is above shards 2k+1 and 2k+2.
var treeOfSeven = []ledger.ShardID{0, 0, 0, 1, 1, 2, 2}

// A shard's neighbours are its parent, its children and its siblings.
func TestNeighboursOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tree []ledger.ShardID
		want [][]ledger.ShardID
	}{
		{treeOfSeven, [][]ledger.ShardID{{1, 2}, {0, 2, 3, 4}, {0, 1, 5, 6}, {1, 4}, {1, 3},
			{2, 6}, {2, 5}}},
		{[]ledger.ShardID{0, 0, 0}, [][]ledger.ShardID{{1, 2}, {0, 2}, {0, 1}}},
		{[]ledger.ShardID{1, 2, 2}, [][]ledger.ShardID{{1}, {0, 2}, {1}}}, // a chain, 2 on top
	} {
		for shard, want := range test.want {
			if got := neighboursOf(test.tree, ledger.ShardID(shard)); !slices.Equal(got, want) {
				t.Errorf("%v: shard %d has the neighbours %v, want %v", test.tree, shard, got, want)
			}
		}
	}
}

// Of any 100 bundles in a row, exactly the percentage go to a client of another shard.
func TestReceiversKeepThePercentage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(2, 9).Draw(t, "shards")
		tree := make([]ledger.ShardID, shards)
		for i := 1; i < shards; i++ {
			tree[i] = ledger.ShardID(rapid.IntRange(0, i-1).Draw(t, "parent"))
		}
		clients := make([]*loadClient, shards+rapid.IntRange(0, shards).Draw(t, "more"))
		for i := range clients {
			clients[i] = &loadClient{}
		}
		made := newTraffic(tree, rapid.SampledFrom(patterns).Draw(t, "pattern"), clients)
		made.percent = rapid.IntRange(0, percents).Draw(t, "percent")
		home := clients[rapid.IntRange(0, len(clients)-1).Draw(t, "client")].home
		seed := rapid.Uint64().Draw(t, "seed")
		receivers := made.receiversOf(home, mathrand.New(mathrand.NewPCG(seed, 1)))
		for range rapid.IntRange(0, percents).Draw(t, "before") {
			receivers.next()
		}
		crossed := 0
		for range percents {
			if receiver := receivers.next(); receiver != nil {
				crossed++
				if receiver.home == home {
					t.Fatalf("a bundle from shard %d goes to the same shard", home)
				}
			}
		}
		if crossed != made.percent {
			t.Fatalf("%d of %d bundles cross, want %d", crossed, percents, made.percent)
		}
	})
}

// How often a shard pays each other one.
func TestPatterns(t *testing.T) {
	t.Parallel()
	const bundles = 60000
	clients := make([]*loadClient, 2*len(treeOfSeven))
	for i := range clients {
		clients[i] = &loadClient{}
	}
	for pattern, want := range map[string][]float64{
		PatternUniform: {1. / 6, 0, 1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6},
		// Nine tenths to the four neighbours 0, 2, 3 and 4, and a tenth to all six.
		PatternNeighbourly: {.9/4 + .1/6, 0, .9/4 + .1/6, .9/4 + .1/6, .9/4 + .1/6, .1 / 6, .1 / 6},
	} {
		made := newTraffic(treeOfSeven, pattern, clients)
		made.percent = percents
		receivers := made.receiversOf(1, mathrand.New(mathrand.NewPCG(1, 2)))
		seen := make([]float64, len(treeOfSeven))
		for range bundles {
			seen[receivers.next().home]++
		}
		for shard, count := range seen {
			if share := count / bundles; math.Abs(share-want[shard]) > 0.01 {
				t.Errorf("%s: %.3f go to shard %d, want %.3f", pattern, share, shard, want[shard])
			}
		}
	}
}

// A bundle that crosses pays accounts of one other client, and any other bundle the signer's own.
func TestTransfersOfTraffic(t *testing.T) {
	t.Parallel()
	for _, distribution := range distributions {
		for _, accounts := range []int{0, 31} { // clients with different numbers of accounts
			l, err := newLoad(LedgerParameters{Clients: 4, Bundle: 5, Accounts: accounts,
				Distribution: distribution})
			if err != nil {
				t.Fatal(err)
			}
			l.traffic = newTraffic([]ledger.ShardID{0, 0}, PatternUniform, l.clients)
			l.traffic.percent = 50
			homes := map[ledger.OrganisationName]ledger.ShardID{}
			for _, c := range l.clients {
				homes[c.key.Organisation] = c.home
			}
			own, choose := l.clients[0], l.chooser(l.clients[0])
			for range 200 {
				crosses := choose.bundle()
				receiver := choose.to[0].Organisation()
				for range l.bundle {
					transfer := choose.transfer()
					from, to := transfer[0].Account, transfer[1].Account
					if from == to || from.Organisation() != own.key.Organisation ||
						to.Organisation() != receiver || crosses != (homes[receiver] != own.home) ||
						!crosses && receiver != own.key.Organisation {
						t.Fatalf("%s: from %s to %s, crosses: %v", distribution, from, to, crosses)
					}
				}
			}
		}
	}
}

// Clients submit to the nodes of their shard, all of them, as members of shard k are nodes k*n on.
func TestNodeOf(t *testing.T) {
	t.Parallel()
	const nodes, shards = 3, 2
	seen := make([]int, nodes*shards)
	l := &load{shards: shards}
	for i := range 2 * len(seen) {
		home := ledger.ShardID(i % shards)
		at := l.nodeOf(i, home, len(seen))
		if at/nodes != int(home) {
			t.Errorf("client %d of shard %d submits to node %d", i, home, at)
		}
		seen[at]++
	}
	if want := []int{2, 2, 2, 2, 2, 2}; !slices.Equal(seen, want) {
		t.Errorf("clients at the nodes: %v, want %v", seen, want)
	}
}

// The figures for a transaction, and the capacity that follows from the busiest node.
func TestShardsFigures(t *testing.T) {
	t.Parallel()
	f := ShardsFigures{Seconds: 2}
	f.divide(10_000, 2500, []float64{0.5, 1, 0.25}, 0.75)
	if f.RequestsPerSecond != 5000 || f.Crossed != 25 || f.CPUPerRequest != 175 ||
		f.BusiestCPUPerRequest != 100 || f.Capacity != 10_000 || f.ClientCPUPerRequest != 75 ||
		!slices.Equal(f.NodeCPUPerRequest, []float64{50, 100, 25}) {
		t.Errorf("%+v", f)
	}
	if idle := idlePercent([]float64{1, 2}, []float64{1.5, 2.25}, 5); idle != 7.5 {
		t.Errorf("idle nodes take %v %%", idle)
	}
}

// several returns figures whose busiest node and all nodes take some time for a transaction.
func several(busiest, all float64) *ShardsFigures {
	return &ShardsFigures{BusiestCPUPerRequest: busiest, CPUPerRequest: all,
		Capacity: 1e6 / busiest}
}

// Four shards, of which each transaction that crosses takes 5 times the time of a plain one: with
// costs on a straight line, they are ahead of one up to 75 percent, however few loads show it.
func TestShardsCompare(t *testing.T) {
	t.Parallel()
	one := several(40, 120)
	at := func(percent int) ShardsLoad {
		share := float64(percent) / 100
		return ShardsLoad{Crossing: percent, One: one, Packed: several(5, 15),
			Several: several(10+40*share, 120+480*share)}
	}
	for _, percents := range [][]int{{0, 100}, {100, 50, 0, 25, 75}, {0, 10, 90, 100}} {
		r := ShardsResult{}
		for _, percent := range percents {
			r.Loads = append(r.Loads, at(percent))
		}
		r.compare()
		if math.Abs(r.CrossingCost-5) > 1e-9 || r.Ahead == nil ||
			math.Abs(*r.Ahead-75) > 1e-9 || r.AheadPacked != nil {
			t.Errorf("%v: %+v, ahead up to %v", percents, r, r.Ahead)
		}
		for _, load := range r.Loads {
			if load.Crossing == 0 && (load.Gain != 4 || load.GainPacked != 0.5) {
				t.Errorf("%+v", load)
			}
		}
	}
	// Ahead at all measured percentages, and nothing measured that does not cross.
	r := ShardsResult{Loads: []ShardsLoad{at(20), at(60)}}
	r.compare()
	if r.CrossingCost != 0 || r.Ahead == nil || *r.Ahead != 60 {
		t.Errorf("%+v", r)
	}
	// Not ahead at the lowest percentage.
	r = ShardsResult{Loads: []ShardsLoad{at(90)}}
	if r.compare(); r.Ahead != nil {
		t.Errorf("ahead up to %v", *r.Ahead)
	}
	// One shard was not measured with transactions as they are.
	load := at(0)
	load.One = nil
	r = ShardsResult{Loads: []ShardsLoad{load}}
	if r.compare(); r.Loads[0].Gain != 0 || r.Ahead != nil || r.CrossingCost != 0 {
		t.Errorf("%+v", r)
	}
}

// Wrong parameters are refused before anything starts.
func TestShardsParameters(t *testing.T) {
	t.Parallel()
	good := func() ShardsParameters {
		return ShardsParameters{LedgerParameters: LedgerParameters{Nodes: 3, Clients: 4, Bundle: 1,
			Ack: AckDurable, Fabric: fabric.P2P, Engine: allconcur.EngineAllConcurPlus,
			Distribution: DistributionUniform, For: time.Second}, Tree: []ledger.ShardID{0, 0},
			Pattern: PatternUniform, Crossing: []int{0, 100}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*ShardsParameters){
		"one shard":  func(p *ShardsParameters) { p.Tree = p.Tree[:1] },
		"nodes":      func(p *ShardsParameters) { p.Nodes = 33 },
		"no nodes":   func(p *ShardsParameters) { p.Nodes = 0 },
		"clients":    func(p *ShardsParameters) { p.Clients = 1 },
		"book":       func(p *ShardsParameters) { p.BookTransactions = 1 },
		"memory":     func(p *ShardsParameters) { p.Fabric = fabric.Memory },
		"pattern":    func(p *ShardsParameters) { p.Pattern = "far" },
		"nothing":    func(p *ShardsParameters) { p.Crossing = nil },
		"below zero": func(p *ShardsParameters) { p.Crossing = []int{-1} },
		"above":      func(p *ShardsParameters) { p.Crossing = []int{0, 101} },
		"twice":      func(p *ShardsParameters) { p.Crossing = []int{50, 0, 50} },
		"time":       func(p *ShardsParameters) { p.For = 0 },
	} {
		p := good()
		change(&p)
		if err := p.Validate(); !errors.Is(err, ErrParameters) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
