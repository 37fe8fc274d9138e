package multicast

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Log is a log of a group that a form may take for granted: the same entries in the same order at
// all members, each entry as often as it was proposed, and what one member has got, all that live
// get [TRAM, section 6: group validity, integrity, agreement and total order]. Members get entries
// each at its own pace. What a member proposed shortly before it crashed may get lost.
type Log struct {
	world   *World
	number  int // among what letters are carried to
	members []order.Replica
	ordered [][][]byte // by member: what came and was not taken
}

// NewLog makes a log.
func (w *World) NewLog(members []order.Replica) *Log {
	l := &Log{world: w, number: len(w.processes) + len(w.logs), members: slices.Clone(members),
		ordered: make([][][]byte, len(members))}
	w.logs = append(w.logs, l)
	return l
}

// Propose has an entry ordered, at some time. The bytes are not changed by anyone from here on.
func (l *Log) Propose(from order.Replica, entry []byte) {
	l.world.stage.carry(l.world.number(from), l.number, Letter{from, entry})
}

// Ordered takes the entries that reached a member since the last call, in the log's order.
func (l *Log) Ordered(at order.Replica) [][]byte {
	member := slices.Index(l.members, at)
	entries := l.ordered[member]
	l.ordered[member] = nil
	return entries
}

// order gives an entry its place, by having it carried to all members. A log whose members are gone
// but for a minority orders nothing any more.
func (l *Log) order(letter Letter) {
	if !l.world.quorate(l.members) {
		return
	}
	for _, member := range l.members {
		l.world.stage.carry(l.number, l.world.number(member), letter)
	}
}

// reach puts an entry where a member takes it.
func (l *Log) reach(at order.Replica, entry []byte) {
	member := slices.Index(l.members, at)
	l.ordered[member] = append(l.ordered[member], entry)
}
