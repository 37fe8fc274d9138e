package tram

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
)

// groups returns a set of groups.
func groups(ids ...order.GroupID) []order.GroupID { return ids }

func TestShapes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		tree    *Tree
		parents []order.GroupID
		depth   int // of the last group
	}{
		{"breadth of 1", Breadth(1), groups(0), 0},
		{"breadth of 5", Breadth(5), groups(0, 0, 0, 0, 0), 1},
		{"binary of 7", Binary(7), groups(0, 0, 0, 1, 1, 2, 2), 2},
		{"chain of 4", Chain(4), groups(0, 0, 1, 2), 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.tree.Parents(); !slices.Equal(got, test.parents) {
				t.Errorf("parents %v, want %v", got, test.parents)
			}
			if got := test.tree.Depth(order.GroupID(test.tree.Groups() - 1)); got != test.depth {
				t.Errorf("the last group's depth is %d, want %d", got, test.depth)
			}
		})
	}
	for _, name := range []string{"breadth", "binary", "chain"} {
		tree, err := ParseTree(name, GroupsMax)
		if err != nil || tree.Groups() != GroupsMax {
			t.Errorf("%s of %d groups: %v", name, GroupsMax, err)
		}
	}
	for _, test := range []struct {
		name   string
		groups int
	}{{"star", 3}, {"", 3}, {"chain", 0}, {"chain", -1}, {"chain", GroupsMax + 1}} {
		if _, err := ParseTree(test.name, test.groups); !errors.Is(err, ErrTree) {
			t.Errorf("%q of %d groups: %v, want ErrTree", test.name, test.groups, err)
		}
	}
}

func TestBinaryTree(t *testing.T) {
	t.Parallel()
	tree := Binary(7)
	for _, test := range []struct {
		to    []order.GroupID
		lca   order.GroupID
		route []order.GroupID // from the lca
		span  []order.GroupID
	}{
		{groups(0), 0, nil, groups(0)},
		{groups(3), 3, nil, groups(3)},
		{groups(3, 4), 1, groups(3, 4), groups(1, 3, 4)},
		{groups(1, 4), 1, groups(4), groups(1, 4)},
		{groups(3, 5), 0, groups(1, 2), groups(0, 1, 2, 3, 5)},
		{groups(5, 6), 2, groups(5, 6), groups(2, 5, 6)},
		{groups(0, 6), 0, groups(2), groups(0, 2, 6)},
		{groups(0, 1, 2, 3, 4, 5, 6), 0, groups(1, 2), groups(0, 1, 2, 3, 4, 5, 6)},
	} {
		if got := tree.LCA(test.to); got != test.lca {
			t.Errorf("lca of %v is %d, want %d", test.to, got, test.lca)
		}
		if got := tree.Route(test.lca, test.to); !slices.Equal(got, test.route) {
			t.Errorf("route of %v is %v, want %v", test.to, got, test.route)
		}
		if got := tree.Span(test.to); !slices.Equal(got, test.span) {
			t.Errorf("span of %v is %v, want %v", test.to, got, test.span)
		}
	}
	if got := tree.Reach(1); !slices.Equal(got, groups(1, 3, 4)) {
		t.Errorf("reach of group 1 is %v", got)
	}
}

func TestNoTree(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		parents []order.GroupID
		says    string
	}{
		{nil, "0 groups"},
		{make([]order.GroupID, GroupsMax+1), "1025 groups"},
		{groups(0, 7), "the parent of group 1 is 7"},
		{groups(1, 0), "no group is its own parent"},
		{groups(0, 1), "groups 0 and 1 are both their own parent"},
		{groups(0, 2, 1), "from group 1"},
		{groups(0, 2, 3, 1, 3), "never ends at the root"},
	} {
		_, err := NewTree(test.parents)
		if !errors.Is(err, ErrTree) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: %v, want ErrTree that says %q", test.parents, err, test.says)
		}
	}
}

func TestReadTree(t *testing.T) {
	t.Parallel()
	tree, err := ReadTree(strings.NewReader("# the tree\n 2 1 # below\n\n1 1\n0 2"), 3)
	if err != nil || !slices.Equal(tree.Parents(), groups(2, 1, 1)) || tree.Root() != 1 {
		t.Fatalf("tree %v, error %v", tree, err)
	}
	for _, test := range []struct{ text, says string }{
		{"0 0\n1", "line 2 has 1 words"},
		{"0 0\n1 0 0", "line 2 has 3 words"},
		{"0 0\n\n2 0", "line 3 names group \"2\"; write a number from 0 to 1"},
		{"0 0\n1 -1", "line 2 names group \"-1\""},
		{"0 0\n1 0\n1 0", "line 3 gives group 1 a parent, as line 2 does; remove one"},
		{"0 0", "group 1 has no line"},
		{"0 1\n1 0", "no group is its own parent"},
		{"", "group 0 has no line"},
	} {
		_, err := ReadTree(strings.NewReader(test.text), 2)
		if !errors.Is(err, ErrTree) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v, want ErrTree that says %q", test.text, err, test.says)
		}
	}
	if _, err := ReadTree(strings.NewReader(strings.Repeat("#", 1<<20)), 2); err == nil {
		t.Error("a line without an end was read")
	}
	if _, err := ReadTree(strings.NewReader("0 0"), 0); !errors.Is(err, ErrTree) {
		t.Errorf("no group: %v", err)
	}
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	tree := Chain(3)
	for _, to := range [][]order.GroupID{nil, {3}, {1, 1}, {2, 1}, {0, 1 << 31}} {
		if err := tree.CheckDestinations(to); !errors.Is(err, ErrDestinations) {
			t.Errorf("%v: %v, want ErrDestinations", to, err)
		}
	}
	if err := tree.CheckDestinations(groups(0, 2)); err != nil {
		t.Error(err)
	}
	// Unknown groups are harmless.
	if tree.LCA(groups(1, 9)) != 0 || tree.LCA(nil) != 0 || tree.Covers(0, groups(9)) ||
		tree.Covers(9, groups(0)) || tree.Covers(0, nil) ||
		tree.Route(0, groups(9)) != nil || tree.Route(9, groups(1)) != nil ||
		tree.Reach(9) != nil || tree.Children(9) != nil || tree.Depth(9) != 0 ||
		tree.Span(groups(9)) != nil {
		t.Error("a group that the tree does not have is somewhere in it")
	}
	if _, ok := tree.Parent(9); ok {
		t.Error("a group that the tree does not have has a parent")
	}
	if _, ok := tree.Parent(0); ok {
		t.Error("the root has a parent")
	}
}

