package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// PeerID is the identity of a process on the fabric. It stays the same over restarts and does not
// depend on the provider: for p2p it is the libp2p peer id in its text form, for memory any name.
type PeerID string

// Incarnation distinguishes the lives of one process. A host chooses it when it starts, larger than
// all its earlier ones; its start time in nanoseconds serves. 0 means not known.
type Incarnation uint64

// String returns the incarnation in decimal.
func (i Incarnation) String() string { return strconv.FormatUint(uint64(i), 10) }

// Peer is one incarnation of one process.
type Peer struct {
	ID          PeerID
	Incarnation Incarnation
}

// String returns the peer as id#incarnation.
func (p Peer) String() string { return string(p.ID) + "#" + p.Incarnation.String() }

// Errors of the fabric. Match them with errors.Is: returned errors add the peer, the lane and the
// cause.
var (
	// ErrClosed: the lane or the host was closed on this side.
	ErrClosed = errors.New("closed")
	// ErrUnreachable: the lane could not be mended within the mend timeout, or the peer announced
	// that it closes.
	ErrUnreachable = errors.New("peer unreachable")
	// ErrReset: the peer is there, but as a new incarnation or without the lane's state. Frames
	// that it had not taken are lost.
	ErrReset = errors.New("peer lost the lane's state")
	// ErrTooLarge: a frame is over the frame bound, or the frames of one call are over the window.
	// Nothing was sent. The lane continues to work.
	ErrTooLarge = errors.New("too large")
	// ErrNotMember: the peer is not in the member set.
	ErrNotMember = errors.New("not a member")
	// ErrDuplicate: a receiver for that lane name is already registered.
	ErrDuplicate = errors.New("already registered")
	// ErrLaneName: the lane's name is empty or longer than LaneNameMax.
	ErrLaneName = errors.New("bad lane name")
)

// LaneNameMax bounds a lane's name, in bytes.
const LaneNameMax = 64

// CheckLaneName returns ErrLaneName, with the reason, for a name that no lane can have.
func CheckLaneName(name string) error {
	if name == "" || len(name) > LaneNameMax {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrLaneName, len(name), LaneNameMax)
	}
	return nil
}

// ReceiveFunc takes a batch of frames of one lane. One goroutine at a time calls it for each lane,
// in the lane's order. The frames are immutable and from then on belong to the receiver. The slice
// that lists them is only lent until the function returns. Returning acknowledges the batch.
// Blocking closes the lane's window and slows the sender. The function must return once the program
// wants its host to close.
type ReceiveFunc = func(from Peer, frames [][]byte)

// Host is this process's end of the fabric. All methods may be called from several goroutines.
type Host interface {
	// ID returns this host's identity.
	ID() PeerID
	// Incarnation returns this host's incarnation. It never changes.
	Incarnation() Incarnation
	// Receive registers the receiver for every lane with that name, from any peer. A peer's lane
	// with a name that is not registered waits, at most for the mend timeout. It returns
	// ErrDuplicate, ErrLaneName or ErrClosed.
	Receive(lane string, receive ReceiveFunc) error
	// Lane returns this host's sending end of the named lane to the peer. All callers get the same
	// lane while it works, and a new one after it breaks. It returns at once and connects in the
	// background. It returns ErrNotMember, ErrLaneName or ErrClosed.
	Lane(peer PeerID, name string) (Lane, error)
	// Watch registers a function for the events of all peers. Calls are made one at a time, in the
	// order of the events, by the goroutine that detected the event. An event is reported before
	// the frames that follow it. The function must return quickly. It must neither block on a lane
	// nor close the host. Register it before the first call of Lane to miss no event.
	Watch(watch func(PeerEvent))
	// Close stops accepting frames and waits until reachable peers have taken the frames already
	// sent. It then starts no more receive calls and waits, for a limited time, for those that run.
	// It acknowledges the frames that they took, says goodbye, and ends all lanes, connections and
	// goroutines. If ctx ends first, Close gives up the remaining frames, still performs the other
	// steps, and returns ctx's error. A second call waits for the first to end.
	Close(ctx context.Context) error
}

// PromptHost is a Host that can hand over frames without a switch to another goroutine, and that
// reads many lanes in one go. A host of a provider or system that cannot do so is only a Host.
type PromptHost interface {
	Host
	// ReceivePrompt is like Receive, for a receiver that can also take frames without waiting.
	ReceivePrompt(lane string, receiver PromptReceiver) error
}

// IntroductionHost is a Host with a door for strangers: peers that are in its member set no more,
// or not yet. A stranger may hand over one bounded message, an introduction, and gets a short
// answer. It gets nothing else. What the introduction has to prove is up to the program. A host of
// a provider that has no such door is only a Host.
//
//	host.Introduced(func(from string, read func() ([]byte, error)) ([]byte, error) {
//		... // this address may not speak now: return an error, and nothing is read
//		introduction, err := read()
//		... // believe it or not; host.SetMembers
//	})
//	answer, err := host.Introduce(ctx, peer, introduction)
type IntroductionHost interface {
	Host
	// Introduced registers the function that takes introductions. Any peer that reaches this host
	// causes calls of it, a bounded number at a time, from several goroutines. from is the address
	// that the stranger calls from, without a port, or what the provider has in its place. Nothing
	// proves who the stranger is. read returns the introduction, or an error if it is larger than
	// IntroductionMax or takes too long. An error of take ends the connection, and the stranger is
	// told nothing. An answer has at most IntroductionAnswerMax bytes. The function must return
	// once the program wants its host to close. Until it is registered nobody can introduce itself.
	// It returns ErrClosed, or ErrDuplicate if there is one already.
	Introduced(take func(from string, read func() ([]byte, error)) (answer []byte, err error)) error
	// Introduce hands an introduction to a peer in this host's member set, which may not have this
	// host in its own, and returns the answer. It returns ctx's error, ErrTooLarge, ErrNotMember,
	// ErrClosed, or ErrUnreachable if the peer cannot be reached or does not answer. The answer is
	// not authenticated: it may come from another process at the peer's address.
	Introduce(ctx context.Context, peer PeerID, introduction []byte) (answer []byte, err error)
}

