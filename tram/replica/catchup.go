package replica

import (
	"fmt"

	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file describes how a replica becomes the leader: it collects permissions, and unifies the
// group's log [TRAM, Algorithm 2, step 2.1, and Algorithms 3 and 4].

// trailersAtOnce is how many entries of a log are read together.
const trailersAtOnce = 16

// fetch is a message that the new leader's log lacks, on its way from another member's log.
type fetch struct {
	header header
	bytes  []byte
	posted bool
	member *member
}

// campaign moves a replica that its oracle names towards leading. It reports whether there was
// anything to do.
func (r *Replica) campaign() bool {
	mine := r.oracle && r.leader == r.self.Server
	busy := false
	switch r.role {
	case following:
		if !mine || r.ways.Now() < r.notLead ||
			r.ways.Lent() > 0 && r.options.Fault != FaultLentReused {
			return false
		}
		if r.begins(); r.role == following {
			return true
		}
		busy = true
	case gathering, fetching:
		if !mine {
			r.stepDown("the oracle names another")
			return true
		}
	}
	for _, m := range r.members {
		if m.server == r.self.Server || m.excluded {
			continue
		}
		busy = r.ask(&m.Petition) || busy
		if m.State == protected.PetitionReads && m.begun && m.waits == 0 && !m.known {
			r.readMore(m)
		}
		if r.role == following { // it stepped down in ask
			return true
		}
	}
	if r.role == gathering && r.gathered() {
		r.choose()
		busy = true
	}
	if r.role == fetching {
		r.fetchMore()
		if r.missing == 0 {
			r.install()
			busy = true
		}
	}
	return busy
}

// begins begins a candidacy, with a timestamp higher than all that it has seen. It takes its own
// log at once [TRAM, Algorithm 3, step 3.1].
func (r *Replica) begins() {
	r.counter++
	r.stamp = protected.MakeTimestamp(r.counter, r.self.Server)
	if !r.pass(&r.log, rdmanet.Peer{}) {
		return
	}
	r.log.Granted = r.stamp.Ticket(0)
	r.role, r.heard = gathering, 0
	clear(r.staged.indexes)
	r.options.note("asks for permissions under timestamp %d of server %d", r.counter, r.self.Server)
	for _, m := range r.members {
		m.Retire(r.ways)
		m.acked, m.begun, m.known, m.held = 0, false, false, nil
		m.taken = max(m.taken, r.floor)
	}
}

// readMember begins to read a log that this replica was just attached to [TRAM, Algorithm 4, step
// 4.1].
func (r *Replica) readMember(m *member) {
	m.State = protected.PetitionReads
	m.begun, m.known, m.held, m.waits, m.empty = false, false, nil, 0, 0
	m.batch = make([]byte, trailersAtOnce*logTrailer)
	if r.ways.Room(1) {
		r.ways.ReadWord(&m.Way, postTaken, protected.HeadTaken)
		return
	}
	m.Lose(r.ways)
}

// begin records how far the member has taken its log. The entries up to there are settled.
func (r *Replica) begin(m *member, taken uint64) {
	m.begun = true
	m.next = taken + 1
	m.from = min(r.applied, taken) + 1
	m.reached = m.from
	m.acked = max(m.acked, taken)
}

// readMore posts reads of the next trailers.
func (r *Replica) readMore(m *member) {
	if !r.ways.Room(trailersAtOnce) {
		return
	}
	for i := range trailersAtOnce {
		end := r.ring.End(m.reached + uint64(i))
		m.waits++
		r.ways.Post(&m.Way, postTrailer, m.reached+uint64(i),
			nil, rdmanet.Operation{Kind: rdmanet.OperationRead, Offset: end - logTrailer,
				Bytes: m.batch[i*logTrailer:][:logTrailer]})
	}
}

// look takes the trailers that were read. A leader has at most Window entries under way, so a log
// holds nothing behind that many empty slots in a row.
func (r *Replica) look(m *member) {
	for i := range trailersAtOnce {
		index := m.reached
		m.reached++
		h := parseTrailer(m.batch[i*logTrailer:], r.options.messageMax())
		switch {
		case h.index == index:
			r.heard, r.floor = max(r.heard, h.decided), max(r.floor, h.floor)
			m.held = append(m.held, h)
			m.empty = 0
			continue
		case h.index > index && index > r.applied && r.role == gathering:
			r.halt(fmt.Sprintf("it was left behind: entry %d is gone, the slot of server %d "+
				"holds %d", index, m.server, h.index))
			return
		}
		m.empty++
		if m.empty < r.options.Window && m.reached-m.from < uint64(r.options.LogSlots) &&
			r.options.Fault != FaultFirstHole {
			continue
		}
		m.known = true
		m.batch = nil
		if r.role == leading {
			r.join(m)
		}
		return
	}
	if m.reached-m.from >= uint64(r.options.LogSlots) {
		m.known = true
		if r.role == leading {
			r.join(m)
		}
	}
}

// join makes a leader write to a member whose log it has read.
func (r *Replica) join(m *member) {
	m.State, m.Tries = protected.PetitionWorks, 0
	if m.next <= r.end && r.at(m.next).index != m.next {
		r.options.note("finds server %d left behind at entry %d", m.server, m.next)
		r.exclude(m)
		return
	}
	r.options.note("writes to server %d from entry %d on", m.server, m.next)
}

// gathered reports whether this replica knows the logs of a majority.
func (r *Replica) gathered() bool {
	known := 1
	for _, m := range r.members {
		if m.known && !m.excluded {
			known++
		}
	}
	return known >= r.majority()
}

// choose picks, for each entry past the last one handled, the copy with the highest timestamp among
// a majority's logs. It ends at the first entry that no log has [TRAM, Algorithm 4, step 4.2].
func (r *Replica) choose() {
	r.end, r.fetches, r.missing = r.applied, nil, 0
	for r.halted == "" {
		index := r.end + 1
		best := r.at(index)
		if best.index > index {
			r.halt(fmt.Sprintf("it was left behind: entry %d is gone, its slot holds %d", index,
				best.index))
			return
		}
		own := best.index == index
		if !own {
			best = header{}
		}
		mine := best
		var where *member
		for _, m := range r.members {
			if !m.known || m.excluded || m.server == r.self.Server ||
				r.options.Fault == FaultNoGroupCatchUp {
				continue
			}
			if at := index - m.from; index >= m.from {
				h, there := find(m.held, index, at)
				if there && h.timestamp > best.timestamp {
					best, where = h, m
				}
			}
		}
		if best.index == 0 {
			break
		}
		r.end = index
		if where != nil && !(own && mine.same(best)) {
			r.fetches = append(r.fetches, &fetch{header: best, bytes: make([]byte, best.length),
				member: where})
			r.missing++
		}
	}
	r.options.note("finds the group's log to end at entry %d, and lacks %d", r.end, r.missing)
	r.role = fetching
}

// find returns the entry with an index among the entries of a log.
func find(held []header, index, hint uint64) (header, bool) {
	if hint < uint64(len(held)) && held[hint].index == index { // usual: no gaps before it
		return held[hint], true
	}
	for _, h := range held {
		if h.index == index {
			return h, true
		}
	}
	return header{}, false
}

// fetchMore posts reads of missing messages.
func (r *Replica) fetchMore() {
	for _, f := range r.fetches {
		if f.posted || !r.ways.Room(1) {
			continue
		}
		f.posted = true
		if f.header.length == 0 {
			r.missing--
			continue
		}
		start := r.ring.End(f.header.index) - logTrailer - protected.Padded(f.header.length)
		r.ways.Post(&f.member.Way, postMessage, f.header.index,
			nil, rdmanet.Operation{Kind: rdmanet.OperationRead, Offset: start, Bytes: f.bytes})
	}
}

// install makes this replica's log the group's log, under its own timestamp, and makes the replica
// lead. The members' logs follow as it writes to them [TRAM, Algorithm 4, step 4.3]. An entry is
// ordered once a majority has it [step 4.4].
func (r *Replica) install() {
	for _, f := range r.fetches {
		r.put(f.header, f.bytes)
	}
	r.fetches = nil
	for _, b := range r.buffers {
		if b != nil {
			b.proposed = b.taken
		}
	}
	for index := r.applied + 1; index <= r.end; index++ {
		r.log.Region.Store(r.ring.End(index)+logTimestamp, uint64(r.stamp))
		h := r.at(index)
		r.learn(h)
		if h.source == sourceNone {
			continue
		}
		// The next message of each source follows from the log as apply reads it [TRAM, Algorithm
		// 5, step 5.1].
		if int(h.source) < len(r.buffers) && r.buffers[h.source] != nil &&
			r.buffers[h.source].proposed+1 == h.number {
			r.buffers[h.source].proposed++
		}
	}
	r.horizon = max(r.horizon, min(r.heard, r.end))
	r.real = r.end // counts the last entry too, so that a no-op announces it
	r.role, r.told, r.failures, r.ordered = leading, 0, 0, r.ways.Now()
	r.options.note("leads, from entry %d on", r.end+1)
	for _, m := range r.members {
		if m.known && m.server != r.self.Server && !m.excluded &&
			m.State == protected.PetitionReads {
			r.join(m)
		}
	}
	r.treeCatchUp()
}
