package generation

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Clone returns a synod in the same state. It shares with s only what neither changes. It is for
// searches.
func (s *Synod) Clone() *Synod {
	c := *s
	c.held, c.linked = maps.Clone(s.held), maps.Clone(s.linked)
	c.votes, c.seen = slices.Clone(s.votes), slices.Clone(s.seen)
	c.vouched = slices.Clone(s.vouched)
	c.holders, c.askedFor, c.asked = slices.Clone(s.holders), slices.Clone(s.askedFor),
		slices.Clone(s.asked)
	c.promises, c.accepted = slices.Clone(s.promises), slices.Clone(s.accepted)
	c.out, c.stated = slices.Clone(s.out), slices.Clone(s.stated)
	return &c
}

// AppendState appends everything that determines what the synod does next, except for Config and
// for what Ready would return. Two synods with the same Config that append the same bytes behave
// alike. It is for searches.
func (s *Synod) AppendState(b []byte) []byte {
	b = append(b, s.state.Encode()...)
	b = appendReport(b, s.report, true)
	for _, flag := range []bool{s.remembers, s.stalled, s.givingUp, s.prompt, s.broken != nil,
		s.counted} {
		b = appendBool(b, flag)
	}
	for _, number := range []uint64{uint64(s.followed), uint64(s.empty), uint64(s.working),
		uint64(s.ended), uint64(s.stuck),
		uint64(s.refused), uint64(s.phase), uint64(s.waited), uint64(s.askedSince)} {
		b = binary.LittleEndian.AppendUint64(b, number)
	}
	b = appendBallot(appendBallot(b, s.ballot), s.highest)
	b = appendServers(appendServers(b, s.holders), s.asked)
	for _, p := range []*pending{s.waiting, s.accepting} {
		b = appendBool(b, p != nil)
		if p != nil {
			b = p.append(b)
		}
	}
	b = append(b, byte(len(s.promises)))
	for i := range s.promises {
		b = s.promises[i].append(b)
	}
	b = append(b, byte(len(s.accepted)))
	for _, a := range s.accepted {
		b = binary.LittleEndian.AppendUint32(b, uint32(a.server))
		b = appendBool(append(b, a.disk[:]...), a.original)
	}
	if s.phase == phaseAccepting {
		b = appendDecision(b, &s.value, true)
	}
	for i := range s.stated {
		b = binary.LittleEndian.AppendUint32(b, uint32(s.stated[i].server))
		b = appendBool(appendDecision(b, &s.stated[i].decision, true), s.stated[i].turned)
	}
	ids := slices.SortedFunc(maps.Keys(s.held), func(a, b [32]byte) int {
		return slices.Compare(a[:], b[:])
	})
	for _, id := range append(ids, s.askedFor...) {
		b = append(b, id[:]...)
	}
	for _, server := range slices.Sorted(maps.Keys(s.linked)) {
		b = appendBool(binary.LittleEndian.AppendUint32(b, uint32(server)), s.linked[server])
	}
	return b
}

func (p *pending) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(p.from))
	return p.message.Encode(b)
}
