package dare

import (
	"bytes"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/protected"
)

// This file is for exhaustive search, which copies servers and compares their states. The copies
// share what the fabric handed out. The caller takes care of the contents of the memory.

// Copy returns a server in the same state. Reads under way still lead into the memory of the
// original; Reads returns where they should lead.
func (s *Server) Copy() *Server {
	own := *s
	own.boards, own.offers, own.box = s.boards.Copy(), s.offers.Copy(), s.box.Copy()
	own.askers, own.takers = slices.Clone(s.askers), slices.Clone(s.takers)
	own.numbers, own.appended = slices.Clone(s.numbers), slices.Clone(s.appended)
	own.beats, own.answered = slices.Clone(s.beats), slices.Clone(s.answered)
	own.missing, own.missedAt = slices.Clone(s.missing), slices.Clone(s.missedAt)
	own.delivered, own.handed, own.scratch = slices.Clone(s.delivered), nil, nil
	own.proposals = make([]proposal, len(s.proposals))
	own.staged = staged{bytes.Clone(s.staged.bytes), slices.Clone(s.staged.keys),
		slices.Clone(s.staged.lent)}
	own.members, own.targets = slices.Clone(s.members), slices.Clone(s.targets)
	own.buffers, own.sources = slices.Clone(s.buffers), slices.Clone(s.sources)
	own.links, own.configs = slices.Clone(s.links), slices.Clone(s.configs)
	if s.recovery != nil {
		recovery := *s.recovery
		recovery.bytes = bytes.Clone(recovery.bytes)
		own.recovery = &recovery
	}
	for p := range s.links {
		buffer := *s.buffers[p]
		own.buffers[p] = &buffer
		if p == s.self {
			continue
		}
		m, t, src := *s.members[p], *s.targets[p], *s.sources[p]
		m.Way, t.Way = s.members[p].Way.Copy(), s.targets[p].Way.Copy()
		src.Way = s.sources[p].Way.Copy()
		m.header, src.bytes = bytes.Clone(m.header), bytes.Clone(src.bytes)
		m.Owner, t.Owner, src.Owner = &m, &t, &src
		own.members[p], own.targets[p], own.sources[p] = &m, &t, &src
	}
	own.all = own.ofAll()
	own.ways = s.ways.Copy(func(place int) *protected.Way { return own.all[place] },
		func(lent *int) *int {
			if same := protected.SameCount(lent, s.staged.lent, own.staged.lent); same != nil {
				return same
			}
			return s.box.SameCount(lent, own.box)
		})
	own.ways.Redirect(own.into)
	return &own
}

// into returns the memory that a post reads into, or nil.
func (s *Server) into(p protected.Post) []byte {
	switch owner := p.Way.Owner.(type) {
	case *source:
		return owner.bytes
	case *member:
		switch p.Kind {
		case postHeader:
			return owner.header
		case postCopy:
			return s.recovery.bytes[s.layout.place(p.Number)*s.layout.slot:][:s.layout.slot]
		}
	}
	return nil
}

// Reads calls each for every read under way, with its tag and the memory that its result should go
// to.
func (s *Server) Reads(each func(tag uint64, into []byte)) { s.ways.Reads(s.into, each) }

// Awaits reports whether the server's behaviour depends on having handled the successful completion
// with the given tag.
func (s *Server) Awaits(tag uint64) bool {
	return s.ways.Awaits(tag, func(p protected.Post) bool {
		switch owner := p.Way.Owner.(type) {
		case *protected.Row:
			// A candidate that wins sends its heartbeat only where not many words are under way.
			return s.role == voting || s.role == campaigning && owner.Flying() >= beatsUnder ||
				s.config.Fault == FaultZombieVotes
		case *member:
			return p.Kind != postEntry && p.Kind != postWord
		case *source:
			return true
		}
		return p.Lent()
	})
}

// Idle reports whether handling the successful completion with the given tag changes nothing that
// AppendState tells.
func (s *Server) Idle(tag uint64) bool { return !s.Awaits(tag) && s.ways.Idle(tag) }

// AppendOperation appends a description of the server's operation with the given tag. It does not
// depend on the tag itself.
func (s *Server) AppendOperation(state []byte, tag uint64) []byte {
	return s.ways.AppendOperation(state, tag)
}

// AppendState appends what the server's further behaviour depends on, except its memory and its
// operations under way, which AppendOperation appends. Do not call it in the hot path.
func (s *Server) AppendState(state []byte, now time.Duration) []byte {
	f := protected.Facts{B: state, Now: now}
	f.Truth(s.halted != "")
	f.Truth(s.closed)
	f.Truth(s.ended)
	f.Number(uint64(s.without + 1))
	for p, missing := range s.missing {
		f.Truth(missing)
		if missing {
			f.Since(s.missedAt[p], lookBeats*s.config.Beat)
		}
	}
	f.Held(&s.held)
	f.Numbers(s.commit, s.applied, s.rounds, s.term, uint64(s.role), uint64(s.leader+1),
		uint64(s.candidate+1), s.looked, uint64(s.timeout), s.sent, s.counter, s.beat,
		uint64(len(s.delivered)))
	f.Until(s.deadline)
	f.Truth(s.removed)
	f.Numbers(s.seated, s.learned.index, s.learned.born,
		uint64(s.joined), uint64(s.from+1))
	for _, c := range s.configs {
		f.Numbers(c.index, c.born)
	}
	for _, peer := range s.links {
		f.Peer(peer)
	}
	if r := s.recovery; r != nil {
		f.Numbers(uint64(r.step), uint64(r.from), r.next, r.last, uint64(r.left))
		f.Until(r.since)
		f.Bytes(r.bytes)
	}
	f.Numbers(s.numbers...)
	f.Numbers(s.beats...)
	if s.config.FullRounds {
		f.Numbers(s.answered...)
		f.Number(s.want)
	}
	for i := range s.askers {
		f.Numbers(uint64(s.askers[i].Seen), uint64(s.takers[i].Seen))
	}
	for _, b := range s.buffers {
		f.Held(&b.Held)
	}
	for p, m := range s.members {
		if m == nil {
			continue
		}
		f.Petition(&m.Petition)
		f.Petition(&s.targets[p].Petition)
		f.Numbers(s.targets[p].next, m.applied)
		f.Truth(m.excluded)
		f.Way(&s.sources[p].Way)
		f.Truth(s.sources[p].wanted)
		f.Truth(s.sources[p].reading)
		if s.role != leading {
			continue
		}
		f.Numbers(m.next, m.acked, m.told)
		f.Truth(m.asked)
		f.Truth(m.left)
		f.Truth(m.asks)
		f.Truth(m.confirms)
		f.Until(m.lookAt)
		if s.missing[p] {
			f.Since(m.moved, restBeats*s.config.Beat)
			f.Since(m.probed, restBeats*s.config.Beat)
		}
	}
	if s.role == leading {
		f.Number(s.own)
		f.Truth(s.noop)
		f.Truth(s.closing)
		f.Numbers(s.appended...)
		f.Numbers(s.check.asked, s.check.begun, s.check.passed, s.check.index)
		f.Until(s.beatAt)
		f.Since(s.extended, recoverFor*s.config.Timeout)
		f.Since(s.progress, 4*s.timeout)
	}
	f.Lent(s.staged.lent)
	for place, key := range s.staged.keys {
		if s.staged.lent[place] > 0 {
			f.Numbers(key[0], key[1])
		}
	}
	f.Outbox(s.box, s.numbers[s.self]+1, s.sent)
	f.Boards(s.boards)
	f.Boards(s.offers)
	f.Batch(s.ways)
	return f.B
}
