package calls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// LaneName is the lane that carries calls and answers.
const LaneName = "calls"

// BodyMax bounds the body of a request and of an answer, in bytes.
const BodyMax = 16 << 20

// The defaults and bounds of Config.
const (
	ServingPerPeerDefault = 64
	ServingMaxDefault     = 256
	AskingMaxDefault      = 4096
	MemoryMaxDefault      = 256 << 20
	PieceBytesDefault     = 1 << 20
	PieceBytesMin         = 16
	TimeoutMaxDefault     = time.Minute
	SilenceDefault        = 2 * time.Second
	GiveUpDefault         = 10 * time.Second
)

// The timing of signs.
const (
	firstSignAfter = 100 * time.Millisecond
	signEvery      = 500 * time.Millisecond
	signTick       = 100 * time.Millisecond
)

// HeaderRetry is "true" in an answer if the caller may make the same call again, at another member
// or later. It is the same as package api's.
const HeaderRetry = "Ledgerd-Retry"

// Errors of a round trip and of New; match them with errors.Is.
var (
	// ErrUnanswered means that no member of the shard answered: none is known, or each asked member
	// is lost. The call may have been carried out all the same.
	ErrUnanswered = errors.New("calls: no member of the shard answered")
	// ErrNotCarried means that this package cannot carry the request: it is a stream, too large, or
	// has another method than GET and POST. Nothing was sent.
	ErrNotCarried = errors.New("calls: not carried between shards")
	// ErrBusy means that this node has AskingMax calls under way. Nothing was sent.
	ErrBusy = errors.New("calls: too many calls under way")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("calls: closed")
)

// Config is the configuration of Calls.
type Config struct {
	// Host is the fabric. The caller closes it, after Close.
	Host rdmanet.Host
	// Find returns the shard of a peer. Frames of unknown peers are dropped. Several goroutines
	// call it, and it must not block.
	Find func(rdmanet.PeerID) (shard ledger.ShardID, known bool)
	// Candidates returns the members of a shard to ask, the best one first. The rules of Find
	// apply. The slice is only read.
	Candidates func(ledger.ShardID) []rdmanet.PeerID
	// Serve answers the calls of peers. Each call runs in its own goroutine and must return once
	// its request's context ends. RemoteAddr is the peer's identity.
	Serve http.Handler
	// Logger may be nil.
	Logger *slog.Logger
	// ServingPerPeer, ServingMax, AskingMax and MemoryMax bound concurrent work (see the package
	// comment). Zero means the default.
	ServingPerPeer, ServingMax, AskingMax int
	MemoryMax                             int64
	// PieceBytes is how much of a body goes into a frame. Zero means PieceBytesDefault.
	PieceBytes int
	// TimeoutMax bounds a call. Silence is how long a member may give no sign of a call before the
	// next one is asked too. GiveUp is how long before it counts as lost. Zero means the default.
	TimeoutMax, Silence, GiveUp time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Host == nil || c.Find == nil || c.Candidates == nil || c.Serve == nil {
		return c, errors.New("calls: Host, Find, Candidates and Serve are needed")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	for _, number := range []struct {
		field *int
		value int
	}{{&c.ServingPerPeer, ServingPerPeerDefault}, {&c.ServingMax, ServingMaxDefault},
		{&c.AskingMax, AskingMaxDefault}, {&c.PieceBytes, PieceBytesDefault}} {
		if *number.field == 0 {
			*number.field = number.value
		}
		if *number.field < 0 {
			return c, fmt.Errorf("calls: a bound of %d", *number.field)
		}
	}
	for _, duration := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.TimeoutMax, TimeoutMaxDefault}, {&c.Silence, SilenceDefault},
		{&c.GiveUp, GiveUpDefault}} {
		if *duration.field == 0 {
			*duration.field = duration.value
		}
		if *duration.field < 0 {
			return c, fmt.Errorf("calls: a time of %v", *duration.field)
		}
	}
	if c.MemoryMax == 0 {
		c.MemoryMax = MemoryMaxDefault
	}
	switch {
	case c.MemoryMax < BodyMax:
		return c, fmt.Errorf("calls: %d bytes of memory, a body may have %d", c.MemoryMax, BodyMax)
	case c.PieceBytes < PieceBytesMin || c.PieceBytes > BodyMax:
		return c, fmt.Errorf("calls: pieces of %d bytes, want %d to %d", c.PieceBytes,
			PieceBytesMin, BodyMax)
	case c.TimeoutMax > TimeoutMaxDefault:
		return c, fmt.Errorf("calls: a bound on calls of %v, at most %v is possible", c.TimeoutMax,
			TimeoutMaxDefault)
	}
	return c, nil
}

