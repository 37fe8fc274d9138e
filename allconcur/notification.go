package allconcur

import (
	"fmt"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// notification is ⟨FAIL, p_j, p_k⟩: the owner p_k, a successor of the target p_j in G_R, says that
// the target failed.
type notification struct {
	target order.ServerID
	owner  order.ServerID
}

// sequence is the state of one edge of G_R under ◇P, where notifications are numbered. The last
// notification is valid if its number is above revoked.
type sequence struct {
	last    uint32
	revoked uint32
}

// notifications is the set F_i of valid failure notifications [Poke19, Algorithm 6.1]: target and
// owner are members.
type notifications struct {
	reliable *digraph.Digraph
	// arrived lists them in the order of arrival, which is also the order of redelivery.
	arrived []notification
	// owned has a bit for each edge of G_R: bit i of target's row says that the target's successor
	// i owns a notification of its failure.
	owned []uint64
	// rowWords is the length of a row in owned.
	rowWords int
	// targets are the servers that a notification targets: the suspected ones.
	targets     serverSet
	targetCount int
	// sequences has an entry for each bit in owned under ◇P. It is made on first use.
	sequences []sequence
	// ownersKept plants FaultRemovedOwnerKept.
	ownersKept bool
}

func newNotifications(reliable *digraph.Digraph) *notifications {
	n := reliable.Order()
	rowWords := max(1, words(reliable.Degree()))
	return &notifications{reliable: reliable, owned: make([]uint64, n*rowWords), rowWords: rowWords,
		targets: newServerSet(n)}
}

// sequence returns the entry of the edge from the target to its successor at an index.
func (f *notifications) sequence(target order.ServerID, index int) *sequence {
	if f.sequences == nil {
		f.sequences = make([]sequence, f.reliable.Order()*f.reliable.Degree())
	}
	return &f.sequences[int(target)*f.reliable.Degree()+index]
}

// successorIndex returns the index of owner among the target's successors in G_R, or -1.
func successorIndex(g *digraph.Digraph, target, owner order.ServerID) int {
	for i, s := range g.Successors(int(target)) {
		if s == int(owner) {
			return i
		}
	}
	return -1
}

func (f *notifications) row(target order.ServerID) []uint64 {
	start := int(target) * f.rowWords
	return f.owned[start : start+f.rowWords]
}

// has reports whether the target's successor at an index owns a notification of its failure.
func (f *notifications) has(target order.ServerID, index int) bool {
	return f.row(target)[index/wordBits]>>(index%wordBits)&1 != 0
}

// mark counts a notification without listing it.
func (f *notifications) mark(target order.ServerID, index int) {
	f.row(target)[index/wordBits] |= 1 << (index % wordBits)
	if !f.targets.has(target) {
		f.targets.add(target)
		f.targetCount++
	}
}

// unmark makes all notifications uncounted. They stay listed.
func (f *notifications) unmark() {
	clear(f.owned)
	f.targets.clear()
	f.targetCount = 0
}

// retain keeps the notifications that are not revoked and whose target and owner are both members
// [Poke19, Algorithm 6.5, line 74].
func (f *notifications) retain(members serverSet) {
	kept := f.arrived[:0]
	for _, fn := range f.arrived {
		if members.has(fn.target) && (members.has(fn.owner) || f.ownersKept) && !f.isRevoked(fn) {
			kept = append(kept, fn)
		}
	}
	f.arrived = kept
	f.unmark()
	for _, fn := range f.arrived {
		f.mark(fn.target, successorIndex(f.reliable, fn.target, fn.owner))
	}
}

func (f *notifications) isRevoked(fn notification) bool {
	if f.sequences == nil {
		return false
	}
	s := f.sequence(fn.target, successorIndex(f.reliable, fn.target, fn.owner))
	return s.last > 0 && s.last <= s.revoked
}

func (f *notifications) clone() *notifications {
	c := *f
	c.arrived = append([]notification(nil), f.arrived...)
	c.owned = append([]uint64(nil), f.owned...)
	c.targets = f.targets.clone()
	c.sequences = append([]sequence(nil), f.sequences...)
	return &c
}

// Suspect takes a suspicion of this server's own failure detector. The engine turns it into a
// failure notification. From here on it takes no message from the suspected server, as if the edge
// were cut. Under ◇P the messages are held, as if the edge were slow; notifications and votes are
// still taken. A perfect detector's suspicion comes after the last frame of the server that failed.
//
// The error wraps ErrNotPredecessor if the server is no predecessor in G_R. Suspecting a server
// that is already suspected or removed changes nothing.
func (e *Engine) Suspect(server order.ServerID) error {
	e.begin()
	if e.halted != "" {
		return e.haltedError()
	}
	index := -1
	if uint64(server) < uint64(e.n) {
		index = successorIndex(e.config.Reliable, server, e.self)
	}
	switch {
	case index < 0:
		return fmt.Errorf("%w: server %d", ErrNotPredecessor, server)
	case e.ended || !e.members.has(server):
		return nil
	case !e.perfect:
		e.suspect(server, index)
		e.settle()
		return nil
	}
	e.ignored.add(server)
	if !e.failures.has(server, index) {
		e.handleFailure(server, e.self, index, e.self,
			encodeFailure(e.config.Generation, server, e.self, 0))
	}
	return nil
}

// receiveFailure checks a notification that arrived over G_R.
func (e *Engine) receiveFailure(from order.ServerID, header frameHeader, frame []byte) error {
	target, owner := header.target, header.owner
	if uint64(target) >= uint64(e.n) || uint64(owner) >= uint64(e.n) {
		return fmt.Errorf("%w: a failure notification of server %d by server %d in a group of %d",
			order.ErrFrame, target, owner, e.n)
	}
	index := successorIndex(e.config.Reliable, target, owner)
	if index < 0 {
		return fmt.Errorf("%w: a failure notification by server %d, which is no successor of "+
			"its target %d", order.ErrFrame, owner, target)
	}
	if e.perfect != (header.sequence == 0) {
		return fmt.Errorf("%w: a failure notification with the sequence number %d", order.ErrFrame,
			header.sequence)
	}
	if !e.members.has(from) || !e.members.has(target) || !e.members.has(owner) {
		return nil // invalid: it concerns a removed server [Poke19, section 6.2.1]
	}
	if owner == e.self {
		return nil // its own
	}
	if !e.perfect {
		e.receiveNumbered(from, header, index, frame)
		return nil
	}
	if e.ignored.has(from) {
		// The paper takes notifications from a suspected predecessor [Poke19, section 5.2.1.2]. But
		// a notification says "I sent on everything that I had", and the messages before it were
		// dropped. It would prove a message lost that the others have.
		return nil
	}
	if e.failures.has(target, index) {
		return nil // a duplicate
	}
	e.handleFailure(target, owner, index, from, frame)
	return nil
}

// handleFailure handles a new valid notification [Poke19, Algorithm 6.4]. It relays the
// notification first, so that anything this server A-broadcasts or relays because of it arrives
// after it.
func (e *Engine) handleFailure(target, owner order.ServerID, index int, from order.ServerID,
	frame []byte) {
	e.send(e.overlay.forward.relays(owner, from), frame)
	fn := notification{target: target, owner: owner}
	e.failures.arrived = append(e.failures.arrived, fn)
	e.failures.mark(target, index)
	if e.perfect {
		e.haltIfHopeless(fn)
		if e.halted != "" {
			return
		}
	} else {
		e.unsettle()
	}
	if e.reliable {
		e.tracking.update(fn, index)
	} else {
		// This also redelivers the notification, the only one, in the reliable round.
		e.failFromUnreliable()
	}
	e.tryToComplete()
}

// haltIfHopeless halts this server if a notification shows that P was wrong, or that more servers
// fail than the group tolerates.
func (e *Engine) haltIfHopeless(fn notification) {
	if fn.target == e.self {
		// Under P no server receives a notification of its own failure. The others may go on
		// without this server's messages, so it stops and thereby makes the notification true.
		e.halt("server %d says that this server failed", fn.owner)
		return
	}
	if suspected := e.failures.targetCount; suspected+e.removedCount > e.tolerated {
		e.halt("%d servers removed and %d suspected, the group tolerates %d failures",
			e.removedCount, suspected, e.tolerated)
	}
}
