package trains

import "fmt"

// Check returns what is wrong in the engine's state, nil for nothing. A search calls it in every
// state that it reaches. It checks what holds in each server by itself, however the others fail:
// trains come and leave in order and within bounds, and the wagons of each origin are here without
// a gap.
func (e *Engine) Check() error {
	switch {
	case e.halted != "":
		return nil
	case e.attached > e.arrived:
		return fmt.Errorf("train of round %d left, and that of round %d came last", e.attached,
			e.arrived)
	case e.waiting() > e.trains:
		return fmt.Errorf("%d trains of %d wait", e.waiting(), e.trains)
	case e.delivered > e.attached:
		return fmt.Errorf("round %d is A-delivered before the train of round %d left",
			e.delivered, e.attached+1)
	case e.arrived > e.delivered+rotationsHeld*e.trains:
		return fmt.Errorf("the train of round %d came, and round %d is A-delivered last",
			e.arrived, e.delivered)
	case !e.ring.has(e.self) || e.ring&^e.members != 0:
		return fmt.Errorf("the ring is %v, the members %v, and this is %d",
			e.ring.appendTo(nil), e.members.appendTo(nil), e.self)
	case !e.perfect && e.ring != firstServers(e.n):
		return fmt.Errorf("the ring is %v under an eventually perfect detector",
			e.ring.appendTo(nil))
	}
	return e.checkHeld()
}

// checkHeld checks the wagons that are here.
func (e *Engine) checkHeld() error {
	payloads, before := 0, e.members
	for round := e.delivered + 1; round <= e.delivered+rotationsHeld*e.trains; round++ {
		held := e.heldOf(round)
		payloads += held.payloads
		switch own := round <= e.attached && e.inEon(round); {
		case held.present.has(e.self) != own:
			return fmt.Errorf("the own wagon of round %d is here: %t, attached up to round %d",
				round, held.present.has(e.self), e.attached)
		case held.present != 0 && round > e.arrived:
			return fmt.Errorf("wagons of round %d are here, trains up to round %d", round,
				e.arrived)
		case held.present&e.members&^before != 0:
			return fmt.Errorf("wagons of %v are here for round %d and not for round %d",
				(held.present & e.members &^ before).appendTo(nil), round, round-1)
		}
		before = held.present
	}
	if payloads != e.payloads {
		return fmt.Errorf("%d payloads are here, %d are counted", payloads, e.payloads)
	}
	return nil
}
