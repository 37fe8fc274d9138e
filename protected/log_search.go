package protected

import (
	"bytes"
	"slices"
)

// This file is what exhaustive search needs of a log.

// Copy returns a log in the same state, for a copied user with copied boards. Use must follow.
func (l *Log) Copy(boards *Boards, user User) *Log {
	own := *l
	own.boards, own.user, own.ways = boards, user, nil
	own.members = make([]*member, len(l.members))
	for i, m := range l.members {
		other := *m
		other.Way = m.Way.Copy()
		other.Owner = &other
		other.held, other.batch = slices.Clip(m.held), bytes.Clone(m.batch)
		own.members[i] = &other
	}
	own.askers = slices.Clone(l.askers)
	own.staged = staged{bytes.Clone(l.staged.bytes), slices.Clone(l.staged.indexes),
		slices.Clone(l.staged.lent)}
	own.fetches = nil
	for _, f := range l.fetches {
		other := *f
		other.bytes, other.member = bytes.Clone(f.bytes), own.members[f.member.server]
		own.fetches = append(own.fetches, &other)
	}
	return &own
}

// SameCount returns the counter in a copy that corresponds to one of this log, or nil if it is none
// of it.
func (l *Log) SameCount(count *int, other *Log) *int {
	return SameCount(count, l.staged.lent, other.staged.lent)
}

// Into returns the memory that a post of the log reads into. It is nil for other posts.
func (l *Log) Into(p Post) []byte {
	m, is := p.Way.Owner.(*member)
	switch {
	case !is:
	case p.Kind == postTrailer:
		return m.batch[int(p.Number-m.reached)*logTrailer:][:logTrailer]
	case p.Kind == postMessage:
		for _, f := range l.fetches {
			if f.entry.Index == p.Number && f.member == m {
				return f.bytes
			}
		}
	}
	return nil
}

// Depends reports whether a process's behaviour depends on having handled the successful completion
// of a post of its boards or its log. It does not for a word of a board, which is posted and
// forgotten. Nor does it for a trailer that is read before others of its batch, because the log
// only looks at the whole batch.
func Depends(p Post) bool {
	switch owner := p.Way.Owner.(type) {
	case *Row:
		return false
	case *member:
		return p.Kind != postTrailer || p.Number == owner.reached+trailersAtOnce-1
	}
	return true
}

// Log appends the state of a log.
func (f *Facts) Log(l *Log) {
	f.Truth(l.halted != "")
	f.Truth(l.oracle)
	f.Numbers(uint64(l.role), uint64(l.leader), uint64(l.stamp), l.counter)
	f.Held(&l.held)
	f.Numbers(l.applied, l.horizon, l.floor, l.scanned, l.heard, uint64(l.failures),
		uint64(l.missing))
	f.Until(l.notLead)
	for i := range l.askers {
		f.Number(uint64(l.askers[i].Seen))
	}
	if l.role == leading {
		f.Numbers(l.told, l.real)
		f.Since(l.ordered, l.config.Quiet)
	}
	if l.role >= fetching {
		f.Number(l.end)
	}
	for _, x := range l.fetches {
		f.entry(x.entry)
		f.Bytes(x.bytes)
		f.Truth(x.posted)
		f.Number(uint64(x.member.server))
	}
	for _, m := range l.members {
		f.Petition(&m.Petition)
		f.Truth(m.excluded)
		f.Number(m.taken)
		if l.role == following {
			continue
		}
		f.Truth(m.begun)
		f.Truth(m.known)
		f.Numbers(m.next, m.acked, m.from, m.reached, uint64(m.empty), uint64(m.waits),
			uint64(len(m.held)))
		for _, h := range m.held {
			f.entry(h)
		}
		f.Bytes(m.batch)
	}
	f.Lent(l.staged.lent)
}

func (f *Facts) entry(e Entry) {
	f.Numbers(uint64(e.Timestamp), e.ordered, e.taken, uint64(e.Origin), uint64(e.Length), e.Number,
		e.Index)
}
