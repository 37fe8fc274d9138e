package traffic

import (
	"cmp"
	"slices"
)

// Bounds of Halve, whose time grows with the first one squared, times the second one.
const (
	halveMax   = 500
	halveSeeds = 32
)

// Halve divides parties into two halves that bear about the same load, so that few transactions
// concern both. It returns those of the half that moves, ascending. The party with the most
// transactions stays. Parties without traffic count as one transaction, so they spread as well.
//
// The best division is hard to find. Halve considers the parties with the most transactions, and
// leaves all others. From each of the first of them it grows a half: it adds the party that leaves
// the fewest transactions across, the first by name of several, while the load stays at most a
// half. It takes the half with the fewest transactions across and missing to a half.
func (t *Traffic) Halve(parties []string) (moves []string) {
	parties = slices.Compact(slices.Sorted(slices.Values(parties)))
	if len(parties) < 2 {
		return nil
	}
	h := newHalving(t, parties)
	best, least := []int(nil), int64(0)
	for _, seed := range h.seeds {
		grown, costs := h.grow(seed)
		if len(grown) > 0 && (best == nil || costs < least) {
			best, least = grown, costs
		}
	}
	for _, i := range best {
		moves = append(moves, parties[i])
	}
	slices.Sort(moves)
	return moves
}

// halving is what Halve knows of the parties, by their places.
type halving struct {
	loads []int64
	bonds [][]bond
	half  int64
	// considered are the parties that may move, and seeds those from which a half is grown.
	considered, seeds []int
}

// bond is how many transactions a party has with another one.
type bond struct {
	with  int
	count int64
}

func newHalving(t *Traffic, parties []string) *halving {
	h := &halving{loads: make([]int64, len(parties)), bonds: make([][]bond, len(parties))}
	at := make(map[string]int, len(parties))
	for i, name := range parties {
		at[name] = i
		h.considered = append(h.considered, i)
	}
	for _, flow := range t.Flows {
		var some []int
		for _, party := range flow.Parties {
			if i, here := at[t.Names[party]]; here {
				some = append(some, i)
			}
		}
		for _, i := range some {
			h.loads[i] += int64(flow.Count)
			for _, j := range some {
				if j != i {
					h.bonds[i] = append(h.bonds[i], bond{j, int64(flow.Count)})
				}
			}
		}
	}
	for i := range h.loads {
		h.loads[i] = max(h.loads[i], 1)
		h.half += h.loads[i]
	}
	h.half /= 2
	slices.SortStableFunc(h.considered, func(a, b int) int {
		return cmp.Compare(h.loads[b], h.loads[a])
	})
	h.considered = h.considered[1:min(len(h.considered), halveMax)]
	h.seeds = slices.Clone(h.considered[:min(len(h.considered), halveSeeds)])
	slices.Sort(h.considered)
	return h
}

// grow returns a half that begins with one party, and the transactions across and missing to a
// half.
func (h *halving) grow(seed int) (grown []int, costs int64) {
	moved, load, across := make([]bool, len(h.loads)), int64(0), int64(0)
	for next := seed; ; {
		if next < 0 || load+h.loads[next] > h.half {
			return grown, across + h.half - load
		}
		moved[next], load, across = true, load+h.loads[next], across+h.further(moved, next)
		grown = append(grown, next)
		next = -1
		least := int64(0)
		for _, i := range h.considered {
			if moved[i] || load+h.loads[i] > h.half {
				continue
			}
			if further := h.further(moved, i); next < 0 || further < least {
				next, least = i, further
			}
		}
	}
}

// further returns by how many more transactions concern both halves if a party moves.
func (h *halving) further(moved []bool, party int) (further int64) {
	for _, each := range h.bonds[party] {
		if moved[each.with] {
			further -= each.count
		} else {
			further += each.count
		}
	}
	return further
}
