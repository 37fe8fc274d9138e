package allconcur

import "github.com/ledgerd/ledgerd/order"

// HeadOf returns what the header of a frame says. It reports false for bytes that are no frame. It
// does not allocate for frames.
func HeadOf(frame []byte) (order.FrameHead, bool) {
	header, err := decodeFrame(frame, MaxPayloadLimit)
	if err != nil {
		return order.FrameHead{}, false
	}
	head := order.FrameHead{Epoch: header.epoch, Round: header.round, Origin: header.origin}
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

// Progress returns what Status says of the current round, and appends the servers that it waits for
// to a list that the caller may use again.
func (e *Engine) Progress(awaited []order.ServerID) order.Progress {
	for _, p := range e.overlay.members {
		if e.awaits(p) {
			awaited = append(awaited, p)
		}
	}
	return order.Progress{Epoch: e.epoch, Round: e.round, Reliable: e.reliable, Decided: e.decided,
		Failures: len(e.failures.arrived), Awaited: awaited}
}
