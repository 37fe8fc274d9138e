package dare

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is recovery [Poke19, section 4.3.4]: a server that an entry of the log names reads
// another's snapshot and log, and then takes part. Nobody else has to work for it. A server that
// missed a configuration reads the same snapshots, to learn whom it should listen to.

// snapshot is what a server knows after the entry of a configuration that it applied. It publishes
// one with each such entry. Everything behind it is in the log, as long as a server recovers (G11).
type snapshot struct {
	placed
	rounds  uint64
	seated  uint64 // the seats that the last round has messages of
	numbers []uint64
}

// The words of the region of snapshots before the snapshot, as offsets.
const (
	viewLength = 0 * word
	viewSum    = 1 * word // of the bytes: a snapshot that changes while it is read is noticed
	viewHead   = 2 * word
)

const snapshotHead = 4 * 8

var sums = crc32.MakeTable(crc32.Castagnoli)

// viewSize returns the size of the region of snapshots.
func (c *Config) viewSize() int {
	return viewHead + protected.Padded(snapshotHead+8*c.Seats+configurationMax(c.Seats))
}

// publish makes the snapshot after the last applied configuration readable.
func (s *Server) publish() {
	c := &s.configs[0]
	b := make([]byte, 0, s.config.viewSize())
	for _, n := range []uint64{c.index, c.born, s.rounds, s.seated} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	for _, n := range s.numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = appendConfiguration(b, &c.Configuration)
	s.view.Store(viewLength, uint64(len(b)))
	s.view.Store(viewSum, uint64(crc32.Checksum(b, sums)))
	b = append(b, make([]byte, protected.Padded(len(b))-len(b))...)
	for at := 0; at < len(b); at += word {
		s.view.Store(viewHead+at, binary.NativeEndian.Uint64(b[at:]))
	}
}

// readSnapshot reads what publish wrote. It reports whether the snapshot is whole.
func readSnapshot(view []byte, seats int) (snap snapshot, is bool) {
	length := binary.NativeEndian.Uint64(view[viewLength:])
	if length < snapshotHead+8*uint64(seats) || length > uint64(len(view)-viewHead) {
		return snap, false
	}
	b := view[viewHead:][:length]
	if uint64(crc32.Checksum(b, sums)) != binary.NativeEndian.Uint64(view[viewSum:]) {
		return snap, false
	}
	next := func() (n uint64) {
		n, b = binary.BigEndian.Uint64(b), b[8:]
		return n
	}
	snap.index, snap.born, snap.rounds, snap.seated = next(), next(), next(), next()
	for range seats {
		snap.numbers = append(snap.numbers, next())
	}
	snap.Configuration, is = readConfiguration(b, seats)
	return snap, is
}

// source is the way to another server's snapshot.
type source struct {
	protected.Way
	wanted, reading bool
	bytes           []byte
}

const postView protected.Kind = 1

// read moves the reading of snapshots on. It reports whether there was anything to do.
func (s *Server) read() bool {
	busy := false
	for seat, src := range s.sources {
		if !s.linked(seat) || !src.wanted || src.reading || src.Awaited() {
			continue
		}
		switch {
		case !src.Attached():
			if s.ways.Now() >= src.Since {
				s.ways.Attach(&src.Way)
				busy = true
			}
		case s.ways.Room(1):
			src.reading, src.bytes = true, make([]byte, s.config.viewSize())
			s.ways.Post(&src.Way, postView, 0, nil, rdmanet.Operation{
				Kind: rdmanet.OperationRead, Bytes: src.bytes})
			busy = true
		}
	}
	return busy
}

// sourceCompleted handles the end of a read, or of the way to a snapshot.
func (s *Server) sourceCompleted(src *source, err error) {
	s.ways.Detach(&src.Way)
	src.wanted, src.reading = false, false
	if err != nil {
		src.Since = s.ways.Now() + s.ways.Patience(src.Tries)
		src.Tries++
		s.again()
		return
	}
	src.Tries = 0
	snap, is := readSnapshot(src.bytes, s.config.Seats)
	switch {
	case !is:
		s.again()
	case s.recovery != nil:
		s.restore(snap)
	case snap.newer(&s.learned) && snap.newer(&s.configs[0]):
		s.config.note("learns of configuration %d: %v", snap.index, snap.Configuration)
		s.learned = snap.placed
		s.seatAll()
	}
}

// study reads the snapshots of all others. A server does so that finds no leader: the one that the
// others follow may hold a seat for which this server knows another incarnation.
func (s *Server) study() {
	if s.config.fixed() {
		return
	}
	for seat, src := range s.sources {
		if s.linked(seat) && s.config.Fault != FaultLateNeverLearns {
			src.wanted = true
		}
	}
}

// recoveryStep is the progress of a server that recovers.
type recoveryStep uint8

const (
	recoveryChooses recoveryStep = iota // whom to read from, not before since
	recoveryViews                       // it reads a snapshot
	recoveryAttaches
	recoveryMeasures // it reads how far the other has applied
	recoveryCopies   // it reads entries
)

// recovery is a server that does not take part yet.
type recovery struct {
	step  recoveryStep
	from  int
	since time.Duration
	// next and last are entries to read, left those under way. bytes is where they lie, by slot, in
	// memory of this attempt alone: reads of an earlier one may still land in theirs.
	next, last uint64
	left       int
	bytes      []byte
}

