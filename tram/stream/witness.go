package stream

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// variant is what some writers wrote as one entry.
type variant struct {
	// payload is a copy. A writer that lies can still change what lies in its ring.
	payload   []byte
	witnesses []witness // in the order of arrival
}

// witness is a writer that wrote an entry.
type witness struct {
	writer order.ServerID
	// lied reports that Lies has counted the writer for this entry.
	lied bool
}

// Lie is a writer that wrote other bytes for an entry than more than half of the writers, or
// different bytes for the same entry. Writers that keep to the protocol never do.
type Lie struct {
	Writer order.ServerID
	// Number is the last entry that it lied about. Entries is the number of such entries since the
	// last call of Lies, at least 1.
	Number, Entries uint64
}

// find returns the place of a writer among the witnesses.
func (s *slot) find(writer order.ServerID) (v *variant, w *witness) {
	for i := range s.variants {
		v = &s.variants[i]
		for j := range v.witnesses {
			if v.witnesses[j].writer == writer {
				return v, &v.witnesses[j]
			}
		}
	}
	return nil, nil
}

// affords reports whether a witnessed stream has memory for a record. All that the child lacks of
// what a writer wrote fits into one ring. A writer that exceeds this over several lives of its ring
// waits for the log.
func (c *Carrier) affords(b *inbox, r record) bool {
	if r.number <= c.durable || r.number > c.durable+uint64(len(c.slots)) {
		return true // nothing is kept
	}
	s := c.slot(r.number)
	if _, known := s.find(b.writer); s.number == r.number && known != nil {
		return true
	}
	return b.held+uint64(RecordSize(len(r.entry))) <= uint64(c.config.RingSize)
}

// witness takes in what a writer wrote as an entry. Only the first of its variants counts.
func (c *Carrier) witness(b *inbox, r record) {
	s := c.slot(r.number)
	if s.number != r.number {
		*s = slot{number: r.number}
	}
	if v, known := s.find(b.writer); known != nil && c.config.Fault != FaultRepeatedWitness {
		if !bytes.Equal(v.payload, r.entry) {
			c.lied(known, s.number)
		}
		return
	}
	at := slices.IndexFunc(s.variants, func(v variant) bool {
		return bytes.Equal(v.payload, r.entry)
	})
	if at < 0 {
		at = len(s.variants)
		s.variants = append(s.variants, variant{payload: bytes.Clone(r.entry)})
	}
	s.variants[at].witnesses = append(s.variants[at].witnesses, witness{writer: b.writer})
	b.held += uint64(RecordSize(len(s.variants[at].payload)))
	c.judge(s)
}

// judge decides which variant of an entry counts.
func (c *Carrier) judge(s *slot) {
	before := s.believed
	at := slices.IndexFunc(s.variants, c.convinces)
	if at < 0 {
		s.believed, s.payload = false, nil
		return
	}
	s.believed, s.payload = true, s.variants[at].payload
	if !before && s.number == c.ordered+1 {
		c.since, c.repeats = c.now, 0
	}
	for i := range s.variants {
		if i == at {
			continue
		}
		for j := range s.variants[i].witnesses {
			c.lied(&s.variants[i].witnesses[j], s.number)
		}
	}
}

// convinces reports whether enough present writers wrote a variant.
func (c *Carrier) convinces(v variant) bool {
	count := 0
	for _, w := range v.witnesses {
		if c.writes(w.writer) {
			count++
		}
	}
	if c.config.Fault == FaultFewWitnesses {
		return count > 0
	}
	return count >= majority(len(c.config.Writers))
}

// writes reports whether a process is one of the writers.
func (c *Carrier) writes(writer order.ServerID) bool {
	_, is := slices.BinarySearch(c.config.Writers, writer)
	return is
}

// lied counts a writer's lie about an entry, once. Departed writers are not counted.
func (c *Carrier) lied(w *witness, number uint64) {
	if w.lied || !c.writes(w.writer) {
		return
	}
	w.lied = true
	at, exact := slices.BinarySearchFunc(c.lies, w.writer, func(l Lie, writer order.ServerID) int {
		return cmp.Compare(l.Writer, writer)
	})
	if !exact {
		c.lies = slices.Insert(c.lies, at, Lie{Writer: w.writer})
	}
	c.lies[at].Number = number
	c.lies[at].Entries++
}

// Lies returns the writers that lied since the last call, ascending, if the stream is witnessed.
// The slice is valid until the next call.
func (c *Carrier) Lies() []Lie {
	c.lies, c.toldLies = c.toldLies[:0], c.lies
	return c.toldLies
}

