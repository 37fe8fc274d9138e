package bench

import (
	mathrand "math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
)

// The patterns of transactions that cross shards.
const (
	// PatternUniform crosses to any other shard, all equally often.
	PatternUniform = "uniform"
	// PatternNeighbourly crosses to a neighbour, nearTimes of nearOf times, and else to any other
	// shard. A shard's neighbours are its parent, its children, and the other children of its
	// parent. A shard chooses all of them equally often.
	PatternNeighbourly = "neighbourly"
)

// patterns are all of them.
var patterns = []string{PatternUniform, PatternNeighbourly}

// How often PatternNeighbourly chooses a neighbour.
const (
	nearTimes = 9
	nearOf    = 10
)

// traffic is a load in which some transfers go to accounts of a client in another shard. In a book
// of one shard the clients have the same shards in name only, and the same transfers are made.
type traffic struct {
	percent int // of bundles that cross
	pattern string
	near    [][]ledger.ShardID // the neighbours of each shard
	clients [][]*loadClient    // of each shard
}

// newTraffic spreads clients evenly over the shards of a tree, which are given with their parents.
// There must be at least as many clients as shards, and at least two shards.
func newTraffic(tree []ledger.ShardID, pattern string, clients []*loadClient) *traffic {
	t := &traffic{pattern: pattern, clients: make([][]*loadClient, len(tree))}
	for shard := range tree {
		t.near = append(t.near, neighboursOf(tree, ledger.ShardID(shard)))
	}
	for i, c := range clients {
		c.home = ledger.ShardID(i % len(tree))
		t.clients[c.home] = append(t.clients[c.home], c)
	}
	return t
}

// neighboursOf returns the neighbours of a shard in ascending order; see PatternNeighbourly.
func neighboursOf(tree []ledger.ShardID, shard ledger.ShardID) (near []ledger.ShardID) {
	parent := tree[shard]
	for i := range tree {
		other := ledger.ShardID(i)
		if other != shard && (other == parent || tree[other] == shard || tree[other] == parent) {
			near = append(near, other)
		}
	}
	return near
}

// receiversOf returns the receivers of one goroutine's bundles, for a client of a shard.
func (t *traffic) receiversOf(home ledger.ShardID, random *mathrand.Rand) *receivers {
	return &receivers{traffic: t, home: home, random: random, owed: random.IntN(percents)}
}

// receivers chooses whose accounts transfers go to. It is for one goroutine.
type receivers struct {
	traffic *traffic
	home    ledger.ShardID
	random  *mathrand.Rand
	owed    int // hundredths of a bundle that are still to cross
}

const percents = 100

// next returns the client to whose accounts the transfers of the next bundle go, or nil: then they
// stay in the sender's shard. Of any 100 bundles in a row, the traffic's percentage cross.
func (r *receivers) next() *loadClient {
	r.owed += r.traffic.percent
	if r.owed < percents {
		return nil
	}
	r.owed -= percents
	clients := r.traffic.clients[r.shard()]
	return clients[r.random.IntN(len(clients))]
}

// shard returns another shard than the own.
func (r *receivers) shard() ledger.ShardID {
	if r.traffic.pattern == PatternNeighbourly && r.random.IntN(nearOf) < nearTimes {
		near := r.traffic.near[r.home]
		return near[r.random.IntN(len(near))]
	}
	other := ledger.ShardID(r.random.IntN(len(r.traffic.clients) - 1))
	if other >= r.home {
		other++
	}
	return other
}
