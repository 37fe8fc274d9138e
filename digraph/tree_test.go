package digraph

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// childrenOf returns the children of each vertex in a binomial tree.
func childrenOf(n, root int) func(v int) []int {
	return func(v int) []int { return AppendBinomialChildren(nil, n, root, v) }
}

// checkTree reports whether the children form one tree that spans all vertices from the root, and
// returns its depth.
func checkTree(order, root int, children func(int) []int) (depth int, ok bool) {
	seen := make([]bool, order)
	seen[root] = true
	count := 1
	layer := []int{root}
	for ; ; depth++ {
		var next []int
		for _, u := range layer {
			for _, v := range children(u) {
				if seen[v] {
					return depth, false
				}
				seen[v] = true
				count++
				next = append(next, v)
			}
		}
		if len(next) == 0 {
			return depth, count == order
		}
		layer = next
	}
}

// steps returns the number of steps after which all vertices have the message, if each vertex sends
// to one child at a time, in order.
func steps(children func(int) []int, v int) int {
	last := 0
	for i, child := range children(v) {
		last = max(last, i+1+steps(children, child))
	}
	return last
}

func TestBinomialTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		root := rapid.IntRange(0, n-1).Draw(t, "root")
		children := childrenOf(n, root)
		depth, ok := checkTree(n, root, children)
		if !ok {
			t.Fatalf("the children for %d vertices from %d are no tree", n, root)
		}
		if depth > bits.Len(uint(n))-1 {
			t.Fatalf("depth %d for %d vertices", depth, n)
		}
		if got, want := steps(children, root), bits.Len(uint(n-1)); got != want {
			t.Fatalf("%d vertices have the message after %d steps, want %d", n, got, want)
		}
	})
}

func TestBinomialTreeOf9(t *testing.T) {
	t.Parallel()
	for v, want := range [][]int{{}, {}, {3, 4, 6, 1}, {5, 7}, {8}, {0}, {}, {}, {}} {
		if got := AppendBinomialChildren(nil, 9, 2, v); !slices.Equal(got, want) {
			t.Errorf("children of %d: %v, want %v", v, got, want)
		}
	}
	if depth, ok := checkTree(9, 2, childrenOf(9, 2)); depth != 3 || !ok {
		t.Errorf("depth %d, want 3; a tree: %v", depth, ok)
	}
}

// TestCheckTreeFindsFaults proves that checkTree can fail.
func TestCheckTreeFindsFaults(t *testing.T) {
	t.Parallel()
	right := childrenOf(16, 3)
	for name, children := range map[string]func(int) []int{
		"a lost child": func(v int) []int {
			if v == 4 {
				return right(v)[1:]
			}
			return right(v)
		},
		"a child twice": func(v int) []int { return slices.Repeat(right(v), 2) },
		"another's child": func(v int) []int {
			if v == 4 {
				return right(5)
			}
			return right(v)
		},
	} {
		if _, ok := checkTree(16, 3, children); ok {
			t.Errorf("%s is not found", name)
		}
	}
}

func TestBinomialTreeRefuses(t *testing.T) {
	t.Parallel()
	for _, wrong := range [][3]int{{4, 4, 0}, {4, 0, 4}, {4, -1, 0}, {4, 0, -1}, {0, 0, 0},
		{MaxOrder + 1, 0, 0}} {
		if children := AppendBinomialChildren(nil, wrong[0], wrong[1], wrong[2]); children != nil {
			t.Errorf("children for %v: %v", wrong, children)
		}
	}
}

func TestBinomialTreeAllocatesNothing(t *testing.T) {
	sum := 0
	buffer := make([]int, 0, 16)
	if allocations := testing.AllocsPerRun(100, func() {
		for v := range 1024 {
			buffer = AppendBinomialChildren(buffer[:0], 1024, 17, v)
			sum += len(buffer)
		}
	}); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}