// The bounds of introductions and of their answers, in bytes.
const (
	IntroductionMax       = 512 << 10
	IntroductionAnswerMax = 64
)

// PromptReceiver receives the frames of a lane from the goroutine that reads the network. The rules
// of ReceiveFunc apply to Receive and TryReceive together: one of them is called at a time for each
// lane.
type PromptReceiver struct {
	// TryReceive takes the first of the frames without waiting, and returns how many it took. The
	// lanes of all peers wait while it runs.
	TryReceive func(from Peer, frames [][]byte) (taken int)
	// TryReceiveLent, if set, is called in place of TryReceive. The memory of the frames is used
	// again once nobody holds the loan. The host holds it until the function has returned. A
	// receiver that keeps frames calls loan.Hold before that, and loan.Release once it and all that
	// it gave the frames to have no use for them. Frames that Receive gets are not lent.
	TryReceiveLent func(from Peer, frames [][]byte, loan Loan) (taken int)
	// Receive gets the frames that TryReceive did not take, from another goroutine. It may wait.
	// Then nothing more is read from that lane, and other lanes go on.
	Receive ReceiveFunc
	// Turn is called after TryReceive, once for all frames that were there to read. It must not
	// wait either. It may send on lanes, with TrySend.
	Turn func()
}

// Loan is memory of a host that holds frames of one or more batches. Both methods may be called
// from any goroutine. A holder that cannot tell when it is done with the frames need not release
// them. Their memory is then left to the garbage collector.
type Loan interface {
	// Hold keeps the frames valid until Release has been called as often.
	Hold()
	Release()
}

// Lane is the sending end of a directed channel of frames. The package comment states the
// guarantees. All methods may be called from several goroutines. The frames of one call stay
// together.
type Lane interface {
	// Peer returns the receiving host's identity.
	Peer() PeerID
	// Send queues the frames, all or none. It takes ownership of their bytes, which must not change
	// any more. It blocks while the window has no room for them. It returns ctx's error,
	// ErrUnreachable, ErrReset, ErrClosed or ErrTooLarge. Success means that the frames are queued,
	// not that the peer has taken them: see Flushed.
	Send(ctx context.Context, frames ...[]byte) error
	// TrySend is like Send but never blocks. It returns false if the window has no room or other
	// senders already wait for room. Without frames it only reports whether the lane is broken.
	TrySend(frames ...[]byte) (bool, error)
	// Flushed waits until the peer's receive function has returned for every frame sent before the
	// call. It returns ctx's error or the lane's if one comes first.
	Flushed(ctx context.Context) error
	// Pending returns the number of frames sent and not yet acknowledged.
	Pending() int
	// Close ends the lane at once. Later calls return ErrClosed. Frames not yet acknowledged are
	// given up; call Flushed first to wait for them. A second call does nothing. Closing the host
	// waits for the frames of its lanes and then closes the lanes.
	Close() error
}

// EventKind is the kind of a PeerEvent.
type EventKind uint8

const (
	// PeerConnected: a lane to or from the peer came up, and none was up before.
	PeerConnected EventKind = iota + 1
	// PeerDisconnected: the last lane to or from the peer went down. This host is mending the lanes
	// that it keeps open.
	PeerDisconnected
	// PeerRestarted: the peer answered or called as a new incarnation, given in Peer. Lanes to the
	// old incarnation broke with ErrReset. No frame of the old incarnation is received after this
	// event.
	PeerRestarted
	// PeerUnreachable: the sending lane named Lane broke with ErrUnreachable. The incarnation in
	// Peer is 0 if the peer never answered.
	PeerUnreachable
	// LaneReset: the peer gave up Lost frames of its earlier lane named Lane to this host and
	// opened a new lane in the same incarnation. There is a gap between the frames before and after
	// this event.
	LaneReset
	// PeerRefused: the peer's machine reports that no process listens at the peer's address any
	// more. The process ended or is restarting. Lanes are mended as before. Providers that can
	// detect this (p2p) repeat the event while it lasts.
	PeerRefused
)

// String returns the kind in words.
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

// PeerEvent is an event that Watch reports.
type PeerEvent struct {
	Kind EventKind
	Peer Peer
	// Lane is the lane's name if the kind concerns one lane, and empty otherwise.
	Lane string
	// Lost is the number of frames given up, for LaneReset. It is an upper bound: some of the
	// frames may have arrived.
	Lost uint64
	// Cause is the reason for PeerUnreachable and PeerRefused, and nil otherwise.
	Cause error
}