// Status is the current and past work of a Calls.
type Status struct {
	// Serving and Asking are the calls under way, of peers and of this node.
	Serving, Asking int
	// Served counts accepted calls of peers, Refused those that were answered with "busy".
	Served, Refused uint64
	// Asked counts calls of this node, Repeated how often one of them was sent to a further member,
	// Unanswered those that ended with ErrUnanswered.
	Asked, Repeated, Unanswered uint64
}

// Calls makes calls to the members of other shards and serves theirs. All methods are safe for
// concurrent use.
type Calls struct {
	config Config
	host   rdmanet.Host
	logger *slog.Logger

	// life ends with Close; handlers' contexts come from it.
	life context.Context
	end  context.CancelFunc
	done sync.WaitGroup
	wake chan struct{} // a call is served: start the signs

	nextID    atomic.Uint64
	gathered  budget // answers that arrive in pieces
	inService budget // bodies of requests and answers being served

	served, refused, asked, repeated, unanswered atomic.Uint64

	mu      sync.Mutex // never held while the host is called
	closed  bool
	asking  int
	open    map[uint64]*attempt // attempts without an answer, by id
	doubted map[rdmanet.PeerID]time.Time
	serving map[servingKey]*serving
	ofPeer  map[rdmanet.PeerID]int // the number of calls in serving, by peer
}

// budget counts bytes up to a bound.
type budget struct {
	used atomic.Int64
	max  int64
}

// take reserves n bytes, if they are available.
func (m *budget) take(n int) bool {
	if m.used.Add(int64(n)) > m.max {
		m.used.Add(-int64(n))
		return false
	}
	return true
}

func (m *budget) give(n int) { m.used.Add(-int64(n)) }

// New registers for the host's lane "calls" and starts to serve. It returns an error of the host,
// or one that says what is wrong with the configuration.
func New(config Config) (*Calls, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Calls{
		config: config, host: config.Host, logger: config.Logger,
		wake:    make(chan struct{}, 1),
		open:    make(map[uint64]*attempt),
		doubted: make(map[rdmanet.PeerID]time.Time),
		serving: make(map[servingKey]*serving),
		ofPeer:  make(map[rdmanet.PeerID]int),
	}
	c.gathered.max, c.inService.max = config.MemoryMax, config.MemoryMax
	c.life, c.end = context.WithCancel(context.Background())
	// A late answer to this process's earlier life must not look like one to this life.
	c.nextID.Store(uint64(c.host.Incarnation()))
	c.host.Watch(c.watch)
	if err := c.host.Receive(LaneName, c.receive); err != nil {
		c.end()
		return nil, fmt.Errorf("calls: register for lane %q: %w", LaneName, err)
	}
	c.done.Go(c.sign)
	return c, nil
}

// Close ends the calls of both directions, those of this node with ErrClosed, and waits for the
// handlers and all other goroutines. A second Close also waits.
func (c *Calls) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.done.Wait()
}

// Status returns the counts of calls.
func (c *Calls) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{
		Serving: len(c.serving), Asking: c.asking, Served: c.served.Load(),
		Refused: c.refused.Load(),
		Asked:   c.asked.Load(), Repeated: c.repeated.Load(), Unanswered: c.unanswered.Load(),
	}
}

// receive handles the frames of one peer. It never blocks.
func (c *Calls) receive(from rdmanet.Peer, frames [][]byte) {
	if c.life.Err() != nil {
		return
	}
	if _, known := c.config.Find(from.ID); !known {
		c.logger.Warn("dropped calls of an unknown peer", "peer", from, "frames", len(frames))
		return
	}
	for _, frame := range frames {
		if err := c.take(from, frame); err != nil {
			c.logger.Warn("a malformed frame was dropped", "peer", from, "lane", LaneName, "bytes",
				len(frame), "error", err)
		}
	}
}

