package tram

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/order"
)

// GroupsMax is the maximum number of groups in a tree.
const GroupsMax = 1024

// ErrTree is returned if the groups and their parents do not form a tree, or a description does not
// describe one.
var ErrTree = errors.New("no tree of groups")

// ErrDestinations is returned for a destination set that is empty, not ascending, or names a group
// that the tree does not have.
var ErrDestinations = errors.New("bad destination set")

// Tree is the static overlay of groups [TRAM, section 4]: every group but the root has one parent.
// It never changes and is safe for concurrent use.
//
// A group that the tree does not have has no parent and no children, is no group's descendant, and
// reaches nothing.
type Tree struct {
	root     order.GroupID
	parents  []order.GroupID
	children [][]order.GroupID
	depths   []int
	// first and last number the groups in the order of a walk that visits a group before its
	// children, and the children in ascending order. The descendants of a group, itself included,
	// are the groups whose first number lies between the group's first and last numbers.
	first, last []int
	// walk holds the groups in the order of that walk: walk[first[g]] is g.
	walk []order.GroupID
}

// NewTree returns the tree in which parents[g] is the parent of group g. The root is its own
// parent. It returns ErrTree with the reason for no groups or more than GroupsMax, a parent that
// does not exist, no root, two roots, or a cycle.
func NewTree(parents []order.GroupID) (*Tree, error) {
	groups := len(parents)
	if groups < 1 || groups > GroupsMax {
		return nil, fmt.Errorf("%w: %d groups, want 1 to %d", ErrTree, groups, GroupsMax)
	}
	t := &Tree{
		parents:  slices.Clone(parents),
		children: make([][]order.GroupID, groups),
		depths:   make([]int, groups),
		first:    make([]int, groups),
		last:     make([]int, groups),
		walk:     make([]order.GroupID, 0, groups),
	}
	roots := 0
	for i, parent := range parents {
		group := order.GroupID(i)
		switch {
		case int64(parent) >= int64(groups):
			return nil, fmt.Errorf("%w: the parent of group %d is %d, want one of 0 to %d", ErrTree,
				group, parent, groups-1)
		case parent == group && roots > 0:
			return nil, fmt.Errorf("%w: groups %d and %d are both their own parent; a tree has "+
				"one root", ErrTree, t.root, group)
		case parent == group:
			t.root = group
			roots++
		default:
			t.children[parent] = append(t.children[parent], group)
		}
	}
	if roots == 0 {
		return nil, fmt.Errorf("%w: no group is its own parent; make the root its own parent",
			ErrTree)
	}
	t.visit()
	if len(t.walk) < groups {
		stray := slices.IndexFunc(parents, func(parent order.GroupID) bool {
			return !slices.Contains(t.walk, parent)
		})
		return nil, fmt.Errorf("%w: from group %d the path through the parents never ends at the "+
			"root, group %d; remove the cycle", ErrTree, stray, t.root)
	}
	return t, nil
}

// visit numbers the groups that the root reaches. It keeps its own stack because a chain of
// GroupsMax groups is deep.
func (t *Tree) visit() {
	pending := []order.GroupID{t.root}
	for len(pending) > 0 {
		group := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		t.first[group] = len(t.walk)
		t.walk = append(t.walk, group)
		if group != t.root {
			t.depths[group] = t.depths[t.parents[group]] + 1
		}
		for _, child := range slices.Backward(t.children[group]) {
			pending = append(pending, child)
		}
	}
	for _, group := range slices.Backward(t.walk) {
		t.last[group] = max(t.last[group], t.first[group])
		parent := t.parents[group]
		t.last[parent] = max(t.last[parent], t.last[group])
	}
}

// Breadth returns the tree in which all other groups are children of group 0. It panics unless
// groups is 1 to GroupsMax.
func Breadth(groups int) *Tree {
	return shape(groups, func(int) int { return 0 })
}

// Binary returns the tree in which group g has the children 2g+1 and 2g+2. It panics unless groups
// is 1 to GroupsMax.
func Binary(groups int) *Tree {
	return shape(groups, func(group int) int { return (group - 1) / 2 })
}

// Chain returns the tree in which group g has the single child g+1. It panics unless groups is 1 to
// GroupsMax.
func Chain(groups int) *Tree {
	return shape(groups, func(group int) int { return group - 1 })
}

