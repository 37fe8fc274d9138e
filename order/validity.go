package order

import "fmt"

// judgeValidity checks this property: if a correct process A-broadcasts m, it eventually A-delivers
// m [Poke19, section 2.2.1]; if it A-multicasts m, all correct processes of the destinations do
// [TRAM, section 2.2]. The evidence is the first such message that is missing.
func judgeValidity(h *History) *Violation {
	places := h.places()
	for m := range h.messages {
		if !h.messages[m].submitted {
			continue
		}
		sender := h.messages[m].id.Sender
		if h.failed(sender) {
			continue
		}
		due := h.destinations(m)
		if len(h.groups) == 1 && sender.Group != Clients {
			due = []int{h.process(sender)}
		}
		for _, p := range due {
			if !h.processes[p].faulty && places[p][m] == 0 {
				return &Violation{Validity, []string{
					fmt.Sprintf("%s submits %s and is correct", h.name(sender), h.sent(m)),
					fmt.Sprintf("%s is correct and never A-delivers it", h.who(p)),
				}}
			}
		}
	}
	return nil
}
