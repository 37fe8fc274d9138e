package order

import "errors"

// ServerID identifies a server of one group, 0 to n-1, by its position in the group's member list
// [Poke19, section 2.1].
type ServerID uint32

// Round numbers the rounds of an atomic broadcast. Every server A-broadcasts one message a round.
// The first round is 1.
type Round uint64

// Epoch counts the reliable rounds completed so far, plus the one under way [Poke19, section
// 6.2.2]. The first epoch is 1.
type Epoch uint64

// Message is one server's A-broadcast message of a round.
type Message struct {
	// Origin is the server that A-broadcast the payload.
	Origin ServerID
	// Payload is empty if the origin had nothing to send. It never changes after the A-broadcast.
	// Receivers may keep it and must not write to it.
	Payload []byte
}

// Delivery is one A-delivered round. All servers A-deliver equal deliveries in the same order.
//
// An engine with prompt delivery A-delivers a round's messages before the group agrees on who sent
// an empty one. Its deliveries hold only messages with a payload, and remove nobody: Closings do.
// Epoch is then the last in which one of the messages was A-broadcast for the first time, 0 if
// there are none.
type Delivery struct {
	Epoch Epoch
	Round Round
	// Messages holds one message for each server whose message of this round is A-delivered, by
	// ascending Origin.
	Messages []Message
	// Removed lists the servers that leave the group with this round because no message of theirs
	// was A-delivered, ascending.
	Removed []ServerID
}

// Closing says that the group agreed on the set of a round, whose messages are A-delivered already
// or with it. Only an engine with prompt delivery has closings. All servers close the same rounds
// in the same order, with equal closings.
type Closing struct {
	Epoch Epoch
	Round Round
	// Removed lists the servers that leave the group with this round, ascending.
	Removed []ServerID
}

// Send asks the driver to put one frame on the lanes to a set of servers.
type Send struct {
	// To lists the receivers. The engine owns the slice and never changes its contents. The driver
	// reads it until the next call of Ready.
	To []ServerID
	// Frame is immutable once handed out. A relayed frame is the same slice that was received.
	Frame []byte
}

// Ready lists the work that an engine has for its driver. The driver first carries out Sends, in
// order (FIFO to each receiver), then Deliveries and Closings. The engine owns the struct and its
// slices, which are valid until the next call of any of the engine's methods. The driver may keep
// frames and payloads.
type Ready struct {
	Sends      []Send
	Deliveries []Delivery
	Closings   []Closing
}

// Status describes the state of an engine, for people and for metrics.
type Status struct {
	Epoch Epoch
	Round Round
	// Reliable reports whether the current round is reliable.
	Reliable bool
	// Members are the servers of the group that have not been removed, ascending.
	Members []ServerID
	// Suspected are the members that a valid failure notification targets, ascending.
	Suspected []ServerID
	// Awaited are the servers whose messages of the current round are missing, ascending.
	Awaited []ServerID
	// Undelivered counts the completed rounds that cannot be A-delivered before later rounds
	// complete. With prompt delivery it also counts those that are A-delivered and not yet closed.
	Undelivered int
	// Decided reports whether this server has decided the set of the current reliable round and is
	// waiting for enough other servers to decide the same.
	Decided bool
	// Ended reports whether the eon is over: its last round is A-delivered, and the engine of the
	// next eon continues with the round after it [Poke19, section 6.3.3.2].
	Ended bool
	// Halted is the reason why this server delivers no more: it was removed, or more servers failed
	// than the group tolerates. It is "" while the server delivers.
	Halted string
}

// Broadcaster is atomic broadcast as a pure state machine: no clock, goroutine, random source or
// I/O. Its driver calls one method at a time:
//
//	for {
//		select one input:
//			a frame arrives from a lane       -> engine.Receive(from, frame)
//			the detector suspects a server    -> engine.Suspect(server)
//			the detector retracts a suspicion -> engine.Trust(server)
//		if engine.CanBroadcast() && (the pool has transactions || engine.Solicited() ||
//			engine.Undelivered() for a linger) {
//			engine.Broadcast(batch or nil)
//		}
//		ready := engine.Ready()
//		put ready.Sends on the lanes, hand ready.Deliveries to the pipeline
//	}
type Broadcaster interface {
	// CanBroadcast reports whether this server has yet to A-broadcast its message of the current
	// round.
	CanBroadcast() bool
	// Solicited reports whether CanBroadcast holds and another server is already waiting for this
	// server's message. Even an empty message is then due now.
	Solicited() bool
	// Undelivered reports whether the engine holds messages with a payload that only a later round
	// will deliver. A driver with nothing to send then A-broadcasts an empty message after a short
	// linger.
	Undelivered() bool
	// Broadcast A-broadcasts payload as this server's message of the current round. The engine
	// copies the payload, so the caller may reuse the slice. It returns ErrNotNow if CanBroadcast
	// does not hold, and ErrTooLarge if the payload is over the configured bound.
	Broadcast(payload []byte) error
	// Receive takes one frame from a lane. The engine may keep and relay the slice. It returns
	// ErrFrame for bytes that are not a frame of this group (the caller then drops the peer). Stale
	// and duplicate frames are no error.
	Receive(from ServerID, frame []byte) error
	// Suspect reports that the failure detector suspects a predecessor in the reliable digraph.
	Suspect(server ServerID) error
	// Trust reports that the detector no longer suspects a server: an eventually perfect detector
	// may retract a suspicion. An engine that assumes a perfect detector ignores the call.
	Trust(server ServerID) error
	// Ready returns the work that has accumulated since the last call.
	Ready() Ready
	// Status describes the engine; it allocates and is not for the hot path.
	Status() Status
}

// Prober is an engine that may rest without noticing that a server is gone, under an eventually
// perfect detector.
type Prober interface {
	// Probe makes the group show whether it still goes on, even if nobody has anything to say. A
	// driver calls it when a server that it suspects already shows that it left the run: if the
	// suspicion was false before, the engine was told nothing new.
	Probe()
}

// Relay is an engine whose messages go from server to server, all around. The servers that one
// waits for are then not known to be the slow ones.
type Relay interface {
	// Stuck reports whether the server waits, and cannot go on if its suspicions are right: nothing
	// goes on without the suspected servers. The group has to begin anew without them.
	Stuck() bool
}

// Borrower is a Broadcaster that can say when it has no further use for a frame.
type Borrower interface {
	Broadcaster
	// Horizon returns a round. Once it is A-delivered, and the next call of Ready made, the engine
	// no longer reads any of the frames that it has received so far. It returns 0 if it knows of no
	// such round at the moment.
	Horizon() Round
	// Delivered returns the last A-delivered round.
	Delivered() Round
	// UseMemory makes the engine take the memory of the frames that it makes of payloads from a
	// function, instead of the heap. The rule of received frames applies to them, too. The memory
	// has as many bytes as asked for, with any contents.
	UseMemory(take func(size int) []byte)
}

// Errors that engines return. Match them with errors.Is.
var (
	// ErrNotNow reports that this server has already A-broadcast in the current round, or is
	// halted.
	ErrNotNow = errors.New("order: nothing to broadcast now")
	// ErrTooLarge reports a payload over the configured bound.
	ErrTooLarge = errors.New("order: payload too large")
	// ErrFrame reports bytes that are not a frame of this group.
	ErrFrame = errors.New("order: malformed frame")
	// ErrHalted reports that this server delivers no more. Status.Halted has the reason.
	ErrHalted = errors.New("order: halted")
)
