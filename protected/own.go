package protected

import (
	"encoding/binary"
	"fmt"
)

// This file is the server's own log: reading it, writing it, and handing out its entries.

// At returns the entry of an index, if this log has it. It may not be ordered.
func (l *Log) At(index uint64) (e Entry, has bool) {
	e = l.at(index)
	return e, e.Index == index
}

// at returns the entry of an index in this server's log, or an entry without an index if the slot
// is empty. Its bytes are complete.
func (l *Log) at(index uint64) Entry {
	end := l.ring.End(index)
	log := l.held.Region
	mark := log.Load(end + logIndex)
	if mark == 0 {
		return Entry{}
	}
	return parse(log.Load(end+logTimestamp), log.Load(end+logKnown), log.Load(end+logOrigin),
		log.Load(end+logNumber), mark, l.config.EntryMax)
}

// Bytes returns the bytes of an entry, in the log.
func (l *Log) Bytes(e Entry) []byte {
	start := l.ring.End(e.Index) - logTrailer - Padded(e.Length)
	return l.held.Region.Bytes()[start : start+e.Length]
}

// put writes an entry into this server's log, its mark last. If the slot holds an entry of the
// same index, put erases its mark first.
func (l *Log) put(e Entry, bytes []byte) {
	end, log := l.ring.End(e.Index), l.held.Region
	if log.Load(end+logIndex) == e.Index && l.config.Fault != FaultOwnMarkKept {
		log.Store(end+logIndex, 0)
	}
	copy(log.Bytes()[end-logTrailer-Padded(e.Length):], bytes)
	log.Store(end+logTimestamp, uint64(e.Timestamp))
	log.Store(end+logKnown, e.known())
	log.Store(end+logOrigin, e.origin())
	log.Store(end+logNumber, e.Number)
	log.Store(end+logIndex, e.Index)
}

// scan looks for entries that the leader wrote [TRAM, Algorithm 2, step 2.6]. Each entry says up to
// where all entries were ordered when it was written. The paper's follower infers that from the
// next entry; with several entries under way it must be explicit. scan passes an entry of an
// earlier leader only once the present leader has made it its own, because it may be rewritten
// before. It reports whether there was anything new.
func (l *Log) scan() bool {
	busy := false
	for l.scanned < l.applied+uint64(l.config.Slots) {
		e := l.at(l.scanned + 1)
		if e.Index > l.scanned+1 && l.scanned == l.applied {
			l.Halt(fmt.Sprintf("it was left behind: entry %d is gone, its slot holds %d",
				l.scanned+1, e.Index))
			return true
		}
		if e.Index != l.scanned+1 || e.Timestamp != l.held.Granted.Timestamp() {
			break
		}
		l.learn(e)
		l.scanned++
		busy = true
	}
	return busy
}

// learn takes over what an entry says about other entries. It is true whichever leader wrote it,
// and whatever becomes of the entry.
func (l *Log) learn(e Entry) {
	l.horizon, l.floor = max(l.horizon, e.ordered), max(l.floor, e.taken)
}

// Apply makes the user handle ordered entries one after the other, as long as it has room. All
// servers of the group handle the same entries in the same order. Apply reports whether there were
// any. The log halts if it lacks an ordered entry.
func (l *Log) Apply() bool {
	first := l.applied
	for l.applied < l.horizon && l.user.Room() {
		e := l.at(l.applied + 1)
		if e.Index != l.applied+1 {
			if e.Index > l.applied+1 {
				l.Halt(fmt.Sprintf("it was left behind: entry %d is gone, its slot holds %d",
					l.applied+1, e.Index))
			} else {
				l.Halt(fmt.Sprintf("entry %d is ordered, and this log lacks it", l.applied+1))
			}
			return true
		}
		l.learn(e)
		l.user.Apply(e)
		l.applied++
	}
	if l.applied == first {
		return false
	}
	l.held.Region.Store(HeadTaken, l.applied)
	l.scanned = max(l.scanned, l.applied)
	return true
}

// staged holds entries in this process's own memory, from which they are written to others. The log
// itself would not do: a later leader may write it, and it disappears with the host, while a write
// may still have to read its bytes.
type staged struct {
	bytes   []byte
	indexes []uint64 // by slot: the entry that is there, 0 for none
	lent    []int    // by slot: the writes under way whose bytes lie there
}

func newStaged(ring Ring) staged {
	return staged{make([]byte, ring.Slots*ring.Slot), make([]uint64, ring.Slots),
		make([]int, ring.Slots)}
}

// Stage returns an entry of the log as it is to be written, and the counter of the writes that take
// their bytes from there. The entry has this leader's timestamp, even if this server handled it
// before it led. Only a leader stages; its entries do not change.
func (l *Log) Stage(e Entry) (entry []byte, lent *int) {
	place := l.ring.Place(e.Index)
	slot := l.staged.bytes[place*l.ring.Slot:][:l.ring.Slot]
	size := logTrailer + Padded(e.Length)
	if l.staged.indexes[place] != e.Index {
		l.staged.indexes[place] = e.Index
		end := l.ring.End(e.Index)
		copy(slot[l.ring.Slot-size:], l.held.Region.Bytes()[end-size:end])
		binary.NativeEndian.PutUint64(slot[l.ring.Slot+logTimestamp:], uint64(l.stamp))
	}
	return slot[l.ring.Slot-size:], &l.staged.lent[place]
}
