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
	"github.com/ledgerd/ledgerd/node/wire"
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

// HeaderRetry is "true" in an answer if the caller may make the same call again, at another member
// or later. It is the same as package api's.
const HeaderRetry = "Ledgerd-Retry"

// HeaderUnsure is "true" in an answer if another member may have carried out the call: it was asked
// before and has not answered, or its answer had the header. It is the same as package api's.
const HeaderUnsure = "Ledgerd-Unsure"

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
	config   Config
	requests *wire.Requests

	// life ends with Close.
	life context.Context
	end  context.CancelFunc

	gathered  *wire.Budget // answers that arrive in pieces
	inService *wire.Budget // bodies of requests and answers being served

	asked, repeated, unanswered atomic.Uint64

	mu      sync.Mutex // never held while the host is called
	closed  bool
	asking  int
	doubted map[rdmanet.PeerID]time.Time
}

// New registers for the host's lane "calls" and starts to serve. It returns an error of the host,
// or one that says what is wrong with the configuration.
func New(config Config) (*Calls, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Calls{config: config, doubted: make(map[rdmanet.PeerID]time.Time),
		gathered:  wire.NewBudget(config.MemoryMax),
		inService: wire.NewBudget(config.MemoryMax)}
	c.life, c.end = context.WithCancel(context.Background())
	config.Host.Watch(c.watch)
	c.requests, err = wire.New(wire.Config{Host: config.Host, Lane: LaneName, Logger: config.Logger,
		Admit: func(peer rdmanet.PeerID) bool {
			_, known := config.Find(peer)
			return known
		},
		Serve: c.serve, Busy: busyAnswer(), BodyMax: BodyMax,
		ServingPerPeer: config.ServingPerPeer, ServingMax: config.ServingMax,
		Serving: c.inService, Arriving: c.gathered, PieceBytes: config.PieceBytes,
		TimeoutMax: config.TimeoutMax})
	if err != nil {
		c.end()
		return nil, fmt.Errorf("calls: %w", err)
	}
	return c, nil
}

// Close ends the calls of both directions, those of this node with ErrClosed, and waits for the
// handlers and all other goroutines. A second Close also waits.
func (c *Calls) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.requests.Close()
}

// Status returns the counts of calls.
func (c *Calls) Status() Status {
	requests := c.requests.Status()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{
		Serving: requests.Serving, Asking: c.asking, Served: requests.Served,
		Refused: requests.Refused,
		Asked:   c.asked.Load(), Repeated: c.repeated.Load(), Unanswered: c.unanswered.Load(),
	}
}

// watch asks members later that may have lost a call.
func (c *Calls) watch(event rdmanet.PeerEvent) {
	switch event.Kind {
	case rdmanet.PeerUnreachable, rdmanet.LaneReset:
		if event.Lane == LaneName {
			c.suspect(event.Peer.ID)
		}
	case rdmanet.PeerRestarted, rdmanet.PeerDisconnected, rdmanet.PeerRefused:
		c.suspect(event.Peer.ID)
	case rdmanet.PeerConnected:
		c.trust(event.Peer.ID)
	}
}
