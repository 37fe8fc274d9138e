package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// PeerID is the identity of a process on the fabric, the same over restarts and independent of the
// provider: for p2p the libp2p peer id in its text form, for memory any name.
type PeerID string

// Incarnation tells the lives of one process apart. A host chooses it when it starts, larger than
// any that it had before (its start time in nanoseconds serves); 0 means that it is not known.
type Incarnation uint64

// String gives the incarnation in decimal.
func (i Incarnation) String() string { return strconv.FormatUint(uint64(i), 10) }

// Peer is one life of one process.
type Peer struct {
	ID          PeerID
	Incarnation Incarnation
}

// String gives the peer as id#incarnation.
func (p Peer) String() string { return string(p.ID) + "#" + p.Incarnation.String() }

// Errors of the fabric, to be matched with errors.Is; what is returned adds who, where and why.
var (
	// ErrClosed: the lane or the host was closed on this side.
	ErrClosed = errors.New("closed")
	// ErrUnreachable: the lane could not be mended within the mend timeout, or the peer said that
	// it closes.
	ErrUnreachable = errors.New("peer unreachable")
	// ErrReset: the peer is there, as a new incarnation or without the lane's state; what it had
	// not taken is lost.
	ErrReset = errors.New("peer lost the lane's state")
	// ErrTooLarge: a frame is over the frame bound, or the frames of one call are over the window.
	// Nothing was sent; the lane goes on.
	ErrTooLarge = errors.New("too large")
	// ErrNotMember: the peer is not in the member set.
	ErrNotMember = errors.New("not a member")
	// ErrDuplicate: a receiver for that lane name is registered already.
	ErrDuplicate = errors.New("already registered")
	// ErrLaneName: the lane's name is empty or longer than LaneNameMax.
	ErrLaneName = errors.New("bad lane name")
)

// LaneNameMax bounds a lane's name, in bytes.
const LaneNameMax = 64

// CheckLaneName gives ErrLaneName, with the reason, for a name that no lane can have.
func CheckLaneName(name string) error {
	if name == "" || len(name) > LaneNameMax {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrLaneName, len(name), LaneNameMax)
	}
	return nil
}

// ReceiveFunc takes a batch of frames of one lane. It is called by one goroutine at a time per
// lane, in the lane's order. The frames are immutable and belong to the receiver from then on; the
// slice that lists them is only lent until the function returns. Returning acknowledges the batch;
// blocking closes the lane's window and slows the sender. The function must return once the program
// wants its host to close.
type ReceiveFunc = func(from Peer, frames [][]byte)

// Host is this process's end of the fabric. All methods may be called from several goroutines.
type Host interface {
	// ID is this host's identity.
	ID() PeerID
	// Incarnation is this host's life, the same from its start to its end.
	Incarnation() Incarnation
	// Receive registers the receiver for every lane of that name, from whatever peer. A peer's lane
	// of a name that is not registered waits, at most for the mend timeout. ErrDuplicate,
	// ErrLaneName, ErrClosed.
	Receive(lane string, receive ReceiveFunc) error
	// Lane gives this host's sending end of the named lane to the peer, the same one to every
	// caller as long as it is not broken, and a fresh one afterwards. It returns at once and
	// connects in the background. ErrNotMember, ErrLaneName, ErrClosed.
	Lane(peer PeerID, name string) (Lane, error)
	// Watch registers a function for the events of all peers. Calls are made one at a time, in the
	// order of the events, by the goroutines that found out, and before the frames that follow the
	// event: the function must return quickly, and must neither block on a lane nor close the host.
	// Register before the first call of Lane to miss nothing.
	Watch(watch func(PeerEvent))
	// Close stops accepting frames, waits until what was sent has been taken by peers that can be
	// reached, hands no more to receive functions, acknowledges what they took once the calls that
	// run have returned (it waits for that too, but not for ever), says goodbye, then ends all
	// lanes, connections and goroutines. When ctx ends first, what is left is given up, the rest is
	// done all the same, and ctx's error is returned. Closing again waits for the first call's end.
	Close(ctx context.Context) error
}

// Lane is the sending end of a directed channel of frames; the package comment states what holds.
// All methods may be called from several goroutines; frames of one call stay together.
type Lane interface {
	// Peer is the receiving host's identity.
	Peer() PeerID
	// Send queues the frames, all or none, and takes ownership of their bytes, which must not
	// change any more. It blocks while the window has no room for them. Errors: ctx's own,
	// ErrUnreachable, ErrReset, ErrClosed, ErrTooLarge. Without an error the frames are queued, not
	// yet taken by the peer: see Flushed.
	Send(ctx context.Context, frames ...[]byte) error
	// TrySend is Send that never blocks: false when the window has no room or somebody waits for
	// room already. Without frames it only tells whether the lane is broken.
	TrySend(frames ...[]byte) (bool, error)
	// Flushed waits until the peer's receive function has returned for every frame sent before the
	// call, or gives ctx's error or the lane's.
	Flushed(ctx context.Context) error
	// Pending is the number of frames sent and not yet acknowledged.
	Pending() int
	// Close ends the lane at once: later calls give ErrClosed, frames not yet acknowledged are
	// given up (call Flushed first to wait for them). Closing again does nothing. Closing the host
	// closes its lanes after waiting for them.
	Close() error
}

// EventKind says what happened to a peer.
type EventKind uint8

const (
	// PeerConnected: a lane to or from the peer is up, after none was.
	PeerConnected EventKind = iota + 1
	// PeerDisconnected: the last lane to and from the peer went down. Lanes that this host keeps
	// open are being mended.
	PeerDisconnected
	// PeerRestarted: the peer answered or called as a new incarnation, given in Peer. Lanes to the
	// old one broke with ErrReset; no frame of the old one is received after this event.
	PeerRestarted
	// PeerUnreachable: the sending lane named Lane broke with ErrUnreachable. Peer's incarnation is
	// 0 if it never answered.
	PeerUnreachable
	// LaneReset: the peer gave up Lost frames of its earlier lane named Lane to this host and
	// opened another one in the same incarnation. Frames from before and after this event have a
	// gap between them.
	LaneReset
	// PeerRefused: the peer's machine answers that nobody listens at the peer's address any more:
	// the process ended, or is starting again. Lanes are mended as before. Told again and again
	// while it lasts, by providers that can tell (p2p).
	PeerRefused
)

// String gives the kind in words.
func (k EventKind) String() string {
	switch k {
	case PeerConnected:
		return "connected"
	case PeerDisconnected:
		return "disconnected"
	case PeerRestarted:
		return "restarted"
	case PeerUnreachable:
		return "unreachable"
	case LaneReset:
		return "lane reset"
	case PeerRefused:
		return "refused"
	default:
		return "event kind " + strconv.Itoa(int(k))
	}
}

// PeerEvent is what Watch reports.
type PeerEvent struct {
	Kind EventKind
	Peer Peer
	// Lane is the lane's name where the kind concerns one lane, empty otherwise.
	Lane string
	// Lost is the number of frames given up, for LaneReset: an upper bound, as some may have
	// arrived.
	Lost uint64
	// Cause says why, for PeerUnreachable and PeerRefused; nil otherwise.
	Cause error
}
