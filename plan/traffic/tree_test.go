package traffic

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// withTree returns a book with another tree.
func withTree(book Book, tree *tram.Tree) Book {
	book.Tree = tree
	return book
}

// allTrees calls visit with all trees of some shards.
func allTrees(shards int, visit func(*tram.Tree)) {
	parents := make([]order.GroupID, shards)
	for place := 0; place < shards; {
		if tree, err := tram.NewTree(parents); err == nil {
			visit(tree)
		}
		for place = 0; place < shards; place++ {
			if parents[place]++; int(parents[place]) < shards {
				break
			}
			parents[place] = 0
		}
	}
}

// checkTreeAdvice compares advice with estimates of the book.
func checkTreeAdvice(book Book, advice TreeAdvice) error {
	before, err := EstimateOf(book)
	if err != nil {
		return err
	}
	after, err := EstimateOf(withTree(book, advice.Tree))
	if err != nil {
		return err
	}
	was, now := standingOf(book), standingOf(withTree(book, advice.Tree))
	same := slices.Equal(advice.Tree.Parents(), book.Tree.Parents())
	switch {
	case !reflect.DeepEqual(before, advice.Before) || !reflect.DeepEqual(after, advice.After):
		return fmt.Errorf("before %+v, after %+v; it says %+v", before, after, advice)
	case !same && now.compare(was) >= 0:
		return fmt.Errorf("another tree that is no better: %+v, then %+v", was, now)
	case before.Crossings != after.Crossings:
		return fmt.Errorf("%d crossings, then %d", before.Crossings, after.Crossings)
	}
	return nil
}

// Advice on trees is what its estimates say, the same each time, and as good as its best changes.
func TestTreeAdvice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		book := anyBook(t, 5, 8)
		limits := Limits{Work: rapid.SampledFrom([]int{0, 1, 100, 10_000}).Draw(t, "work")}
		advice, err := AdviseTree(book, limits)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkTreeAdvice(book, advice); err != nil {
			t.Fatal(err)
		}
		again, err := AdviseTree(book, limits)
		if err != nil || !reflect.DeepEqual(advice, again) {
			t.Fatalf("%+v\n%+v\n%v", advice, again, err)
		}
		if !advice.Best {
			return
		}
		least := standingOf(withTree(book, advice.Tree))
		for changed := range treeChanges(advice.Tree.Parents()) {
			tree, err := tram.NewTree(changed)
			if err == nil && standingOf(withTree(book, tree)).compare(least) < 0 {
				t.Fatalf("%v is better than %v", changed, advice.Tree.Parents())
			}
		}
	})
}

// Among four shards the search mostly finds the best of all trees; it is never better than that.
func TestTreeAdviceAgainstAllTrees(t *testing.T) {
	t.Parallel()
	const books = 200
	found := 0
	for seed := range books {
		book := rapid.Custom(func(t *rapid.T) Book { return anyBook(t, 4, 8) }).Example(seed)
		advice, err := AdviseTree(book, Limits{})
		if err != nil || !advice.Best {
			t.Fatal(advice, err)
		}
		least := standingOf(book)
		allTrees(book.Tree.Groups(), func(tree *tram.Tree) {
			if s := standingOf(withTree(book, tree)); s.compare(least) < 0 {
				least = s
			}
		})
		switch compared := least.compare(standingOf(withTree(book, advice.Tree))); {
		case compared > 0:
			t.Fatalf("seed %d: better than all trees", seed)
		case compared == 0:
			found++
		}
	}
	t.Logf("the best tree of %d of %d books", found, books)
	if found < books*9/10 {
		t.Errorf("the best tree of %d of %d books only", found, books)
	}
}

// Two pairs of neighbours below a busy root, where all that crosses enters. A tree in which each
// pair is next to each other carries more.
func TestTreeAdviceBringsNeighboursTogether(t *testing.T) {
	t.Parallel()
	book := Book{Tree: tram.Breadth(5), Costs: MeasuredCosts,
		Traffic: Traffic{[]string{"a", "b", "c", "d", "e"},
			[]Flow{{[]int{0}, 200}, {[]int{1, 2}, 50}, {[]int{3, 4}, 50}}},
		Homes: []order.GroupID{0, 1, 2, 3, 4}}
	advice, err := AdviseTree(book, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkTreeAdvice(book, advice); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][]order.GroupID{{1, 2}, {3, 4}} {
		if top := advice.Tree.LCA(pair); top == advice.Tree.Root() && !slices.Contains(pair, top) {
			t.Errorf("%v enter at shard %d, in the tree %v", pair, top, advice.Tree.Parents())
		}
	}
	if advice.After.Capacity < 1.3*advice.Before.Capacity {
		t.Errorf("capacity %v, then %v", advice.Before.Capacity, advice.After.Capacity)
	}
	// The advice for the advised book is to leave it.
	if next, err := AdviseTree(withTree(book, advice.Tree), Limits{}); err != nil ||
		!slices.Equal(next.Tree.Parents(), advice.Tree.Parents()) {
		t.Errorf("%+v, %v", next, err)
	}
}
