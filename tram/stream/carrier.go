package stream

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Entry is an entry of the stream.
type Entry struct {
	Number  uint64
	Payload []byte
}

// Report is feedback for one writer.
type Report struct {
	Writer   order.ServerID
	Feedback Feedback
}

// Carrier is the stream at a member of the child. It is not safe for concurrent use.
type Carrier struct {
	config  Config
	seat    seat
	now     uint64
	inboxes []*inbox // by ascending writer
	// slots holds the entries that were received and that the log does not have durably yet, at
	// their number modulo the number of slots.
	slots []slot
	// ordered is the last number that the log has. durable is the last number that the log has
	// durably. proposed is the last number that this member proposed.
	ordered, durable, proposed uint64
	// vouched is the last number that the last call of Vouch returned. cut reports that its limit
	// kept out entries, and that the log took none since.
	vouched uint64
	cut     bool
	// since is when the log last took an entry, or when the next entry counted here. This member
	// proposes entries up to spread even if other members should: it took over.
	since, spread uint64
	// repeats counts how often this member proposed again since then.
	repeats   uint
	reports   []Report
	proposals []Entry
	vouches   []Entry
	// lies are the lies since the last call of Lies, ascending by writer. toldLies is what it
	// returned.
	lies, toldLies []Lie
}

// repeatsSoon is how many times a carrier of a witnessed stream that proposes at once does so again
// before its patience is over: after a quarter of it, and then a half. Its first proposal is lost
// if the entry does not count at enough carriers yet, as it soon will.
const repeatsSoon = 2

// repeatBytes bounds what a proposal of a witnessed stream repeats.
const repeatBytes = 16 << 10

// slot is an entry that was received. number is 0 if the slot is empty.
type slot struct {
	number uint64
	// payload is the entry. In a witnessed stream it is the variant that counts, and belongs to the
	// carrier. It is valid there only if believed is set.
	payload  []byte
	believed bool
	// variants are what writers of a witnessed stream wrote as this entry, each different.
	variants []variant
	// writer is the member whose ring holds the payload, unless copied is set. A copied payload
	// lies in no ring. A witnessed stream does not use these.
	writer order.ServerID
	copied bool
}

// NewCarrier returns a member's carrier for a log that has the stream up to ordered, and durably up
// to durable. It returns ErrConfig with the reason.
func NewCarrier(config Config, ordered, durable uint64) (*Carrier, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	if durable > ordered {
		return nil, fmt.Errorf("%w: the log has entry %d for good and ends with %d", ErrConfig,
			durable, ordered)
	}
	config.Writers, config.Carriers = slices.Clone(config.Writers), slices.Clone(config.Carriers)
	return &Carrier{config: config, seat: seatOf(config.Carriers, config.Self),
			slots: make([]slot, config.Entries), ordered: ordered, durable: durable,
			proposed: ordered, vouched: ordered},
		nil
}

func (c *Carrier) find(writer order.ServerID) (int, bool) {
	return slices.BinarySearchFunc(c.inboxes, writer, func(b *inbox, writer order.ServerID) int {
		return cmp.Compare(b.writer, writer)
	})
}

// SetMembers changes the members of both groups. The rings of departed writers stay and are read
// until they are detached. In a witnessed stream, what departed writers wrote does not count. On
// ErrConfig, which states the reason, nothing changes.
func (c *Carrier) SetMembers(writers, carriers []order.ServerID) error {
	if err := checkMembers(writers, carriers); err != nil {
		return err
	}
	c.config.Writers, c.config.Carriers = slices.Clone(writers), slices.Clone(carriers)
	c.seat = seatOf(carriers, c.config.Self)
	if c.config.Witnessed {
		c.recount()
	}
	return nil
}

// Attach starts to read a writer's ring. The memory must not be writable by any member yet. Attach
// clears it; grant it to the writer after that. An attached ring of the same writer is detached
// first. Attach returns ErrConfig if the size of the memory is not Config.RingSize.
func (c *Carrier) Attach(writer order.ServerID, life Life, memory Memory) error {
	if memory.Size() != c.config.RingSize {
		return fmt.Errorf("%w: a ring of %d bytes, want %d", ErrConfig, memory.Size(),
			c.config.RingSize)
	}
	c.Detach(writer)
	at, exact := c.find(writer)
	if !exact {
		c.inboxes = slices.Insert(c.inboxes, at, &inbox{writer: writer})
	}
	c.inboxes[at].begin(life, memory)
	c.inboxes[at].held = c.held(writer)
	return nil
}

