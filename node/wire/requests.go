package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// The defaults of Config.
const (
	ServingPerPeerDefault = 64
	ServingMaxDefault     = 256
	PieceBytesDefault     = 1 << 20
	TimeoutMaxDefault     = time.Minute
)

// The timing of signs.
const (
	firstSignAfter = 100 * time.Millisecond
	signEvery      = 500 * time.Millisecond
	signTick       = 100 * time.Millisecond
)

// Errors of requests and of New; match them with errors.Is.
var (
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("wire: closed")
	// ErrRefused means that the peer ended a request without a whole answer.
	ErrRefused = errors.New("wire: the peer did not answer it")
	// ErrAnswer means that an answer is malformed, or larger than its bound.
	ErrAnswer = errors.New("wire: wrong answer")
	// ErrMemory means that there was no memory for an answer beside the others.
	ErrMemory = errors.New("wire: no memory for the answer: too many others are arriving")
)

// Config is the configuration of Requests.
type Config struct {
	// Host is the fabric. The caller closes it, after Close.
	Host rdmanet.Host
	// Lane is the name of the lane that carries requests and answers.
	Lane string
	// Admit reports whether a peer may ask and answer. Frames of other peers are dropped. Several
	// goroutines call it, and it must not block.
	Admit func(rdmanet.PeerID) bool
	// Serve answers a request of a peer with Send and End. If it returns an error, or did not call
	// End, the request fails at the asker. Each request has a goroutine. Serve must return once ctx
	// ends: at the request's deadline, when its asker gives up or restarts, and with Close.
	Serve func(ctx context.Context, request *Served) error
	// Busy is the whole answer to a request beyond the bounds.
	Busy []byte
	// BodyMax bounds the body of a request, in bytes.
	BodyMax int
	// ServingPerPeer and ServingMax bound the requests that are served at a time. Zero means the
	// default.
	ServingPerPeer, ServingMax int
	// Serving bounds the bodies of the requests that are served, Arriving the answers that have
	// more than one chunk and are not closed. nil means no bound besides those of the numbers and
	// of each.
	Serving, Arriving *Budget
	// PieceBytes is how much of a request's body goes into a frame. Zero means PieceBytesDefault.
	PieceBytes int
	// TimeoutMax bounds the serving of a request. Zero means TimeoutMaxDefault.
	TimeoutMax time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Host == nil || c.Admit == nil || c.Serve == nil {
		return c, errors.New("wire: Host, Admit and Serve are needed")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	for _, number := range []struct {
		field *int
		value int
	}{{&c.ServingPerPeer, ServingPerPeerDefault}, {&c.ServingMax, ServingMaxDefault},
		{&c.PieceBytes, PieceBytesDefault}} {
		if *number.field == 0 {
			*number.field = number.value
		}
		if *number.field < 0 {
			return c, fmt.Errorf("wire: a bound of %d", *number.field)
		}
	}
	if c.TimeoutMax == 0 {
		c.TimeoutMax = TimeoutMaxDefault
	}
	if c.BodyMax < 0 || c.TimeoutMax < 0 {
		return c, fmt.Errorf("wire: bodies of %d bytes, a bound on requests of %v", c.BodyMax,
			c.TimeoutMax)
	}
	return c, nil
}

// Requests makes requests of peers and serves theirs, over one lane. All methods are safe for
// concurrent use.
type Requests struct {
	config Config
	host   rdmanet.Host
	logger *slog.Logger

	// life ends with Close; handlers' contexts come from it.
	life context.Context
	end  context.CancelFunc
	done sync.WaitGroup
	wake chan struct{} // a request is served: start the signs

	nextID          atomic.Uint64
	served, refused atomic.Uint64
	complaints      complaints

	mu      sync.Mutex // never held while a lane waits or a handler runs
	closed  bool
	asked   map[uint64]*Asked // requests without a whole answer, by id
	serving map[servedKey]*Served
	ofPeer  map[rdmanet.PeerID]int // the number of requests in serving, by peer
}

// Budget counts bytes up to a bound. A nil Budget has none.
type Budget struct {
	used atomic.Int64
	max  int64
}

// NewBudget returns a budget of a number of bytes.
func NewBudget(bytes int64) *Budget { return &Budget{max: bytes} }

// Take reserves n bytes, if they are available.
func (b *Budget) Take(n int) bool {
	if b == nil {
		return true
	}
	if b.used.Add(int64(n)) > b.max {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

// Give returns n bytes.
func (b *Budget) Give(n int) {
	if b != nil {
		b.used.Add(-int64(n))
	}
}

// Used returns the number of reserved bytes.
func (b *Budget) Used() int64 { return b.used.Load() }

// Status is the current and past work of a Requests.
type Status struct {
	// Serving and Asking are the requests under way, of peers and of this node.
	Serving, Asking int
	// Served counts accepted requests of peers, Refused those that were answered with "busy".
	Served, Refused uint64
}

// New registers for the lane and starts to serve. It returns an error of the host, or one that says
// what is wrong with the configuration.
func New(config Config) (*Requests, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	x := &Requests{
		config: config, host: config.Host, logger: config.Logger,
		wake:    make(chan struct{}, 1),
		asked:   make(map[uint64]*Asked),
		serving: make(map[servedKey]*Served),
		ofPeer:  make(map[rdmanet.PeerID]int),
	}
	x.life, x.end = context.WithCancel(context.Background())
	// A late answer to this process's earlier life must not look like one to this life.
	x.nextID.Store(uint64(x.host.Incarnation()))
	x.host.Watch(x.watch)
	if err := x.host.Receive(config.Lane, x.receive); err != nil {
		x.end()
		return nil, fmt.Errorf("wire: register for lane %q: %w", config.Lane, err)
	}
	x.done.Go(x.sign)
	return x, nil
}

// Close ends the requests of both directions, those of this node with ErrClosed, and waits for the
// handlers and all other goroutines. A second Close also waits.
func (x *Requests) Close() {
	x.mu.Lock()
	x.closed = true
	for _, a := range x.asked {
		a.lose(ErrClosed)
	}
	x.mu.Unlock()
	x.end()
	x.done.Wait()
}

// Status returns the counts of requests.
func (x *Requests) Status() Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	return Status{Serving: len(x.serving), Asking: len(x.asked), Served: x.served.Load(),
		Refused: x.refused.Load()}
}

// receive handles the frames of one peer. It never blocks.
func (x *Requests) receive(from rdmanet.Peer, frames [][]byte) {
	if x.life.Err() != nil {
		return
	}
	if !x.config.Admit(from.ID) {
		if x.complaints.due(from.ID) {
			x.logger.Warn("dropped frames of an unknown peer", "peer", from, "lane", x.config.Lane,
				"frames", len(frames))
		}
		return
	}
	for _, frame := range frames {
		if err := x.take(from, frame); err != nil && x.complaints.due(from.ID) {
			x.logger.Warn("a malformed frame was dropped", "peer", from, "lane", x.config.Lane,
				"bytes", len(frame), "error", err)
		}
	}
}

// take handles one frame of a peer that is admitted.
func (x *Requests) take(from rdmanet.Peer, frame []byte) error {
	if len(frame) < idEnd {
		return fmt.Errorf("%w: %d bytes", errFrame, len(frame))
	}
	switch kind := frameKind(frame[0]); kind {
	case frameRequest:
		r, err := decodeRequest(frame, x.config.BodyMax)
		if err != nil {
			return err
		}
		x.accept(from, r)
	case framePart:
		p, err := decodePiece(frame)
		if err != nil {
			return err
		}
		return x.acceptPart(from, p)
	case frameCancel:
		id, err := decodeCancel(frame)
		if err != nil {
			return err
		}
		x.cancelled(from, id)
	case frameChunk, frameLast:
		p, err := decodePiece(frame)
		if err != nil {
			x.lost(from.ID, frameID(frame), fmt.Errorf("%w: %w", ErrAnswer, err))
			return err
		}
		return x.answered(from, p, kind == frameLast)
	case frameFailure:
		id, reason, err := decodeFailure(frame)
		if err != nil {
			x.lost(from.ID, frameID(frame), fmt.Errorf("%w: %w", ErrAnswer, err))
			return err
		}
		x.lost(from.ID, id, fmt.Errorf("%w: it says %q", ErrRefused, reason))
	case frameWorking:
		ids, err := decodeWorking(frame)
		if err != nil {
			return err
		}
		x.working(from, ids)
	default:
		return fmt.Errorf("%w: kind %d", errFrame, kind)
	}
	return nil
}

// watch handles an event of a peer from the fabric. It ends the serving of requests whose asker is
// gone, and the requests that the peer lost. It doubts those that the peer may have lost.
func (x *Requests) watch(event rdmanet.PeerEvent) {
	onLane := event.Lane == x.config.Lane
	switch {
	case event.Kind == rdmanet.PeerRestarted:
		x.endServing(event.Peer.ID, func(s *Served) bool {
			return s.From.Incarnation != event.Peer.Incarnation
		})
		x.doubt(event.Peer.ID, false)
		x.checkLanes(event.Peer.ID)
	case event.Kind == rdmanet.PeerUnreachable && onLane:
		// No answer would reach it.
		x.endServing(event.Peer.ID, func(*Served) bool { return true })
		x.doubt(event.Peer.ID, false)
		x.checkLanes(event.Peer.ID)
	case event.Kind == rdmanet.LaneReset && onLane:
		// Parts of requests and answers may be lost.
		x.endServing(event.Peer.ID, func(s *Served) bool { return !s.complete() })
		x.doubt(event.Peer.ID, true)
	case event.Kind == rdmanet.PeerDisconnected, event.Kind == rdmanet.PeerRefused:
		x.doubt(event.Peer.ID, false)
	}
}

// trySend sends a frame if there is room. If the lane broke since its last use, it uses a fresh
// lane.
func (x *Requests) trySend(to rdmanet.PeerID, frame []byte) (lane rdmanet.Lane, sent bool,
	err error) {
	for range 2 {
		if lane, err = x.host.Lane(to, x.config.Lane); err != nil {
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
