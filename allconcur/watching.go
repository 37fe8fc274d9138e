package allconcur

import "github.com/ledgerd/ledgerd/order"

// FrameHead is what the header of a frame says, for people who watch the frames pass.
type FrameHead struct {
	// Name is the frame's kind as the papers name it: BCAST, RBCAST, FAIL, FWD or BWD.
	Name string
	// Epoch and Round are of a message or a vote. A notification has none.
	Epoch order.Epoch
	Round order.Round
	// Origin is the server that A-broadcast the message or that votes. Of a notification it is the
	// owner, and Target is the server that failed.
	Origin, Target order.ServerID
	// Votes reports that it is a vote, and Failure that it is a notification.
	Votes, Failure bool
}

// HeadOf returns what the header of a frame says. It reports false for bytes that are no frame. It
// does not allocate for frames.
func HeadOf(frame []byte) (FrameHead, bool) {
	header, err := decodeFrame(frame, MaxPayloadLimit)
	if err != nil {
		return FrameHead{}, false
	}
	head := FrameHead{Epoch: header.epoch, Round: header.round, Origin: header.origin}
	switch header.kind {
	case kindUnreliable:
		head.Name = "BCAST"
	case kindReliable:
		head.Name = "RBCAST"
	case kindFailure:
		head.Name, head.Failure = "FAIL", true
		head.Origin, head.Target = header.owner, header.target
	case kindForward:
		head.Name, head.Votes = "FWD", true
	default:
		head.Name, head.Votes = "BWD", true
	}
	return head, true
}

// Progress says which round a server is in, and which servers that round waits for.
type Progress struct {
	Epoch    order.Epoch
	Round    order.Round
	Reliable bool
	// Decided: the set of the round is decided, and the server waits for votes.
	Decided bool
	// Failures counts the valid failure notifications.
	Failures int
	// Awaited are the servers whose message, or vote, is missing, ascending.
	Awaited []order.ServerID
}

// Progress returns what Status says of the current round, and appends the servers that it waits for
// to a list that the caller may use again.
func (e *Engine) Progress(awaited []order.ServerID) Progress {
	for _, p := range e.overlay.members {
		if e.awaits(p) {
			awaited = append(awaited, p)
		}
	}
	return Progress{Epoch: e.epoch, Round: e.round, Reliable: e.reliable, Decided: e.decided,
		Failures: len(e.failures.arrived), Awaited: awaited}
}
