package lane

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/rdmanet"
)

var (
	// ErrProtocol: the peer sent something that the lane protocol does not allow.
	ErrProtocol = errors.New("lane protocol violated")
	// ErrGoodbye: the peer announced that its incarnation closes.
	ErrGoodbye = errors.New("the peer closed")
	// ErrMisfit: the peer is there but is configured for a different fabric. Only its operator can
	// fix that.
	ErrMisfit = errors.New("the peer uses a different fabric")
	// ErrSuperseded: another connection carries the lane now, or none is allowed to.
	ErrSuperseded = errors.New("superseded")
	// ErrSevered: the connection was broken deliberately.
	ErrSevered = errors.New("severed")
	// ErrSealed: the host is closing and its program gets no more frames.
	ErrSealed = errors.New("sealed")
)

// Hello is the message with which a sender opens every connection.
type Hello struct {
	// Name is the lane's name.
	Name string
	// Sender is the sender's incarnation. Receiver is the incarnation that the lane leads to, or 0
	// if it leads to any incarnation that answers.
	Sender, Receiver rdmanet.Incarnation
	// Opening counts the sender's lanes with that name to that peer, from 1.
	Opening uint64
	// Lost counts the frames that earlier openings gave up on their way to incarnation LostBy, or
	// to any incarnation if LostBy is 0.
	Lost   uint64
	LostBy rdmanet.Incarnation
	// FrameMax bounds the sender's frames, in bytes. WindowBytes and WindowFrames bound the frames
	// that it keeps unacknowledged.
	FrameMax, WindowBytes, WindowFrames uint32
}

// Status is the receiver's verdict on a hello.
type Status uint8

// The verdicts. The numbers are part of the wire format.
const (
	StatusWelcome   Status = iota + 1 // the connection carries the lane from now on
	StatusRestarted                   // the lane leads to an older incarnation of the receiver
	// The receiver knows a newer incarnation of the sender, or a newer opening.
	StatusStale
	StatusNoReceiver // no receiver with that lane name is registered (yet)
	// The sender's frames may be larger than the receiver accepts.
	StatusFrameMax
	StatusClosing // the receiver is closing
	StatusRefused // the provider refuses; the reason is in Answer
)

// String returns the status in words.
func (s Status) String() string {
	switch s {
	case StatusWelcome:
		return "welcome"
	case StatusRestarted:
		return "the peer restarted"
	case StatusStale:
		return "the peer knows a newer incarnation of this host, or a newer opening of this lane"
	case StatusNoReceiver:
		return "the peer does not receive lanes of that name"
	case StatusFrameMax:
		return "the peer's frame bound is smaller"
	case StatusClosing:
		return "the peer closes"
	case StatusRefused:
		return "the peer refuses"
	default:
		return fmt.Sprintf("status %d", uint8(s))
	}
}

// Answer is the receiver's reply to a Hello.
type Answer struct {
	Status Status
	// Incarnation is the receiver's incarnation.
	Incarnation rdmanet.Incarnation
	// Next is the number of the frame with which the connection continues. Delivered is the number
	// of frames for which the receive function has returned. Delivered <= Next.
	Next, Delivered uint64
	// Reason is why the provider refuses, and nil otherwise.
	Reason error
}
