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

// Report is feedback for a writer.
type Report struct {
	Writer   order.ServerID
	Feedback Feedback
}

// Carrier is the stream at a member of the child. It is not for several goroutines at once.
type Carrier struct {
	config  Config
	seat    seat
	now     uint64
	inboxes []*inbox // by ascending writer
	// slots holds what was received and the log has not for good, by number modulo their count.
	slots []slot
	// ordered is the last number that the log has, durable the last one that it has for good,
	// proposed the last one that this member has proposed.
	ordered, durable, proposed uint64
	// since is when the log last took an entry, or the one that is next came here. Entries up to
	// spread are proposed although others were to: this member took over.
	since, spread uint64
	reports       []Report
	proposals     []Entry
}

// slot is an entry that was received; number is 0 where there is none.
type slot struct {
	number  uint64
	payload []byte
	// writer tells in whose ring the payload lies, where copied does not say that it lies in none.
	writer order.ServerID
	copied bool
}

// NewCarrier makes a member's carrier, for a log that has the stream up to ordered, and up to
// durable for good. ErrConfig with the reason.
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
			proposed: ordered},
		nil
}

func (c *Carrier) find(writer order.ServerID) (int, bool) {
	return slices.BinarySearchFunc(c.inboxes, writer, func(b *inbox, writer order.ServerID) int {
		return cmp.Compare(b.writer, writer)
	})
}

// SetMembers changes who the members are. The rings of writers that are none any more stay and are
// read, until they are detached. ErrConfig with the reason, and nothing changed.
func (c *Carrier) SetMembers(writers, carriers []order.ServerID) error {
	if err := checkMembers(writers, carriers); err != nil {
		return err
	}
	c.config.Writers, c.config.Carriers = slices.Clone(writers), slices.Clone(carriers)
	c.seat = seatOf(carriers, c.config.Self)
	return nil
}

// Attach begins to read a writer's ring, in memory that nobody can write now, which it clears.
// Grant it to the writer after that. A ring of the same writer is detached first. ErrConfig where
// the memory is not of Config.RingSize.
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
	return nil
}

// Detach stops reading a writer's ring, after a last look, whose memory is not touched any more
// once it returns. Revoke the writer's permission before. What the log does not have for good is
// copied. A writer that crashed need not be detached: what it wrote serves all the same.
func (c *Carrier) Detach(writer order.ServerID) {
	at, exact := c.find(writer)
	if !exact {
		return
	}
	c.read(c.inboxes[at])
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

// Broken gives the writers whose rings hold what no writer writes, with what it is, ascending. Such
// a ring is not read any more. Revoke and detach it.
func (c *Carrier) Broken() (writers []order.ServerID, reasons []error) {
	for _, b := range c.inboxes {
		if b.broken != nil {
			writers, reasons = append(writers, b.writer), append(reasons, b.broken)
		}
	}
	return writers, reasons
}

// Poll looks into the rings. It tells whether there was anything.
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
		news = true
		if r.number > c.durable && !c.receive(b, r) {
			return news
		}
	}
}

// receive keeps an entry where it came first. It tells whether the ring goes on.
func (c *Carrier) receive(b *inbox, r record) bool {
	if r.number > c.durable+uint64(len(c.slots)) {
		b.broken = fmt.Errorf("%w: entry %d, where %d to %d have their places", ErrRecord, r.number,
			c.durable+1, c.durable+uint64(len(c.slots)))
		return false
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

// holds tells whether an entry beyond durable is here.
func (c *Carrier) holds(number uint64) bool { return c.slot(number).number == number }

// Advance says how far the log has the stream: up to ordered, and for good, whatever crashes, up to
// durable, which writers are told and which never goes back. Ordered goes back where the log does.
func (c *Carrier) Advance(ordered, durable uint64) {
	durable = max(durable, c.durable)
	ordered = max(ordered, durable)
	if ordered < c.ordered {
		c.proposed = ordered
	}
	if ordered != c.ordered {
		c.ordered, c.since = ordered, c.now
		c.proposed = max(c.proposed, ordered)
	}
	if durable == c.durable {
		return
	}
	if durable-c.durable >= uint64(len(c.slots)) {
		clear(c.slots)
	} else {
		for number := c.durable + 1; number <= durable; number++ {
			*c.slot(number) = slot{}
		}
	}
	c.durable = durable
	for _, b := range c.inboxes {
		c.read(b)
		b.release(durable, c.config.EntryMax)
	}
}

// Ordered is the last number that the log has, as Advance said.
func (c *Carrier) Ordered() uint64 { return c.ordered }

// Tick says what time it is, in ticks.
func (c *Carrier) Tick(now uint64) {
	c.now = max(c.now, now)
	due, waits := c.Deadline()
	if !waits || c.now < due {
		return
	}
	// What was proposed got lost, or nobody proposes it: all that is in a row here is proposed,
	// again if need be.
	c.proposed, c.since = c.ordered, c.now
	last := c.ordered
	for last < c.durable+uint64(len(c.slots)) && c.holds(last+1) {
		last++
	}
	c.spread = max(c.spread, last)
}

// Deadline is when Tick takes over next, if nothing else happens; false where nothing waits for
// that.
func (c *Carrier) Deadline() (tick uint64, ok bool) {
	if !c.seat.taken() || !c.config.Fault.takesOver() || !c.holds(c.ordered+1) {
		return 0, false
	}
	return c.since + c.config.takeover(c.seat, c.ordered+1), true
}

// TookOver tells whether this member proposes entries now that others were to propose.
func (c *Carrier) TookOver() bool { return c.spread > c.ordered }

// mine tells whether an entry is here, and this member proposes it now.
func (c *Carrier) mine(number uint64) bool {
	return number <= c.durable+uint64(len(c.slots)) && c.holds(number) &&
		(number <= c.spread || c.config.eager(c.seat, number))
}

// Pending tells whether there is anything to propose.
func (c *Carrier) Pending() bool { return c.seat.taken() && c.mine(c.proposed+1) }

// Propose gives the entries that go into this member's next proposal to the log, in order, of up to
// so many bytes in all. An entry of Config.EntryMax bytes needs as much room, or waits for ever.
// They count as proposed: if the log does not take them, they come again after a while. Payloads
// are parts of rings, valid until the next call of any method; whoever proposes copies them. So is
// the slice.
func (c *Carrier) Propose(bytes int) []Entry {
	c.proposals = c.proposals[:0]
	for c.Pending() {
		s := c.slot(c.proposed + 1)
		if bytes -= len(s.payload); bytes < 0 {
			break
		}
		c.proposed++
		c.proposals = append(c.proposals, Entry{Number: s.number, Payload: s.payload})
	}
	return c.proposals
}

// Reports gives the feedback that is new for each writer whose ring is attached. The slice is valid
// until the next call. What got lost on its way is told with Report.
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

// Report gives the feedback for one writer, as it is now. ErrMember where no ring of it is
// attached.
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
