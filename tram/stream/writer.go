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
	// Number is the first entry that the write holds, and Entries is how many it holds; they have
	// consecutive numbers. Entries is 0 if the write only sends the reader to the ring's beginning.
	Number  uint64
	Entries int
	// Offset is the offset in the ring, in bytes.
	Offset int
	// Bytes belong to the writer. They do not change until the write's completion was reported.
	Bytes []byte
}

// runMax is the size in bytes above which an entry gets a write of its own instead of extending the
// one before.
const runMax = 64 << 10

// helpFor is for how many times its patience a writer of a witnessed stream that took over writes
// every entry at once. All that act at once are needed there. If one of them crashed or lies,
// others would else have to take over for each entry.
const helpFor = 64

// Writer is the stream at a member of the parent. It is not safe for concurrent use.
type Writer struct {
	config Config
	seat   seat
	now    uint64
	// position is the last number that the child's log has durably, as far as this member was told.
	// placed reports that it is known.
	position uint64
	placed   bool
	// known is the last entry offered. freed is the last entry that is no longer in memory.
	freed, known uint64
	// entries holds the entries in memory, at their number modulo its length.
	entries []entry
	// arena holds the records, one after the other, as a ring. head and tail count bytes since the
	// beginning.
	arena      []byte
	head, tail uint64
	// offered is the size of all records that were offered. passed is the part of it up to
	// position.
	offered, passed uint64
	// since is when the position last moved, or when the first entry beyond it arrived. This member
	// writes entries up to spread to all carriers: it took over.
	since, spread uint64
	// helps is the instant until which this member of a witnessed stream writes every entry at
	// once: it took over lately.
	helps   uint64
	outlets []*outlet // by ascending carrier
	writes  []Write
	// positions is what agree sorts.
	positions []uint64
}

// entry is an entry in memory.
type entry struct {
	record []byte
	// at is the offset of the record in the arena.
	at int
	// stop is the arena's head after the record. sum is the size of all records that were offered,
	// up to and including this one.
	stop, sum uint64
	flying    int // writes that read the record
}

// NewWriter returns a member's writer with nothing offered. The child's position is unknown, so it
// is 0. It returns ErrConfig with the reason.
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

// seatAll finds the seats of all members and keeps an outlet for each carrier.
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
		o.cursor = 0 // the members that act at once may have changed
	}
	w.sweep()
}

// sweep drops the outlets of departed carriers once no write to them is under way.
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

// outlet returns a carrier's outlet, nil if it has none.
func (w *Writer) outlet(carrier order.ServerID) *outlet {
	at, exact := w.find(carrier)
	if !exact {
		return nil
	}
	return w.outlets[at]
}

// SetMembers changes the members of both groups. It detaches departed carriers; attach the new
// ones. What departed carriers reported does not count any more. On ErrConfig, which states the
// reason, nothing changes.
func (w *Writer) SetMembers(writers, carriers []order.ServerID) error {
	if err := checkMembers(writers, carriers); err != nil {
		return err
	}
	w.config.Writers, w.config.Carriers = slices.Clone(writers), slices.Clone(carriers)
	w.seatAll()
	w.agree()
	return nil
}

// Attach declares that a carrier's ring can be written from its beginning: it is all zero, has this
// life, and its reader reads it. position is the last number that the carrier reported to have
// durably, 0 if it reported none. What was attached before is forgotten. Attach returns ErrMember
// unless carrier is a carrier.
func (w *Writer) Attach(carrier order.ServerID, life Life, position uint64) error {
	o := w.outlet(carrier)
	if o == nil || !o.seat.taken() {
		return fmt.Errorf("%w: carrier %d", ErrMember, carrier)
	}
	o.begin(life)
	w.told(o, position)
	return nil
}

// Detach declares that a carrier's ring cannot be written any more. Writes under way still have to
// be reported as they complete.
func (w *Writer) Detach(carrier order.ServerID) {
	if o := w.outlet(carrier); o != nil {
		o.attached = false
	}
}

// Attached reports whether a carrier's ring can be written.
func (w *Writer) Attached(carrier order.ServerID) bool {
	o := w.outlet(carrier)
	return o != nil && o.attached
}

// Completed declares that the oldest write under way to a carrier completed, with or without an
// error. After an error, call Detach too.
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

// Feedback takes in a carrier's feedback. Feedback that is late, repeated or of an earlier life is
// harmless.
func (w *Writer) Feedback(carrier order.ServerID, f Feedback) {
	if o := w.outlet(carrier); o != nil {
		o.release(f)
		w.told(o, f.Position)
	}
}

