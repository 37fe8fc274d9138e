package order

import "fmt"

// judgeTotalOrder checks this property: if two processes A-deliver m and m', they do so in the same
// order [Poke19, section 2.2.1].
//
// If two sequences disagree on any pair, they also disagree on two messages that are neighbours in
// one of them, counting only common messages. So comparing neighbours is enough. The evidence is
// the pair that the two processes finish earliest.
func judgeTotalOrder(h *History) *Violation {
	places := h.places()
	var evidence []string
	earliest := 0
	for p := range h.processes {
		for q := range p {
			if !h.binds(p) || !h.binds(q) || sharePrefix(h.processes[p].delivered,
				h.processes[q].delivered) {
				continue
			}
			last := 0 // the position at q of the previous common message
			for _, d := range h.processes[p].delivered {
				at := places[q][d.message]
				if at == 0 {
					continue
				}
				if at >= last {
					last = at
					continue
				}
				one, other := h.processes[q].delivered[last-1].message, d.message
				finished := max(places[p][one], places[p][other]) + last
				if evidence == nil || finished < earliest {
					earliest = finished
					evidence = []string{
						fmt.Sprintf("%s A-delivers %s, then %s%s", h.who(q), h.when(q, at-1),
							h.when(q, last-1), h.fate(q)),
						fmt.Sprintf("%s A-delivers %s, then %s%s", h.who(p),
							h.when(p, places[p][one]-1), h.when(p, places[p][other]-1), h.fate(p)),
					}
				}
				break
			}
		}
	}
	if evidence == nil {
		return nil
	}
	return &Violation{TotalOrder, evidence}
}

// sharePrefix reports whether two sequences begin in the same memory. One is then a prefix of the
// other, and no comparison is needed.
func sharePrefix(a, b []delivered) bool { return len(a) == 0 || len(b) == 0 || &a[0] == &b[0] }
