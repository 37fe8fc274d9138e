package dare

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is the leader: log adjustment, direct log update, commit and pruning [Poke19, sections
// 4.3.3.2 and 4.3.3.3].

// member is another server's log, as the leader writes it.
type member struct {
	protected.Petition
	header  []byte // as the leader reads it for adjustment, nil before
	asked   bool   // the header is being read
	next    uint64 // the next entry to write
	acked   uint64 // the log has all up to here
	told    uint64 // the commit pointer that was written
	applied uint64 // the server applied all up to here, as far as this one knows
	lookAt  time.Duration
	// moved is when the server was last seen to apply entries, or first had one to apply. It is not
	// before this leader's term. probed is when the leader appended an entry only for it.
	moved, probed time.Duration
	left          bool // it needs entries that no slot holds any more
	// asks and confirms: its term was asked for in this check, and is not higher.
	asks, confirms bool
	// excluded says that slots do not wait for it.
	excluded bool
}

// works reports whether the leader writes to the log.
func (m *member) works() bool { return m.State == protected.PetitionWorks }

// The kinds of a leader's posts. Number is the tail of a tail's write.
const (
	postHeader protected.Kind = iota + 1
	postEntry
	postTail
	postWord
	postApplied
	postTerm
	postMeasure // recovery
	postCopy
)

// win makes the candidate the leader of its term. Its last entry gets its stamp, and so becomes one
// of its own, without taking room (G1, G4). Then it asks for the logs of all.
func (s *Server) win() {
	s.config.note("leads term %d", s.term)
	s.role, s.leader = leading, s.self
	tail := s.tail()
	s.own, s.noop = max(tail, 1), false
	switch {
	case s.config.Fault == FaultNoReserve:
		s.own, s.noop = tail+1, true
	case tail > 0 && s.config.Fault != FaultCommitsOldTerms:
		s.held.Region.Store(s.layout.end(tail)+entryStamp, s.term)
	}
	copy(s.appended, s.numbers)
	for index := s.applied + 1; index <= tail; index++ {
		e := s.at(index)
		if e.kind != kindOperations {
			continue
		}
		readBody(s.body(e), s.proposals)
		for origin, p := range s.proposals {
			s.appended[origin] = max(s.appended[origin], p.number)
		}
	}
	s.closing = s.ended
	if last := s.at(tail); tail > s.applied && s.config.Change != nil && last.length > 0 {
		d, is := s.delivery(last, s.before(tail))
		s.closing = is && s.ends(d)
	}
	now := s.ways.Now()
	s.beatAt, s.progress, s.extended = now, now, now
	s.check.begun = s.check.passed
	s.asks(0) // rounds of an earlier term of this server may be lost
	needless := s.needless()
	for p, m := range s.members {
		if m != nil {
			m.applied, m.moved = max(m.applied, needless), now
		}
		// A vote comes with the log. The others are asked for it.
		if m != nil && s.member(p) && s.boards.Load(p, wordVote) == s.term {
			s.ways.Attach(&m.Way)
			m.State = protected.PetitionAttaches
		}
	}
}

// Exclude makes this server, when it leads, no longer keep entries for a server that is gone for
// good. If the server still works, it may be left behind, and halts. It may not be this one.
func (s *Server) Exclude(server order.ServerID) {
	if int(server) < len(s.members) && s.members[server] != nil {
		s.members[server].excluded = true
	}
}

// Missing says that a detector outside suspects a server, or no longer does. A server stops
// following a leader that is missing, until it hears from it. The first server that is not missing
// then campaigns without waiting. In a run that has an end (Config.Change), a leader ends the run
// without a missing server that applies nothing, if a majority of the shard is left. Otherwise the
// log would soon be full. An error of the detector may cost a server its place in the group, and
// nothing else.
func (s *Server) Missing(server order.ServerID, missing bool) {
	if int(server) >= len(s.missing) || int(server) == s.self {
		return
	}
	if missing && !s.missing[server] {
		s.missedAt[server] = s.ways.Now()
	}
	s.missing[server] = missing
	if missing && s.leader == int(server) {
		s.Suspect()
		for _, first := range s.group().Servers() {
			if s.missing[first] {
				continue
			}
			if int(first) == s.self {
				s.deadline = s.ways.Now()
			}
			break
		}
	}
}

// behind reports whether a server has still to apply entries that half of a leader's log waits for.
func (s *Server) behind(server int) bool {
	m := s.members[server]
	return m != nil && !m.excluded && s.tail() > m.applied &&
		s.tail()-m.applied >= uint64(s.config.LogSlots/2)
}

// mayRemove reports whether the run can end without one of its servers: it can end, and the others
// are a majority of the shard.
func (s *Server) mayRemove() bool {
	return s.config.Change != nil && 2*(len(s.config.Peers)-1) > s.config.size()
}

// gone returns a server without which a leader should end the run, or none. One that works all the
// same has the time to show that it applies entries, and one that goes on with it stays.
func (s *Server) gone() int {
	if !s.mayRemove() {
		return none
	}
	return slices.IndexFunc(s.members, func(m *member) bool {
		if m == nil || !s.missing[m.Process] || s.tail() <= m.applied {
			return false
		}
		beats := time.Duration(restBeats)
		if s.tail()-m.applied >= max(1, uint64(s.config.LogSlots)/8) {
			beats = lookBeats
		}
		return s.ways.Now() >= max(s.missedAt[m.Process], m.moved)+beats*s.config.Beat
	})
}

// probes reports whether a missing server should get an entry without messages, and notes it. The
// server has applied all entries, as far as a leader knows. But it may be gone since, and nobody
// may have anything to order. One that works gets such an entry every restBeats.
func (s *Server) probes() bool {
	if !s.mayRemove() {
		return false
	}
	probes := false
	for _, m := range s.members {
		if m != nil && s.missing[m.Process] && s.tail() <= m.applied &&
			s.ways.Now() >= m.probed+restBeats*s.config.Beat {
			m.probed, probes = s.ways.Now(), true
		}
	}
	return probes
}

// lead makes a leader work. It reports whether there was anything to do.
func (s *Server) lead() bool {
	now, busy := s.ways.Now(), false
	for s.append() {
		busy = true
	}
	for p, m := range s.members {
		if m != nil && s.member(p) {
			busy = s.drive(m) || busy
			if s.role != leading {
				return true
			}
		}
	}
	busy = s.decide() || busy
	busy = s.proceed() || busy
	busy = s.verify() || busy
	if now >= s.beatAt {
		s.beatAt, busy = now+s.config.Beat, true
		s.sendBeat()
		if s.config.FullRounds && s.config.Fault != FaultNeverAsks {
			s.solicit()
		}
	}
	if s.tail() == s.commit {
		s.progress = now
	}
	if now > s.progress+4*s.timeout {
		// It beats and does not commit, and others would follow it for ever (G3).
		s.config.note("commits nothing, and steps down")
		s.advance(s.term)
		return true
	}
	return busy
}

// beatsUnder is how many words under way to a server keep a leader from sending it a heartbeat.
const beatsUnder = 4

// sendBeat writes a heartbeat to all servers that took the last ones.
func (s *Server) sendBeat() {
	if s.config.Fault != FaultBeatIsTerm || s.beat == 0 {
		s.beat = s.beat&(1<<32-1) + 1
	}
	for p, row := range s.boards.Rows() {
		if s.linked(p) && row.Flying() < beatsUnder {
			row.Put(wordBeat, s.term<<32|s.beat&(1<<32-1))
		}
	}
}

// drive moves the log of another server on.
func (s *Server) drive(m *member) bool {
	switch m.State {
	case protected.PetitionIdle, protected.PetitionAsked:
		if m.left {
			return false
		}
		outcome, by := m.Ask(s.ways, s.boards, protected.MakeTimestamp(s.term, s.config.Self))
		switch outcome {
		case protected.Refused:
			s.advance(max(by.Timestamp().Counter(), s.term))
		case protected.Exhausted:
			s.advance(s.term)
		case protected.Waiting:
			return false
		case protected.Moving:
		}
		return true
	case protected.PetitionReads:
		if m.asked || !s.ways.Room(1) {
			return false
		}
		m.asked = true
		m.header = make([]byte, s.layout.header()) // an earlier read may still land in the old one
		s.ways.Post(&m.Way, postHeader, 0, nil, rdmanet.Operation{Kind: rdmanet.OperationRead,
			Bytes: m.header})
		return true
	case protected.PetitionWorks:
		return s.update(m)
	case protected.PetitionAttaches:
	}
	return false
}

// memberCompleted handles the completion of a leader's post.
func (s *Server) memberCompleted(m *member, p protected.Post, err error) {
	if s.recovery != nil {
		if err != nil {
			s.again()
		} else {
			s.recovering(m, p)
		}
		return
	}
	if err != nil {
		m.Lose(s.ways)
		m.asked, m.acked = false, 0
		m.asks = m.confirms // a term that was not read is asked for again
		return
	}
	switch p.Kind {
	case postHeader:
		m.asked = false
		s.adjust(m)
	case postTail:
		m.acked, m.Tries = p.Number, 0
	case postApplied:
		if m.Word() > m.applied {
			m.applied, m.moved = m.Word(), s.ways.Now()
		}
	case postTerm:
		if m.Word() > s.term {
			s.config.note("is outdated: server %d is in term %d", m.Process, m.Word())
			s.advance(m.Word())
			return
		}
		m.confirms = m.asks // a read of an earlier check says nothing about this one
	case postMeasure, postCopy: // of a recovery that is over
	}
}

// adjust sets a follower's tail to the last entry that is the same in the own log [Poke19, section
// 4.3.3.2]. Entries that are the same stay as they are: a majority may need this copy (G16). Of
// these, the leader's first own one gets its stamp, in one word.
func (s *Server) adjust(m *member) {
	load := func(offset int) uint64 { return binary.NativeEndian.Uint64(m.header[offset:]) }
	base, count := load(logBase), load(logCount)
	m.applied = max(m.applied, load(logApplied))
	tail := s.tail()
	if base > tail || count > uint64(s.layout.slots) {
		s.halt(fmt.Sprintf("server %d knows entry %d to be committed, and leader %d ends at %d",
			m.Process, base, s.self, tail))
		return
	}
	if s.config.Fault != FaultCommitGoesBack {
		s.setCommit(max(s.commit, base))
	}
	m.next, m.told = base+1, base
	for m.next <= min(base+count, tail) && s.config.Fault != FaultAdjustToCommit &&
		load(logUncommitted+int(m.next-base-1)*word) == s.at(m.next).born {
		m.next++
	}
	if m.next+uint64(s.layout.slots) <= tail {
		s.abandon(m)
		return
	}
	if !s.ways.Room(2) {
		m.Lose(s.ways)
		return
	}
	m.State = protected.PetitionWorks
	s.config.note("adjusts the log of %d to %d", m.Process, m.next-1)
	if s.own < m.next && s.at(s.own).born != s.term && s.config.Fault != FaultCommitsOldTerms {
		s.write(m, postWord, 0, s.layout.end(s.own)+entryStamp, s.term)
	}
	s.write(m, postTail, m.next-1, logTail, m.next-1)
}

// abandon gives a server up that needs entries which no slot holds any more.
func (s *Server) abandon(m *member) {
	m.Retire(s.ways)
	m.left = true
	s.boards.Put(m.Process, wordLeft, s.term)
}

// write posts the write of a word.
func (s *Server) write(m *member, kind protected.Kind, number uint64, offset int, value uint64) {
	s.ways.Post(&m.Way, kind, number, nil, rdmanet.Operation{Kind: rdmanet.OperationWrite,
		Offset: offset, Bytes: s.ways.InlineWord(value), Ring: true})
}

// update writes to a follower's log what it lacks, and then its tail, in one post: the order within
// an attachment lets the tail follow without waiting for the entries. The commit pointer follows
// the tail [Poke19, section 4.3.3.2, direct log update].
func (s *Server) update(m *member) bool {
	tail, first := s.tail(), m.next
	early := s.config.Fault == FaultTailBeforeEntries && m.next <= tail && s.ways.Room(3)
	if early {
		s.write(m, postTail, tail, logTail, tail)
	}
	for m.next <= tail && s.ways.Room(3) {
		e := s.at(m.next)
		if e.index == 0 {
			s.abandon(m)
			return true
		}
		bytes, lent := s.stage(e)
		if bytes == nil {
			break
		}
		s.ways.Post(&m.Way, postEntry, e.index, lent, rdmanet.Operation{
			Kind: rdmanet.OperationWrite, Offset: s.layout.end(e.index) - len(bytes),
			Bytes: bytes})
		m.next++
	}
	if m.next > first && !early {
		s.write(m, postTail, m.next-1, logTail, m.next-1)
	}
	commit := min(s.commit, m.next-1)
	back := s.config.Fault == FaultCommitGoesBack && commit != m.told
	if (commit > m.told || back) && s.ways.Room(1) {
		m.told = commit
		s.write(m, postWord, 0, logCommit, commit)
		return true
	}
	return m.next > first || s.look(m)
}

// lookBeats is for how many beats a leader looks how far a missing server has applied, before it
// goes on without it. One that is less than an eighth of the log behind has restBeats.
const (
	lookBeats = 3
	restBeats = 32
)

// look reads how far a server has applied, when slots become few or it is missing.
func (s *Server) look(m *member) bool {
	now := s.ways.Now()
	full := s.used() >= uint64(s.config.LogSlots)/2
	if !full && !s.missing[m.Process] || m.applied >= s.commit || m.Reading() ||
		now < m.lookAt || !s.ways.Room(1) {
		return false
	}
	m.lookAt = now + s.config.Beat
	s.ways.ReadWord(&m.Way, postApplied, logApplied)
	return true
}

// floor returns the entry up to which nobody needs a slot any more: all servers that are not
// excluded have applied it (I5). A server counts until its removal is committed.
func (s *Server) floor() uint64 {
	floor := s.applied
	for i := range s.configs {
		if i+1 == len(s.configs) || s.configs[i+1].index > s.commit {
			floor = min(floor, s.needed(&s.configs[i].Configuration))
		}
	}
	return floor
}

// needless returns an entry up to which no server needs a slot, as follows from the own log alone:
// a leader appends while LogSlots suffice, one more for an entry that takes a server out, and a
// configuration says what its servers need (G4).
func (s *Server) needless() uint64 {
	tail := s.tail()
	switch e := s.at(tail); e.kind {
	case kindConfig:
		return s.group().head
	case kindRemoval:
		return tail - min(tail, uint64(s.layout.slots))
	case kindOperations:
	}
	return tail - min(tail, uint64(s.config.LogSlots))
}

// needed returns the entry up to which the servers of a configuration need no slot any more. One
// that recovers counts from the entry on that names it (G11).
func (s *Server) needed(c *Configuration) uint64 {
	needed := s.applied
	for p, m := range s.members {
		if m == nil || !c.held(p) || m.excluded || m.Peer != c.Seats[p].Peer ||
			s.config.Fault == FaultPrunedEarly ||
			s.config.Fault == FaultPrunedUnderNewcomer && c.Seats[p].From > 0 && m.acked == 0 {
			continue
		}
		needed = min(needed, max(m.applied, c.Seats[p].From))
	}
	return needed
}

// used returns how many slots hold entries that some server needs.
func (s *Server) used() uint64 {
	tail := s.tail()
	return tail - min(s.floor(), tail)
}

// append appends one entry: the next message of each server that has one, as far as there is room
// for them. It reports whether there was one, and room for it. Nothing follows an entry that ends
// the run. One that takes a server out has a slot of its own, so a full log has room for it (G4).
func (s *Server) append() bool {
	tail, used, slots := s.tail(), s.used(), uint64(s.config.LogSlots)
	if used > slots || s.closing && s.config.Fault != FaultAppendsPastEnd {
		return false
	}
	if gone := s.gone(); gone != none {
		s.config.note("ends the run without server %d", gone)
		s.closing = true
		s.scratch = appendRemoval(s.scratch[:0], gone)
		s.add(kindRemoval, s.scratch)
		return true
	}
	if used == slots {
		return false
	}
	if s.noop || s.probes() {
		s.noop = false
		s.add(kindOperations, nil)
		return true
	}
	if !s.collect(int(tail)) {
		return false
	}
	for origin, p := range s.proposals {
		s.appended[origin] = max(s.appended[origin], p.number)
	}
	s.scratch = appendBody(s.scratch[:0], s.proposals)
	e := s.add(kindOperations, s.scratch)
	s.config.note("appends entry %d", e.index)
	if s.config.Change != nil {
		d, _ := s.delivery(e, s.before(e.index))
		s.closing = s.ends(d)
	}
	return true
}

// add puts an entry of a leader behind its log, and returns it.
func (s *Server) add(k kind, body []byte) entry {
	tail := s.tail()
	for _, m := range s.members {
		if m != nil && m.applied >= tail {
			m.moved = s.ways.Now()
		}
	}
	e := entry{tail + 1, s.term, s.term, k, len(body)}
	s.put(e, body)
	return e
}

// collect puts the next message of each server into s.proposals, as far as an entry has room for
// them. Another server comes first in each entry, so the messages of none wait for ever. It reports
// whether an entry is due: there is a message, and with Config.FullRounds one of each server that
// is not missing.
func (s *Server) collect(first int) bool {
	clear(s.proposals)
	n := len(s.buffers)
	room, some := s.config.messagesMax(), false
	for i := range n {
		origin := (first + i) % n
		number, b := s.appended[origin]+1, s.buffers[origin]
		switch {
		case !s.group().held(origin):
		case b.Found(number):
			payload := b.Message(number, s.config.PayloadMax)
			if len(payload) <= room {
				s.proposals[origin] = proposal{number, payload}
				room, some = room-len(payload), true
			}
		case s.awaits(origin):
			return false
		}
	}
	return some
}

// decide commits what a majority of logs has. Only an entry with the leader's own stamp is counted,
// and with it all below it is committed (G1).
func (s *Server) decide() bool {
	most := s.group().reached(func(p int) uint64 {
		switch {
		case !s.member(p):
			return 0
		case p == s.self || p == 0 && s.config.Fault == FaultLeaderCountsItself &&
			s.self >= s.group().Next:
			return s.tail()
		}
		return s.members[p].acked
	})
	if most <= s.commit || most < s.own && s.config.Fault != FaultCommitsOldTerms {
		return false
	}
	s.progress = s.ways.Now()
	s.setCommit(most)
	s.config.note("commits entry %d", most)
	return true
}

// setCommit moves a leader's own commit pointer. It never goes back (I4).
func (s *Server) setCommit(commit uint64) {
	s.commit = commit
	s.held.Region.Store(logCommit, commit)
}