// Ordered declares that a carrier reported to have the stream durably up to a number.
func (w *Writer) Ordered(carrier order.ServerID, position uint64) {
	if o := w.outlet(carrier); o != nil {
		w.told(o, position)
	}
}

// told takes in a carrier's position.
func (w *Writer) told(o *outlet, position uint64) {
	o.position, o.reported = max(o.position, position), true
	if w.config.Witnessed {
		w.agree()
		return
	}
	w.placed = true
	w.advance(position)
}

// agree moves the position of a witnessed stream to the largest number that more than half of the
// carriers reported, each its own. If one were enough, a carrier that lies could make the writers
// skip what the child lacks.
func (w *Writer) agree() {
	if !w.config.Witnessed {
		return
	}
	w.positions = w.positions[:0]
	for _, o := range w.outlets {
		if o.seat.taken() && o.reported {
			w.positions = append(w.positions, o.position)
		}
	}
	most := majority(len(w.config.Carriers))
	if w.config.Fault == FaultTrustedPosition {
		most = 1
	}
	if len(w.positions) < most {
		return
	}
	slices.Sort(w.positions)
	w.placed = true
	w.advance(w.positions[len(w.positions)-most])
}

// Placed reports whether the child's position is known: a carrier reported it, or in a witnessed
// stream more than half of the carriers. Until then there is no use in offering entries.
func (w *Writer) Placed() bool { return w.placed }

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

// free releases memory in order: entries that the child has, as soon as no write reads them any
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

// entry returns the place of an entry in memory.
func (w *Writer) entry(number uint64) *entry { return &w.entries[w.place(number)] }

// Next returns the number to offer next.
func (w *Writer) Next() uint64 { return max(w.known, w.position) + 1 }

// Position returns the last number that the child's log has durably, as far as the writer knows.
func (w *Writer) Position() uint64 { return w.position }

// Offer hands over the entry with number Next, which the parent's log never takes back. It copies
// the bytes. An entry that the child already has is ignored, so a member whose log lags behind may
// still offer. Offer returns ErrFull, ErrNumber or ErrTooLarge.
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
		// The child is past what this member had. The entries between were never in memory.
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

// fit returns where a record lies in a ring of the given size of which head bytes were used since
// the beginning, and how many bytes are skipped at the ring's end for that.
func fit(head uint64, size, ring int) (offset, skip int) {
	offset = int(head % uint64(ring))
	if room := ring - offset; size > room {
		return 0, room
	}
	return offset, 0
}

// Tick sets the time, in ticks.
func (w *Writer) Tick(now uint64) {
	w.now = max(w.now, now)
	if due, waits := w.Deadline(); waits && w.now >= due && w.spread < w.known {
		w.spread = w.known
		if w.config.Witnessed && w.config.rank(w.seat, w.position+1) >= majority(w.seat.of) {
			w.helps = w.now + helpFor*w.config.Patience
		}
		for _, o := range w.outlets {
			o.cursor = 0
		}
	}
}

// Deadline returns when Tick takes over next if nothing else happens. It returns false if nothing
// waits for that.
func (w *Writer) Deadline() (tick uint64, ok bool) {
	if w.position >= w.known || w.spread >= w.known || !w.config.Fault.takesOver() ||
		!w.seat.taken() {
		return 0, false
	}
	return w.since + w.config.writerTakeover(w.seat, w.position+1), true
}

// TookOver reports whether this member now writes entries that other members should write.
func (w *Writer) TookOver() bool { return w.spread > w.position }

// Writes returns the writes to post now. Post the writes to each carrier in this order. The slice
// is valid until the next call, the bytes until each write's completion was reported.
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

// fill writes into one ring the entries that belong there and have room.
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

// mine reports whether this member writes an entry to a carrier now.
func (w *Writer) mine(o *outlet, number uint64) bool {
	return number <= w.spread || w.now < w.helps || w.config.writes(w.seat, o.seat, number)
}

// room reports whether an entry may be written into a ring. The entry must be within the places of
// its carrier, and each entry that the child lacks, up to the last one written there, must still
// fit.
//
// The bytes that count against the ring are the records and skips not yet released, and the records
// of entries between the child's position and the largest number written here that are not written
// here. They are kept at most at the ring's size less one record of the largest size. A skip may
// add less than that, once: another one comes only after it was released. So whatever is written
// next fits, and at least a word stays free, by which the reader recognises the end.
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

// extend adds an entry to the write before it, if its record follows that write both in memory and
// in the ring. Writes land from their first byte to their last, so the reader sees no difference.
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
