package lane

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Inlet is the receiving end of a connection, from the hello on. Its methods may be called by any
// goroutine, with locks held. They must neither wait nor call back.
type Inlet interface {
	// Stop ends the connection: the Inbound.Feed that reads from it returns.
	Stop(error)
	// Owe reports that the program has taken frames that are not yet acknowledged. first is set for
	// the first frames since Inbound.Acknowledging, urgent if there are so many that the
	// acknowledgement is urgent.
	Owe(first, urgent bool)
}

// inboundLane is the receiving end of a lane. It outlives connections. At most one connection feeds
// it at a time.
type inboundLane struct {
	// calling is held while the receive function runs, by the connection that supplied the batch.
	calling sync.Mutex

	// quiet is closed when the lane is sealed and its receive function has returned for the last
	// time.
	quiet chan struct{}

	mu      sync.Mutex
	sealed  chan struct{} // closed when no more frames are handed over; guarded by mu
	opening *opening      // nil before the first hello
	current *Inbound      // the connection that feeds the lane, nil if none may
}

// opening is the receiver's state of one opening of a lane by one incarnation of its sender.
type opening struct {
	sender rdmanet.Incarnation
	number uint64
	// Frames given up before it and not yet reported; guarded by calling of the lane.
	lost uint64
	// The first frame not yet given to the receive function; guarded by mu of the lane.
	next uint64
	// The receive function returned for all earlier frames; guarded by mu of the lane.
	delivered uint64
}

func (in *inboundLane) isSealed() bool {
	select {
	case <-in.sealed:
		return true
	default:
		return false
	}
}

// seal permanently stops handing over frames.
func (in *inboundLane) seal() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.isSealed() {
		return
	}
	close(in.sealed)
	if in.opening == nil || in.opening.next == in.opening.delivered {
		close(in.quiet)
	}
}

// supersede makes by the connection that feeds the lane and stops the previous one.
func (in *inboundLane) supersede(by *Inbound) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.supersedeLocked(by)
}

func (in *inboundLane) supersedeLocked(by *Inbound) {
	if in.current != nil {
		in.current.inlet.Stop(ErrSuperseded)
	}
	in.current = by
}

// sever stops the connection that feeds the lane, as a broken network would.
func (in *inboundLane) sever() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.current != nil {
		in.current.inlet.Stop(ErrSevered)
	}
}

// supersedeOlder stops the connection if its incarnation is older than the given one.
func (in *inboundLane) supersedeOlder(incarnation rdmanet.Incarnation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.opening != nil && in.opening.sender < incarnation {
		in.supersedeLocked(nil)
	}
}

// owed returns for how many frames of the hello's opening the receive function has returned.
func (in *inboundLane) owed(hello Hello) uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.opening == nil || in.opening.sender != hello.Sender ||
		in.opening.number != hello.Opening {
		return 0
	}
	return in.opening.delivered
}

// claim gives the lane to a connection, unless its hello is older than the known opening.
func (in *inboundLane) claim(by *Inbound, hello Hello) (answer Answer, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	self := by.lanes.config.Self.Incarnation
	known := in.opening
	if known != nil && (hello.Sender < known.sender || hello.Sender == known.sender &&
		hello.Opening < known.number) {
		return Answer{}, false
	}
	if known == nil || hello.Sender != known.sender || hello.Opening != known.number {
		known = &opening{sender: hello.Sender, number: hello.Opening}
		if hello.LostBy == 0 || hello.LostBy == self {
			known.lost = hello.Lost
		}
		in.opening = known
	}
	by.lane, by.opening, by.next = in, known, known.next
	in.supersedeLocked(by)
	return Answer{Status: StatusWelcome, Incarnation: self, Next: known.next,
		Delivered: known.delivered}, true
}

// Inbound is one welcomed connection of a peer's lane. One goroutine of the provider feeds the lane
// from it, and must finally call End.
type Inbound struct {
	lanes   *Lanes
	inlet   Inlet
	from    rdmanet.Peer
	name    string
	receive receiver
	lane    *inboundLane
	opening *opening
	next    uint64 // the next frame to read

	// An acknowledgement is urgent when this many bytes or frames wait for it.
	urgentBytes, urgentFrames   int64
	waitingBytes, waitingFrames atomic.Int64
}

// urgentBytesMax is how many bytes of frames wait for an acknowledgement at most before it is
// urgent. The sender keeps them in memory.
const urgentBytesMax = 2 << 20

// Greet judges a hello from a peer. inlet is the connection that brought it, or that will be made
// for it. If the connection may feed the lane from now on, Greet returns an Inbound and an answer
// with StatusWelcome. If not, it returns nil and an answer with the reason.
func (l *Lanes) Greet(from rdmanet.PeerID, hello Hello, inlet Inlet) (*Inbound, Answer) {
	in := &Inbound{
		lanes: l, inlet: inlet, from: rdmanet.Peer{ID: from, Incarnation: hello.Sender},
		name:         hello.Name,
		urgentBytes:  min(int64(hello.WindowBytes)/4, urgentBytesMax),
		urgentFrames: int64(hello.WindowFrames) / 4,
	}
	if answer := l.judge(in, hello); answer.Status != StatusWelcome {
		return nil, answer
	}
	stale := Answer{Status: StatusStale, Incarnation: l.config.Self.Incarnation}
	if l.config.Peers.Up(in.from) != nil {
		return nil, stale
	}
	answer, ok := l.claim(in, hello)
	if !ok {
		l.config.Peers.Down(in.from)
		return nil, stale
	}
	return in, answer
}

