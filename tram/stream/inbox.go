package stream

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// inbox is one ring, as its reader sees it.
type inbox struct {
	writer order.ServerID
	// memory is nil if no ring is attached.
	memory Memory
	life   Life
	// seen and released count the bytes that were read and released since the beginning of the
	// ring's life.
	seen, released uint64
	// held is the size in bytes of the writer's records, of this life and earlier ones, whose
	// entries are kept. Only a witnessed stream counts it.
	held uint64
	// broken is the error in the ring. A broken ring is not read any more.
	broken error
	// told is the last feedback to the writer. fresh reports that the writer got none in this life.
	told  Feedback
	fresh bool
}

// begin starts a life of the ring. It clears the memory.
func (b *inbox) begin(life Life, memory Memory) {
	*b = inbox{writer: b.writer, memory: memory, life: life, fresh: true}
	clear(memory.Bytes())
}

// next returns the next unread record, of size 0 if there is none.
func (b *inbox) next(entryMax int) record {
	// A writer leaves a word free. In a completely full ring, the next record would be the oldest
	// one.
	if b.memory == nil || b.broken != nil || b.seen-b.released >= uint64(b.memory.Size()) {
		return record{}
	}
	r := b.at(b.seen, entryMax)
	b.seen += uint64(r.size)
	return r
}

// at reads the record at a place. An error ends the ring.
func (b *inbox) at(place uint64, entryMax int) record {
	r, err := recordAt(b.memory, int(place%uint64(b.memory.Size())), entryMax)
	if err != nil {
		b.broken = err
		return record{}
	}
	return r
}

// release clears and releases the records that were read and whose entries the log has durably, up
// to the first record that the log lacks.
func (b *inbox) release(durable uint64, entryMax int) {
	for b.memory != nil && b.broken == nil && b.released < b.seen {
		r := b.at(b.released, entryMax)
		if r.size == 0 || r.number > durable {
			return
		}
		if uint64(r.size) > b.seen-b.released {
			b.broken = fmt.Errorf("%w: a record of %d bytes, which were %d as it was read",
				ErrRecord, r.size, b.seen-b.released)
			return
		}
		offset := int(b.released % uint64(b.memory.Size()))
		clear(b.memory.Bytes()[offset : offset+r.size])
		b.released += uint64(r.size)
	}
}
