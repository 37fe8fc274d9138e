package stream

import "github.com/ledgerd/ledgerd/order"

// outlet is one ring, as its writer sees it: what was written into it, what its reader gave back,
// what is under way.
type outlet struct {
	carrier order.ServerID
	// seat is the carrier's; of one that has none any more, only what is under way is waited for.
	seat seat
	// attached tells that the ring can be written.
	attached bool
	life     Life
	// position is what the carrier itself said it has for good.
	position uint64
	// head and released count the bytes written and given back, since the beginning of the ring's
	// life.
	head, released uint64
	// cursor: of the entries up to here, all that are to be written here were.
	cursor uint64
	// highest is the largest number written in this life.
	highest uint64
	// ahead is how much the records written here take whose numbers are beyond the child's
	// position.
	ahead uint64
	// written tells of each entry in memory whether it was written in this life, by its number
	// modulo Config.Entries.
	written []uint64
	// flying lists the writes that have not completed, in the order of posting, of all lives. It is
	// a ring of Config.Depth, from first on, count of them.
	flying       []run
	first, count int
}

// run is what one write holds: entries with consecutive numbers, or none where it sends the reader
// to the ring's beginning.
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
func (o *outlet) begin(life Life, position uint64) {
	o.attached, o.life = true, life
	o.position = max(o.position, position)
	o.head, o.released, o.cursor, o.highest, o.ahead = 0, 0, 0, 0, 0
	clear(o.written)
}

// occupied is how much of the ring was not given back, in bytes.
func (o *outlet) occupied() uint64 { return o.head - o.released }

// release takes in what the reader gave back, where it is of this life and makes sense.
func (o *outlet) release(f Feedback) {
	if !o.attached || f.Life != o.life {
		return
	}
	more := (f.Released - o.released) & (1<<releasedBits - 1)
	if more <= o.occupied() {
		o.released += more
	}
}

// post notes that a write is under way.
func (o *outlet) post(r run) {
	o.flying[(o.first+o.count)%len(o.flying)] = r
	o.count++
}

// extend notes that the write posted last holds the next entry too.
func (o *outlet) extend() { o.flying[(o.first+o.count-1)%len(o.flying)].count++ }

// land takes the oldest write that is under way.
func (o *outlet) land() (r run, ok bool) {
	if o.count == 0 {
		return run{}, false
	}
	r = o.flying[o.first]
	o.first = (o.first + 1) % len(o.flying)
	o.count--
	return r, true
}
