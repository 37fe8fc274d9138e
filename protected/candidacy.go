package protected

import (
	"fmt"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file describes how a server becomes the leader: it collects permissions, and unifies the
// group's log [TRAM, Algorithm 2, step 2.1, and Algorithms 3 and 4].

// trailersAtOnce is how many entries of a log are read together.
const trailersAtOnce = 16

// fetch is an entry that the new leader's log lacks, on its way from another member's log.
type fetch struct {
	entry  Entry
	bytes  []byte
	posted bool
	member *member
}

// campaign moves a server that its oracle names towards leading. It reports whether there was
// anything to do.
func (l *Log) campaign() bool {
	mine := l.oracle && l.leader == l.config.Self
	busy := false
	switch l.role {
	case following:
		if !mine || l.ways.Now() < l.notLead ||
			l.ways.Lent() > 0 && l.config.Fault != FaultLentReused {
			return false
		}
		if l.begins(); l.role == following {
			return true
		}
		busy = true
	case gathering, fetching:
		if !mine {
			l.stepDown("the oracle names another")
			return true
		}
	}
	for _, m := range l.members {
		if m.server == l.config.Self || m.excluded {
			continue
		}
		busy = l.Ask(&m.Petition) || busy
		if m.State == PetitionReads && m.begun && m.waits == 0 && !m.known {
			l.readMore(m)
		}
		if l.role == following { // it stepped down in ask
			return true
		}
	}
	if l.role == gathering && l.gathered() {
		l.choose()
		busy = true
	}
	if l.role == fetching {
		l.fetchMore()
		if l.missing == 0 {
			l.install()
			busy = true
		}
	}
	return busy
}

// begins begins a candidacy, with a timestamp higher than all that it has seen. It takes its own
// log at once [TRAM, Algorithm 3, step 3.1].
func (l *Log) begins() {
	l.counter++
	l.stamp = MakeTimestamp(l.counter, l.config.Self)
	if !l.Pass(&l.held, rdmanet.Peer{}) {
		return
	}
	l.held.Granted = l.stamp.Ticket(0)
	l.role, l.heard = gathering, 0
	clear(l.staged.indexes)
	l.note("asks for permissions under timestamp %d of server %d", l.counter, l.config.Self)
	for _, m := range l.members {
		m.Retire(l.ways)
		m.acked, m.begun, m.known, m.held = 0, false, false, nil
		m.taken = max(m.taken, l.floor)
	}
}

// readMember begins to read a log that this server was just attached to [TRAM, Algorithm 4, step
// 4.1].
func (l *Log) readMember(m *member) {
	m.State = PetitionReads
	m.begun, m.known, m.held, m.waits, m.empty = false, false, nil, 0, 0
	m.batch = make([]byte, trailersAtOnce*logTrailer)
	if l.ways.Room(1) {
		l.ways.ReadWord(&m.Way, postTaken, HeadTaken)
		return
	}
	m.Lose(l.ways)
}

// begin records how far the member has taken its log. The entries up to there are settled.
func (l *Log) begin(m *member, taken uint64) {
	m.begun = true
	m.next = taken + 1
	m.from = min(l.applied, taken) + 1
	m.reached = m.from
	m.acked = max(m.acked, taken)
}

// readMore posts reads of the next trailers.
func (l *Log) readMore(m *member) {
	if !l.ways.Room(trailersAtOnce) {
		return
	}
	for i := range trailersAtOnce {
		end := l.ring.End(m.reached + uint64(i))
		m.waits++
		l.ways.Post(&m.Way, postTrailer, m.reached+uint64(i),
			nil, rdmanet.Operation{Kind: rdmanet.OperationRead, Offset: end - logTrailer,
				Bytes: m.batch[i*logTrailer:][:logTrailer]})
	}
}

// look takes the trailers that were read. A leader has at most Window entries under way, so a log
// holds nothing behind that many empty slots in a row.
func (l *Log) look(m *member) {
	for i := range trailersAtOnce {
		index := m.reached
		m.reached++
		e := parseTrailer(m.batch[i*logTrailer:], l.config.EntryMax)
		switch {
		case e.Index == index:
			l.heard, l.floor = max(l.heard, e.ordered), max(l.floor, e.taken)
			m.held = append(m.held, e)
			m.empty = 0
			continue
		case e.Index > index && index > l.applied && l.role == gathering:
			l.Halt(fmt.Sprintf("it was left behind: entry %d is gone, the slot of server %d "+
				"holds %d", index, m.server, e.Index))
			return
		}
		m.empty++
		if m.empty < l.config.Window && m.reached-m.from < uint64(l.config.Slots) &&
			l.config.Fault != FaultFirstHole {
			continue
		}
		m.known = true
		m.batch = nil
		if l.role == leading {
			l.join(m)
		}
		return
	}
	if m.reached-m.from >= uint64(l.config.Slots) {
		m.known = true
		if l.role == leading {
			l.join(m)
		}
	}
}

// join makes a leader write to a member whose log it has read.
func (l *Log) join(m *member) {
	m.State, m.Tries = PetitionWorks, 0
	if m.next <= l.end && l.at(m.next).Index != m.next {
		l.note("finds server %d left behind at entry %d", m.server, m.next)
		l.exclude(m)
		return
	}
	l.note("writes to server %d from entry %d on", m.server, m.next)
}

// gathered reports whether this server knows the logs of a majority.
func (l *Log) gathered() bool {
	known := 1
	for _, m := range l.members {
		if m.known && !m.excluded {
			known++
		}
	}
	return known >= l.majority()
}

// choose picks, for each entry past the last one handled, the copy with the highest timestamp among
// a majority's logs. It ends at the first entry that no log has [TRAM, Algorithm 4, step 4.2].
func (l *Log) choose() {
	l.end, l.fetches, l.missing = l.applied, nil, 0
	for l.halted == "" {
		index := l.end + 1
		best := l.at(index)
		if best.Index > index {
			l.Halt(fmt.Sprintf("it was left behind: entry %d is gone, its slot holds %d", index,
				best.Index))
			return
		}
		own := best.Index == index
		if !own {
			best = Entry{}
		}
		mine := best
		var where *member
		for _, m := range l.members {
			if !m.known || m.excluded || m.server == l.config.Self ||
				l.config.Fault == FaultNoGroupCatchUp {
				continue
			}
			if at := index - m.from; index >= m.from {
				e, there := find(m.held, index, at)
				if there && e.Timestamp > best.Timestamp {
					best, where = e, m
				}
			}
		}
		if best.Index == 0 {
			break
		}
		l.end = index
		if where != nil && !(own && mine.same(best)) {
			l.fetches = append(l.fetches, &fetch{entry: best, bytes: make([]byte, best.Length),
				member: where})
			l.missing++
		}
	}
	l.note("finds the group's log to end at entry %d, and lacks %d", l.end, l.missing)
	l.role = fetching
}

// find returns the entry with an index among the entries of a log.
func find(held []Entry, index, hint uint64) (Entry, bool) {
	if hint < uint64(len(held)) && held[hint].Index == index { // usual: no gaps before it
		return held[hint], true
	}
	for _, e := range held {
		if e.Index == index {
			return e, true
		}
	}
	return Entry{}, false
}

// fetchMore posts reads of missing entries.
func (l *Log) fetchMore() {
	for _, f := range l.fetches {
		if f.posted || !l.ways.Room(1) {
			continue
		}
		f.posted = true
		if f.entry.Length == 0 {
			l.missing--
			continue
		}
		start := l.ring.End(f.entry.Index) - logTrailer - Padded(f.entry.Length)
		l.ways.Post(&f.member.Way, postMessage, f.entry.Index,
			nil, rdmanet.Operation{Kind: rdmanet.OperationRead, Offset: start, Bytes: f.bytes})
	}
}

// install makes this server's log the group's log, under its own timestamp, and makes the server
// lead. The members' logs follow as it writes to them [TRAM, Algorithm 4, step 4.3]. An entry is
// ordered once a majority has it [step 4.4].
func (l *Log) install() {
	for _, f := range l.fetches {
		l.put(f.entry, f.bytes)
	}
	l.fetches = nil
	for index := l.applied + 1; index <= l.end; index++ {
		l.held.Region.Store(l.ring.End(index)+logTimestamp, uint64(l.stamp))
		l.learn(l.at(index))
	}
	l.horizon = max(l.horizon, min(l.heard, l.end))
	l.real = l.end // counts the last entry too, so that a no-op announces it
	l.role, l.told, l.failures, l.ordered = leading, 0, 0, l.ways.Now()
	l.note("leads, from entry %d on", l.end+1)
	for _, m := range l.members {
		if m.known && m.server != l.config.Self && !m.excluded && m.State == PetitionReads {
			l.join(m)
		}
	}
	l.user.Leads()
}
