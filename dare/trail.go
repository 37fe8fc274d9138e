package dare

import (
	"fmt"

	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Trail is what a server has shown so far: the terms that it led, and the entries that it knew to
// be committed. A search that looks at one schedule of several equivalent ones needs it. Trails do
// not depend on the order in which servers worked that knew nothing of each other, and what two of
// them contradict each other about stays so. The zero value is an empty trail.
type Trail struct {
	wins  []win
	fixed []fixedEntry // the committed entries, from index 1 on
}

// win is a term that a server led, with its log: the terms of birth of the entries behind from.
type win struct {
	term  uint64
	from  int
	borns []uint64
}

// Look adds what a server shows. It must be called after each Poll of the server. Trails share
// nothing that changes.
func (t *Trail) Look(s *Server) {
	if s.halted != "" || s.recovery != nil {
		return
	}
	fixed := t.fixed[:len(t.fixed):len(t.fixed)]
	for index := uint64(len(fixed)) + 1; index <= min(s.knows(), s.tail()); index++ {
		e := s.at(index)
		if e.index == 0 {
			break
		}
		fixed = append(fixed, fixedEntry{e.born, s.term})
	}
	t.fixed = fixed
	if s.role != leading || len(t.wins) > 0 && t.wins[len(t.wins)-1].term == s.term {
		return
	}
	w := win{term: s.term, from: len(fixed)}
	for index := uint64(w.from) + 1; index <= s.tail(); index++ {
		w.borns = append(w.borns, s.at(index).born)
	}
	t.wins = append(t.wins[:len(t.wins):len(t.wins)], w)
}

// Append appends the trail.
func (t *Trail) Append(state []byte) []byte {
	f := protected.Facts{B: state}
	f.Number(uint64(len(t.wins)))
	for _, w := range t.wins {
		f.Numbers(w.term, uint64(w.from), uint64(len(w.borns)))
		f.Numbers(w.borns...)
	}
	f.Number(uint64(len(t.fixed)))
	for _, e := range t.fixed {
		f.Numbers(e.born, e.term)
	}
	return f.B
}

// CheckTrails judges the trails of all servers of a group, including those that crashed. It returns
// what is broken, with the number of the invariant in doc.go, or "".
func CheckTrails(trails []*Trail) string {
	for i, t := range trails {
		for j, other := range trails {
			for index := range min(len(t.fixed), len(other.fixed)) {
				if a, b := t.fixed[index].born, other.fixed[index].born; a != b {
					return fmt.Sprintf("I3: entry %d of term %d is committed at server %d, and "+
						"that of term %d at server %d", index+1, a, i, b, j)
				}
			}
			for _, w := range t.wins {
				if broken := w.check(other, i, j); broken != "" {
					return broken
				}
			}
		}
	}
	return ""
}

// check compares a term that a server led with what another one showed.
func (w *win) check(other *Trail, leader, number int) string {
	for _, o := range other.wins {
		if leader != number && o.term == w.term {
			return fmt.Sprintf("I1: servers %d and %d led term %d", leader, number, w.term)
		}
	}
	for index := w.from; index < len(other.fixed); index++ {
		e, at := other.fixed[index], index-w.from
		if e.term < w.term && (at >= len(w.borns) || w.borns[at] != e.born) {
			return fmt.Sprintf("I3: server %d knew entry %d of term %d to be committed in term "+
				"%d, and leader %d of term %d lacked it", number, index+1, e.born, e.term, leader,
				w.term)
		}
	}
	return ""
}

// AppendView appends everything that Check depends on, except the log. A search recognises by it
// what it judged before.
func (s *Server) AppendView(state []byte) []byte {
	f := protected.Facts{B: state}
	f.Truth(s.halted != "")
	f.Truth(s.closed)
	f.Truth(s.recovery != nil)
	f.Numbers(s.term, uint64(s.role), s.commit, s.applied)
	for _, m := range s.members {
		f.Truth(m != nil && m.excluded)
	}
	return f.B
}

// Log returns the region of the log.
func (s *Server) Log() rdmanet.Region { return s.held.Region }
