package order

import "errors"

// ServerID names a server of one group, 0 to n-1, by its place in the group's member list [Poke19,
// section 2.1].
type ServerID uint32

// Round numbers the rounds of an atomic broadcast; every server A-broadcasts one message a round.
// The first is 1.
type Round uint64

// Epoch counts the reliable rounds completed so far, plus the one under way [Poke19, section
// 6.2.2]. The first is 1.
type Epoch uint64

// Message is one server's A-broadcast message of a round.
type Message struct {
	// Origin is the server that A-broadcast the payload.
	Origin ServerID
	// Payload is empty where the origin had nothing to send. It is never changed after the
	// A-broadcast; whoever receives it may keep it and must not write to it.
	Payload []byte
}

// Delivery is one A-delivered round. All servers A-deliver equal deliveries in the same order.
type Delivery struct {
	Epoch Epoch
	Round Round
	// Messages holds one message for each server whose message of this round is A-delivered, by
	// ascending Origin.
	Messages []Message
	// Removed names the servers that leave the group with this round, because no message of theirs
	// was A-delivered, ascending.
	Removed []ServerID
}

// Send asks the driver to put one frame on the lanes to some servers.
type Send struct {
	// To lists the receivers. The engine owns the slice and never changes its contents; the driver
	// reads it until the next call of Ready.
	To []ServerID
	// Frame is immutable once handed out. A relayed frame is the very slice that was received.
	Frame []byte
}

// Ready is what an engine wants done, in the order that it wants it: first Sends, in order (FIFO to
// each receiver), then Deliveries. It and its slices are the engine's and valid until the next call
// of any of the engine's methods; frames and payloads may be kept.
type Ready struct {
	Sends      []Send
	Deliveries []Delivery
}

// Status is what an engine knows of itself, for people and for metrics.
type Status struct {
	Epoch Epoch
	Round Round
	// Reliable tells the mode: a reliable round (true) or an unreliable one.
	Reliable bool
	// Members are the servers of the group that are not removed, ascending.
	Members []ServerID
	// Suspected are the members that a valid failure notification targets, ascending.
	Suspected []ServerID
	// Awaited are the servers whose messages of the current round are missing, ascending.
	Awaited []ServerID
	// Undelivered counts the completed rounds that wait for later ones before they are A-delivered.
	Undelivered int
	// Decided tells that this server has decided the set of the current reliable round, and waits
	// to hear that enough others decided the same.
	Decided bool
	// Ended tells that the eon is over: its last round is A-delivered, and the engine of the next
	// eon goes on with the round after it [Poke19, section 6.3.3.2].
	Ended bool
	// Halted says why this server delivers no more ("" while it does): it was removed, or more
	// servers failed than the group tolerates.
	Halted string
}

// Broadcaster is atomic broadcast as a pure state machine: no clock, goroutine, random source or
// I/O. Its driver calls one method at a time:
//
//	for {
//		select one input:
//			a frame from a lane       -> engine.Receive(from, frame)
//			the detector suspects one -> engine.Suspect(server)
//			and no longer             -> engine.Trust(server)
//		if engine.CanBroadcast() && (the pool has transactions || engine.Solicited() || undelivered for a linger) {
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
	// server's message, so that even an empty one is due now.
	Solicited() bool
	// Undelivered reports whether the engine holds messages with a payload that only a later round
	// will deliver: with nothing to send, the driver A-broadcasts an empty message after a short
	// linger.
	Undelivered() bool
	// Broadcast A-broadcasts payload as this server's message of the current round. The engine
	// keeps the slice, which nobody may change from here on. It reports ErrNotNow where
	// CanBroadcast does not hold, ErrTooLarge past the configured bound.
	Broadcast(payload []byte) error
	// Receive takes one frame from a lane. The engine may keep and relay the slice. It reports
	// ErrFrame for bytes that are no frame of this group (the caller drops the peer); stale and
	// duplicate frames are no error.
	Receive(from ServerID, frame []byte) error
	// Suspect tells that the failure detector suspects a predecessor in the reliable digraph.
	Suspect(server ServerID) error
	// Trust tells that the detector no longer suspects a server that it suspected: an eventually
	// perfect detector errs, and says so. Where the engine takes its detector for perfect, it
	// changes nothing.
	Trust(server ServerID) error
	// Ready returns what is to be done since the last call, and forgets it.
	Ready() Ready
	// Status describes the engine; it allocates and is not for the hot path.
	Status() Status
}

// Errors that engines report; match them with errors.Is.
var (
	// ErrNotNow says that this server has already A-broadcast in the current round, or is halted.
	ErrNotNow = errors.New("order: nothing to broadcast now")
	// ErrTooLarge says that a payload is over the configured bound.
	ErrTooLarge = errors.New("order: payload too large")
	// ErrFrame says that bytes are not a frame of this group.
	ErrFrame = errors.New("order: malformed frame")
	// ErrHalted says that this server delivers no more; Status tells why.
	ErrHalted = errors.New("order: halted")
)