// shape returns the tree with root 0 and the given parents of the other groups.
func shape(groups int, parent func(group int) int) *Tree {
	parents := make([]order.GroupID, max(groups, 0))
	for group := 1; group < groups; group++ {
		parents[group] = order.GroupID(parent(group))
	}
	t, err := NewTree(parents)
	if err != nil {
		panic("tram: a shape is a tree: " + err.Error())
	}
	return t
}

// ParseTree returns the tree of a named shape: "breadth", "binary" or "chain". It returns ErrTree
// for any other name, and for a number of groups that is not 1 to GroupsMax.
func ParseTree(text string, groups int) (*Tree, error) {
	if groups < 1 || groups > GroupsMax {
		return nil, fmt.Errorf("%w: %d groups, want 1 to %d", ErrTree, groups, GroupsMax)
	}
	switch text {
	case "breadth":
		return Breadth(groups), nil
	case "binary":
		return Binary(groups), nil
	case "chain":
		return Chain(groups), nil
	default:
		return nil, fmt.Errorf("%w: %q is no shape; take breadth, binary or chain", ErrTree, text)
	}
}

// ReadTree reads a tree with the given number of groups. The input has one line a group, in any
// order: the group's number and its parent's, such as "3 1". The root's line names itself twice.
// Empty lines are ignored, as is the rest of a line after a #. ReadTree returns ErrTree with the
// line and how to correct it, or the reader's error.
func ReadTree(r io.Reader, groups int) (*Tree, error) {
	if groups < 1 || groups > GroupsMax {
		return nil, fmt.Errorf("%w: %d groups, want 1 to %d", ErrTree, groups, GroupsMax)
	}
	parents := make([]order.GroupID, groups)
	lines := make([]int, groups) // the line that gives each group's parent, 0 if not seen yet
	scanner := bufio.NewScanner(r)
	line := 0
	for scanner.Scan() {
		line++
		text, _, _ := strings.Cut(scanner.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%w: line %d has %d words; write a group's number and its "+
				"parent's, such as \"3 1\"", ErrTree, line, len(fields))
		}
		group, err := readGroup(fields[0], groups, line)
		if err != nil {
			return nil, err
		}
		parent, err := readGroup(fields[1], groups, line)
		if err != nil {
			return nil, err
		}
		if lines[group] != 0 {
			return nil, fmt.Errorf("%w: line %d gives group %d a parent, as line %d does; "+
				"remove one of them", ErrTree, line, group, lines[group])
		}
		lines[group], parents[group] = line, parent
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read a tree, line %d: %w", line+1, err)
	}
	if missing := slices.Index(lines, 0); missing >= 0 {
		return nil, fmt.Errorf("%w: group %d has no line; write its parent's number behind its "+
			"own (the root's parent is the root)", ErrTree, missing)
	}
	return NewTree(parents)
}

// readGroup reads a group's number.
func readGroup(word string, groups, line int) (order.GroupID, error) {
	number, err := strconv.ParseUint(word, 10, 32)
	if err != nil || number >= uint64(groups) {
		return 0, fmt.Errorf("%w: line %d names group %.20q; write a number from 0 to %d", ErrTree,
			line, word, groups-1)
	}
	return order.GroupID(number), nil
}

// Groups returns the number of groups. They are numbered from 0.
func (t *Tree) Groups() int { return len(t.parents) }

// Root returns the group without a parent.
func (t *Tree) Root() order.GroupID { return t.root }

// Parents returns each group's parent. The root is its own parent, so NewTree makes the same tree
// from the result.
func (t *Tree) Parents() []order.GroupID { return slices.Clone(t.parents) }

// Has reports whether g is a group of the tree.
func (t *Tree) Has(g order.GroupID) bool { return int64(g) < int64(len(t.parents)) }

// Parent returns a group's parent. The root has none.
func (t *Tree) Parent(g order.GroupID) (order.GroupID, bool) {
	if !t.Has(g) || g == t.root {
		return 0, false
	}
	return t.parents[g], true
}

// Children returns a group's children, ascending. The tree owns the slice; callers must not change
// it.
func (t *Tree) Children(g order.GroupID) []order.GroupID {
	if !t.Has(g) {
		return nil
	}
	return t.children[g]
}

// Depth returns the number of steps from the root to a group. It is 0 for the root, and for a group
// that the tree does not have.
func (t *Tree) Depth(g order.GroupID) int {
	if !t.Has(g) {
		return 0
	}
	return t.depths[g]
}