// detached forgets what a writer without a ring wrote, unless it is still one of the writers.
func (c *Carrier) detached(writer order.ServerID) {
	if !c.writes(writer) || c.config.Fault == FaultForgottenRing {
		c.forget(func(w witness) bool { return w.writer == writer })
	}
}

// recount judges all entries again, for other writers. It forgets writers that are neither members
// nor have a ring. A departed writer with a ring may come back and does not write again.
func (c *Carrier) recount() {
	c.forget(func(w witness) bool {
		_, attached := c.find(w.writer)
		return !attached && !c.writes(w.writer)
	})
	c.lies = slices.DeleteFunc(c.lies, func(l Lie) bool { return !c.writes(l.Writer) })
	for i := range c.slots {
		if c.slots[i].number > 0 {
			c.judge(&c.slots[i])
		}
	}
}

// forget drops witnesses that have no ring.
func (c *Carrier) forget(which func(witness) bool) {
	for i := range c.slots {
		s := &c.slots[i]
		for j := range s.variants {
			s.variants[j].witnesses = slices.DeleteFunc(s.variants[j].witnesses, which)
		}
		s.variants = slices.DeleteFunc(s.variants, func(v variant) bool {
			return len(v.witnesses) == 0
		})
		if s.number == 0 {
			continue
		}
		if c.judge(s); len(s.variants) == 0 {
			*s = slot{}
		}
	}
}

// empty empties a slot.
func (c *Carrier) empty(s *slot) {
	for _, v := range s.variants {
		for _, w := range v.witnesses {
			if at, exact := c.find(w.writer); exact {
				c.inboxes[at].held -= uint64(RecordSize(len(v.payload)))
			}
		}
	}
	*s = slot{}
}

// held returns the size of a writer's records whose entries are kept.
func (c *Carrier) held(writer order.ServerID) (size uint64) {
	for i := range c.slots {
		if v, _ := c.slots[i].find(writer); v != nil {
			size += uint64(RecordSize(len(v.payload)))
		}
	}
	return size
}

// Vouch returns the entries of a witnessed stream that count here and that the log lacks: those
// after Ordered without gaps, at most limit. It changes nothing about which entries count as
// proposed. The payloads are not changed any more and may be kept; do not change them. The slice
// is valid until the next call. Vouch returns nothing at a member that is none of Config.Carriers,
// or if the stream is not witnessed.
func (c *Carrier) Vouch(limit int) []Entry {
	c.vouches, c.cut = c.vouches[:0], false
	last := c.ordered
	for c.vouchable(last + 1) {
		if len(c.vouches) >= limit {
			c.cut = true
			break
		}
		last++
		c.vouches = append(c.vouches, Entry{Number: last, Payload: c.slot(last).payload})
	}
	c.vouched = last
	return c.vouches
}

// vouchable reports whether this member can vouch for an entry.
func (c *Carrier) vouchable(number uint64) bool {
	return c.config.Witnessed && c.seat.taken() && number <= c.durable+uint64(len(c.slots)) &&
		c.holds(number)
}

// Unvouched reports whether Vouch returns entries that its last call did not return. Entries that
// its limit kept out do not count until the log takes others. If the log takes nothing for this
// member's patience (Tick), all entries count again.
func (c *Carrier) Unvouched() bool { return !c.cut && c.vouchable(max(c.vouched, c.ordered)+1) }

// appendWitnesses appends what writers of a witnessed stream wrote.
func (c *Carrier) appendWitnesses(state []byte) []byte {
	state = binary.AppendUvarint(appendFlags(state, c.cut), c.vouched)
	state = binary.AppendUvarint(state, uint64(min(repeatsSoon, c.repeats)))
	for number := c.durable + 1; number <= c.durable+uint64(len(c.slots)); number++ {
		s := c.slot(number)
		state = binary.AppendUvarint(appendFlags(state, s.believed), uint64(len(s.variants)))
		for _, v := range s.variants {
			state = append(binary.AppendUvarint(state, uint64(len(v.payload))), v.payload...)
			state = binary.AppendUvarint(state, uint64(len(v.witnesses)))
			for _, w := range v.witnesses {
				state = appendFlags(binary.AppendUvarint(state, uint64(w.writer)), w.lied)
			}
		}
	}
	state = binary.AppendUvarint(state, uint64(len(c.lies)))
	for _, l := range c.lies {
		state = binary.AppendUvarint(state, uint64(l.Writer))
		state = binary.AppendUvarint(binary.AppendUvarint(state, l.Number), l.Entries)
	}
	return state
}

func cloneVariants(variants []variant) []variant {
	clones := slices.Clone(variants)
	for i := range clones {
		clones[i].witnesses = slices.Clone(clones[i].witnesses)
	}
	return clones
}
