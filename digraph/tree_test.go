package digraph

import (
	"errors"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkTree reports whether the children and parents form one tree that spans all vertices from the
// root, and returns its depth.
func checkTree(order, root int, children func(int) []int, parent func(int) (int, bool)) (depth int,
	ok bool) {
	seen := make([]bool, order)
	seen[root] = true
	count := 1
	layer := []int{root}
	for ; ; depth++ {
		var next []int
		for _, u := range layer {
			for _, v := range children(u) {
				if p, hasParent := parent(v); seen[v] || !hasParent || p != u {
					return depth, false
				}
				seen[v] = true
				count++
				next = append(next, v)
			}
		}
		if len(next) == 0 {
			_, rootHasParent := parent(root)
			return depth, count == order && !rootHasParent
		}
		layer = next
	}
}

// steps returns the number of steps after which all vertices have the message, if each vertex sends
// to one child at a time, in order.
func steps(tree *Tree, v int) int {
	last := 0
	for i, child := range tree.Children(v) {
		last = max(last, i+1+steps(tree, child))
	}
	return last
}

func TestBinomialTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		root := rapid.IntRange(0, n-1).Draw(t, "root")
		tree, err := BinomialTree(n, root)
		if err != nil {
			t.Fatal(err)
		}
		depth, ok := checkTree(n, root, tree.Children, tree.Parent)
		if !ok || tree.Root() != root || tree.Order() != n || tree.Depth() != depth {
			t.Fatalf("tree of %d from %d: ok %t, root %d, order %d, depth %d, want %d", n, root, ok,
				tree.Root(), tree.Order(), tree.Depth(), depth)
		}
		if depth > bits.Len(uint(n))-1 {
			t.Fatalf("depth %d for %d vertices", depth, n)
		}
		if got, want := steps(tree, root), bits.Len(uint(n-1)); got != want {
			t.Fatalf("%d vertices have the message after %d steps, want %d", n, got, want)
		}
		for v := range n {
			if own := AppendBinomialChildren(nil, n, root, v); !slices.Equal(own,
				tree.Children(v)) {
				t.Fatalf("children of %d: %v, on their own %v", v, tree.Children(v), own)
			}
		}
	})
}

func TestBinomialTreeOf9(t *testing.T) {
	t.Parallel()
	tree, err := BinomialTree(9, 2)
	if err != nil {
		t.Fatal(err)
	}
	for v, want := range [][]int{{}, {}, {3, 4, 6, 1}, {5, 7}, {8}, {0}, {}, {}, {}} {
		if !slices.Equal(tree.Children(v), want) {
			t.Errorf("children of %d: %v, want %v", v, tree.Children(v), want)
		}
	}
	if tree.Depth() != 3 {
		t.Errorf("depth %d, want 3", tree.Depth())
	}
}

// TestCheckTreeFindsFaults proves that checkTree can fail.
func TestCheckTreeFindsFaults(t *testing.T) {
	t.Parallel()
	tree, err := BinomialTree(16, 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, children := range map[string]func(int) []int{
		"a lost child": func(v int) []int {
			if v == 4 {
				return tree.Children(v)[1:]
			}
			return tree.Children(v)
		},
		"a child twice": func(v int) []int { return slices.Repeat(tree.Children(v), 2) },
		"another's child": func(v int) []int {
			if v == 4 {
				return tree.Children(5)
			}
			return tree.Children(v)
		},
	} {
		if _, ok := checkTree(16, 3, children, tree.Parent); ok {
			t.Errorf("%s is not found", name)
		}
	}
}

func TestBinomialTreeRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n, root int
		want    error
	}{{0, 0, ErrOrder}, {-1, 0, ErrOrder}, {MaxOrder + 1, 0, ErrOrder}, {4, 4, ErrVertex},
		{4, -1, ErrVertex}} {
		if tree, err := BinomialTree(test.n, test.root); !errors.Is(err, test.want) || tree != nil {
			t.Errorf("tree of %d from %d: %v, want %v", test.n, test.root, err, test.want)
		}
	}
	tree, err := BinomialTree(4, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []int{-1, 4} {
		if _, ok := tree.Parent(v); ok || len(tree.Children(v)) != 0 {
			t.Errorf("%d is in the tree", v)
		}
	}
	for _, wrong := range [][3]int{{4, 4, 0}, {4, 0, 4}, {4, -1, 0}, {4, 0, -1}, {0, 0, 0},
		{MaxOrder + 1, 0, 0}} {
		if children := AppendBinomialChildren(nil, wrong[0], wrong[1], wrong[2]); children != nil {
			t.Errorf("children for %v: %v", wrong, children)
		}
	}
}

func TestTreeAllocatesNothing(t *testing.T) {
	tree, err := BinomialTree(1024, 17)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	buffer := make([]int, 0, 16)
	if allocations := testing.AllocsPerRun(100, func() {
		for v := range tree.Order() {
			buffer = AppendBinomialChildren(buffer[:0], 1024, 17, v)
			sum += len(tree.Children(v)) + len(buffer)
		}
	}); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}
