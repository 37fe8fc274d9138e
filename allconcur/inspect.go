package allconcur

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Notification is a failure notification ⟨FAIL, target, owner⟩ for searches: the owner says that
// its predecessor failed.
type Notification struct {
	// Target is the server said to have failed.
	Target order.ServerID
	// Owner is the successor of the target that says so.
	Owner order.ServerID
}

// Notifications lists the valid failure notifications that arrived, F_i [Poke19, Algorithm 6.1], in
// the order of their arrival. It is for searches and tests; it allocates.
func (e *Engine) Notifications() []Notification {
	all := make([]Notification, len(e.failures.arrived))
	for i, fn := range e.failures.arrived {
		all[i] = Notification{Target: fn.target, Owner: fn.owner}
	}
	return all
}

// Received reports whether the message of a server for the current round is here. A tracking
// digraph need not follow that message any more.
func (e *Engine) Received(origin order.ServerID) bool { return e.current.present.has(origin) }

// Tracking returns the tracking digraph g_i of one server's message in the current reliable round,
// by its vertices and its edges [Poke19, section 5.2.1]. Both are ascending. Both are empty if the
// digraph is empty or the round is unreliable. It is for searches and tests; it allocates.
func (e *Engine) Tracking(origin order.ServerID) (vertices []order.ServerID,
	edges [][2]order.ServerID) {
	if !e.reliable || !e.tracking.awaited.has(origin) {
		return nil, nil
	}
	g := e.tracking.digraphs[origin]
	if g == nil {
		return []order.ServerID{origin}, nil
	}
	for x := range order.ServerID(e.n) {
		to := newServerSet(e.n)
		for i, y := range e.config.Reliable.Successors(int(x)) {
			if g.hasEdge(x, i) {
				to.add(order.ServerID(y))
			}
		}
		for y, more := to.next(0); more; y, more = to.next(y + 1) {
			edges = append(edges, [2]order.ServerID{x, y})
		}
	}
	return g.vertices.appendTo(nil), edges
}

// Describe names a frame as the papers do, with its state and its owner, for people who read a
// schedule.
func Describe(frame []byte) string {
	header, err := decodeFrame(frame, MaxPayloadLimit)
	if err != nil {
		return fmt.Sprintf("%d bytes that are no frame", len(frame))
	}
	switch header.kind {
	case kindUnreliable:
		return fmt.Sprintf("BCAST [%d,%d] of %d", header.epoch, header.round, header.origin) +
			describePrompt(header, frame)
	case kindReliable:
		text := fmt.Sprintf("RBCAST [[%d,%d]] of %d", header.epoch, header.round, header.origin) +
			describePrompt(header, frame)
		for i := range header.revocations {
			r := revocationOf(frame, i)
			text += fmt.Sprintf(" revoking FAIL %d #%d", r.target, r.sequence)
		}
		return text
	case kindFailure:
		text := fmt.Sprintf("FAIL %d by %d", header.target, header.owner)
		if header.sequence != 0 {
			text += fmt.Sprintf(" #%d", header.sequence)
		}
		return text
	default:
		return describeVote(header, frame)
	}
}

// describePrompt describes what prompt delivery adds to a message.
func describePrompt(header frameHeader, frame []byte) string {
	if !header.prompt {
		return ""
	}
	text := fmt.Sprintf(" since %d", header.since)
	var origins []order.ServerID
	for i := range header.entries {
		origins = append(origins, entryOf(frame, i).origin)
	}
	switch {
	case len(origins) == 0:
	case isRerun(frame):
		text += fmt.Sprintf(", with copies of %v", origins)
	default:
		text += fmt.Sprintf(", vouching for %v", origins)
	}
	return text
}

// describeVote names a FWD or BWD, with its set.
func describeVote(header frameHeader, frame []byte) string {
	name, phase := "FWD", "decided"
	if header.kind == kindBackward {
		name = "BWD"
	}
	if header.phase == phaseConfirmed {
		phase = "confirmed"
	}
	set := newServerSet((len(frame) - messageHeaderSize) * 8)
	copySet(set, frame)
	return fmt.Sprintf("%s [[%d,%d]] of %d, %s %v", name, header.epoch, header.round, header.origin,
		phase, set.appendTo(nil))
}
