package replica

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
)

// This file is the replica's own log: reading it, writing it, and acting on its entries.

// at returns the entry of an index in this replica's log, or a header without an index if the slot
// is empty. Its message is complete.
func (r *Replica) at(index uint64) header {
	end := r.ring.End(index)
	log := r.log.Region
	mark := log.Load(end + logIndex)
	if mark == 0 {
		return header{}
	}
	return parse(log.Load(end+logTimestamp), log.Load(end+logKnown), log.Load(end+logOrigin),
		log.Load(end+logNumber), mark, r.options.messageMax())
}

// message returns the bytes of an entry's message, in the log.
func (r *Replica) message(h header) []byte {
	start := r.ring.End(h.index) - logTrailer - protected.Padded(h.length)
	return r.log.Region.Bytes()[start : start+h.length]
}

// put writes an entry into this replica's log, its mark last. If the slot holds an entry of the
// same index, put erases its mark first.
func (r *Replica) put(h header, message []byte) {
	end := r.ring.End(h.index)
	if r.log.Region.Load(end+logIndex) == h.index && r.options.Fault != FaultOwnMarkKept {
		r.log.Region.Store(end+logIndex, 0)
	}
	copy(r.log.Region.Bytes()[end-logTrailer-protected.Padded(h.length):], message)
	r.log.Region.Store(end+logTimestamp, uint64(h.timestamp))
	r.log.Region.Store(end+logKnown, h.known())
	r.log.Region.Store(end+logOrigin, h.origin())
	r.log.Region.Store(end+logNumber, h.number)
	r.log.Region.Store(end+logIndex, h.index)
}

// scan looks for entries that the leader wrote [TRAM, Algorithm 2, step 2.6]. Each entry says up to
// where all entries were ordered when it was written. The paper's follower infers that from the
// next entry; with several entries under way it must be explicit. scan passes an entry of an
// earlier leader only once the present leader has made it its own, because it may be rewritten
// before. It reports whether there was anything new.
func (r *Replica) scan() bool {
	busy := false
	for r.scanned < r.applied+uint64(r.options.LogSlots) {
		h := r.at(r.scanned + 1)
		if h.index > r.scanned+1 && r.scanned == r.applied {
			r.halt(fmt.Sprintf("it was left behind: entry %d is gone, its slot holds %d",
				r.scanned+1, h.index))
			return true
		}
		if h.index != r.scanned+1 || h.timestamp != r.log.Granted.Timestamp() {
			break
		}
		r.learn(h)
		r.scanned++
		busy = true
	}
	return busy
}

// learn takes over what an entry says about other entries. It is true whichever leader wrote it,
// and whatever becomes of the entry.
func (r *Replica) learn(h header) {
	r.horizon, r.floor = max(r.horizon, h.decided), max(r.floor, h.floor)
}

// apply handles ordered entries one after the other. All replicas of the group handle them alike,
// so these results of the log are the same at all of them: which messages were taken from which
// buffer, which are delivered, and the number of each message in each child's stream. It reports
// whether there were any entries.
func (r *Replica) apply() bool {
	first := r.applied
	for r.applied < r.horizon && len(r.delivered) < r.options.LogSlots {
		h := r.at(r.applied + 1)
		if h.index != r.applied+1 {
			if h.index > r.applied+1 {
				r.halt(fmt.Sprintf("it was left behind: entry %d is gone, its slot holds %d",
					r.applied+1, h.index))
			} else {
				r.halt(fmt.Sprintf("entry %d is ordered, and this log lacks it", r.applied+1))
			}
			return true
		}
		r.learn(h)
		r.applyOne(h)
		r.applied++
	}
	if r.applied == first {
		return false
	}
	r.log.Region.Store(protected.HeadTaken, r.applied)
	r.scanned = max(r.scanned, r.applied)
	return true
}

// applyOne handles an entry. An entry that is not the next of its source is a second copy, or it
// lost its predecessor with the leader that wrote it: a leader with several entries under way can
// leave such entries behind. It has no effect at any replica.
func (r *Replica) applyOne(h header) {
	if h.source == sourceNone || int(h.source) >= len(r.buffers) || r.buffers[h.source] == nil {
		return
	}
	b := r.buffers[h.source]
	if h.number != b.taken+1 {
		return
	}
	b.taken++
	b.Take(b.taken)
	message := r.message(h)
	destinations, payload, err := splitMessage(message)
	if err != nil {
		r.options.note("passes over entry %d: %v", h.index, err)
		return
	}
	course := r.courses.of(destinations)
	if h.source >= sourceClients && !course.entered || !course.here && len(course.children) == 0 {
		r.options.note("passes over entry %d: groups %v have another way", h.index, course.to)
		return
	}
	for _, place := range course.children {
		r.children[place].due(h.index, r.options.LogSlots)
	}
	if course.here {
		if r.options.Note != nil {
			r.options.note("delivers entry %d", h.index)
		}
		r.delivered = append(r.delivered, order.Multicast{ID: messageID(message), To: course.to,
			Payload: slices.Clone(payload)})
	}
}

// staged holds entries in this process's own memory, from which they are written to others. The log
// itself would not do: a later leader may write it, and it disappears with the host, while a write
// may still have to read its bytes.
type staged struct {
	bytes   []byte
	indexes []uint64 // by slot: the entry that is there, 0 for none
	lent    []int    // by slot: the writes under way whose bytes lie there
}

func newStaged(o *Options) staged {
	return staged{make([]byte, o.LogSlots*o.logRing().Slot), make([]uint64, o.LogSlots),
		make([]int, o.LogSlots)}
}

// stage returns an entry of the log as it is to be written, and the counter of the writes that take
// their bytes from there. The entry has this leader's timestamp, even if this replica handled it
// before it led. Only a leader stages; its entries do not change.
func (r *Replica) stage(h header) (entry []byte, lent *int) {
	place := r.ring.Place(h.index)
	slot := r.staged.bytes[place*r.ring.Slot:][:r.ring.Slot]
	size := logTrailer + protected.Padded(h.length)
	if r.staged.indexes[place] != h.index {
		r.staged.indexes[place] = h.index
		end := r.ring.End(h.index)
		copy(slot[r.ring.Slot-size:], r.log.Region.Bytes()[end-size:end])
		binary.NativeEndian.PutUint64(slot[r.ring.Slot+logTimestamp:], uint64(r.stamp))
	}
	return slot[r.ring.Slot-size:], &r.staged.lent[place]
}
