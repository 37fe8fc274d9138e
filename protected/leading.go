package protected

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is the leader's normal case: it orders entries [TRAM, Algorithm 2, steps 2.2 and 2.3].

// member is a server of the group, and the way to its log.
type member struct {
	Petition
	server   order.ServerID
	excluded bool

	// The fields down to taken are in use while this server leads, or tries to.
	next  uint64 // the entry to write there next
	acked uint64 // all up to here is there, under this server's timestamp
	taken uint64 // the member took at least all up to here

	// The following fields describe what the member's log held when it was read: Algorithm 4, step
	// 4.1.
	held    []Entry // ascending; the entries that are there and were not rewritten
	from    uint64  // the first index that was read
	reached uint64  // the next index to read
	empty   int     // how many in a row were empty
	waits   int     // reads of the present batch under way
	batch   []byte
	begun   bool
	known   bool // held is complete
}

// majority returns how many servers make a quorum, the leader included.
func (l *Log) majority() int { return len(l.members)/2 + 1 }

// decide finds the last entry that a majority has [TRAM, Algorithm 2, line 20]. A completed write
// is a vote whether or not its writer may still write there.
func (l *Log) decide() {
	var votes [ServersMax]uint64
	all := votes[:0]
	for _, m := range l.members {
		if m.server == l.config.Self {
			all = append(all, l.end)
		} else {
			all = append(all, m.acked)
		}
	}
	slices.Sort(all)
	decided := all[len(all)-l.majority()]
	if l.config.Fault == FaultDecidedEarly {
		decided = l.end
	}
	if decided > l.horizon {
		if l.config.Note != nil {
			l.note("entries up to %d are ordered", decided)
		}
		l.horizon = decided
	}
}

// Append puts an entry at the end of the log, and returns its index. The caller leads, and has
// checked Room. Replicate sends the entry to the members from there. Origin, which is not 0, and
// number are the entry's identity: at all servers, entries with the same identity have the same
// bytes. A new leader relies on it to leave bytes alone that are there already.
func (l *Log) Append(origin uint32, number uint64, bytes []byte) uint64 {
	l.add(Entry{Origin: origin, Number: number, Length: len(bytes)}, bytes)
	l.real = l.end
	return l.end
}

// add puts an entry at the end of the log.
func (l *Log) add(e Entry, bytes []byte) {
	l.end++
	e.Timestamp, e.Index, e.ordered, e.taken = l.stamp, l.end, l.horizon, l.floor
	l.put(e, bytes)
	l.told, l.ordered = e.ordered, l.ways.Now()
	if l.config.Note != nil {
		l.note("proposes entry %d, message %d of source %d", e.Index, e.Number, e.Origin)
	}
}

// Unannounced reports whether the last entry is ordered, and the followers have had no later one
// for a quiet moment from which they would learn that [TRAM, section 6]. The paper assumes that
// there is always a next entry.
func (l *Log) Unannounced() bool {
	return l.told < l.real && l.horizon >= l.real && l.ways.Now()-l.ordered >= l.config.Quiet
}

// Announce orders a no-op. The caller has checked Room.
func (l *Log) Announce() {
	l.add(Entry{}, nil)
	l.note("orders a no-op as entry %d", l.end)
}

// Reuses returns the index of the entry whose slot the next entry takes, or 0 if the slot is free.
func (l *Log) Reuses() uint64 {
	if slots := uint64(l.config.Slots); l.end+1 > slots {
		return l.end + 1 - slots
	}
	return 0
}

// Room reports whether one more entry fits at the log's end: not too many entries are under way,
// and the slot is free. A slot is free if all members that are not excluded took its old entry,
// this server among them, and no write under way takes its bytes from there. A user that still
// needs the entry at Reuses must not append.
func (l *Log) Room() bool {
	if l.end-l.horizon >= uint64(l.config.Window) {
		return false
	}
	old := l.Reuses()
	return old == 0 || l.applied >= old &&
		(l.staged.lent[l.ring.Place(old)] == 0 || l.config.Fault == FaultLentReused) &&
		(l.floor >= old || l.config.Fault == FaultSlotReusedEarly)
}

// raise finds up to where all members have taken the log, and asks the members that lag.
func (l *Log) raise() {
	floor := l.applied
	for _, m := range l.members {
		if m.server == l.config.Self || m.excluded {
			continue
		}
		floor = min(floor, m.taken)
		if m.State == PetitionWorks && !m.Reading() &&
			l.end-m.taken > uint64(l.config.Slots/4) && l.ways.Room(1) {
			l.ways.ReadWord(&m.Way, postTaken, HeadTaken)
		}
	}
	l.floor = max(l.floor, floor)
}

// Replicate posts what the members lack, to all together [TRAM, Algorithm 2, lines 15 to 19]. It
// reports whether there was anything to do.
func (l *Log) Replicate() bool {
	l.raise()
	busy := false
	for _, m := range l.members {
		if m.server == l.config.Self || m.State != PetitionWorks || m.excluded {
			continue
		}
		for m.next <= l.end && m.Flying() < 2*l.config.Window && l.ways.Room(2) {
			l.send(m)
			busy = true
		}
	}
	return busy
}

// send posts the next entry for a member. If its log already holds the same entry, only the
// timestamp is written: the copy may be the last one that keeps an ordered entry, and a write
// that a revocation cuts short would damage it. If the log holds another entry, which cannot be
// ordered then, its mark is erased first.
func (l *Log) send(m *member) {
	e := l.at(m.next)
	end := l.ring.End(m.next)
	for len(m.held) > 0 && m.held[0].Index < m.next {
		m.held = m.held[1:]
	}
	bytes, lent := l.Stage(e)
	operation := rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: end - len(bytes),
		Bytes: bytes, Ring: true}
	if len(m.held) > 0 && m.held[0].Index == m.next {
		switch {
		case m.held[0].same(e):
			operation.Offset, operation.Bytes = end+logTimestamp,
				bytes[len(bytes)+logTimestamp:][:Word]
		case l.config.Fault != FaultRewrittenInPlace:
			l.ways.Post(&m.Way, postErase, m.next, nil,
				rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: end + logIndex,
					Bytes: l.ways.Inline(Word)})
		}
	}
	l.ways.Post(&m.Way, postEntry, m.next, lent, operation)
	m.next++
}

// memberCompleted handles the completion of a post to a member.
func (l *Log) memberCompleted(m *member, p Post, err error) {
	if err != nil {
		l.note("loses server %d: %v", m.server, err)
		l.loseMember(m)
		return
	}
	switch p.Kind {
	case postEntry:
		m.acked = max(m.acked, p.Number)
		m.Tries = 0
	case postTaken:
		taken := m.Word()
		m.taken = max(m.taken, taken)
		if !m.begun {
			l.begin(m, taken)
		}
	case postTrailer:
		if m.waits--; m.waits == 0 {
			l.look(m)
		}
	case postMessage:
		l.missing--
	}
}

// loseMember ends the way to a member's log. What was read there no longer counts.
func (l *Log) loseMember(m *member) {
	m.Lose(l.ways)
	wasKnown := m.known
	m.begun, m.known, m.held = false, false, nil
	if wasKnown && l.role == fetching {
		l.stepDown("a log that it may read from is lost")
	}
}
