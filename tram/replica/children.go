package replica

import (
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
)

// This file describes the way down the tree: which messages are due to the children, and how the
// leader brings them there [TRAM, Algorithm 2, step 2.5, and Algorithm 5].

// child is a group below this one, and its stream: the messages that are due to it, numbered from
// 1. The numbers follow from the log, so all replicas assign the same ones, and the log need not
// carry the paper's slot_out.
type child struct {
	group     order.GroupID
	receivers []*receiver
	out       uint64 // the number of the last message that was due
	taken     uint64 // the child has ordered all up to here, as far as this replica knows
	// indexes holds the log indexes of the messages that are due and not known to be taken. The
	// first of them has the number first, which is out+1 if there are none.
	indexes []uint64
	first   uint64
}

// receiver is a replica of a child, and the way to its buffer.
type receiver struct {
	protected.Petition
	child *child
	next  uint64 // the number to write there next
	taken uint64 // the last number that the receiver has taken
}

// due assigns the next number of the child's stream to an entry. The child may already be known to
// have taken it, because a leader learns that before it knows everything that its predecessor
// ordered. Entries whose slots in this log were reused since count as taken: a slot is only reused
// after the child took its entry.
func (c *child) due(index uint64, slots int) {
	c.out++
	if c.out <= c.taken {
		c.first = c.out + 1
		return
	}
	c.indexes = append(c.indexes, index)
	for c.indexes[0]+uint64(slots) <= index {
		c.take(c.first)
	}
}

// take records that the child has ordered all up to a number. One replica of the child that took
// the message is enough: the message is in the child's log then, and the other replicas find it
// there.
func (c *child) take(number uint64) {
	c.taken = max(c.taken, number)
	for len(c.indexes) > 0 && c.first <= c.taken {
		c.indexes = c.indexes[1:]
		c.first++
	}
}

// needs reports whether the child may still have to be given an entry, or an earlier one.
func (c *child) needs(index uint64) bool { return len(c.indexes) > 0 && c.indexes[0] <= index }

// treeCatchUp prepares a new leader to hand on messages [TRAM, Algorithm 5, steps 5.2 and 5.3]. It
// gives the children again everything that is due and not known to be taken, under the same
// numbers, because it cannot know what its predecessor delivered. Entries that its log lacks
// because their slots were reused were taken.
func (r *Replica) treeCatchUp() {
	for _, c := range r.children {
		for len(c.indexes) > 0 && !r.has(c.indexes[0]) {
			c.take(c.first)
		}
		if r.options.Fault == FaultNoTreeCatchUp {
			c.take(c.out)
		}
		if len(c.indexes) > 0 {
			r.options.note("hands on to group %d again from number %d on", c.group, c.first)
		}
	}
}

// has reports whether this replica's log has the entry of an index.
func (r *Replica) has(index uint64) bool {
	_, has := r.log.At(index)
	return has
}

// handOn writes the due messages to the buffers of all replicas of all children together. It
// reports whether there was anything to do.
func (r *Replica) handOn() bool {
	busy := false
	for _, c := range r.children {
		if c.out == 0 {
			continue
		}
		for _, v := range c.receivers {
			busy = r.log.Ask(&v.Petition) || busy
			if !r.log.Leading() {
				return true
			}
			busy = r.handOnTo(v) || busy
		}
	}
	return busy
}

func (r *Replica) handOnTo(v *receiver) bool {
	c := v.child
	w := r.ways
	slots := uint64(r.options.BufferSlots)
	switch v.State {
	case protected.PetitionReads:
		if !v.Reading() && w.Room(1) {
			w.ReadWord(&v.Way, postTaken, protected.HeadTaken)
		}
		return false
	case protected.PetitionWorks:
		// Ask how far the receiver is only if that decides whether more can be written.
		pressing := v.next <= c.out && v.next > v.taken+slots/2 || len(c.indexes) > 0 &&
			r.log.End()-c.indexes[0] > uint64(r.options.LogSlots/2)
		if pressing && !v.Reading() && w.Room(1) {
			w.ReadWord(&v.Way, postTaken, protected.HeadTaken)
		}
	default:
		return false
	}
	busy := false
	v.next = max(v.next, c.first)
	for v.next <= c.out && (v.next <= v.taken+slots || r.options.Fault == FaultBufferReusedEarly) &&
		v.Flying() < 2*r.options.Window && w.Room(2) {
		e, _ := r.log.At(c.indexes[v.next-c.first])
		r.give(v, e)
		v.next++
		busy = true
	}
	return busy
}

// give posts a message for a receiver's buffer, from where its entry is staged.
func (r *Replica) give(v *receiver, e protected.Entry) {
	bytes, lent := r.log.Stage(e)
	r.ways.PostMessage(&v.Way, r.options.bufferRing(), postMessage, postEntry, v.next,
		bytes[:e.Length], lent)
}

// receiverCompleted handles the completion of a post to a receiver.
func (r *Replica) receiverCompleted(v *receiver, p protected.Post, err error) {
	if err != nil {
		r.options.note("loses process %d: %v", v.Process, err)
		v.Lose(r.ways)
		return
	}
	switch p.Kind {
	case postTaken:
		v.taken = max(v.taken, v.Word())
		v.child.take(v.taken)
		if v.State == protected.PetitionReads {
			v.State, v.next = protected.PetitionWorks, v.child.taken+1
			r.options.note("writes to process %d from number %d on", v.Process, v.next)
		}
	case postEntry:
		v.Tries = 0
	}
}
