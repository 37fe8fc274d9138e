package stream

import (
	"encoding/binary"
	"slices"
)

// AppendState appends everything that the writer's further behaviour depends on, except its
// configuration and the entries' bytes, which follow from the parent's log. Instants are relative,
// so two writers with equal states behave the same. It is for searches.
func (w *Writer) AppendState(state []byte) []byte {
	for _, number := range []uint64{w.position, w.known, w.freed, w.head % uint64(len(w.arena)),
		w.head - w.tail, w.offered - w.passed, w.spread} {
		state = binary.AppendUvarint(state, number)
	}
	state = appendWait(state, w.now, w.since, w.Deadline)
	if w.config.Witnessed {
		state = binary.AppendUvarint(appendFlags(state, w.placed), max(w.now, w.helps)-w.now)
	}
	for number := w.freed + 1; number <= w.known; number++ {
		e := w.entry(number)
		state = binary.AppendUvarint(state, uint64(len(e.record)))
		state = binary.AppendUvarint(state, uint64(e.flying))
	}
	for _, o := range w.outlets {
		state = binary.AppendUvarint(state, uint64(o.carrier))
		state = appendFlags(state, o.seat.taken(), o.attached, w.config.Witnessed && o.reported)
		for _, number := range []uint64{uint64(o.life), o.position, o.head, o.released, o.cursor,
			o.highest, o.ahead, uint64(o.count)} {
			state = binary.AppendUvarint(state, number)
		}
		for _, bits := range o.written {
			state = binary.LittleEndian.AppendUint64(state, bits)
		}
		for i := range o.count {
			r := o.flying[(o.first+i)%len(o.flying)]
			state = binary.AppendUvarint(binary.AppendUvarint(state, r.number), uint64(r.count))
		}
	}
	return state
}

// AppendState appends everything that the carrier's further behaviour depends on, except its
// configuration, the rings' memory and the entries' bytes. A witnessed stream appends the bytes
// too, since they may differ from the parent's log. Instants are relative. It is for searches.
func (c *Carrier) AppendState(state []byte) []byte {
	for _, number := range []uint64{c.ordered, c.durable, c.proposed, c.spread} {
		state = binary.AppendUvarint(state, number)
	}
	state = appendWait(state, c.now, c.since, c.Deadline)
	if c.config.Witnessed {
		state = c.appendWitnesses(state)
	}
	for number := c.durable + 1; number <= c.durable+uint64(len(c.slots)); number++ {
		s := c.slot(number)
		state = appendFlags(state, s.number == number, s.copied)
		if s.number == number {
			state = binary.AppendUvarint(state, uint64(s.writer))
		}
	}
	for _, b := range c.inboxes {
		state = binary.AppendUvarint(state, uint64(b.writer))
		state = appendFlags(state, b.broken != nil, b.fresh)
		for _, number := range []uint64{uint64(b.life), b.seen, b.released, b.told.Position,
			b.told.Released} {
			state = binary.AppendUvarint(state, number)
		}
	}
	return state
}

// appendWait appends how long the machine has waited, if it waits.
func appendWait(state []byte, now, since uint64, deadline func() (uint64, bool)) []byte {
	due, waits := deadline()
	if !waits {
		return append(state, 0)
	}
	return binary.AppendUvarint(append(state, 1), min(now, due)-min(since, now, due))
}

func appendFlags(state []byte, flags ...bool) []byte {
	var b byte
	for i, flag := range flags {
		if flag {
			b |= 1 << i
		}
	}
	return append(state, b)
}

// Clone returns an independent writer in the same state. Bytes that Writes returned before belong
// to the original. It is for searches.
func (w *Writer) Clone() *Writer {
	own := *w
	own.entries, own.arena, own.outlets, own.writes = slices.Clone(w.entries),
		slices.Clone(w.arena), nil, nil
	own.positions = nil
	for i := range own.entries {
		if e := &own.entries[i]; e.record != nil {
			stop := e.at + len(e.record)
			e.record = own.arena[e.at:stop:stop]
		}
	}
	for _, o := range w.outlets {
		clone := *o
		clone.written, clone.flying = slices.Clone(o.written), slices.Clone(o.flying)
		own.outlets = append(own.outlets, &clone)
	}
	return &own
}

// Clone returns an independent carrier in the same state, over the same rings. It is for searches,
// which restore the rings' contents.
func (c *Carrier) Clone() *Carrier {
	own := *c
	own.slots, own.inboxes, own.reports, own.proposals = slices.Clone(c.slots), nil, nil, nil
	own.vouches, own.lies, own.toldLies = nil, slices.Clone(c.lies), nil
	for i := range own.slots {
		own.slots[i].variants = cloneVariants(c.slots[i].variants)
	}
	for _, b := range c.inboxes {
		clone := *b
		own.inboxes = append(own.inboxes, &clone)
	}
	return &own
}
