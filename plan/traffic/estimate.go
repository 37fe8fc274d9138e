package traffic

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// ErrBook is returned for a book that is not described completely, or with impossible costs.
var ErrBook = errors.New("bad book")

// costMax bounds a cost, in microseconds.
const costMax = 1e6

// Costs are the processor time of one node for each step of a transaction, in microseconds. The
// time of the batch, round and block that the transaction shares with others is part of them.
type Costs struct {
	// Single is the cost of a transaction in a book of one shard, and Plain that of one that
	// concerns one shard of several.
	Single, Plain float64
	// Crossing is the cost of a transaction of several shards at the shard that it enters, and
	// Relay at each shard that takes it from its parent's stream.
	Crossing, Relay float64
	// Verdict is the cost at a destination for each other destination: to take that one's verdict.
	// Setting aside and settling are part of it.
	Verdict float64
}

// MeasuredCosts are costs of three nodes a shard, two processors of an AMD EPYC for all of them,
// and 24 clients with 100 transactions a bundle, beside other work. Single is of bundles that are
// not packed; packed ones took 4.4. The others are the least squares over books of two and four
// shards of which nothing, half or everything crossed; the model is within an eighth of what each
// shard took there.
var MeasuredCosts = Costs{Single: 7.4, Plain: 12.5, Crossing: 22.6, Relay: 32.2, Verdict: 22.7}

func (c Costs) validate() error {
	for _, cost := range []float64{c.Single, c.Plain, c.Crossing, c.Relay, c.Verdict} {
		if !(cost > 0 && cost <= costMax) {
			return fmt.Errorf("%w: a cost of %v us; it has to be above 0, and at most %v", ErrBook,
				cost, float64(costMax))
		}
	}
	return nil
}

// Book is a book of several shards and its traffic.
type Book struct {
	Tree    *tram.Tree
	Traffic Traffic
	// Homes are the shards of the parties, in the order of Traffic.Names.
	Homes []order.GroupID
	Costs Costs
}

// validate returns ErrBook or ErrTraffic if the book is not described completely.
func (b *Book) validate() error {
	switch {
	case b.Tree == nil:
		return fmt.Errorf("%w: it has no tree", ErrBook)
	case len(b.Homes) != len(b.Traffic.Names):
		return fmt.Errorf("%w: %d homes of %d organisations", ErrBook, len(b.Homes),
			len(b.Traffic.Names))
	case len(b.Traffic.Names) > PartiesMax || len(b.Traffic.Flows) > FlowsMax:
		return fmt.Errorf("%w: %d organisations and %d flows, at most %d and %d are allowed",
			ErrTraffic, len(b.Traffic.Names), len(b.Traffic.Flows), PartiesMax, FlowsMax)
	}
	for party, home := range b.Homes {
		if !b.Tree.Has(home) {
			return fmt.Errorf("%w: the home of %s is shard %d, and there are %d", ErrBook,
				b.Traffic.Names[party], home, b.Tree.Groups())
		}
	}
	var count uint64
	for i := range b.Traffic.Flows {
		flow := &b.Traffic.Flows[i]
		if len(flow.Parties) == 0 || len(flow.Parties) > FlowPartiesMax ||
			flow.Count > CountMax-count {
			return fmt.Errorf("%w: flow %d has no parties, or is beyond a bound", ErrTraffic, i)
		}
		count += flow.Count
		for at, party := range flow.Parties {
			if party < 0 || party >= len(b.Homes) || at > 0 && party <= flow.Parties[at-1] {
				return fmt.Errorf("%w: the parties of flow %d are not ascending indexes of names",
					ErrTraffic, i)
			}
		}
	}
	return b.Costs.validate()
}

// Counts are the entries that the chain of a shard takes.
type Counts struct {
	// Plain are transactions that concern this shard only.
	Plain uint64
	// Entered are transactions of several shards that enter here, and Carried those from the
	// parent's stream. Passed are those of both that do not concern the shard itself.
	Entered, Carried, Passed uint64
	// Verdicts are those that the shard takes from others.
	Verdicts uint64
}

