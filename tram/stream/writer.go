package stream

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Write is one write into a carrier's ring.
type Write struct {
	Carrier order.ServerID
	// Entries is how many entries it holds, 0 where it only sends the reader to the ring's
	// beginning, and Number the first one's; the others follow it.
	Number  uint64
	Entries int
	// Offset is in the ring, in bytes.
	Offset int
	// Bytes are the writer's. They do not change until the write's completion was reported.
	Bytes []byte
}

// runMax is how long a write may be before the next entry gets a write of its own, in bytes.
const runMax = 64 << 10

// Writer is the stream at a member of the parent. It is not for several goroutines at once.
type Writer struct {
	config Config
	seat   seat
	now    uint64
	// position is the last number that the child's log has for good, as far as anybody said.
	position uint64
	// known is the last entry offered; freed the last one that is not in memory any more.
	freed, known uint64
	// entries holds what is in memory, by number modulo their count.
	entries []entry
	// arena holds the records, one after the other around the ring that it is; head and tail count
	// bytes since the beginning.
	arena      []byte
	head, tail uint64
	// offered is how much all records took that were offered, passed how much of that is up to
	// position.
	offered, passed uint64
	// since is when the position last moved, or the first entry beyond it came. Entries up to
	// spread are written to all carriers: this member took over.
	since, spread uint64
	outlets       []*outlet // by ascending carrier
	writes        []Write
}

// entry is an entry in memory.
type entry struct {
	record []byte
	// at is where the record lies in the arena.
	at int
	// stop is the arena's head behind it, sum how much all records took that were offered, up to
	// this one.
	stop, sum uint64
	flying    int // writes that read the record
}

// NewWriter makes a member's writer, with nothing offered, and the child's position unknown, so 0.
// ErrConfig with the reason.
func NewWriter(config Config) (*Writer, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config.Writers, config.Carriers = slices.Clone(config.Writers), slices.Clone(config.Carriers)
	w := &Writer{config: config, entries: make([]entry, config.Entries),
		arena: make([]byte, config.RingSize)}
	w.seatAll()
	return w, nil
}

// seatAll finds everybody's seats, and keeps an outlet for each carrier.
func (w *Writer) seatAll() {
	w.seat = seatOf(w.config.Writers, w.config.Self)
	for _, carrier := range w.config.Carriers {
		at, exact := w.find(carrier)
		if !exact {
			w.outlets = slices.Insert(w.outlets, at, newOutlet(carrier, &w.config))
		}
	}
	for _, o := range w.outlets {
		o.seat = seatOf(w.config.Carriers, o.carrier)
		o.attached = o.attached && o.seat.taken()
		o.cursor = 0 // who acts at once may have changed
	}
	w.sweep()
}

// sweep forgets carriers that are none any more, once nothing is under way to them.
func (w *Writer) sweep() {
	w.outlets = slices.DeleteFunc(w.outlets, func(o *outlet) bool {
		return !o.seat.taken() && o.count == 0
	})
}

func (w *Writer) find(carrier order.ServerID) (int, bool) {
	return slices.BinarySearchFunc(w.outlets, carrier, func(o *outlet, carrier order.ServerID) int {
		return cmp.Compare(o.carrier, carrier)
	})
}

// outlet finds a carrier's, nil where there is none.
func (w *Writer) outlet(carrier order.ServerID) *outlet {
	at, exact := w.find(carrier)
	if !exact {
		return nil
	}
	return w.outlets[at]
}

// SetMembers changes who the members are. Carriers that are no more are detached, those that are
// new have to be attached. ErrConfig with the reason, and nothing changed.
func (w *Writer) SetMembers(writers, carriers []order.ServerID) error {
	if err := checkMembers(writers, carriers); err != nil {
		return err
	}
	w.config.Writers, w.config.Carriers = slices.Clone(writers), slices.Clone(carriers)
	w.seatAll()
	return nil
}

// Attach says that a carrier's ring can be written from its beginning: it is all zero, of this
// life, and its reader looks at it. Position is what the carrier says it has for good, 0 where it
// said nothing yet. What was attached before is forgotten. ErrMember unless it is a carrier.
func (w *Writer) Attach(carrier order.ServerID, life Life, position uint64) error {
	o := w.outlet(carrier)
	if o == nil || !o.seat.taken() {
		return fmt.Errorf("%w: carrier %d", ErrMember, carrier)
	}
	o.begin(life, position)
	w.advance(position)
	return nil
}

// Detach says that a carrier's ring cannot be written any more. Writes under way still have to be
// reported as they complete.
func (w *Writer) Detach(carrier order.ServerID) {
	if o := w.outlet(carrier); o != nil {
		o.attached = false
	}
}

