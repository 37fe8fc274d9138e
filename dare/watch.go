package dare

import (
	"bytes"
	"fmt"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is for tests and simulators. It looks into the memory of all servers of a group, which
// no server can, and checks what doc.go says must always hold.

// Watch judges a group while it runs. It remembers what was committed, and by which leaders.
type Watch struct {
	leaders map[uint64]int // by term
	fixed   []fixedEntry   // the committed entries, from index 1 on
	seen    []pointers     // by server
}

// fixedEntry is a committed entry: the term of its birth, and the term in which it was committed.
type fixedEntry struct{ born, term uint64 }

// pointers are what never goes back at a server.
type pointers struct {
	term, known, written, applied uint64
	who                           rdmanet.Peer
}

// NewWatch returns a watch over a group of the given number of servers.
func NewWatch(servers int) *Watch {
	return &Watch{leaders: map[uint64]int{}, seen: make([]pointers, servers)}
}

// Look judges the group after server at has worked. Servers whose hosts ended are nil. Look returns
// what is broken, with the number of the invariant in doc.go, or "". It must be called after each
// Poll of each server.
func (w *Watch) Look(servers []*Server, at int) string {
	s := servers[at]
	if s.halted != "" || s.recovery != nil {
		return ""
	}
	if broken := w.history(s, at); broken != "" {
		return broken
	}
	return Check(servers)
}

// history compares a server with what was seen before.
func (w *Watch) history(s *Server, at int) string {
	before := w.seen[at]
	now := pointers{s.term, s.knows(), s.held.Region.Load(logCommit), s.applied, s.me}
	w.seen[at] = now
	if before.who != s.me { // it restarted, and has the entries behind a snapshot at most
		before = pointers{applied: s.applied}
		if s.from == none {
			before.applied = 0
		}
	}
	if now.term < before.term || now.known < before.known || now.written < before.written ||
		now.applied < before.applied {
		return fmt.Sprintf("I4: at server %d, %+v comes after %+v", at, now, before)
	}
	for index := before.applied + 1; index <= min(now.known, s.tail()); index++ {
		born := s.at(index).born
		if index > uint64(len(w.fixed)) {
			w.fixed = append(w.fixed, fixedEntry{born, s.term})
		} else if other := w.fixed[index-1].born; other != born {
			return fmt.Sprintf("I3: entry %d of term %d is committed, and server %d has one of "+
				"term %d as committed", index, other, at, born)
		}
	}
	if s.role != leading {
		return ""
	}
	if leader, known := w.leaders[s.term]; known {
		if leader != at {
			return fmt.Sprintf("I1: servers %d and %d lead term %d", leader, at, s.term)
		}
		return ""
	}
	w.leaders[s.term] = at
	for i := s.applied; i < uint64(len(w.fixed)); i++ {
		if f := w.fixed[i]; f.term < s.term && (i >= s.tail() || s.at(i+1).born != f.born) {
			return fmt.Sprintf("I3: entry %d of term %d was committed in term %d, and leader %d "+
				"of term %d lacks it", i+1, f.born, f.term, at, s.term)
		}
	}
	return ""
}

// Check judges what a group's servers hold at one moment, as for Look. It returns what is broken,
// or "". A search that copies servers calls it, because it needs no memory of its own.
func Check(servers []*Server) string {
	newest := uint64(0)
	for _, s := range servers {
		if s != nil {
			newest = max(newest, s.term)
		}
	}
	for i, s := range servers {
		if s == nil || s.halted != "" || s.closed || s.recovery != nil {
			continue
		}
		if broken := s.whole(i, servers); broken != "" {
			return broken
		}
		for j, other := range servers[:i] {
			if other == nil || other.halted != "" || other.recovery != nil {
				continue
			}
			if other.role == leading && s.role == leading && other.term == s.term {
				return fmt.Sprintf("I1: servers %d and %d lead term %d", j, i, s.term)
			}
			if broken := compare(servers, j, i); broken != "" {
				return broken
			}
		}
		if s.role != leading || s.term != newest {
			continue
		}
		for j, other := range servers {
			if other == nil {
				continue
			}
			if known := min(other.knows(), other.tail()); known > s.tail() {
				return fmt.Sprintf("I3: server %d knows entry %d to be committed, and leader %d "+
					"of term %d ends at %d", j, known, i, s.term, s.tail())
			}
			if broken := s.keeps(j, other); broken != "" {
				return broken
			}
		}
	}
	return ""
}

// whole checks a server's own log: its pointers, and that all entries that it did not apply are
// there.
func (s *Server) whole(number int, servers []*Server) string {
	tail, written := s.tail(), s.held.Region.Load(logCommit)
	if s.applied > s.knows() || s.applied > tail || written > tail {
		return fmt.Sprintf("I4: server %d applied %d of %d, and knows %d to be committed", number,
			s.applied, tail, s.knows())
	}
	if excluded(servers, number) {
		return ""
	}
	for index := s.applied + 1; index <= tail; index++ {
		if s.at(index).index == 0 {
			return fmt.Sprintf("I5: server %d applied %d of %d, and its log lacks entry %d",
				number, s.applied, tail, index)
		}
		if s.config.Change == nil || index == tail {
			continue
		}
		if d, is := s.delivery(s.at(index), 0); is && s.ends(d) {
			return fmt.Sprintf("I8: entry %d of server %d ends the run, and the log goes to %d",
				index, number, tail)
		}
	}
	return ""
}

// keeps checks that a leader keeps entries for a server that recovers.
func (s *Server) keeps(number int, newcomer *Server) string {
	holder := s.group().Seats[number]
	if newcomer.recovery == nil || holder.Peer != newcomer.me || s.members[number] == nil ||
		s.members[number].excluded || s.tail() <= holder.From+uint64(s.layout.slots) {
		return ""
	}
	return fmt.Sprintf("I5: the leader's log ends at %d, and server %d recovers and needs all "+
		"behind entry %d", s.tail(), number, holder.From)
}

// knows is known without remembering: a look must not change what it looks at.
func (s *Server) knows() uint64 { return max(s.commit, s.held.Region.Load(logCommit)) }

// compare checks that two logs are equal up to the last entry that both have, and agree on what is
// committed. It looks at entries that neither server applied: the slots of the others may be in
// use for later ones.
func compare(servers []*Server, a, b int) string {
	one, other := servers[a], servers[b]
	if excluded(servers, a) || excluded(servers, b) {
		return ""
	}
	first := max(one.applied, other.applied) + 1
	committed := min(one.knows(), other.knows())
	same := false
	for index := min(one.tail(), other.tail()); index >= first; index-- {
		x, y := one.at(index), other.at(index)
		equal := x.born == y.born && x.length == y.length &&
			bytes.Equal(one.body(x), other.body(y))
		if x.born == y.born && !equal || same && !equal {
			return fmt.Sprintf("I2: servers %d and %d differ at entry %d, of terms %d and %d",
				a, b, index, x.born, y.born)
		}
		if index <= committed && !equal {
			return fmt.Sprintf("I3: servers %d and %d know entry %d to be committed, and have "+
				"those of terms %d and %d", a, b, index, x.born, y.born)
		}
		same = same || equal
	}
	return ""
}

// excluded reports whether some server no longer keeps entries for another.
func excluded(servers []*Server, number int) bool {
	for _, s := range servers {
		if s != nil && s.members[number] != nil && s.members[number].excluded {
			return true
		}
	}
	return false
}
