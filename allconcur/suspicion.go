package allconcur

import (
	"fmt"
	"math"

	"github.com/ledgerd/ledgerd/order"
)

// Suspicions under ◇P [Poke19, section 6.3.3.1]. A notification has a sequence number. The messages
// of the suspected predecessor are held, as if its link were slow. Once the detector trusts it
// again, this server's next reliable message carries a revocation with that number. When that
// message is A-delivered, the notification is invalid everywhere and for good, and the held
// messages are taken. Without a valid notification the group goes back to unreliable rounds.

// link is the edge from one predecessor in G_R.
type link struct {
	// sequence is that of the last notification.
	sequence uint32
	// suspected says that the last notification is not revoked yet, revoking that a revocation is
	// under way, and again that the detector suspects the predecessor again since.
	suspected bool
	revoking  bool
	again     bool
	// cut says that a held message was dropped: the predecessor is not trusted again in this run.
	cut  bool
	held [][]byte
}

// heldMessage is a message to be taken now.
type heldMessage struct {
	from  order.ServerID
	frame []byte
}

// suspicions is the part of the engine that only ◇P needs.
type suspicions struct {
	// links has an entry for each predecessor in G_R; none under P.
	links []link
	// revoking counts the links with a revocation under way.
	revoking int
	// held counts the messages held on all links.
	held int
	// released are messages to be taken, and anew predecessors to be suspected again, before the
	// call returns.
	released []heldMessage
	anew     []order.ServerID
}

// heldMax bounds the messages held on a link: those of all servers in the states that a server may
// still get to.
func heldMax(n int) int { return 4 * n }

// linkFrom returns the edge from a server, nil if it is no predecessor in G_R.
func (e *Engine) linkFrom(server order.ServerID) *link {
	if e.perfect {
		return nil
	}
	for i, p := range e.config.Reliable.Predecessors(int(e.self)) {
		if p == int(server) {
			return &e.links[i]
		}
	}
	return nil
}

// suspect takes a suspicion of a member. Index is this server's index among the member's
// successors.
func (e *Engine) suspect(server order.ServerID, index int) {
	l := e.linkFrom(server)
	switch {
	case !l.suspected:
		l.suspected = true
		l.sequence++
		e.ignored.add(server)
		e.failures.sequence(server, index).last = l.sequence
		e.handleFailure(server, e.self, index, e.self,
			encodeFailure(e.config.Generation, server, e.self, l.sequence))
	case !l.revoking:
	case e.ownRevokes(server):
		l.again = true // it cannot be recalled
	case e.config.Fault == FaultRevocationNotRecalled:
	default:
		l.revoking = false
		e.revoking--
	}
}

// Trust says that this server's own failure detector no longer suspects a server. Under ◇P its
// notification will be revoked. With a perfect detector that does not happen, and Trust changes
// nothing. The error wraps ErrNotPredecessor if the server is no predecessor in G_R.
func (e *Engine) Trust(server order.ServerID) error {
	e.begin()
	switch {
	case e.perfect:
		return nil
	case e.halted != "":
		return e.haltedError()
	}
	l := e.linkFrom(server)
	switch {
	case l == nil:
		return fmt.Errorf("%w: server %d", ErrNotPredecessor, server)
	case e.ended || !e.members.has(server) || !l.suspected || l.cut || l.sequence == math.MaxUint32:
	default:
		l.again = false
		if !l.revoking {
			l.revoking = true
			e.revoking++
		}
		e.tryToComplete() // held messages may help
		e.settle()
	}
	return nil
}

// ownRevokes reports whether this server's message of the current state revokes its notification of
// a server.
func (e *Engine) ownRevokes(server order.ServerID) bool {
	if !e.current.present.has(e.self) {
		return false
	}
	frame := e.current.frames[e.self]
	for i := range revocationCount(frame) {
		if revocationOf(frame, i).target == server {
			return true
		}
	}
	return false
}

