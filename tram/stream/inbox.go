package stream

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// inbox is one ring, as its reader sees it.
type inbox struct {
	writer order.ServerID
	// memory is nil where no ring is attached.
	memory Memory
	life   Life
	// seen and released count the bytes that were looked at and given back, since the beginning of
	// the ring's life.
	seen, released uint64
	// broken is what is wrong with the ring; it is not read any more.
	broken error
	// told is the feedback that the writer got last, fresh whether there was none in this life.
	told  Feedback
	fresh bool
}

// begin starts a life of the ring. The memory is all zero.
func (b *inbox) begin(life Life, memory Memory) {
	*b = inbox{writer: b.writer, memory: memory, life: life, fresh: true}
	clear(memory.Bytes())
}

// next gives the next record that was not looked at, of size 0 where there is none.
func (b *inbox) next(entryMax int) record {
	// A writer leaves a word free; a ring that is full would show its oldest record here.
	if b.memory == nil || b.broken != nil || b.seen-b.released >= uint64(b.memory.Size()) {
		return record{}
	}
	r := b.at(b.seen, entryMax)
	b.seen += uint64(r.size)
	return r
}

// at reads the record at a place. What is wrong with it ends the ring.
func (b *inbox) at(place uint64, entryMax int) record {
	r, err := recordAt(b.memory, int(place%uint64(b.memory.Size())), entryMax)
	if err != nil {
		b.broken = err
		return record{}
	}
	return r
}

// release gives back, cleared, the records that were looked at whose entries the log has for good,
// up to the first that it has not.
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
