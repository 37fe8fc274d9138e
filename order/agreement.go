package order

import "fmt"

// judgeAgreement checks this property: if a correct process A-delivers m, all correct destinations
// eventually A-deliver m [Poke19, section 2.2.1].
func judgeAgreement(h *History) *Violation { return h.disagreement(Agreement, false) }

// judgeUniformAgreement checks the same for a process that fails after it A-delivers m [Poke19,
// section 2.2.1; TRAM, section 2.2]. It considers failed processes only; judgeAgreement covers the
// correct ones.
func judgeUniformAgreement(h *History) *Violation {
	if h.NonUniform {
		return nil
	}
	return h.disagreement(UniformAgreement, true)
}

// disagreement looks for a message that a process, faulty or not, A-delivers and a correct
// destination does not. The evidence is the delivery with the lowest position.
func (h *History) disagreement(property Property, faulty bool) *Violation {
	places := h.places()
	var evidence []string
	earliest := 0
	for p := range h.processes {
		if h.processes[p].faulty != faulty {
			continue
		}
		for at, d := range h.processes[p].delivered {
			if evidence != nil && at >= earliest {
				break
			}
			missing := -1
			for _, q := range h.destinations(d.message) {
				if !h.processes[q].faulty && places[q][d.message] == 0 {
					missing = q
					break
				}
			}
			if missing < 0 {
				continue
			}
			fate := "is correct"
			if faulty {
				fate = "fails later"
			}
			earliest = at
			evidence = []string{
				fmt.Sprintf("%s A-delivers %s and %s", h.who(p), h.when(p, at), fate),
				fmt.Sprintf("%s is correct and never A-delivers it", h.who(missing)),
			}
		}
	}
	if evidence == nil {
		return nil
	}
	return &Violation{property, evidence}
}
