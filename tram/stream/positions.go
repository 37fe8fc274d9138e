package stream

// HeightsMax bounds the blocks that took something from the stream and are not durable yet. Beyond
// it the newest blocks are merged, so their position is reported later.
const HeightsMax = 4096

// Positions tracks up to where the child's log has the stream through the blocks of that log: those
// that are executed, and those that it will never take back. A Carrier is advanced to the positions
// that it says. The zero value knows nothing.
type Positions struct {
	// life counts the resets.
	life uint64
	// based reports that ordered is valid. ordered is the position after the last executed block.
	based   bool
	ordered uint64
	// rising holds the executed blocks that raised the position and are not durable, ascending.
	rising []rise
	// settled is the position that is durable; it is valid if known is set.
	settled uint64
	known   bool
	durable uint64
	fault   Fault
}

// rise is the position from a height on.
type rise struct{ height, position uint64 }

// Position is the position of a stream in the child's log.
type Position struct {
	Ordered, Durable uint64
	// Known reports that the other fields are valid.
	Known bool
}

// Plant plants a bug. Only tests and simulators do.
func (p *Positions) Plant(fault Fault) { p.fault = fault }

// Applied records the position after an executed block. A height again, or a lower one, means that
// the log went back before it.
func (p *Positions) Applied(height, position uint64) {
	for len(p.rising) > 0 && p.rising[len(p.rising)-1].height >= height &&
		p.fault != FaultHeightsKept {
		p.rising = p.rising[:len(p.rising)-1]
	}
	last := len(p.rising) - 1
	before, has := p.settled, p.known
	if last >= 0 {
		before, has = p.rising[last].position, true
	}
	switch {
	case has && position == before:
	case last+1 == HeightsMax:
		p.rising[last] = rise{height, position}
	default:
		p.rising = append(p.rising, rise{height, position})
	}
	p.based, p.ordered = true, position
	p.settle()
}

// Base sets the values that the log began with in that life, unless a block was executed since.
func (p *Positions) Base(life, height, position uint64) {
	if life == p.life && !p.based {
		p.Applied(height, position)
	}
}

// DurableTo records that a height is durable.
func (p *Positions) DurableTo(height uint64) {
	p.durable = max(p.durable, height)
	p.settle()
}

// settle updates settled from the blocks that have become durable.
func (p *Positions) settle() {
	n := 0
	for n < len(p.rising) && p.rising[n].height <= p.durable {
		p.settled, p.known = p.rising[n].position, true
		n++
	}
	if n > 0 {
		p.rising = p.rising[:copy(p.rising, p.rising[n:])]
	}
}

// Reset clears everything and starts a new life.
func (p *Positions) Reset() {
	*p = Positions{life: p.life + 1, rising: p.rising[:0], fault: p.fault}
}

// Begun returns the life, and whether its base is known.
func (p *Positions) Begun() (life uint64, based bool) { return p.life, p.based }

// Position returns the position of the stream.
func (p *Positions) Position() Position {
	return Position{Ordered: max(p.ordered, p.settled), Durable: p.settled,
		Known: p.based && p.known}
}

// DurableHeight returns the height up to which the log is durable.
func (p *Positions) DurableHeight() uint64 { return p.durable }