// take handles one frame of a member.
func (c *Calls) take(from rdmanet.Peer, frame []byte) error {
	if len(frame) < idEnd {
		return errFrame
	}
	switch frame[0] {
	case kindRequest:
		r, err := decodeRequest(frame)
		if err != nil {
			return err
		}
		c.accept(from, r)
	case kindRequestPart:
		p, err := decodePart(frame)
		if err != nil {
			return err
		}
		return c.acceptPart(from, p)
	case kindCancel:
		id, err := decodeCancel(frame)
		if err != nil {
			return err
		}
		c.cancelled(from, id)
	case kindAnswer:
		a, err := decodeAnswer(frame)
		if err != nil {
			c.lost(from.ID, frameID(frame), err)
			return err
		}
		c.answered(from, a)
	case kindAnswerPart:
		p, err := decodePart(frame)
		if err != nil {
			return err
		}
		return c.answeredPart(from, p)
	case kindWorking:
		ids, err := decodeWorking(frame)
		if err != nil {
			return err
		}
		c.working(from, ids)
	default:
		return fmt.Errorf("%w: kind %d", errFrame, frame[0])
	}
	return nil
}

// watch handles an event of a peer from the fabric. It ends the serving of calls from an earlier
// life of the peer, and doubts a peer that may have lost a call.
func (c *Calls) watch(event rdmanet.PeerEvent) {
	switch event.Kind {
	case rdmanet.PeerRestarted:
		c.endServing(event.Peer.ID, func(s *serving) bool {
			return s.from.Incarnation != event.Peer.Incarnation
		})
		c.doubt(event.Peer.ID)
	case rdmanet.PeerUnreachable:
		if event.Lane == LaneName {
			// No answer would reach it.
			c.endServing(event.Peer.ID, func(*serving) bool { return true })
			c.doubt(event.Peer.ID)
		}
	case rdmanet.LaneReset:
		if event.Lane == LaneName {
			// Parts of requests and answers may be lost.
			c.endServing(event.Peer.ID, func(s *serving) bool { return !s.body.complete() })
			c.doubt(event.Peer.ID)
		}
	case rdmanet.PeerDisconnected, rdmanet.PeerRefused:
		c.doubt(event.Peer.ID)
	case rdmanet.PeerConnected:
		c.mu.Lock()
		delete(c.doubted, event.Peer.ID)
		c.mu.Unlock()
	}
}

// own runs a function in a goroutine that Close waits for. It returns false once Close was called.
func (c *Calls) own(run func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.done.Go(run)
	return true
}

// send sends frames one by one, waiting for room. If the lane broke since its last use, it sends
// the first frame over a fresh lane.
func (c *Calls) send(ctx context.Context, to rdmanet.PeerID, frames [][]byte,
	used func(rdmanet.Lane)) error {
	lane, err := c.host.Lane(to, LaneName)
	if err != nil {
		return err
	}
	used(lane)
	for i, frame := range frames {
		err := lane.Send(ctx, frame)
		if i == 0 && broken(err) {
			if lane, err = c.host.Lane(to, LaneName); err != nil {
				return err
			}
			used(lane)
			err = lane.Send(ctx, frame)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// trySend sends a frame if there is room. If the lane broke since its last use, it uses a fresh
// lane.
func (c *Calls) trySend(to rdmanet.PeerID, frame []byte) (lane rdmanet.Lane, sent bool, err error) {
	for range 2 {
		if lane, err = c.host.Lane(to, LaneName); err != nil {
			return nil, false, err
		}
		if sent, err = lane.TrySend(frame); !broken(err) {
			break
		}
	}
	return lane, sent, err
}

// broken reports whether an error means that a lane is unusable and a fresh one may work.
func broken(err error) bool {
	return errors.Is(err, rdmanet.ErrReset) || errors.Is(err, rdmanet.ErrUnreachable) ||
		errors.Is(err, rdmanet.ErrClosed)
}
