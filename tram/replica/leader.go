package replica

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is the leader's normal case: it finds messages and orders them [TRAM, Algorithm 2,
// steps 2.2 and 2.3].

// member is a server of this replica's group, and the way to its log.
type member struct {
	protected.Petition
	server   order.ServerID
	excluded bool

	// The fields down to taken are in use while this replica leads, or tries to.
	next  uint64 // the entry to write there next
	acked uint64 // all up to here is there, under this replica's timestamp
	taken uint64 // the member took at least all up to here

	// The following fields describe what the member's log held when it was read: Algorithm 4, step
	// 4.1.
	held    []header // ascending; the entries that are there and were not rewritten
	from    uint64   // the first index that was read
	reached uint64   // the next index to read
	empty   int      // how many in a row were empty
	waits   int      // reads of the present batch under way
	batch   []byte
	begun   bool
	known   bool // held is complete
}

// majority returns how many replicas make a quorum, the leader included.
func (r *Replica) majority() int { return len(r.members)/2 + 1 }

// decide finds the last entry that a majority has [TRAM, Algorithm 2, line 20]. A completed write
// is a vote whether or not its writer may still write there.
func (r *Replica) decide() {
	var votes [ServersMax]uint64
	all := votes[:0]
	for _, m := range r.members {
		if m.server == r.self.Server {
			all = append(all, r.end)
		} else {
			all = append(all, m.acked)
		}
	}
	slices.Sort(all)
	decided := all[len(all)-r.majority()]
	if r.options.Fault == FaultDecidedEarly {
		decided = r.end
	}
	if decided > r.horizon {
		if r.options.Note != nil {
			r.options.note("entries up to %d are ordered", decided)
		}
		r.horizon = decided
	}
}

// order takes the messages that it finds in the buffers into the log. replicate sends them to the
// members from there. order reports whether it found anything.
func (r *Replica) order() bool {
	before := r.end
	for range len(r.buffers) {
		s := source(r.cursor)
		r.cursor = (r.cursor + 1) % len(r.buffers)
		b := r.buffers[s]
		if b == nil {
			continue
		}
		for r.found(s, b) {
			if !r.hasRoom() {
				r.cursor = int(s)
				break
			}
			r.propose(s, b)
		}
	}
	now := r.ways.Now()
	if r.end > before {
		r.ordered = now
		return true
	}
	// After a quiet moment, a no-op tells followers that the last entry is ordered. The paper
	// assumes that there is always a next message [TRAM, section 6].
	if r.told < r.real && r.horizon >= r.real && now-r.ordered >= r.options.Quiet && r.hasRoom() {
		r.ordered = now
		r.add(header{}, nil)
		r.options.note("orders a no-op as entry %d", r.end)
		return true
	}
	return false
}

// found reports whether the next message of a source is there [TRAM, Algorithm 2, step 2.2].
func (r *Replica) found(s source, b *buffer) bool {
	return b.Found(b.proposed + 1)
}

// propose puts the next message of a source into the log.
func (r *Replica) propose(s source, b *buffer) {
	b.proposed++
	message := b.Message(b.proposed, r.options.messageMax())
	r.add(header{source: s, length: len(message), number: b.proposed}, message)
	r.real = r.end
}

// add puts an entry at the end of the log.
func (r *Replica) add(h header, message []byte) {
	r.end++
	h.timestamp, h.index, h.decided, h.floor = r.stamp, r.end, r.horizon, r.floor
	r.put(h, message)
	r.told = h.decided
	if r.options.Note != nil {
		r.options.note("proposes entry %d, message %d of source %d", h.index, h.number, h.source)
	}
}

// hasRoom reports whether one more entry fits at the log's end: not too many entries are under way,
// and the slot is free. A slot is free if all members that are not excluded took its old entry,
// this replica handled it, each child has ordered what it was due from it, and no write under way
// takes its bytes from there.
func (r *Replica) hasRoom() bool {
	if r.end-r.horizon >= uint64(r.options.Window) {
		return false
	}
	slots := uint64(r.options.LogSlots)
	if r.end+1 <= slots {
		return true
	}
	old := r.end + 1 - slots
	if r.applied < old ||
		r.staged.lent[r.ring.Place(old)] > 0 && r.options.Fault != FaultLentReused {
		return false
	}
	for _, c := range r.children {
		if c.needs(old) {
			return false
		}
	}
	return r.floor >= old || r.options.Fault == FaultSlotReusedEarly
}

// raise finds up to where all members have taken the log, and asks the members that lag.
func (r *Replica) raise() {
	floor := r.applied
	for _, m := range r.members {
		if m.server == r.self.Server || m.excluded {
			continue
		}
		floor = min(floor, m.taken)
		if m.State == protected.PetitionWorks && !m.Reading() &&
			r.end-m.taken > uint64(r.options.LogSlots/4) && r.ways.Room(1) {
			r.ways.ReadWord(&m.Way, postTaken, protected.HeadTaken)
		}
	}
	r.floor = max(r.floor, floor)
}

// replicate posts what the members lack, to all together [TRAM, Algorithm 2, lines 15 to 19]. It
// reports whether there was anything to do.
func (r *Replica) replicate() bool {
	r.raise()
	busy := false
	for _, m := range r.members {
		if m.server == r.self.Server || m.State != protected.PetitionWorks || m.excluded {
			continue
		}
		for m.next <= r.end && m.Flying() < 2*r.options.Window && r.ways.Room(2) {
			r.send(m)
			busy = true
		}
	}
	return busy
}

// send posts the next entry for a member. If its log already holds the same message, only the
// timestamp is written: the copy may be the last one that keeps an ordered message, and a write
// that a revocation cuts short would damage it. If the log holds another message, which cannot be
// ordered then, its mark is erased first.
func (r *Replica) send(m *member) {
	h := r.at(m.next)
	end := r.ring.End(m.next)
	for len(m.held) > 0 && m.held[0].index < m.next {
		m.held = m.held[1:]
	}
	bytes, lent := r.stage(h)
	operation := rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: end - len(bytes),
		Bytes: bytes, Ring: true}
	if len(m.held) > 0 && m.held[0].index == m.next {
		switch {
		case m.held[0].same(h):
			operation.Offset, operation.Bytes = end+logTimestamp,
				bytes[len(bytes)+logTimestamp:][:word]
		case r.options.Fault != FaultRewrittenInPlace:
			r.ways.Post(&m.Way, postErase, m.next, nil,
				rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: end + logIndex,
					Bytes: r.ways.Inline(word)})
		}
	}
	r.ways.Post(&m.Way, postEntry, m.next, lent, operation)
	m.next++
}

// memberCompleted handles the completion of a post to a member.
func (r *Replica) memberCompleted(m *member, p protected.Post, err error) {
	if err != nil {
		r.options.note("loses server %d: %v", m.server, err)
		r.loseMember(m)
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
			r.begin(m, taken)
		}
	case postTrailer:
		if m.waits--; m.waits == 0 {
			r.look(m)
		}
	case postMessage:
		r.missing--
	}
}

// loseMember ends the way to a member's log. What was read there no longer counts.
func (r *Replica) loseMember(m *member) {
	m.Lose(r.ways)
	wasKnown := m.known
	m.begun, m.known, m.held = false, false, nil
	if wasKnown && r.role == fetching {
		r.stepDown("a log that it may read from is lost")
	}
}
