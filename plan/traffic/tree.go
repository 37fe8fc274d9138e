package traffic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// TreeAdvice is the tree that a search found.
type TreeAdvice struct {
	// Tree is the book's own one if no other is better.
	Tree          *tram.Tree
	Before, After Estimate
	// Best reports whether no single further change is better, from any of the trees where the
	// search began. Otherwise a limit ended the search.
	Best bool
}

// AdviseTree proposes a tree of the same shards. All homes stay. It returns ErrBook or ErrTraffic
// for a book that is not described completely, and for impossible limits.
func AdviseTree(book Book, limits Limits) (TreeAdvice, error) {
	if err := limits.validate(); err != nil {
		return TreeAdvice{}, err
	}
	before, err := EstimateOf(book)
	if err != nil {
		return TreeAdvice{}, err
	}
	shards := book.Tree.Groups()
	s := newTreeSearch(&book, limits)
	best := book.Tree.Parents()
	least, _ := s.standingOf(best)
	for _, begin := range []*tram.Tree{book.Tree, tram.Breadth(shards), tram.Binary(shards),
		tram.Chain(shards)} {
		parents, standing := s.climb(begin.Parents())
		if standing.compare(least) < 0 {
			best, least = parents, standing
		}
	}
	tree, err := tram.NewTree(best)
	if err != nil {
		return TreeAdvice{}, fmt.Errorf("the tree found: %w", err)
	}
	advice := TreeAdvice{Tree: tree, Before: before, Best: !s.spent}
	book.Tree = tree
	if advice.After, err = EstimateOf(book); err != nil {
		return TreeAdvice{}, err
	}
	return advice, nil
}

// treeSearch is a local search over trees. Its book has the shards for parties, each at home in
// itself, so its flows are as few as there are groups of shards that deal with each other.
type treeSearch struct {
	book  Book
	cost  int // of one look at all flows
	left  int // of Limits.Work
	spent bool
}

func newTreeSearch(book *Book, limits Limits) *treeSearch {
	shards := book.Tree.Groups()
	s := &treeSearch{book: Book{Tree: book.Tree, Costs: book.Costs}, cost: shards,
		left: cmp.Or(limits.Work, WorkDefault)}
	for shard := range order.GroupID(shards) {
		s.book.Traffic.Names = append(s.book.Traffic.Names, fmt.Sprint(shard))
		s.book.Homes = append(s.book.Homes, shard)
	}
	homes := newTally(book)
	flows := slices.Clone(book.Traffic.Flows)
	for i := range flows {
		var concerned []int
		for _, shard := range homes.concerned(&flows[i]) {
			concerned = append(concerned, int(shard))
		}
		flows[i].Parties = concerned
	}
	slices.SortFunc(flows, func(a, b Flow) int { return slices.Compare(a.Parties, b.Parties) })
	for _, flow := range flows {
		last := len(s.book.Traffic.Flows) - 1
		if last >= 0 && slices.Equal(s.book.Traffic.Flows[last].Parties, flow.Parties) {
			s.book.Traffic.Flows[last].Count += flow.Count
			continue
		}
		s.book.Traffic.Flows = append(s.book.Traffic.Flows, flow)
		s.cost += len(flow.Parties)
	}
	return s
}

// standingOf returns the standing of the book with a tree, and false if the parents make none.
func (s *treeSearch) standingOf(parents []order.GroupID) (Standing, bool) {
	tree, err := tram.NewTree(parents)
	if err != nil {
		return Standing{}, false
	}
	s.book.Tree = tree
	t := newTally(&s.book)
	for i := range s.book.Traffic.Flows {
		t.add(&s.book.Traffic.Flows[i], false)
	}
	return t.standing(), true
}

// climb changes a tree, each time by the best of all changes, until none is better or the work is
// spent.
func (s *treeSearch) climb(parents []order.GroupID) ([]order.GroupID, Standing) {
	least, _ := s.standingOf(parents)
	for {
		var best []order.GroupID
		for changed := range treeChanges(parents) {
			if s.left -= s.cost; s.left < 0 {
				s.spent = true
				return parents, least
			}
			if now, is := s.standingOf(changed); is && now.compare(least) < 0 {
				best, least = slices.Clone(changed), now
			}
		}
		if best == nil {
			return parents, least
		}
		parents = best
	}
}

// treeChanges yields what may become of a tree by one change: a shard, with all below it, gets
// another parent, or two shards change places. Not all results are trees. The slice is valid until
// the next one.
func treeChanges(parents []order.GroupID) func(yield func([]order.GroupID) bool) {
	return func(yield func([]order.GroupID) bool) {
		changed := make([]order.GroupID, len(parents))
		for shard := range parents {
			for parent := range order.GroupID(len(parents)) {
				if parent == parents[shard] || int(parents[shard]) == shard {
					continue // the root changes places only
				}
				copy(changed, parents)
				changed[shard] = parent
				if !yield(changed) {
					return
				}
			}
		}
		for one := range order.GroupID(len(parents)) {
			for other := order.GroupID(0); other < one; other++ {
				place := func(shard order.GroupID) order.GroupID {
					switch shard {
					case one:
						return other
					case other:
						return one
					}
					return shard
				}
				for shard, parent := range parents {
					changed[place(order.GroupID(shard))] = place(parent)
				}
				if !yield(changed) {
					return
				}
			}
		}
	}
}