// recover moves recovery on. It reports whether there was anything to do.
func (s *Server) recover() bool {
	r := s.recovery
	for seat := range s.links {
		if entry := s.boards.Load(seat, wordRemoved); s.linked(seat) && entry != 0 {
			s.leave(entry)
			return true
		}
	}
	switch r.step {
	case recoveryChooses:
		if s.ways.Now() < r.since {
			return false
		}
		for range s.links {
			r.from = (r.from + 1) % len(s.links)
			if s.linked(r.from) {
				r.step, s.sources[r.from].wanted = recoveryViews, true
				s.sources[r.from].Since = 0
				return true
			}
		}
	case recoveryMeasures:
		if m := s.members[r.from]; !m.Reading() && s.ways.Room(1) {
			s.ways.ReadWord(&m.Way, postMeasure, logApplied)
			return true
		}
	case recoveryCopies:
		busy := false
		for ; r.next <= r.last && s.ways.Room(1); r.next++ {
			at, size := s.layout.place(r.next)*s.layout.slot, s.layout.slot
			s.ways.Post(&s.members[r.from].Way, postCopy, r.next, nil, rdmanet.Operation{
				Kind: rdmanet.OperationRead, Offset: s.layout.header() + at,
				Bytes: r.bytes[at:][:size]})
			r.left++
			busy = true
		}
		return busy
	case recoveryViews, recoveryAttaches:
	}
	return false
}

// again begins recovery anew, with another server.
func (s *Server) again() {
	if r := s.recovery; r != nil {
		s.members[r.from].Retire(s.ways)
		*r = recovery{from: r.from, since: s.ways.Now() + s.ways.Patience(0)}
	}
}

// restore takes over a snapshot that names this server, and goes on with the log behind it.
func (s *Server) restore(snap snapshot) {
	r := s.recovery
	if snap.Seats[s.self].Peer != s.me {
		s.again()
		return
	}
	s.configs, s.rounds, s.seated = []placed{snap.placed}, snap.rounds, snap.seated
	copy(s.numbers, snap.numbers)
	s.commit, s.applied, s.sent = snap.index, snap.index, s.numbers[s.self]
	s.sought = sought{index: snap.index}
	s.held.Region.Store(logApplied, s.applied)
	s.seatAll()
	if !s.linked(r.from) {
		s.again()
		return
	}
	s.config.note("has the snapshot of %d: configuration %d, %v", r.from, snap.index,
		snap.Configuration)
	r.step = recoveryAttaches
	s.ways.Attach(&s.members[r.from].Way)
}

// recovering handles completions of a server that recovers.
func (s *Server) recovering(m *member, p protected.Post) {
	r := s.recovery
	switch p.Kind {
	case postMeasure:
		if r.last = m.Word(); r.last < s.applied {
			s.again()
			return
		}
		r.next = max(s.configs[0].Seats[s.self].From,
			r.last-min(r.last, uint64(s.layout.slots))) + 1
		r.step, r.bytes = recoveryCopies, make([]byte, s.layout.slots*s.layout.slot)
	case postCopy:
		if r.left--; r.left == 0 && r.next > r.last {
			s.recovered()
		}
	}
}

// recovered takes the entries that were read into the own log: those that some server may need
// from this one when it leads, and those that it has not applied itself. From here on the server
// takes part. It gives its log to the leader that asks for it, which is its vote for it.
func (s *Server) recovered() {
	r := s.recovery
	first := r.last + 1
	for first > 1 {
		end := (s.layout.place(first-1) + 1) * s.layout.slot
		slot := r.bytes[end-s.layout.slot:][:s.layout.slot]
		if binary.NativeEndian.Uint64(slot[s.layout.slot+entryIndex:]) != first-1 {
			break
		}
		if first--; r.last-first+1 == uint64(s.layout.slots) {
			break
		}
	}
	if first > s.applied {
		s.halt(fmt.Sprintf("entry %d was pruned while this server recovered", s.applied))
		return
	}
	log := s.held.Region
	for index := first; index <= r.last; index++ {
		at := s.layout.place(index) * s.layout.slot
		end, slot := s.layout.end(index), r.bytes[at:][:s.layout.slot]
		copy(log.Bytes()[end-s.layout.slot:end-entryTrailer], slot)
		for offset := -entryTrailer; offset < 0; offset += word {
			log.Store(end+offset, binary.NativeEndian.Uint64(slot[s.layout.slot+offset:]))
		}
	}
	log.Store(logTail, r.last)
	s.commit = r.last
	s.members[r.from].Retire(s.ways)
	s.recovery = nil
	s.joined, s.from = s.config.FirstRound+order.Round(s.rounds), r.from
	s.deadline = s.ways.Now() + s.timeout + s.wait()
	s.config.note("recovered, with entries %d to %d", first, r.last)
	s.publish()
}

// Recovering reports whether the server does not take part yet: no entry names it, or it has not
// read what it needs.
func (s *Server) Recovering() bool { return s.recovery != nil }

// Recovered says where a server that joined begins, once it does: it A-delivers the given round
// and those after it. What the application made of earlier rounds is its user's matter. The user
// of the given server was handed all of them by then, so a copy of its state is recent enough: the
// new server's user takes one over, and then leaves out the rounds that are in it already.
func (s *Server) Recovered() (first order.Round, from order.ServerID, has bool) {
	return s.joined, order.ServerID(max(s.from, 0)), s.from != none
}