// Attached tells whether a carrier's ring can be written.
func (w *Writer) Attached(carrier order.ServerID) bool {
	o := w.outlet(carrier)
	return o != nil && o.attached
}

// Completed says that the oldest write to a carrier that is under way completed, in whatever way.
// Where it failed, Detach comes with it.
func (w *Writer) Completed(carrier order.ServerID) {
	o := w.outlet(carrier)
	if o == nil {
		return
	}
	landed, ok := o.land()
	if !ok {
		return
	}
	for i := range landed.count {
		e := w.entry(landed.number + uint64(i))
		e.flying--
		if e.flying < 0 {
			panic(fmt.Sprintf("stream: entry %d completes more often than it was written",
				landed.number+uint64(i)))
		}
	}
	if w.config.Fault == FaultEarlyReuse && o.attached {
		o.released = o.head
	}
	w.free()
	if !o.seat.taken() {
		w.sweep()
	}
}

// Feedback takes in what a carrier lets know. Feedback that is late, repeated or of an earlier life
// does no harm.
func (w *Writer) Feedback(carrier order.ServerID, f Feedback) {
	if o := w.outlet(carrier); o != nil {
		o.position = max(o.position, f.Position)
		o.release(f)
		w.advance(f.Position)
	}
}

// Ordered says that the child's log has the stream up to a number for good, by whichever way that
// is known.
func (w *Writer) Ordered(position uint64) { w.advance(position) }

// advance moves the position.
func (w *Writer) advance(position uint64) {
	if position <= w.position {
		return
	}
	for _, o := range w.outlets {
		for number := w.position + 1; number <= min(position, o.highest); number++ {
			if place := w.place(number); o.wrote(place) {
				o.ahead -= uint64(len(w.entries[place].record))
			}
		}
	}
	w.position, w.since = position, w.now
	w.passed = w.offered
	if position < w.known {
		w.passed = w.entry(position).sum
	}
	w.free()
}

// free gives memory back: entries that the child has, in order, as soon as no write reads them any
// more.
func (w *Writer) free() {
	for w.freed < min(w.known, w.position) {
		e := w.entry(w.freed + 1)
		if e.flying > 0 {
			return
		}
		w.freed++
		place := w.place(w.freed)
		for _, o := range w.outlets {
			o.setWrote(place, false)
		}
		w.tail, e.record = e.stop, nil
	}
}

func (w *Writer) place(number uint64) int { return int(number % uint64(len(w.entries))) }

// entry is one that is in memory.
func (w *Writer) entry(number uint64) *entry { return &w.entries[w.place(number)] }

// Next is the number to be offered next.
func (w *Writer) Next() uint64 { return max(w.known, w.position) + 1 }

// Position is the last number that the child's log has for good, as far as the writer knows.
func (w *Writer) Position() uint64 { return w.position }

// Offer hands over the entry of number Next, which the parent's log never takes back. Its bytes are
// copied. An entry that the child has is ignored, so a member whose log lags behind may offer all
// the same. ErrFull, ErrNumber, ErrTooLarge.
func (w *Writer) Offer(number uint64, payload []byte) error {
	if number <= w.position {
		return nil
	}
	if number != w.Next() {
		return fmt.Errorf("%w: %d, want %d", ErrNumber, number, w.Next())
	}
	if len(payload) > w.config.EntryMax {
		return fmt.Errorf("%w: %d bytes, want at most %d", ErrTooLarge, len(payload),
			w.config.EntryMax)
	}
	if number > w.known+1 {
		// The child went past what this member had. What lies between was never in memory.
		if w.freed < w.known {
			return ErrFull
		}
		w.freed, w.known = number-1, number-1
	}
	size := RecordSize(len(payload))
	offset, skip := fit(w.head, size, len(w.arena))
	if w.known-w.freed >= uint64(len(w.entries)) ||
		w.head-w.tail+uint64(skip+size) > uint64(len(w.arena)) {
		return ErrFull
	}
	if w.known == w.position {
		w.since = w.now
	}
	w.known = number
	w.head += uint64(skip + size)
	w.offered += uint64(size)
	record := w.arena[offset : offset+size : offset+size]
	putRecord(record, number, payload)
	*w.entry(number) = entry{record: record, at: offset, stop: w.head, sum: w.offered}
	return nil
}

// fit is where a record lies in a ring of that many bytes of which head were used since the
// beginning, and how much is left out at the ring's end for that.
func fit(head uint64, size, ring int) (offset, skip int) {
	offset = int(head % uint64(ring))
	if room := ring - offset; size > room {
		return 0, room
	}
	return offset, 0
}