// work returns the processor time of one node for entries, in microseconds. Its conversions keep
// compilers from fusing operations, so that all machines compute the same.
func (c Costs) work(n Counts) float64 {
	work := float64(float64(n.Plain) * c.Plain)
	work += float64(float64(n.Entered) * c.Crossing)
	work += float64(float64(n.Carried) * c.Relay)
	work += float64(float64(n.Verdicts) * c.Verdict)
	return work
}

// Load is what one shard does for the whole traffic.
type Load struct {
	Shard   order.GroupID
	Parties int
	Counts
	// Work is the processor time of each of its nodes, in microseconds.
	Work float64
}

// Estimate is what a book does for its traffic, and how much traffic of this kind it carries.
type Estimate struct {
	Transactions, Crossings uint64
	Loads                   []Load
	// Bottleneck is the shard with the most work; the lowest of several.
	Bottleneck order.GroupID
	// Capacity is the number of transactions in one second with which each node of the bottleneck
	// uses one processor up, and SingleCapacity the same for a book of one shard. They are 0
	// without transactions.
	Capacity, SingleCapacity float64
	// EvenShare is the share of crossings, 0 to 1, up to which these shards carry at least as much
	// as one shard, if crossings stay spread as they are and so do the other transactions. It is
	// negative if there are none of either kind.
	EvenShare float64
	// MeanSteps and MostSteps are how many steps down the tree a crossing takes from the shard
	// where it enters to its furthest destination. At each step one more chain orders it. In the
	// end all destinations' chains order verdicts.
	MeanSteps float64
	MostSteps int
}

// CrossingShare returns the share of transactions that cross, 0 to 1.
func (e *Estimate) CrossingShare() float64 {
	if e.Transactions == 0 {
		return 0
	}
	return float64(e.Crossings) / float64(e.Transactions)
}

// Gain returns how many times the capacity of one shard the book has.
func (e *Estimate) Gain() float64 {
	if e.SingleCapacity == 0 {
		return 0
	}
	return e.Capacity / e.SingleCapacity
}

// EstimateOf returns what a book carries. It returns ErrBook or ErrTraffic for a book that is not
// described completely.
func EstimateOf(book Book) (Estimate, error) {
	if err := book.validate(); err != nil {
		return Estimate{}, err
	}
	t := newTally(&book)
	for i := range book.Traffic.Flows {
		t.add(&book.Traffic.Flows[i], false)
	}
	return t.estimate(), nil
}

// tally adds flows up, by shard.
type tally struct {
	book         *Book
	homes        []order.GroupID
	counts       []Counts
	crossings    uint64
	steps        uint64
	destinations []order.GroupID
	// visits has for each shard the last walk that came by; walks numbers them.
	visits []int
	walks  int
}

func newTally(book *Book) *tally {
	return &tally{book: book, homes: slices.Clone(book.Homes),
		counts: make([]Counts, book.Tree.Groups()), visits: make([]int, book.Tree.Groups())}
}

// concerned returns the homes of a flow's parties, ascending. The slice is valid until the next
// call.
func (t *tally) concerned(flow *Flow) []order.GroupID {
	t.destinations = t.destinations[:0]
	for _, party := range flow.Parties {
		t.destinations = append(t.destinations, t.homes[party])
	}
	slices.Sort(t.destinations)
	t.destinations = slices.Compact(t.destinations)
	return t.destinations
}

// add adds a flow, or takes it away. Unsigned numbers wrap around, so taking away is exact.
func (t *tally) add(flow *Flow, away bool) {
	count := flow.Count
	if away {
		count = -count
	}
	to := t.concerned(flow)
	if len(to) == 1 {
		t.counts[to[0]].Plain += count
		return
	}
	tree := t.book.Tree
	top := tree.LCA(to)
	t.crossings += count
	t.counts[top].Entered += count
	t.counts[top].Passed += count // taken back below if it is a destination
	t.walks++
	deepest := 0
	for _, shard := range to {
		deepest = max(deepest, tree.Depth(shard))
		for at := shard; at != top && t.visits[at] != t.walks; at, _ = tree.Parent(at) {
			t.visits[at] = t.walks
			t.counts[at].Carried += count
			t.counts[at].Passed += count
		}
		t.counts[shard].Passed -= count
		t.counts[shard].Verdicts += count * uint64(len(to)-1)
	}
	t.steps += count * uint64(deepest-tree.Depth(top))
}

