package replica

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
)

// This file is what the group's log is used for: the leader takes messages into it [TRAM, Algorithm
// 2, steps 2.2 and 2.3], and all replicas act on its entries.

// source is where an entry of the log came from: its origin there.
type source uint32

// The sources. Client c is sourceClients+c.
const (
	sourceNone    source = iota // a no-op
	sourceParent                // the parent's buffer
	sourceClients               // the first client's buffer
)

// order takes the messages that it finds in the buffers into the log. replicate sends them to the
// members from there. order reports whether it found anything.
func (r *Replica) order() bool {
	before := r.log.End()
	for range len(r.buffers) {
		s := source(r.cursor)
		r.cursor = (r.cursor + 1) % len(r.buffers)
		b := r.buffers[s]
		if b == nil {
			continue
		}
		for r.found(s, b) {
			if !r.hasRoom() {
				r.cursor = int(s)
				break
			}
			r.propose(s, b)
		}
	}
	if r.log.End() > before {
		return true
	}
	if r.log.Unannounced() && r.hasRoom() {
		r.log.Announce()
		return true
	}
	return false
}

// found reports whether the next message of a source is there [TRAM, Algorithm 2, step 2.2].
func (r *Replica) found(s source, b *buffer) bool {
	return b.Found(b.proposed + 1)
}

// propose puts the next message of a source into the log.
func (r *Replica) propose(s source, b *buffer) {
	b.proposed++
	message := b.Message(b.proposed, r.options.messageMax())
	r.log.Append(uint32(s), b.proposed, message)
}

// hasRoom reports whether one more entry fits at the log's end, and each child has ordered what it
// was due from the entry whose slot it takes.
func (r *Replica) hasRoom() bool {
	if !r.log.Room() {
		return false
	}
	old := r.log.Reuses()
	for _, c := range r.children {
		if old > 0 && c.needs(old) {
			return false
		}
	}
	return true
}

// asUser is the replica as the user of its log.
type asUser Replica

// Apply handles an ordered entry. All replicas of the group handle them alike, so these results of
// the log are the same at all of them: which messages were taken from which buffer, which are
// delivered, and the number of each message in each child's stream.
func (u *asUser) Apply(e protected.Entry) { (*Replica)(u).applyOne(e) }

// Room reports whether the driver has taken enough of what was delivered.
func (u *asUser) Room() bool { return len(u.delivered) < u.options.LogSlots }

// Leads prepares the replica to order and to hand on. The next message of each source follows from
// the log as Apply reads it [TRAM, Algorithm 5, step 5.1].
func (u *asUser) Leads() {
	for _, b := range u.buffers {
		if b != nil {
			b.proposed = b.taken
		}
	}
	for index := u.log.Applied() + 1; index <= u.log.End(); index++ {
		e, _ := u.log.At(index)
		if b := (*Replica)(u).bufferOf(e); b != nil && b.proposed+1 == e.Number {
			b.proposed++
		}
	}
	(*Replica)(u).treeCatchUp()
}

// StepsDown ends the ways to the children's buffers.
func (u *asUser) StepsDown() {
	for _, c := range u.children {
		for _, v := range c.receivers {
			v.Retire(u.ways)
		}
	}
}

// applyOne handles an entry. An entry that is not the next of its source is a second copy, or it
// lost its predecessor with the leader that wrote it: a leader with several entries under way can
// leave such entries behind. It has no effect at any replica.
func (r *Replica) applyOne(e protected.Entry) {
	b := r.bufferOf(e)
	if b == nil || e.Number != b.taken+1 {
		return
	}
	b.taken++
	b.Take(b.taken)
	message := r.log.Bytes(e)
	destinations, payload, err := splitMessage(message)
	if err != nil {
		r.options.note("passes over entry %d: %v", e.Index, err)
		return
	}
	course := r.courses.of(destinations)
	if source(e.Origin) >= sourceClients && !course.entered ||
		!course.here && len(course.children) == 0 {
		r.options.note("passes over entry %d: groups %v have another way", e.Index, course.to)
		return
	}
	for _, place := range course.children {
		r.children[place].due(e.Index, r.options.LogSlots)
	}
	if course.here {
		if r.options.Note != nil {
			r.options.note("delivers entry %d", e.Index)
		}
		r.delivered = append(r.delivered, order.Multicast{ID: messageID(message), To: course.to,
			Payload: slices.Clone(payload)})
	}
}

// bufferOf returns the buffer that an entry's message came from, or nil for a no-op, and for a
// source that this replica does not know.
func (r *Replica) bufferOf(e protected.Entry) *buffer {
	if e.NoOp() || int(e.Origin) >= len(r.buffers) {
		return nil
	}
	return r.buffers[e.Origin]
}