// drawTree draws a tree, its groups numbered at random.
func drawTree(t *rapid.T, most int) *Tree {
	count := rapid.IntRange(1, most).Draw(t, "groups")
	names := rapid.Permutation(slices.Collect(func(yield func(order.GroupID) bool) {
		for g := range count {
			if !yield(order.GroupID(g)) {
				return
			}
		}
	})).Draw(t, "names")
	parents := make([]order.GroupID, count)
	parents[names[0]] = names[0]
	for i := 1; i < count; i++ {
		parents[names[i]] = names[rapid.IntRange(0, i-1).Draw(t, "parent")]
	}
	tree, err := NewTree(parents)
	if err != nil {
		t.Fatalf("%v: %v", parents, err)
	}
	return tree
}

// drawDestinations draws a destination set.
func drawDestinations(t *rapid.T, tree *Tree) []order.GroupID {
	to := rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0,
		tree.Groups()-1), func(g int) order.GroupID {
		return order.GroupID(g)
	}),
		1, min(8, tree.Groups()), rapid.ID).Draw(t, "to")
	slices.Sort(to)
	return to
}

// TestTreeAgainstDefinitions compares the tree's measures with their definitions, computed by
// walking through the parents.
func TestTreeAgainstDefinitions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t, 24)
		to := drawDestinations(t, tree)
		ancestors := func(g order.GroupID) []order.GroupID { // g first, the root last
			path := []order.GroupID{g}
			for {
				parent, ok := tree.Parent(g)
				if !ok {
					return path
				}
				path, g = append(path, parent), parent
			}
		}
		for g := range order.GroupID(tree.Groups()) {
			var reach []order.GroupID
			for d := range order.GroupID(tree.Groups()) {
				reaches := slices.Contains(ancestors(d), g)
				if reaches != tree.Reaches(g, d) {
					t.Fatalf("Reaches(%d, %d) is %v", g, d, !reaches)
				}
				if reaches {
					reach = append(reach, d)
				}
			}
			if got := tree.Reach(g); !slices.Equal(got, reach) {
				t.Fatalf("reach of %d is %v, want %v", g, got, reach)
			}
			covers := !slices.ContainsFunc(to, func(d order.GroupID) bool {
				return !slices.Contains(reach, d)
			})
			if tree.Covers(g, to) != covers {
				t.Fatalf("Covers(%d, %v) is %v", g, to, !covers)
			}
			var route []order.GroupID
			for _, child := range tree.Children(g) {
				if slices.ContainsFunc(to, func(d order.GroupID) bool {
					return tree.Reaches(child, d)
				}) {
					route = append(route, child)
				}
			}
			if got := tree.Route(g, to); !slices.Equal(got, route) {
				t.Fatalf("route of %v at %d is %v, want %v", to, g, got, route)
			}
			if got := tree.Depth(g); got != len(ancestors(g))-1 {
				t.Fatalf("depth of %d is %d", g, got)
			}
		}
		var lca order.GroupID
		for _, g := range ancestors(to[0]) {
			if tree.Covers(g, to) {
				lca = g
				break
			}
		}
		if got := tree.LCA(to); got != lca {
			t.Fatalf("lca of %v is %d, want %d", to, got, lca)
		}
		var span []order.GroupID
		for g := range order.GroupID(tree.Groups()) {
			if tree.Reaches(lca, g) && slices.ContainsFunc(to, func(d order.GroupID) bool {
				return tree.Reaches(g, d)
			}) {
				span = append(span, g)
			}
		}
		if got := tree.Span(to); !slices.Equal(got, span) {
			t.Fatalf("span of %v is %v, want %v", to, got, span)
		}
	})
}

func FuzzReadTree(f *testing.F) {
	for _, seed := range []string{"0 0\n1 0\n2 1", "# c\n0 0 # root\n2 2\n1 0", "0 1\n1 2\n2 0",
		"00 0\n1 +1\n2 99999999999999999999", "\x00\n"} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, text string, count int) {
		tree, err := ReadTree(strings.NewReader(text), count)
		if err != nil {
			return
		}
		if tree.Groups() != count {
			t.Fatalf("%d groups, want %d", tree.Groups(), count)
		}
		if again, err := NewTree(tree.Parents()); err != nil || again.Root() != tree.Root() {
			t.Fatalf("the parents of a tree make no tree: %v", err)
		}
	})
}

func BenchmarkRoute(b *testing.B) {
	tree := Binary(GroupsMax)
	to := groups(3, 64, 65, 700)
	at := tree.LCA(to)
	route := make([]order.GroupID, 0, 8)
	b.ReportAllocs()
	for b.Loop() {
		route = tree.AppendRoute(route[:0], at, to)
	}
}
