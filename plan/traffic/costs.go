package traffic

import (
	"fmt"

	"github.com/ledgerd/ledgerd/tram"
)

// MeasuredLoad is what a load took in a book whose shards are equally busy and deal with each other
// equally often.
type MeasuredLoad struct {
	// Crossing is the share of the transactions that crossed, 0 to 1.
	Crossing float64
	// Work is for each shard the processor time of one of its nodes for each transaction of the
	// book, in microseconds.
	Work []float64
}

// FitCosts returns the costs with which the model comes closest to what was measured in a book with
// a tree. Single is what a node of one shard took for a transaction. One load must have had no
// crossings, and another one some.
//
// Loads that are spread evenly do not tell the costs of crossings apart, since a destination below
// the root takes as many verdicts as entries. So these three keep the proportions that they have in
// MeasuredCosts, and their size is that of the least squares.
func FitCosts(tree *tram.Tree, single float64, loads []MeasuredLoad) (Costs, error) {
	if tree == nil || tree.Groups() < 2 {
		return Costs{}, fmt.Errorf("%w: crossings need two or more shards", ErrBook)
	}
	even, homes, err := Uniform(tree.Groups(), 100)
	if err != nil {
		return Costs{}, err
	}
	all, err := EstimateOf(Book{Tree: tree, Traffic: even, Homes: homes, Costs: MeasuredCosts})
	if err != nil {
		return Costs{}, err
	}
	costs := Costs{Single: single}
	for _, load := range loads {
		if len(load.Work) != tree.Groups() || !(load.Crossing >= 0 && load.Crossing <= 1) {
			return Costs{}, fmt.Errorf("%w: a load of %d shards, %v of which crosses, and the "+
				"tree has %d", ErrBook, len(load.Work), load.Crossing, tree.Groups())
		}
		if load.Crossing == 0 {
			costs.Plain = 0
			for _, work := range load.Work {
				costs.Plain += work
			}
		}
	}
	if costs.Plain == 0 {
		return Costs{}, fmt.Errorf("%w: no load without crossings was measured", ErrBook)
	}
	var products, squares float64
	for _, load := range loads {
		for shard, work := range load.Work {
			expected := load.Crossing * all.Loads[shard].Work / float64(all.Transactions)
			own := (1 - load.Crossing) / float64(tree.Groups())
			products += float64(expected * (work - float64(own*costs.Plain)))
			squares += float64(expected * expected)
		}
	}
	if squares == 0 {
		return Costs{}, fmt.Errorf("%w: no load with crossings was measured", ErrBook)
	}
	times := products / squares
	costs.Crossing, costs.Relay = times*MeasuredCosts.Crossing, times*MeasuredCosts.Relay
	costs.Verdict = times * MeasuredCosts.Verdict
	return costs, costs.validate()
}