// Tick says what time it is, in ticks.
func (w *Writer) Tick(now uint64) {
	w.now = max(w.now, now)
	if due, waits := w.Deadline(); waits && w.now >= due && w.spread < w.known {
		w.spread = w.known
		for _, o := range w.outlets {
			o.cursor = 0
		}
	}
}

// Deadline is when Tick takes over next, if nothing else happens; false where nothing waits for
// that.
func (w *Writer) Deadline() (tick uint64, ok bool) {
	if w.position >= w.known || w.spread >= w.known || !w.config.Fault.takesOver() ||
		!w.seat.taken() {
		return 0, false
	}
	return w.since + w.config.takeover(w.seat, w.position+1), true
}

// TookOver tells whether this member writes entries now that others were to write.
func (w *Writer) TookOver() bool { return w.spread > w.position }

// Writes gives what is to be written now, in this order to each carrier. The slice is valid until
// the next call; the bytes until each write's completion was reported.
func (w *Writer) Writes() []Write {
	w.writes = w.writes[:0]
	if !w.seat.taken() {
		return nil
	}
	for _, o := range w.outlets {
		if o.attached {
			w.fill(o)
		}
	}
	return w.writes
}

// fill writes into one ring what belongs there and has room.
func (w *Writer) fill(o *outlet) {
	for number := max(o.cursor, w.position) + 1; number <= w.known; number++ {
		place := w.place(number)
		if !o.wrote(place) && w.mine(o, number) {
			if !w.room(o, number) {
				return
			}
			w.write(o, number)
		}
		o.cursor = number
	}
}

// mine tells whether this member writes an entry to a carrier now.
func (w *Writer) mine(o *outlet, number uint64) bool {
	return number <= w.spread || w.config.eager(w.seat, number) && w.config.eager(o.seat, number)
}

// room tells whether an entry may be written into a ring: within what its carrier has places for,
// and so that each entry that the child lacks up to the last one written there still fits in.
//
// Of the ring's bytes, those that take part in the count are the records and skips not given back,
// and the records of entries between the child's position and the largest number written here that
// are not written here. They are kept below the ring's size less one record of the largest size. A
// skip may add less than that, once: another one comes only after it was given back. So whatever is
// written next fits, and at least a word stays free, by which the reader knows the end.
func (w *Writer) room(o *outlet, number uint64) bool {
	if o.count+2 > len(o.flying) || number > o.position+uint64(len(w.entries)) {
		return false
	}
	ring, largest := uint64(w.config.RingSize), uint64(RecordSize(w.config.EntryMax))
	if w.config.Fault == FaultGreedyRing {
		return o.occupied()+2*largest <= ring
	}
	if number <= o.highest {
		return true
	}
	unwritten := w.entry(number).sum - w.passed - o.ahead
	return o.occupied()+unwritten <= ring-largest
}

// write puts an entry into a ring.
func (w *Writer) write(o *outlet, number uint64) {
	e := w.entry(number)
	size := len(e.record)
	before := int(o.head % uint64(w.config.RingSize))
	offset, skip := fit(o.head, size, w.config.RingSize)
	if o.occupied()+uint64(skip+size) >= uint64(w.config.RingSize) && w.config.Fault == FaultNone {
		panic(fmt.Sprintf("stream: the ring of carrier %d has no room for entry %d, which was "+
			"kept for it", o.carrier, number))
	}
	if skip > 0 {
		w.writes = append(w.writes, Write{Carrier: o.carrier, Offset: before, Bytes: skipBytes})
		o.post(run{})
	}
	if !w.extend(o, e, number, offset) {
		w.writes = append(w.writes, Write{Carrier: o.carrier, Number: number, Entries: 1,
			Offset: offset, Bytes: e.record})
		o.post(run{number, 1})
	}
	e.flying++
	o.head += uint64(skip + size)
	o.highest = max(o.highest, number)
	o.ahead += uint64(size)
	o.setWrote(w.place(number), true)
}

// extend makes an entry a part of the write before it, where its record follows that one's in
// memory as in the ring. Since writes land from their first byte to their last, its reader sees no
// difference.
func (w *Writer) extend(o *outlet, e *entry, number uint64, offset int) bool {
	if len(w.writes) == 0 {
		return false
	}
	last := &w.writes[len(w.writes)-1]
	follows := last.Carrier == o.carrier && last.Entries > 0 &&
		last.Number+uint64(last.Entries) == number && last.Offset+len(last.Bytes) == offset
	if !follows || len(last.Bytes)+len(e.record) > runMax {
		return false
	}
	if before := w.entry(number - 1); before.at+len(before.record) != e.at {
		return false // the records lie around the end of the memory
	}
	stop := e.at + len(e.record)
	last.Bytes = w.arena[e.at-len(last.Bytes) : stop : stop]
	last.Entries++
	o.extend()
	return true
}