// Detach reads a writer's ring a last time and then stops reading it. It copies the entries that
// the log does not have durably. The carrier does not touch the memory after Detach returns. Revoke
// the writer's permission first. A crashed writer need not be detached: what it wrote remains
// useful. A witnessed stream forgets what a writer wrote that is no longer one of Config.Writers.
func (c *Carrier) Detach(writer order.ServerID) {
	at, exact := c.find(writer)
	if !exact {
		return
	}
	c.read(c.inboxes[at])
	if c.config.Witnessed {
		c.inboxes = slices.Delete(c.inboxes, at, at+1)
		c.detached(writer)
		return
	}
	for i := range c.slots {
		s := &c.slots[i]
		switch {
		case s.number == 0 || s.copied || s.writer != writer:
		case c.config.Fault == FaultForgottenRing:
			*s = slot{}
		default:
			s.payload, s.copied = slices.Clone(s.payload), true
		}
	}
	c.inboxes = slices.Delete(c.inboxes, at, at+1)
}

// Broken returns the writers whose rings hold data that no writer writes, ascending, and for each
// the reason. Such a ring is not read any more. Revoke and detach it.
func (c *Carrier) Broken() (writers []order.ServerID, reasons []error) {
	for _, b := range c.inboxes {
		if b.broken != nil {
			writers, reasons = append(writers, b.writer), append(reasons, b.broken)
		}
	}
	return writers, reasons
}

// Poll reads the rings. It reports whether there was anything new.
func (c *Carrier) Poll() bool {
	news := false
	for _, b := range c.inboxes {
		if c.read(b) {
			news = true
			b.release(c.durable, c.config.EntryMax)
		}
	}
	return news
}

// read takes a ring's new records.
func (c *Carrier) read(b *inbox) bool {
	news := false
	for {
		r := b.next(c.config.EntryMax)
		if r.size == 0 {
			return news
		}
		if c.config.Witnessed && !c.affords(b, r) {
			b.seen -= uint64(r.size)
			return news
		}
		news = true
		if r.number > c.durable && !c.receive(b, r) {
			return news
		}
	}
}

// receive keeps an entry unless it is already here. It reports whether the ring may be read
// further.
func (c *Carrier) receive(b *inbox, r record) bool {
	if r.number > c.durable+uint64(len(c.slots)) {
		b.broken = fmt.Errorf("%w: entry %d, where %d to %d have their places", ErrRecord, r.number,
			c.durable+1, c.durable+uint64(len(c.slots)))
		return false
	}
	if c.config.Witnessed {
		c.witness(b, r)
		return true
	}
	s := c.slot(r.number)
	if s.number == r.number {
		return true
	}
	*s = slot{number: r.number, payload: r.entry, writer: b.writer}
	if r.number == c.ordered+1 {
		c.since = c.now
	}
	return true
}

func (c *Carrier) slot(number uint64) *slot { return &c.slots[number%uint64(len(c.slots))] }

// holds reports whether an entry beyond durable is here, and counts.
func (c *Carrier) holds(number uint64) bool {
	s := c.slot(number)
	return s.number == number && (s.believed || !c.config.Witnessed)
}

// Advance sets how far the log has the stream: up to ordered, and up to durable whatever crashes.
// Writers are told durable, which never goes back. ordered goes back if the log does.
func (c *Carrier) Advance(ordered, durable uint64) {
	durable = max(durable, c.durable)
	ordered = max(ordered, durable)
	if ordered < c.ordered {
		c.proposed, c.vouched = ordered, ordered
	}
	if ordered != c.ordered {
		c.ordered, c.since, c.repeats = ordered, c.now, 0
		c.proposed, c.vouched, c.cut = max(c.proposed, ordered), max(c.vouched, ordered), false
	}
	if durable == c.durable {
		return
	}
	if durable-c.durable >= uint64(len(c.slots)) {
		clear(c.slots)
		for _, b := range c.inboxes {
			b.held = 0
		}
	} else {
		for number := c.durable + 1; number <= durable; number++ {
			c.empty(c.slot(number))
		}
	}
	c.durable = durable
	for _, b := range c.inboxes {
		c.read(b)
		b.release(durable, c.config.EntryMax)
	}
}

// Ordered returns the last number that the log has, as set by Advance.
func (c *Carrier) Ordered() uint64 { return c.ordered }

// Tick sets the time, in ticks.
func (c *Carrier) Tick(now uint64) {
	c.now = max(c.now, now)
	due, waits := c.Deadline()
	if !waits || c.now < due {
		return
	}
	// The proposals were lost, or no member proposes these entries. Propose all entries that are
	// here in a row, again if necessary.
	c.proposed, c.since = c.ordered, c.now
	c.vouched, c.cut, c.repeats = c.ordered, false, c.repeats+1
	last := c.ordered
	for last < c.durable+uint64(len(c.slots)) && c.holds(last+1) {
		last++
	}
	c.spread = max(c.spread, last)
}