// CheckDestinations returns ErrDestinations with the reason unless to is a destination set as
// order.Multicast requires: ascending without repeats, not empty, and with groups of this tree
// only.
func (t *Tree) CheckDestinations(to []order.GroupID) error {
	if len(to) == 0 {
		return fmt.Errorf("%w: it is empty", ErrDestinations)
	}
	for i, group := range to {
		if i > 0 && to[i-1] >= group {
			return fmt.Errorf("%w: group %d follows group %d; list the groups in ascending order, "+
				"each once", ErrDestinations, group, to[i-1])
		}
	}
	if last := to[len(to)-1]; !t.Has(last) {
		return fmt.Errorf("%w: group %d is not one of the %d groups", ErrDestinations, last,
			t.Groups())
	}
	return nil
}

// LCA returns the lowest common ancestor of a destination set: the group furthest from the root
// that reaches all of them [TRAM, section 4]. The result does not depend on the order of to or on
// repeats. For the empty set, and for a set with a group that the tree does not have, it is the
// root.
func (t *Tree) LCA(to []order.GroupID) order.GroupID {
	low, high := len(t.walk), -1
	for _, group := range to {
		if !t.Has(group) {
			return t.root
		}
		low, high = min(low, t.first[group]), max(high, t.first[group])
	}
	if high < 0 {
		return t.root
	}
	// A group that reaches the first and the last group of a range of the walk reaches all groups
	// between them.
	ancestor := t.walk[low]
	for t.last[ancestor] < high {
		ancestor = t.parents[ancestor]
	}
	return ancestor
}

// Reach returns the groups that a group reaches by walking down the tree, itself included,
// ascending [TRAM, section 4].
func (t *Tree) Reach(g order.GroupID) []order.GroupID {
	if !t.Has(g) {
		return nil
	}
	reach := slices.Clone(t.walk[t.first[g] : t.last[g]+1])
	slices.Sort(reach)
	return reach
}

// Reaches reports whether g reaches the group d. A group reaches itself.
func (t *Tree) Reaches(g, d order.GroupID) bool {
	return t.Has(g) && t.Has(d) && t.first[g] <= t.first[d] && t.first[d] <= t.last[g]
}

// Covers reports whether g reaches all of to, and to is not empty.
func (t *Tree) Covers(g order.GroupID, to []order.GroupID) bool {
	for _, d := range to {
		if !t.Reaches(g, d) {
			return false
		}
	}
	return len(to) > 0
}

// Route returns the children of g whose reach meets to, ascending. These are the children to which
// g forwards a message [TRAM, Algorithm 2, step 2.5].
func (t *Tree) Route(g order.GroupID, to []order.GroupID) []order.GroupID {
	return t.AppendRoute(nil, g, to)
}

// AppendRoute is like Route but appends to a slice, to avoid an allocation.
func (t *Tree) AppendRoute(route []order.GroupID, g order.GroupID,
	to []order.GroupID) []order.GroupID {
	start := len(route)
	for _, d := range to {
		if d == g || !t.Reaches(g, d) {
			continue
		}
		child := t.towards(g, d)
		// The children are mostly found in ascending order, and consecutive destinations often
		// share a child. The search and the insertion are then cheap.
		if found, exact := slices.BinarySearch(route[start:], child); !exact {
			route = slices.Insert(route, start+found, child)
		}
	}
	return route
}

// towards returns the child of g that reaches d. The caller ensures that g reaches d and that g is
// not d.
func (t *Tree) towards(g, d order.GroupID) order.GroupID {
	// The walk visits children in ascending order. The child sought is the last one whose first
	// number is not past d's.
	children := t.children[g]
	low, high := 0, len(children)
	for high-low > 1 {
		middle := (low + high) / 2
		if t.first[children[middle]] <= t.first[d] {
			low = middle
		} else {
			high = middle
		}
	}
	return children[low]
}

// Span returns the groups that order a message on its way: its destinations, their lca, and the
// groups between, ascending. It is empty if the lca does not reach all of to.
func (t *Tree) Span(to []order.GroupID) []order.GroupID {
	top := t.LCA(to)
	if !t.Covers(top, to) {
		return nil
	}
	span := []order.GroupID{top}
	for _, d := range to {
		for group := d; group != top; group = t.parents[group] {
			found, exact := slices.BinarySearch(span, group)
			if exact {
				break
			}
			span = slices.Insert(span, found, group)
		}
	}
	return span
}
