package multicast

import (
	"bytes"
	"slices"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file leaves out schedules that come to the same as others. It is for forms that are a
// Completer, while the clock stands still; the search of any other is whole.
//
// A completion is handled when its operation takes place. That changes nothing: the handling is
// what each Poll begins with, no clock tells when it was done, and whether it is before or after
// Lead or Submit matters to nobody.
//
// An operation takes place as late as it can, in somebody's turn: operations that concern a process
// take place, and then the process polls, or submits, hears who leads, or crashes, and its turn is
// over. No schedule is lost. For an operation commutes with all that comes behind it in a schedule,
// but for what follows; so each schedule can be rearranged, operation by operation from the last to
// the first, until each takes place right before such a thing, and it is in a turn then. All
// processes come to what they came to before, and A-deliver in the order in which they did.
//
//   - Its owner polls, or crashes: there it is seen, or refused. But a read is not seen; it comes
//     before only where the owner's turn changes what it sees (choice.idle), or where a write waits
//     behind it.
//   - Its holder does something, and waits for the completion, or for one that comes behind it:
//     Completer.Awaits, and any error. Of reads that nobody waits for, the next one takes place
//     together with them (lands).
//   - Another operation on the same bytes takes place, of which one writes; or the next one of its
//     attachment, which comes behind it.
//
// What the crashed sent gets lost at any time between two turns: that commutes with all but its
// taking place. At rest nothing is under way; so a search that leaves out schedules comes to the
// same states at rest as the whole one, and as what package order judges under way stays broken
// once it is, to the same verdict. The tests compare the two.

// nobody has the turn.
const nobody = -1

// reduced lists what can happen next, but for what comes to the same as something else that can
// happen.
func (p *play) reduced() []choice {
	if p.turn != nobody {
		return p.appendTurn(nil, p.turn)
	}
	all := p.appendArrivals(nil, func(l *chosenLink) bool { return l.to >= len(p.world.processes) })
	for number, process := range p.world.processes {
		if !process.crashed {
			all = p.appendTurn(all, number)
		}
	}
	return p.appendLosses(all)
}

// appendTurn appends what can happen in a process's turn: operations that concern it take place,
// and then it does something, or suffers it, and its turn is over.
func (p *play) appendTurn(all []choice, turn int) []choice {
	concerning := p.concerning(turn)
	all = p.appendSubmits(all, turn)
	before := len(all)
	all = p.appendArrivals(all, func(l *chosenLink) bool { return l.to == turn })
	lettered := len(all) > before
	all = append(all, choice{choicePoll, turn, 0, nobody, false})
	all = p.appendBlows(all, turn)
	for _, a := range concerning {
		idle := a.region.host.number == turn && p.crashes == 0 && !lettered &&
			!slices.ContainsFunc(a.pending, writes) &&
			!slices.ContainsFunc(concerning, func(other *chosenAttachment) bool {
				return overlap(a, other)
			})
		all = append(all, choice{choiceLand, a.host.number, a.number, turn, idle})
	}
	return all
}

func writes(o chosenOperation) bool { return o.Kind == rdmanet.OperationWrite }

// lands has a way's first operation take place; and, in its holder's turn, what follows reads of
// which it waits for later ones only.
func (p *play) lands(a *chosenAttachment) {
	holder := p.world.processes[a.host.number].name
	p.changes(a.host.number)
	p.changes(a.region.host.number)
	for {
		first := a.pending[0]
		goesOn := p.turn == a.host.number && !writes(first) &&
			!p.completer.Awaits(holder, first.Tag)
		a.land()
		p.complete(a.host.number)
		if !goesOn || len(a.pending) == 0 {
			return
		}
	}
}

// pendingRead is a read under way, with what it would see.
type pendingRead struct {
	way    *chosenAttachment
	offset int
	live   bool
	sees   []byte
}

// readsOf lists the reads that are under way to a process's memory.
func (p *play) readsOf(number int) []pendingRead {
	if p.completer == nil {
		return nil // nobody asks
	}
	var reads []pendingRead
	for _, h := range p.stage.hosts {
		if h == nil {
			continue
		}
		for _, a := range h.ways {
			if a.region.host.number != number {
				continue
			}
			for _, o := range a.pending {
				if !writes(o) {
					reads = append(reads, pendingRead{a, o.Offset, a.live(),
						bytes.Clone(a.region.bytes[o.Offset:][:len(o.Bytes)])})
				}
			}
		}
	}
	return reads
}

// disturbed tells whether some read would see something else by now.
func disturbed(reads []pendingRead) bool {
	for _, r := range reads {
		if r.way.live() != r.live || !bytes.Equal(r.way.region.bytes[r.offset:][:len(r.sees)],
			r.sees) {
			return true
		}
	}
	return false
}

// concerning lists the ways whose next operation may take place in a process's turn.
func (p *play) concerning(turn int) []*chosenAttachment {
	var found, others []*chosenAttachment
	for _, h := range p.stage.hosts {
		if h == nil {
			continue
		}
		for _, a := range h.ways {
			switch {
			case len(a.pending) == 0:
			case a.region.host.number == turn, a.host.number == turn && p.awaited(a):
				found = append(found, a)
			default:
				others = append(others, a)
			}
		}
	}
	// What one of these sees, or writes over, comes before it or behind it.
	for i := 0; i < len(found); i++ {
		for j := 0; j < len(others); j++ {
			if overlap(found[i], others[j]) {
				found = append(found, others[j])
				others = append(others[:j], others[j+1:]...)
				j--
			}
		}
	}
	return found
}

// awaited tells whether anything depends for a way's holder on when the next operation takes place:
// whether it waits for that one, or for another that completes behind it.
func (p *play) awaited(a *chosenAttachment) bool {
	if !a.live() || p.stage.crashed(a.region.host.number) {
		return true
	}
	holder, owner := p.world.processes[a.host.number].name, a.region.host.id
	for _, q := range a.host.queues {
		for _, e := range q.posted {
			if e.completion.Peer == owner && p.completer.Awaits(holder, e.completion.Tag) {
				return true
			}
		}
	}
	return false
}

// overlap tells whether it matters in which order what is pending on two ways takes place.
func overlap(a, b *chosenAttachment) bool {
	if a.region != b.region {
		return false
	}
	for _, x := range a.pending {
		for _, y := range b.pending {
			if (x.Kind == rdmanet.OperationWrite || y.Kind == rdmanet.OperationWrite) &&
				x.Offset < y.Offset+len(y.Bytes) && y.Offset < x.Offset+len(x.Bytes) {
				return true
			}
		}
	}
	return false
}
