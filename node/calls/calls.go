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

// The times of signs.
const (
	firstSignAfter = 100 * time.Millisecond
	signEvery      = 500 * time.Millisecond
	signTick       = 100 * time.Millisecond
)

// HeaderRetry is "true" in an answer where the same call may be made again, at another member or
// later; the same as package api's.
const HeaderRetry = "Ledgerd-Retry"

// Errors of a round trip and of New; match them with errors.Is.
var (
	// ErrUnanswered says that no member of the shard answered: none is known, or each that was
	// asked is lost. The call may have been carried out all the same.
	ErrUnanswered = errors.New("calls: no member of the shard answered")
	// ErrNotCarried says that a request is none of those that are carried: a stream, too large, or
	// of another method than GET and POST. Nothing was sent.
	ErrNotCarried = errors.New("calls: not carried between shards")
	// ErrBusy says that this node has AskingMax calls under way. Nothing was sent.
	ErrBusy = errors.New("calls: too many calls under way")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("calls: closed")
)

// Config is what New needs.
type Config struct {
	// Host is the fabric. The caller closes it, after Close.
	Host rdmanet.Host
	// Find tells in which shard a peer is; frames of those that it does not know are dropped. It is
	// called by several goroutines and must not block.
	Find func(rdmanet.PeerID) (shard ledger.ShardID, known bool)
	// Candidates gives the members of a shard that may be asked, the best one first. The rules of
	// Find hold; the slice is only read.
	Candidates func(ledger.ShardID) []rdmanet.PeerID
	// Serve answers the calls of peers. Each runs in a goroutine of its own and must return once
	// its request's context ends; RemoteAddr is the peer's identity.
	Serve http.Handler
	// Logger may be nil.
	Logger *slog.Logger
	// ServingPerPeer, ServingMax, AskingMax and MemoryMax bound what is under way at once (the
	// package comment): the defaults where they are 0.
	ServingPerPeer, ServingMax, AskingMax int
	MemoryMax                             int64
	// PieceBytes is how much of a body goes into a frame: PieceBytesDefault if it is 0.
	PieceBytes int
	// TimeoutMax bounds a call, Silence is how long a member may show nothing of a call before the
	// next is asked too, GiveUp how long before it counts as lost: the defaults where they are 0.
	TimeoutMax, Silence, GiveUp time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Host == nil || c.Find == nil || c.Candidates == nil || c.Serve == nil {
		return c, errors.New("calls: a host, who the members are, and a handler are needed")
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

// Status is what a Calls does now and has done since it was made.
type Status struct {
	// Serving and Asking are the calls under way, of peers and of this node.
	Serving, Asking int
	// Served counts calls of peers that were taken, Refused those that were answered with "busy".
	Served, Refused uint64
	// Asked counts calls of this node, Repeated how often one of them was asked of a further
	// member, Unanswered those that ended with ErrUnanswered.
	Asked, Repeated, Unanswered uint64
}

// Calls asks the members of other shards and serves theirs. All methods may be called from several
// goroutines.
type Calls struct {
	config Config
	host   rdmanet.Host
	logger *slog.Logger

	// life ends with Close; handlers' contexts come from it.
	life context.Context
	end  context.CancelFunc
	done sync.WaitGroup
	wake chan struct{} // something is served: the signs go on

	nextID    atomic.Uint64
	gathered  budget // answers that come in pieces
	inService budget // bodies of requests and answers that are served

	served, refused, asked, repeated, unanswered atomic.Uint64

	mu      sync.Mutex // never held while the host is called
	closed  bool
	asking  int
	open    map[uint64]*attempt // what was asked of peers and is not answered, by id
	doubted map[rdmanet.PeerID]time.Time
	serving map[servingKey]*serving
	ofPeer  map[rdmanet.PeerID]int // how many of serving
}

// budget counts bytes up to a bound.
type budget struct {
	used atomic.Int64
	max  int64
}

// take reserves so many bytes, if there are.
func (m *budget) take(n int) bool {
	if m.used.Add(int64(n)) > m.max {
		m.used.Add(-int64(n))
		return false
	}
	return true
}

func (m *budget) give(n int) { m.used.Add(-int64(n)) }

// New takes the host's lane "calls" and begins to serve. Errors are the host's, or say what is
// wrong with the configuration.
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
// handlers and all other goroutines. Closing again waits too.
func (c *Calls) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.done.Wait()
}

// Status tells what is under way.
func (c *Calls) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{
		Serving: len(c.serving), Asking: c.asking, Served: c.served.Load(),
		Refused: c.refused.Load(),
		Asked:   c.asked.Load(), Repeated: c.repeated.Load(), Unanswered: c.unanswered.Load(),
	}
}

// receive sorts the frames of one peer. It never blocks.
func (c *Calls) receive(from rdmanet.Peer, frames [][]byte) {
	if c.life.Err() != nil {
		return
	}
	if _, known := c.config.Find(from.ID); !known {
		c.logger.Warn("calls of a stranger were dropped", "peer", from, "frames", len(frames))
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

// watch notes what the fabric says of peers: calls of a life that ended are served no longer, and
// who may have lost a call is no longer relied upon.
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

// own runs something in a goroutine that Close waits for; false once Close was called.
func (c *Calls) own(run func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.done.Go(run)
	return true
}

// send sends frames one by one, waiting for room. The first one goes over a fresh lane where the
// lane broke since its last use.
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

// trySend sends a frame if there is room, over a fresh lane where the lane broke since its last
// use.
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

// broken tells whether an error says that a lane is of no use any more and a fresh one may be.
func broken(err error) bool {
	return errors.Is(err, rdmanet.ErrReset) || errors.Is(err, rdmanet.ErrUnreachable) ||
		errors.Is(err, rdmanet.ErrClosed)
}
