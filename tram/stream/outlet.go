package stream

import "github.com/ledgerd/ledgerd/order"

// outlet is one ring, as its writer sees it: what was written into it, what its reader released,
// and which writes are under way.
type outlet struct {
	carrier order.ServerID
	// seat is the carrier's seat. If the carrier has no seat any more, the outlet only waits for
	// the writes under way.
	seat seat
	// attached reports whether the ring can be written.
	attached bool
	life     Life
	// position is the last number that the carrier itself reported to have durably. reported says
	// that it reported one.
	position uint64
	reported bool
	// head and released count the bytes written and released since the beginning of the ring's
	// life.
	head, released uint64
	// cursor is a number up to which every entry that belongs into this ring was written.
	cursor uint64
	// highest is the largest number written in this life.
	highest uint64
	// ahead is the size in bytes of the records written here with numbers beyond the child's
	// position.
	ahead uint64
	// written has a bit for each entry in memory, by its number modulo Config.Entries. It is set if
	// the entry was written in this life.
	written []uint64
	// flying lists the writes that have not completed, in the order of posting, of all lives. It is
	// a ring buffer of Config.Depth runs that starts at first and holds count of them.
	flying       []run
	first, count int
}

// run is the contents of one write: entries with consecutive numbers, or none if the write sends
// the reader to the ring's beginning.
type run struct {
	number uint64
	count  int
}

func newOutlet(carrier order.ServerID, config *Config) *outlet {
	return &outlet{carrier: carrier, written: make([]uint64, (config.Entries+63)/64),
		flying: make([]run, config.Depth)}
}

func (o *outlet) wrote(place int) bool { return o.written[place/64]&(1<<(place%64)) != 0 }

func (o *outlet) setWrote(place int, wrote bool) {
	if wrote {
		o.written[place/64] |= 1 << (place % 64)
	} else {
		o.written[place/64] &^= 1 << (place % 64)
	}
}

// begin starts a life of the ring.
func (o *outlet) begin(life Life) {
	o.attached, o.life = true, life
	o.head, o.released, o.cursor, o.highest, o.ahead = 0, 0, 0, 0, 0
	clear(o.written)
}

// occupied returns how many bytes of the ring are not released.
func (o *outlet) occupied() uint64 { return o.head - o.released }

// release takes over the reader's count of released bytes if it is of this life and plausible.
func (o *outlet) release(f Feedback) {
	if !o.attached || f.Life != o.life {
		return
	}
	more := (f.Released - o.released) & (1<<releasedBits - 1)
	if more <= o.occupied() {
		o.released += more
	}
}

// post records that a write is under way.
func (o *outlet) post(r run) {
	o.flying[(o.first+o.count)%len(o.flying)] = r
	o.count++
}

// extend records that the write posted last also holds the next entry.
func (o *outlet) extend() { o.flying[(o.first+o.count-1)%len(o.flying)].count++ }

// land removes and returns the oldest write under way.
func (o *outlet) land() (r run, ok bool) {
	if o.count == 0 {
		return run{}, false
	}
	r = o.flying[o.first]
	o.first = (o.first + 1) % len(o.flying)
	o.count--
	return r, true
}
