package search

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/digraph"
)

// scenario lists the servers that crash in a run and its false suspicions. It is chosen before the
// first step, so a budget of crashes never makes a step of one server depend on a step of another.
type scenario struct {
	// crashes holds the servers that crash, ascending.
	crashes []int
	// suspicions holds the false suspicions, ascending.
	suspicions []suspicion
}

// suspicion is a false suspicion: the owner, a successor in the reliable digraph, suspects the
// target.
type suspicion struct{ owner, target int }

// String returns the scenario as it begins a schedule: c0.s1-2 if server 0 crashes and server 1
// suspects server 2.
func (s scenario) String() string {
	var parts []string
	for _, p := range s.crashes {
		parts = append(parts, fmt.Sprintf("c%d", p))
	}
	for _, lie := range s.suspicions {
		parts = append(parts, fmt.Sprintf("s%d-%d", lie.owner, lie.target))
	}
	return strings.Join(parts, ".")
}

// describe describes the scenario in words.
func (s scenario) describe() string {
	if len(s.crashes)+len(s.suspicions) == 0 {
		return "no server fails"
	}
	var parts []string
	for _, p := range s.crashes {
		parts = append(parts, fmt.Sprintf("server %d crashes", p))
	}
	for _, lie := range s.suspicions {
		parts = append(parts, fmt.Sprintf("server %d suspects server %d falsely", lie.owner,
			lie.target))
	}
	return strings.Join(parts, ", ")
}

// compare orders scenarios: fewer faults first.
func (s scenario) compare(t scenario) int {
	if c := len(s.crashes) + len(s.suspicions) - len(t.crashes) - len(t.suspicions); c != 0 {
		return c
	}
	if c := slices.Compare(s.crashes, t.crashes); c != 0 {
		return c
	}
	return slices.CompareFunc(s.suspicions, t.suspicions, compareSuspicions)
}

func compareSuspicions(a, b suspicion) int {
	return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.target, b.target))
}

// renamed returns the scenario with other names for the servers.
func (s scenario) renamed(names []int) scenario {
	var t scenario
	for _, p := range s.crashes {
		t.crashes = append(t.crashes, names[p])
	}
	for _, lie := range s.suspicions {
		t.suspicions = append(t.suspicions, suspicion{names[lie.owner], names[lie.target]})
	}
	slices.Sort(t.crashes)
	slices.SortFunc(t.suspicions, compareSuspicions)
	return t
}

// scenarios lists all choices of at most the given numbers of crashes and false suspicions, one for
// each orbit of the symmetries: the least.
func scenarios(reliable *digraph.Digraph, crashes, suspicions int, symmetries [][]int) []scenario {
	n := reliable.Order()
	var edges []suspicion
	for owner := range n {
		for target := range n {
			if reliable.HasEdge(target, owner) {
				edges = append(edges, suspicion{owner, target})
			}
		}
	}
	var all []scenario
	var suspect func(s scenario, from int)
	suspect = func(s scenario, from int) {
		if isLeast(s, symmetries) {
			all = append(all, s)
		}
		if len(s.suspicions) == suspicions {
			return
		}
		for i := from; i < len(edges); i++ { // the same edge may err again
			suspect(scenario{s.crashes, append(slices.Clip(s.suspicions), edges[i])}, i)
		}
	}
	var crash func(s scenario, from int)
	crash = func(s scenario, from int) {
		suspect(s, 0)
		if len(s.crashes) == crashes {
			return
		}
		for p := from; p < n; p++ {
			crash(scenario{append(slices.Clip(s.crashes), p), nil}, p+1)
		}
	}
	crash(scenario{}, 0)
	slices.SortFunc(all, scenario.compare)
	return all
}

func isLeast(s scenario, symmetries [][]int) bool {
	for _, names := range symmetries {
		if s.renamed(names).compare(s) < 0 {
			return false
		}
	}
	return true
}