// standing returns the standing of the counts.
func (t *tally) standing() (now Standing) {
	now.Crossings = t.crossings
	for _, counts := range t.counts {
		work := t.book.Costs.work(counts)
		now.Bottleneck = max(now.Bottleneck, work)
		now.Squares += float64(work * work)
	}
	return now
}

// estimate returns what follows from the counts.
func (t *tally) estimate() Estimate {
	costs, tree := t.book.Costs, t.book.Tree
	e := Estimate{Transactions: t.book.Traffic.Transactions(), Crossings: t.crossings,
		Loads: make([]Load, len(t.counts)), EvenShare: -1}
	for shard, counts := range t.counts {
		e.Loads[shard] = Load{Shard: order.GroupID(shard), Counts: counts,
			Work: costs.work(counts)}
		if e.Loads[shard].Work > e.Loads[e.Bottleneck].Work {
			e.Bottleneck = order.GroupID(shard)
		}
	}
	for _, home := range t.homes {
		e.Loads[home].Parties++
	}
	if e.Transactions > 0 {
		e.SingleCapacity = 1e6 / costs.Single
		e.Capacity = 1e6 * float64(e.Transactions) / e.Loads[e.Bottleneck].Work
	}
	if e.Crossings == 0 {
		return e
	}
	e.MeanSteps = float64(t.steps) / float64(e.Crossings)
	for i := range t.book.Traffic.Flows {
		to := t.concerned(&t.book.Traffic.Flows[i])
		if t.book.Traffic.Flows[i].Count == 0 || len(to) == 1 {
			continue
		}
		top := tree.Depth(tree.LCA(to))
		for _, shard := range to {
			e.MostSteps = max(e.MostSteps, tree.Depth(shard)-top)
		}
	}
	if stay := e.Transactions - e.Crossings; stay > 0 {
		e.EvenShare = evenShare(costs, e.Loads, float64(stay), float64(e.Crossings))
	}
	return e
}

// evenShare returns Estimate.EvenShare. Each shard's work for a transaction is a straight line over
// the share, so the shards carry as much as one up to the lowest crossing of a line with one
// shard's cost.
func evenShare(costs Costs, loads []Load, stay, cross float64) float64 {
	share := 1.0
	for _, load := range loads {
		none := costs.Plain * float64(load.Plain) / stay
		all := (load.Work - costs.Plain*float64(load.Plain)) / cross
		switch {
		case none > costs.Single:
			return 0
		case all > costs.Single:
			share = math.Min(share, (costs.Single-none)/(all-none))
		}
	}
	return share
}

// Uniform returns the traffic of as many parties as there are shards, one in each. All are equally
// busy, and deal with each other equally often. crossing is the percentage of transactions of two
// parties; all others are a party's own. It returns ErrBook for impossible numbers.
func Uniform(shards, crossing int) (Traffic, []order.GroupID, error) {
	if shards < 1 || shards > tram.GroupsMax || crossing < 0 || crossing > 100 {
		return Traffic{}, nil, fmt.Errorf("%w: %d shards and %d %% crossings; there are 1 to %d "+
			"shards, and 0 to 100 %%", ErrBook, shards, crossing, tram.GroupsMax)
	}
	var t Traffic
	homes := make([]order.GroupID, shards)
	pairs := shards * (shards - 1) / 2
	own := uint64(100-crossing) * uint64(max(pairs, 1))
	for i := range shards {
		t.Names = append(t.Names, fmt.Sprintf("shard-%04d", i))
		homes[i] = order.GroupID(i)
		if own > 0 || pairs == 0 {
			t.Flows = append(t.Flows, Flow{Parties: []int{i}, Count: max(own, 1)})
		}
		for other := i + 1; other < shards && crossing > 0; other++ {
			t.Flows = append(t.Flows, Flow{Parties: []int{i, other},
				Count: uint64(crossing) * uint64(shards)})
		}
	}
	return t, homes, nil
}