// pendingRevocations lists the revocations of this server's next message, by ascending target. A
// revocation is listed again if the last message with it was not A-delivered.
func (e *Engine) pendingRevocations() []revocation {
	var list []revocation
	for p, more := e.ignored.next(0); more &&
		len(list) < revocationsMax; p, more = e.ignored.next(p + 1) {
		if l := e.linkFrom(p); l.revoking {
			list = append(list, revocation{target: p, sequence: l.sequence})
		}
	}
	return list
}

// areRevocations reports whether the revocations of a message may be its origin's: of notifications
// of its predecessors, each once, ascending.
func (e *Engine) areRevocations(header frameHeader, frame []byte) bool {
	if e.perfect {
		return false
	}
	least := order.ServerID(0)
	for i := range header.revocations {
		r := revocationOf(frame, i)
		if uint64(r.target) >= uint64(e.n) || r.target < least || r.sequence == 0 ||
			!e.config.Reliable.HasEdge(int(r.target), int(header.origin)) {
			return false
		}
		least = r.target + 1
	}
	return true
}

// receiveNumbered takes a notification under ◇P, also from a suspected predecessor, unless it is
// known or revoked.
func (e *Engine) receiveNumbered(from order.ServerID, header frameHeader, index int, frame []byte) {
	s := e.failures.sequence(header.target, index)
	if header.sequence <= s.last || header.sequence <= s.revoked {
		return
	}
	s.last = header.sequence
	if e.failures.has(header.target, index) {
		// The revocation of the last one is A-delivered where this one was made, but not here yet.
		e.send(e.overlay.forward.relays(header.owner, from), frame)
		e.unsettle()
		return
	}
	e.handleFailure(header.target, header.owner, index, from, frame)
}

// unsettle asks for a round that begins after this notification, and for its end. Any consequence
// of the notification occurs by then.
func (e *Engine) unsettle() {
	e.solicit = 1
	if e.reliable {
		e.solicit = 2
	}
}

// applyRevocations applies the revocations in the messages of an A-delivered round. The messages
// held on this server's own links are taken once the next round has begun.
func (e *Engine) applyRevocations(set *roundSet) {
	if e.perfect {
		return
	}
	changed := false
	for p, more := set.present.next(0); more; p, more = set.present.next(p + 1) {
		for i := range revocationCount(set.frames[p]) {
			e.revoke(p, revocationOf(set.frames[p], i))
			changed = true
		}
	}
	if changed {
		e.failures.retain(e.members)
	}
}

func (e *Engine) revoke(owner order.ServerID, r revocation) {
	s := e.failures.sequence(r.target, successorIndex(e.config.Reliable, r.target, owner))
	s.revoked = max(s.revoked, r.sequence)
	if e.config.Fault == FaultRevokeWrongSequence {
		s.revoked = max(s.revoked, s.last)
	}
	if owner != e.self {
		return
	}
	l := e.linkFrom(r.target)
	if !l.revoking || l.sequence != r.sequence {
		return
	}
	l.revoking, l.suspected = false, false
	e.revoking--
	if l.again {
		l.again = false
		e.anew = append(e.anew, r.target)
		return
	}
	e.ignored.remove(r.target)
	e.release(r.target, l)
}

// release schedules the messages held on a link to be taken before the call returns.
func (e *Engine) release(from order.ServerID, l *link) {
	for _, frame := range l.held {
		e.released = append(e.released, heldMessage{from: from, frame: frame})
	}
	e.held -= len(l.held)
	l.held = nil
}

// hold keeps a message of a suspected predecessor that may still be of use. Under P it drops the
// message.
func (e *Engine) hold(from order.ServerID, header frameHeader, frame []byte) {
	l := e.linkFrom(from)
	if l == nil || l.cut || e.isOutdated(header) {
		return
	}
	for _, set := range []*roundSet{e.current, e.next} {
		if set.is(header.epoch, header.round, header.kind == kindReliable) &&
			set.present.has(header.origin) {
			return
		}
	}
	if len(l.held) == heldMax(e.n) {
		e.cut(from, l)
		return
	}
	l.held = append(l.held, frame)
	e.held++
}

