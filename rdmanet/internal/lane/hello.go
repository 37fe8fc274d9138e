package lane

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/rdmanet"
)

var (
	// ErrProtocol: the peer sent what the lane protocol does not allow.
	ErrProtocol = errors.New("lane protocol violated")
	// ErrGoodbye: the peer said that its incarnation closes.
	ErrGoodbye = errors.New("the peer closed")
	// ErrMisfit: the peer is there, but was set up for something else; nothing but its operator can
	// mend that.
	ErrMisfit = errors.New("the peer's fabric is another one")
	// ErrSuperseded: another connection carries the lane now, or none may.
	ErrSuperseded = errors.New("superseded")
	// ErrSevered: the connection was broken on purpose.
	ErrSevered = errors.New("severed")
	// ErrSealed: the host closes, and its program gets nothing more.
	ErrSealed = errors.New("sealed")
)

// Hello is what a sender greets with on every connection.
type Hello struct {
	// Name is the lane's.
	Name string
	// Sender is the sender's incarnation, Receiver the one that the lane leads to, 0 if it leads to
	// whoever answers.
	Sender, Receiver rdmanet.Incarnation
	// Opening counts the sender's lanes of that name to that peer, from 1.
	Opening uint64
	// Lost counts frames that earlier openings gave up on their way to incarnation LostBy, or to
	// anyone if that is 0.
	Lost   uint64
	LostBy rdmanet.Incarnation
	// FrameMax bounds the sender's frames, in bytes; WindowBytes and WindowFrames what it keeps
	// unacknowledged.
	FrameMax, WindowBytes, WindowFrames uint32
}

// Status is the receiver's word on a hello.
type Status uint8

// The words. They are numbered for the wire.
const (
	StatusWelcome   Status = iota + 1 // the connection carries the lane from now on
	StatusRestarted                   // the lane leads to an older incarnation of the receiver
	// the receiver knows a newer incarnation of the sender, or a newer opening
	StatusStale
	StatusNoReceiver // no receiver of that lane name is registered (yet)
	// the sender's frames may be larger than the receiver accepts
	StatusFrameMax
	StatusClosing // the receiver closes
	StatusRefused // the provider refuses, for the reason in Answer
)

// String gives the status in words.
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
	// Incarnation is the receiver's.
	Incarnation rdmanet.Incarnation
	// Next is the number of the frame that the connection goes on with, Delivered the number of
	// frames that the receive function is done with; Delivered <= Next.
	Next, Delivered uint64
	// Reason is why the provider refuses, nil otherwise.
	Reason error
}
