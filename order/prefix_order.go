package order

import "fmt"

// judgePrefixOrder checks this property: for p in group g, q in group h, and messages m and m' for
// both g and h: if p A-delivers m and q A-delivers m', then p A-delivers m' before m or q
// A-delivers m before m' [TRAM, section 2.2; RamCast, section 3].
//
// Leave out of both sequences the messages that are not for both groups. The property then says
// that one sequence is a prefix of the other. If not, the two messages where they first differ
// prove it. The evidence comes from the pair of processes that differ earliest.
func judgePrefixOrder(h *History) *Violation {
	var evidence []string
	earliest := 0
	for p := range h.processes {
		for q := range p {
			if !h.binds(p) || !h.binds(q) || sharePrefix(h.processes[p].delivered,
				h.processes[q].delivered) {
				continue
			}
			i, j := h.difference(p, q)
			if i < 0 || (evidence != nil && i+j >= earliest) {
				continue
			}
			earliest = i + j
			m, n := h.processes[p].delivered[i].message, h.processes[q].delivered[j].message
			evidence = []string{
				fmt.Sprintf("%s A-delivers %s and not %s before it%s", h.who(q), h.when(q, j),
					h.what(m), h.fate(q)),
				fmt.Sprintf("%s A-delivers %s and not %s before it%s", h.who(p), h.when(p, i),
					h.what(n), h.fate(p)),
			}
		}
	}
	if evidence == nil {
		return nil
	}
	return &Violation{PrefixOrder, evidence}
}

// difference returns the positions, from 0, at which two processes first A-deliver different
// messages, counting only messages for both their groups. It returns -1 if there are none.
func (h *History) difference(p, q int) (i, j int) {
	a, b := h.processes[p].delivered, h.processes[q].delivered
	for {
		for i < len(a) && !h.forBoth(a[i].message, p, q) {
			i++
		}
		for j < len(b) && !h.forBoth(b[j].message, p, q) {
			j++
		}
		if i == len(a) || j == len(b) {
			return -1, -1
		}
		if a[i].message != b[j].message {
			return i, j
		}
		i, j = i+1, j+1
	}
}

// forBoth reports whether a message is for the groups of both processes.
func (h *History) forBoth(message, p, q int) bool {
	m := &h.messages[message]
	return m.goesTo(h.processes[p].replica.Group) && m.goesTo(h.processes[q].replica.Group)
}