// judge makes the checks of a hello that do not need the peer's state.
func (l *Lanes) judge(in *Inbound, hello Hello) Answer {
	answer := Answer{Status: StatusWelcome, Incarnation: l.config.Self.Incarnation}
	l.mu.Lock()
	defer l.mu.Unlock()
	in.receive = l.receivers[hello.Name]
	switch {
	case l.closing:
		answer.Status = StatusClosing
		if known := l.in[key{in.from.ID, hello.Name}]; known != nil {
			answer.Delivered = known.owed(hello)
			answer.Next = answer.Delivered
		}
	case hello.Receiver != 0 && hello.Receiver != answer.Incarnation:
		answer.Status = StatusRestarted
	case int64(hello.FrameMax) > int64(l.config.Limits.FrameBytes):
		answer.Status = StatusFrameMax
	case in.receive.call == nil:
		answer.Status = StatusNoReceiver
	}
	return answer
}

// claim finds or makes the lane that a hello names and gives it to the connection.
func (l *Lanes) claim(in *Inbound, hello Hello) (Answer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing || hello.Sender < l.newest[in.from.ID] || !l.config.Member(in.from.ID) {
		return Answer{}, false
	}
	k := key{in.from.ID, hello.Name}
	known := l.in[k]
	if known == nil {
		known = &inboundLane{quiet: make(chan struct{}), sealed: make(chan struct{})}
		l.in[k] = known
	}
	return known.claim(in, hello)
}

// From returns the peer, with the incarnation in its hello.
func (in *Inbound) From() rdmanet.Peer { return in.from }

// End reports that the connection is over.
func (in *Inbound) End() { in.lanes.config.Peers.Down(in.from) }

// Feed reads batches from the stream and hands them over until the stream breaks. It returns the
// stream's error, ErrProtocol, ErrSuperseded or ErrSealed. After ErrSealed the provider must still
// send the last acknowledgement.
func (in *Inbound) Feed(stream io.Reader) error {
	reader := NewBatchReader(stream, in.lanes.config.Limits.FrameBytes, in.receive.lent)
	var frames [][]byte
	for {
		var err error
		if frames, err = reader.Read(frames[:0], in.next); err != nil {
			return err
		}
		if err := in.deliver(frames); err != nil {
			return err
		}
		in.next += uint64(len(frames))
		clear(frames)
	}
}

// deliver hands a batch to the receive function, after all earlier batches, including those of
// earlier connections.
func (in *Inbound) deliver(frames [][]byte) error {
	lane, known := in.lane, in.opening
	lane.calling.Lock()
	defer lane.calling.Unlock()
	if err := lane.advance(in, len(frames)); err != nil {
		return err
	}
	if known.lost > 0 {
		in.lanes.config.Peers.Tell(rdmanet.PeerEvent{Kind: rdmanet.LaneReset, Peer: in.from,
			Lane: in.name, Lost: known.lost})
		known.lost = 0
	}
	size := 0
	for _, frame := range frames {
		size += len(frame)
	}
	in.receive.call(in.from, frames)
	in.taken(len(frames), size)
	return nil
}

// taken records that the program has taken a batch. The caller holds calling of the lane.
func (in *Inbound) taken(frames, size int) {
	// The current connection may differ from in: the lane may have been mended meanwhile.
	if current := in.lane.delivered(in.opening); current != nil {
		current.owe(frames, size)
	}
}

// advance counts a connection's frames as given to the program.
func (in *inboundLane) advance(by *Inbound, frames int) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.current != by || by.opening.next != by.next:
		return ErrSuperseded
	case in.isSealed():
		return ErrSealed
	}
	by.opening.next += uint64(frames)
	return nil
}

// delivered counts all frames of an opening that were given to the program as taken. It returns the
// connection that owes the acknowledgement, or nil if none does.
func (in *inboundLane) delivered(known *opening) *Inbound {
	in.mu.Lock()
	defer in.mu.Unlock()
	known.delivered = known.next
	if in.opening != known {
		return nil
	}
	if in.isSealed() {
		close(in.quiet)
	}
	return in.current
}

// owe records that frames must be acknowledged.
func (in *Inbound) owe(frames, size int) {
	waitingFrames, waitingBytes := in.waitingFrames.Add(int64(frames)),
		in.waitingBytes.Add(int64(size))
	first, urgent := waitingFrames == int64(frames), waitingFrames >= in.urgentFrames ||
		waitingBytes >= in.urgentBytes
	if first || urgent {
		in.inlet.Owe(first, urgent)
	}
}

// Owed returns how many frames wait for an acknowledgement.
func (in *Inbound) Owed() int64 { return in.waitingFrames.Load() }

// Acknowledging returns how many frames the program has taken, for an acknowledgement that is sent
// now. It clears the record of owed frames.
func (in *Inbound) Acknowledging() uint64 {
	in.waitingFrames.Store(0)
	in.waitingBytes.Store(0)
	return in.Delivered()
}

// Delivered returns how many frames the program has taken.
func (in *Inbound) Delivered() uint64 {
	in.lane.mu.Lock()
	defer in.lane.mu.Unlock()
	return in.opening.delivered
}

// Sealed returns a channel that is closed when no more frames are handed over because the host is
// closing.
func (in *Inbound) Sealed() <-chan struct{} { return in.lane.sealed }

// Quiet returns a channel that is closed when the lane is sealed and the last receive call has
// returned. Delivered does not change after that.
func (in *Inbound) Quiet() <-chan struct{} { return in.lane.quiet }
