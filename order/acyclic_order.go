package order

import "fmt"

// judgeAcyclicOrder checks this property: let m < m' if some process A-delivers m before m'; then <
// has no cycle [TRAM, section 2.2].
//
// Edges between neighbours in each process's sequence are enough to decide. If there is a cycle,
// the evidence is the cycle with the fewest messages. It follows one process's sequence, changes to
// another process at a message that both deliver, and so on. The messages shown are those at which
// it changes.
func judgeAcyclicOrder(h *History) *Violation {
	core := h.cyclicCore()
	if len(core) == 0 {
		return nil
	}
	var best []hop
	for _, start := range core[:min(len(core), cycleStarts)] {
		if cycle := h.cycleThrough(start); cycle != nil && (best == nil || len(cycle) < len(best)) {
			best = cycle
		}
	}
	var evidence []string
	for _, step := range best {
		evidence = append(evidence, fmt.Sprintf("%s A-delivers %s, then %s%s",
			h.who(step.process), h.when(step.process, step.from), h.when(step.process, step.to),
			h.fate(step.process)))
	}
	return &Violation{AcyclicOrder, evidence}
}

// cycleStarts bounds how many messages of a cyclic history are tried as the start of the shortest
// cycle.
const cycleStarts = 64

// hop is one process's part of a cycle: its deliveries number from and to, counted from 0, with
// from < to.
type hop struct{ process, from, to int }

// cyclicCore repeatedly removes the messages that no other message precedes, and returns the rest,
// ascending. The result is empty if < is acyclic.
func (h *History) cyclicCore() []int {
	next := make([][]int, len(h.messages))
	before := make([]int, len(h.messages))
	for p := range h.processes {
		if !h.binds(p) {
			continue
		}
		sequence := h.processes[p].delivered
		for at := 1; at < len(sequence); at++ {
			from, to := sequence[at-1].message, sequence[at].message
			next[from] = append(next[from], to)
			before[to]++
		}
	}
	var free []int
	for m := range before {
		if before[m] == 0 {
			free = append(free, m)
		}
	}
	for taken := 0; taken < len(free); taken++ {
		for _, m := range next[free[taken]] {
			if before[m]--; before[m] == 0 {
				free = append(free, m)
			}
		}
	}
	var core []int
	for m := range before {
		if before[m] > 0 {
			core = append(core, m)
		}
	}
	return core
}

// cycleThrough returns the cycle with the fewest hops from a message back to itself, or nil if
// there is none. It searches breadth first. A hop leads from a delivery of a message to any later
// delivery of the same process, so each delivery is reached once, by the fewest hops.
func (h *History) cycleThrough(start int) []hop {
	places := h.places()
	// reached holds the hop that first reached each message. A zero to means not reached, because a
	// hop never ends at a first delivery.
	reached := make([]hop, len(h.messages))
	unread := make([]int, len(h.processes)) // the deliveries from this one on have been reached
	for p := range unread {
		unread[p] = len(h.processes[p].delivered)
	}
	frontier := []int{start}
	for len(frontier) > 0 {
		var further []int
		for _, m := range frontier {
			for p := range h.processes {
				if !h.binds(p) || places[p][m] == 0 {
					continue
				}
				from := places[p][m] - 1
				for to := from + 1; to < unread[p]; to++ {
					met := h.processes[p].delivered[to].message
					if reached[met].to == 0 {
						reached[met] = hop{p, from, to}
						further = append(further, met)
					}
					if met == start {
						return h.unwind(reached, start)
					}
				}
				unread[p] = min(unread[p], from+1)
			}
		}
		frontier = further
	}
	return nil
}

// unwind reverses the path from start back to itself.
func (h *History) unwind(reached []hop, start int) []hop {
	var cycle []hop
	for m := start; ; {
		step := reached[m]
		cycle = append([]hop{step}, cycle...)
		m = h.processes[step.process].delivered[step.from].message
		if m == start {
			return cycle
		}
	}
}