// Deadline returns when Tick takes over next if nothing else happens. It returns false if nothing
// waits for that.
func (c *Carrier) Deadline() (tick uint64, ok bool) {
	if !c.seat.taken() || !c.config.Fault.takesOver() || !c.holds(c.ordered+1) {
		return 0, false
	}
	patience := c.config.takeover(c.seat, c.ordered+1)
	if c.config.Witnessed && c.config.eager(c.seat, c.ordered+1) {
		patience = max(1, patience>>(repeatsSoon-min(repeatsSoon, c.repeats)))
	}
	return c.since + patience, true
}

// TookOver reports whether this member now proposes entries that other members should propose.
func (c *Carrier) TookOver() bool { return c.spread > c.ordered }

// mine reports whether an entry is here and this member proposes it now.
func (c *Carrier) mine(number uint64) bool {
	return number <= c.durable+uint64(len(c.slots)) && c.holds(number) &&
		(number <= c.spread || c.config.eager(c.seat, number))
}

// Pending reports whether there is anything to propose. See Unvouched for a witnessed stream.
func (c *Carrier) Pending() bool {
	_, ok := c.Next()
	return ok && (!c.cut || c.proposed < c.vouched)
}

// Next returns the entry that Propose returns first, given enough room and, in a witnessed stream,
// once Vouch has returned it. It returns false if there is none. The payload is valid until the
// next call of any method.
func (c *Carrier) Next() (entry Entry, ok bool) {
	if !c.seat.taken() || !c.mine(c.proposed+1) {
		return Entry{}, false
	}
	s := c.slot(c.proposed + 1)
	return Entry{Number: s.number, Payload: s.payload}, true
}

// Propose returns the entries for this member's next proposal to the log, in order, with at most
// the given number of bytes in all. An entry of Config.EntryMax bytes needs that much room, or it
// waits forever. The entries count as proposed. If the log does not take them, Propose returns them
// again after a while. The payloads are parts of rings: they and the slice are valid until the next
// call of any method. Copy them when proposing. Call Vouch first in a witnessed stream: Propose
// returns only entries that the last call of Vouch returned.
//
// A log takes an entry of a witnessed stream only if enough members vouch for it in the same round.
// That may be a later one than the round of its first proposal. So Propose repeats the first
// entries that the log lacks, with up to repeatBytes in all.
func (c *Carrier) Propose(bytes int) []Entry {
	c.proposals = c.proposals[:0]
	if c.config.Witnessed {
		bytes -= c.repeat(min(bytes, repeatBytes))
	}
	for c.Pending() && (!c.config.Witnessed || c.proposed < c.vouched) {
		s := c.slot(c.proposed + 1)
		if bytes -= len(s.payload); bytes < 0 {
			break
		}
		c.proposed++
		c.proposals = append(c.proposals, Entry{Number: s.number, Payload: s.payload})
	}
	return c.proposals
}

// repeat proposes again the first entries that this member proposed and that the log lacks, with at
// most the given number of bytes. It returns their bytes.
func (c *Carrier) repeat(most int) (bytes int) {
	for number := c.ordered + 1; number <= min(c.proposed, c.vouched); number++ {
		if !c.mine(number) {
			continue
		}
		s := c.slot(number)
		if bytes+len(s.payload) > most {
			break
		}
		bytes += len(s.payload)
		c.proposals = append(c.proposals, Entry{Number: number, Payload: s.payload})
	}
	return bytes
}

// Reports returns the feedback that is new for each writer with an attached ring. The slice is
// valid until the next call. Use Report to repeat feedback that was lost on the way.
func (c *Carrier) Reports() []Report {
	c.reports = c.reports[:0]
	for _, b := range c.inboxes {
		f := c.feedback(b)
		if b.fresh || f != b.told {
			b.told, b.fresh = f, false
			c.reports = append(c.reports, Report{Writer: b.writer, Feedback: f})
		}
	}
	return c.reports
}

// Report returns the current feedback for one writer. It returns ErrMember if no ring of the writer
// is attached.
func (c *Carrier) Report(writer order.ServerID) (Feedback, error) {
	at, exact := c.find(writer)
	if !exact {
		return Feedback{}, fmt.Errorf("%w: writer %d has no ring", ErrMember, writer)
	}
	return c.feedback(c.inboxes[at]), nil
}

func (c *Carrier) feedback(b *inbox) Feedback {
	return Feedback{Position: c.durable, Life: b.life, Released: b.released & (1<<releasedBits - 1)}
}
