package multicast

import (
	"bytes"
	"slices"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file leaves out schedules that are equivalent to others. It applies to forms that are a
// Completer, while the clock stands still. The search of any other form is complete.
//
// A completion is handled when its operation takes place. This has no effect, because each Poll
// begins with this handling, no clock shows when it was done, and its order relative to Lead or
// Submit does not matter.
//
// An operation takes place as late as possible, in the turn of a process. In a turn, operations
// that concern the process take place. Then the process polls, submits, learns its leader or
// crashes, and its turn is over. No schedule is lost: an operation commutes with everything behind
// it in a schedule, except the events listed below. Each schedule can therefore be rearranged,
// operation by operation from the last to the first, until each operation takes place right before
// such an event, and so within a turn. All processes reach the same states as before, and A-deliver
// in the same order.
//
//   - Its owner polls or crashes: the owner then sees the operation, or it is refused. A read is
//     not seen. It comes first only if the owner's turn changes what it sees (choice.idle), or if a
//     write waits behind it.
//   - Its holder acts, and waits for its completion or for a later one: Completer.Awaits, and any
//     error. A read that is not awaited takes place together with the operation behind it (lands).
//   - Another operation on the same bytes takes place and one of the two writes, or the next
//     operation of its attachment takes place.
//
// Losses of what a crashed process sent happen at any time between two turns: a loss commutes with
// everything except the operation itself. At rest, nothing is under way. A search that leaves out
// schedules therefore reaches the same states at rest as the complete search. A property that
// package order finds broken under way stays broken, so the verdicts are also the same. The tests
// compare the two searches.

// nobody stands for no process.
const nobody = -1

// reduced lists everything that can happen next, except what is equivalent to another possibility.
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

// appendTurn appends everything that can happen in a process's turn. Operations that concern it
// take place. Then it acts or suffers a fault, and its turn is over.
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

// lands makes an attachment's first operation take place. In the holder's turn, operations that
// follow reads take place too, as long as the holder does not await these reads.
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

// readsOf lists the reads under way from a process's memory.
func (p *play) readsOf(number int) []pendingRead {
	if p.completer == nil {
		return nil // not needed
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

// disturbed reports whether some read would see something else by now.
func disturbed(reads []pendingRead) bool {
	for _, r := range reads {
		if r.way.live() != r.live || !bytes.Equal(r.way.region.bytes[r.offset:][:len(r.sees)],
			r.sees) {
			return true
		}
	}
	return false
}

// concerning lists the attachments whose next operation may take place in a process's turn.
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
	// An operation that one of these sees or overwrites comes before it or behind it, so it
	// concerns the process too.
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

// awaited reports whether an attachment's holder depends on when the next operation takes place: it
// waits for that operation, or for another that completes behind it.
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

// overlap reports whether the order of the pending operations of two attachments matters.
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