// cut gives up a link: a message on it is lost. A revocation that is already in this server's
// message cannot be recalled, so the predecessor is suspected anew after it.
func (e *Engine) cut(from order.ServerID, l *link) {
	l.cut = true
	e.held -= len(l.held)
	l.held = nil
	switch {
	case !l.revoking:
	case e.ownRevokes(from):
		l.again = true
	default:
		l.revoking, l.again = false, false
		e.revoking--
	}
}

// isOutdated reports whether a message is of a past state.
func (e *Engine) isOutdated(header frameHeader) bool {
	return header.epoch < e.epoch || header.round <= e.delivered
}

// forgetHeld drops held messages that are outdated or of a removed member, and cuts the links from
// removed servers.
func (e *Engine) forgetHeld() {
	for i, p := range e.config.Reliable.Predecessors(int(e.self)) {
		l := &e.links[i]
		if !e.members.has(order.ServerID(p)) {
			e.cut(order.ServerID(p), l)
			continue
		}
		kept := l.held[:0]
		for _, frame := range l.held {
			header, err := decodeFrame(frame, e.config.MaxPayload)
			assert(err == nil, "only well-formed messages are held")
			if !e.isOutdated(header) && e.members.has(header.origin) {
				kept = append(kept, frame)
			}
		}
		clear(l.held[len(kept):])
		e.held -= len(l.held) - len(kept)
		l.held = kept
	}
}

// takesHeld reports whether messages of a suspected predecessor are taken all the same. They are if
// the detector trusts it again and this server can decide nothing without them: the revocation
// would otherwise wait for messages that it has to release. The messages in a set do not affect
// safety. Votes do.
func (e *Engine) takesHeld(from order.ServerID) bool {
	if !e.undecidable() {
		return false
	}
	l := e.linkFrom(from)
	return l.revoking && !l.again
}

// releaseForMajority releases the held messages for which takesHeld is true.
func (e *Engine) releaseForMajority() {
	for i, p := range e.config.Reliable.Predecessors(int(e.self)) {
		if l := &e.links[i]; len(l.held) > 0 && e.takesHeld(order.ServerID(p)) {
			e.release(order.ServerID(p), l)
		}
	}
}

// grows reports whether the current set lacks a message.
func (e *Engine) grows(header frameHeader) bool {
	return e.current.is(header.epoch, header.round, header.kind == kindReliable) &&
		!e.current.present.has(header.origin)
}

// releasedGrows reports whether the current set lacks one of the released messages that are yet to
// be taken. A set grows before it is decided, so that servers decide the same set more often. When
// a server decides does not affect safety. All released messages are taken before the call returns.
func (e *Engine) releasedGrows() bool {
	for _, m := range e.released {
		header, err := decodeFrame(m.frame, e.config.MaxPayload)
		assert(err == nil, "only well-formed messages are held")
		if e.members.has(m.from) && e.members.has(header.origin) && e.grows(header) {
			return true
		}
	}
	return false
}

// settle ends a call. It suspects anew the servers that the detector suspects again, and takes the
// released messages, in order.
func (e *Engine) settle() {
	for len(e.anew)+len(e.released) > 0 && e.halted == "" && !e.ended {
		if len(e.anew) > 0 {
			server := e.anew[0]
			e.anew = e.anew[1:]
			if e.members.has(server) {
				e.suspect(server, successorIndex(e.config.Reliable, server, e.self))
			}
			continue
		}
		m := e.released[0]
		e.released = e.released[1:]
		header, err := decodeFrame(m.frame, e.config.MaxPayload)
		assert(err == nil, "only well-formed messages are held")
		switch {
		case !e.members.has(m.from) || !e.members.has(header.origin):
		case e.grows(header):
			e.handle(m.from, header, m.frame)
		default:
			e.take(m.from, header, m.frame)
		}
		if len(e.released) == 0 {
			e.tryToComplete() // the decision may have waited for them
		}
	}
	e.anew, e.released = nil, nil
}

// recallRevocations recalls revocations whose message was not A-delivered, if the detector suspects
// the server again. The next message carries the others.
func (e *Engine) recallRevocations() {
	if e.config.Fault == FaultRevocationNotRecalled {
		return
	}
	for i := range e.links {
		if l := &e.links[i]; l.again {
			l.revoking, l.again = false, false
			e.revoking--
		}
	}
}
