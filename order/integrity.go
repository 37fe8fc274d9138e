package order

import "fmt"

// judgeIntegrity checks this property: for any message m, a process A-delivers m at most once, only
// if it is a destination, and only if m was submitted before [Poke19, section 2.2.1; TRAM, section
// 2.2].
func judgeIntegrity(h *History) *Violation {
	for p := range h.processes {
		if !h.binds(p) {
			continue
		}
		first := make(map[int]int, len(h.processes[p].delivered))
		for at, d := range h.processes[p].delivered {
			m := h.messages[d.message]
			if !m.submitted {
				return &Violation{Integrity, []string{
					fmt.Sprintf("%s A-delivers %s", h.who(p), h.when(p, at)),
					"no process submitted it",
				}}
			}
			if before, twice := first[d.message]; twice {
				return &Violation{Integrity, []string{
					fmt.Sprintf("%s A-delivers %s", h.who(p), h.when(p, before)),
					fmt.Sprintf("%s A-delivers %s again", h.who(p), h.when(p, at)),
				}}
			}
			first[d.message] = at
			if !m.goesTo(h.processes[p].replica.Group) {
				return &Violation{Integrity, []string{
					fmt.Sprintf("a process submits %s", h.sent(d.message)),
					fmt.Sprintf("%s A-delivers %s, which is not for its group", h.who(p),
						h.when(p, at)),
				}}
			}
		}
	}
	return nil
}

// goesTo reports whether a group is a destination.
func (m *message) goesTo(group GroupID) bool {
	for _, to := range m.to {
		if to == group {
			return true
		}
	}
	return false
}
