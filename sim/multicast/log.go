package multicast

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Log is a log of a group that a form may assume. It has the same entries in the same order at all
// members, each entry as often as it was proposed, and an entry that one member received reaches
// all live members [TRAM, section 6: group validity, integrity, agreement and total order]. Members
// receive entries at their own pace. Proposals of a member shortly before it crashed may get lost.
type Log struct {
	world   *World
	number  int // among the processes and logs that letters are carried to
	members []order.Replica
	ordered [][][]byte // by member: the entries that arrived and were not taken
}

// NewLog creates a log.
func (w *World) NewLog(members []order.Replica) *Log {
	l := &Log{world: w, number: len(w.processes) + len(w.logs), members: slices.Clone(members),
		ordered: make([][][]byte, len(members))}
	w.logs = append(w.logs, l)
	return l
}

// Propose proposes an entry, which is ordered later. The bytes must not be changed any more.
func (l *Log) Propose(from order.Replica, entry []byte) {
	l.world.stage.carry(l.world.number(from), l.number, Letter{from, entry})
}

// Ordered returns the entries that reached a member since the last call, in the log's order.
func (l *Log) Ordered(at order.Replica) [][]byte {
	member := slices.Index(l.members, at)
	entries := l.ordered[member]
	l.ordered[member] = nil
	return entries
}

// order gives an entry its place, by carrying it to all members. A log orders nothing any more once
// only a minority of its members is left.
func (l *Log) order(letter Letter) {
	if !l.world.quorate(l.members) {
		return
	}
	for _, member := range l.members {
		l.world.stage.carry(l.number, l.world.number(member), letter)
	}
}

// reach hands an entry to a member.
func (l *Log) reach(at order.Replica, entry []byte) {
	member := slices.Index(l.members, at)
	l.ordered[member] = append(l.ordered[member], entry)
}
