package replica

import (
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is the way down the tree: what is due to the children, and how the leader brings it
// there [TRAM, Algorithm 2, step 2.5, and Algorithm 5].

// child is a group below this one, and its stream: the messages that are due to it, numbered from
// 1. Every replica numbers them alike, because it follows from the log: so the log need not carry
// the paper's slot_out.
type child struct {
	group     order.GroupID
	receivers []*receiver
	out       uint64 // the number of the last that was due
	taken     uint64 // the child has ordered all up to here, as far as this replica knows
	// indexes of the entries that are due and not known to be taken, of which the first has the
	// number first; out+1 where there are none.
	indexes []uint64
	first   uint64
}

// receiver is a replica of a child, and the way to its buffer.
type receiver struct {
	petition
	child *child
	next  uint64 // the number to write there next
	taken uint64 // that replica has
}

// due numbers an entry in the child's stream. The child may be known to have taken it: a leader
// learns that before it knows all that its predecessor ordered. And what has left this log by now,
// all of the child was known to have taken.
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

// take says that the child has ordered all up to a number. One replica of the child that took it is
// enough: it is in the child's log then, and those that still lack it find it there.
func (c *child) take(number uint64) {
	c.taken = max(c.taken, number)
	for len(c.indexes) > 0 && c.first <= c.taken {
		c.indexes = c.indexes[1:]
		c.first++
	}
}

// needs tells whether the child may still have to be given an entry, or one before it.
func (c *child) needs(index uint64) bool { return len(c.indexes) > 0 && c.indexes[0] <= index }

// treeCatchUp makes a new leader ready to hand on [TRAM, Algorithm 5, steps 5.2 and 5.3]: all that
// is due to the children, and not known to be taken, it gives them again, under the same numbers.
// It cannot know what its predecessor brought there. What its own log lacks, because its
// predecessors used the slot again, was taken.
func (r *Replica) treeCatchUp() {
	for _, c := range r.children {
		for len(c.indexes) > 0 && r.at(c.indexes[0]).index != c.indexes[0] {
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

// handOn writes what is due to the children's buffers, to all replicas of all children together. It
// tells whether there was anything.
func (r *Replica) handOn() bool {
	busy := false
	for _, c := range r.children {
		if c.out == 0 {
			continue
		}
		for _, v := range c.receivers {
			busy = r.ask(&v.petition) || busy
			if r.role != leading {
				return true
			}
			busy = r.handOnTo(v) || busy
		}
	}
	return busy
}

func (r *Replica) handOnTo(v *receiver) bool {
	c := v.child
	w := r.wiring
	slots := uint64(r.options.BufferSlots)
	switch v.state {
	case petitionReads:
		if !v.reading && w.room(1) {
			w.read(&v.link, postTaken, headTaken)
		}
		return false
	case petitionWorks:
		// It is asked how far it is only where that matters.
		pressing := v.next <= c.out && v.next > v.taken+slots/2 || len(c.indexes) > 0 &&
			r.end-c.indexes[0] > uint64(r.options.LogSlots/2)
		if pressing && !v.reading && w.room(1) {
			w.read(&v.link, postTaken, headTaken)
		}
	default:
		return false
	}
	busy := false
	v.next = max(v.next, c.first)
	for v.next <= c.out && (v.next <= v.taken+slots || r.options.Fault == FaultBufferReusedEarly) &&
		v.flying < 2*r.options.Window && w.room(2) {
		r.give(v, r.at(c.indexes[v.next-c.first]))
		v.next++
		busy = true
	}
	return busy
}

// give posts a message for a receiver's buffer: from where its entry is staged, and its number
// behind it; both at once if they are short.
func (r *Replica) give(v *receiver, h header) {
	bytes, lent := r.stage(h)
	message := bytes[:h.length]
	end := r.options.bufferRing().end(v.next)
	start := end - bufferTrailer - padded(h.length)
	if size := end - start; size <= rdmanet.InlineMax {
		b := r.wiring.inline(size)
		copy(b, message)
		appendBufferTrailer(b[:padded(h.length)], h.length, v.next)
		r.wiring.post(&v.link, postEntry, v.next, nil,
			rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: start, Bytes: b, Ring: true})
		return
	}
	r.wiring.post(&v.link, postMessage, v.next, lent,
		rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: start, Bytes: message})
	b := r.wiring.inline(bufferTrailer)
	appendBufferTrailer(b[:0], h.length, v.next)
	r.wiring.post(&v.link, postEntry, v.next, nil, rdmanet.Operation{Kind: rdmanet.OperationWrite,
		Offset: end - bufferTrailer, Bytes: b, Ring: true})
}

// receiverCompleted takes the end of a post to a receiver.
func (r *Replica) receiverCompleted(v *receiver, p post, err error) {
	if err != nil {
		r.options.note("loses process %d: %v", v.process, err)
		r.lose(&v.petition)
		return
	}
	switch p.kind {
	case postTaken:
		v.reading = false
		v.taken = max(v.taken, getWord(v.word))
		v.child.take(v.taken)
		if v.state == petitionReads {
			v.state, v.next = petitionWorks, v.child.taken+1
			r.options.note("writes to process %d from number %d on", v.process, v.next)
		}
	case postEntry:
		v.tries = 0
	}
}
