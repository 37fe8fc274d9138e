package catchup

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// LaneName is the lane that carries requests and answers.
const LaneName = "blocks"

// The defaults and bounds of Config.
const (
	TimeoutDefault     = 5 * time.Second
	PieceBytesDefault  = 4 << 20
	PieceBytesMin      = 512
	PieceBytesMax      = 8 << 20
	PieceBlocksDefault = 256
	PieceBlocksMax     = 4096
)

// SlotsPerPeer bounds the pieces under way between two nodes, in each direction.
const SlotsPerPeer = 4

// servingPerPeer bounds the requests of one peer that are served at a time, servingMax those of all
// peers. A peer has a request too many for a moment, when it asks on while this node's goroutine
// for the previous one ends.
const (
	servingPerPeer = 2 * SlotsPerPeer
	servingMax     = 1024
)

// readersMax bounds the answers that are read from the chain at a time.
const readersMax = 2

// Errors of Fetch and New; match them with errors.Is.
var (
	// ErrFork means that the peer holds another block at the point's height. Every such error has a
	// *ForkError.
	ErrFork = errors.New("catchup: the peer holds another block")
	// ErrBehind means that the peer does not hold the point's height, or nothing after it. Every
	// such error has a *BehindError.
	ErrBehind = errors.New("catchup: the peer has no more blocks")
	// ErrAbsent means that the peer began with a snapshot and does not hold the requested block
	// either. Every such error has an *AbsentError, and is an ErrUnavailable too.
	ErrAbsent = errors.New("catchup: the peer began with a snapshot")
	// ErrUnavailable means that the peer cannot be reached, did not answer in time, refused, is
	// busy, or gave a wrong answer. The cause is wrapped too if it is an error of the fabric or of
	// package ledger.
	ErrUnavailable = errors.New("catchup: peer unavailable")
	// ErrClosed means that the exchange was closed.
	ErrClosed = errors.New("catchup: closed")
)

// Point is a block that a node holds.
type Point struct {
	Height ledger.Height
	Hash   ledger.Hash
}

// String returns the point as height:hash.
func (p Point) String() string { return fmt.Sprintf("%d:%s", p.Height, p.Hash) }

// ForkError holds the peer's block where this node holds another block.
type ForkError struct {
	Peer         rdmanet.PeerID
	Ours, Theirs Point
	// Head is the peer's height.
	Head ledger.Height
}

// Error returns a sentence.
func (e *ForkError) Error() string {
	return fmt.Sprintf("%v: %s has %s, its height is %d, and this node has %s", ErrFork, e.Peer,
		e.Theirs, e.Head, e.Ours)
}

// Unwrap makes every ForkError an ErrFork.
func (e *ForkError) Unwrap() error { return ErrFork }

// BehindError says at which height the peer is.
type BehindError struct {
	Peer rdmanet.PeerID
	// After is the last block that this node has, including those just fetched.
	After Point
	// Head is the peer's height: After's, or lower.
	Head ledger.Height
}

// Error returns a sentence.
func (e *BehindError) Error() string {
	return fmt.Sprintf("%v: after %s, %s is at height %d", ErrBehind, e.After, e.Peer, e.Head)
}

// Unwrap makes every BehindError an ErrBehind.
func (e *BehindError) Unwrap() error { return ErrBehind }

// AbsentError says from which height on the peer has blocks.
type AbsentError struct {
	Peer rdmanet.PeerID
	// After is the last block that this node has, including those just fetched.
	After Point
	// Absent is the height up to which the peer has no blocks: After's, or higher.
	Absent ledger.Height
}

// Error returns a sentence.
func (e *AbsentError) Error() string {
	return fmt.Sprintf("%v: after %s, %s has blocks from %d on", ErrAbsent, e.After, e.Peer,
		e.Absent+1)
}

// Unwrap makes every AbsentError an ErrAbsent and an ErrUnavailable.
func (e *AbsentError) Unwrap() []error { return []error{ErrAbsent, ErrUnavailable} }

// Chain is the chain to serve from; *store.Store implements it. Several goroutines read it.
type Chain interface {
	AppendedHeight() ledger.Height
	// Absent returns the height up to which there are headers but no blocks; 0 if there is none.
	Absent() ledger.Height
	Header(ledger.Height) (ledger.Header, ledger.Hash, error)
	Block(ledger.Height) (*ledger.Block, error)
	// Certificates returns certificates of blocks above a height, ascending, at least one if there
	// is one, until their encodings exceed a number of bytes.
	Certificates(above ledger.Height, bytesMax int) ([]*ledger.Certificate, error)
}

// Config is the configuration of an Exchange.
type Config struct {
	// Host is the fabric. The caller closes it, after the exchange.
	Host rdmanet.Host
	// Peers are the members that may ask and be asked, until SetPeers. Frames of other peers are
	// dropped. Empty ids are ignored.
	Peers []rdmanet.PeerID
	// Contents, if set, returns the contents with a sha256, or nil if they are not here. The rules
	// of Chain apply.
	Contents func(hash [32]byte) []byte
	// Chain returns the chain to serve from, or nil for none. Several goroutines call it, once per
	// request; it must not block. A request may still read a chain that was returned before. That
	// chain may be a closed store, which answers with an error.
	Chain func() Chain
	// Logger may be nil.
	Logger *slog.Logger
	// Timeout is how long Fetch waits for one answer. Zero means TimeoutDefault.
	Timeout time.Duration
	// PieceBytes and PieceBlocks bound an answer. Zero means PieceBytesDefault and
	// PieceBlocksDefault.
	PieceBytes, PieceBlocks int
}

// Exchange serves blocks to the peers and fetches theirs. All methods are safe for concurrent use.
type Exchange struct {
	requests      *wire.Requests
	chain         func() Chain
	contents      func([32]byte) []byte
	logger        *slog.Logger
	timeout       time.Duration
	piece         limits
	blockBytesMax atomic.Uint64
	peers         atomic.Pointer[map[rdmanet.PeerID]*peer] // replaced as a whole

	reading   chan struct{} // holds an element for each answer that is read from the chain
	closed    chan struct{}
	closeOnce sync.Once

	largeMu sync.Mutex
	large   largeBlock
}

// limits bounds one answer.
type limits struct{ blocks, bytes uint32 }

// peer is the state kept for each member.
type peer struct {
	id rdmanet.PeerID
	// slots holds an element for each piece that this node waits for or reads.
	slots chan struct{}
}

// New registers for the host's lane "blocks" and starts to serve. It returns an error of the host,
// or one that says what is wrong with the configuration.
func New(config Config) (*Exchange, error) {
	if config.Host == nil || config.Chain == nil {
		return nil, errors.New("catchup: Host and Chain are needed")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Timeout == 0 {
		config.Timeout = TimeoutDefault
	}
	if config.PieceBytes == 0 {
		config.PieceBytes = PieceBytesDefault
	}
	if config.PieceBlocks == 0 {
		config.PieceBlocks = PieceBlocksDefault
	}
	switch {
	case config.Timeout < 0:
		return nil, fmt.Errorf("catchup: timeout %v", config.Timeout)
	case config.PieceBytes < PieceBytesMin || config.PieceBytes > PieceBytesMax:
		return nil, fmt.Errorf("catchup: pieces of %d bytes, want %d to %d", config.PieceBytes,
			PieceBytesMin, PieceBytesMax)
	case config.PieceBlocks < 1 || config.PieceBlocks > PieceBlocksMax:
		return nil, fmt.Errorf("catchup: pieces of %d blocks, want 1 to %d", config.PieceBlocks,
			PieceBlocksMax)
	}
	x := &Exchange{
		chain: config.Chain, contents: config.Contents, logger: config.Logger,
		timeout: config.Timeout,
		piece:   limits{blocks: uint32(config.PieceBlocks), bytes: uint32(config.PieceBytes)},
		reading: make(chan struct{}, readersMax),
		closed:  make(chan struct{}),
	}
	x.peers.Store(&map[rdmanet.PeerID]*peer{})
	x.SetPeers(config.Peers)
	var err error
	x.requests, err = wire.New(wire.Config{Host: config.Host, Lane: LaneName, Logger: config.Logger,
		Admit: func(peer rdmanet.PeerID) bool { return x.peer(peer) != nil },
		Serve: x.serve, Busy: answer{status: statusBusy}.encode(),
		ServingPerPeer: servingPerPeer, ServingMax: servingMax})
	if err != nil {
		return nil, fmt.Errorf("catchup: %w", err)
	}
	return x, nil
}

// SetPeers replaces the peers that may ask and be asked. Empty ids are ignored.
func (x *Exchange) SetPeers(peers []rdmanet.PeerID) {
	before := *x.peers.Load()
	after := make(map[rdmanet.PeerID]*peer, len(peers))
	for _, id := range peers {
		switch known := before[id]; {
		case id == "":
		case known != nil:
			after[id] = known
		default:
			after[id] = &peer{id: id, slots: make(chan struct{}, SlotsPerPeer)}
		}
	}
	// A block holds a batch of each member. Results, flags and headers are smaller than the
	// transactions that they belong to. The bound never decreases, so blocks of an earlier, larger
	// group are not refused.
	x.blockBytesMax.Store(max(x.blockBytesMax.Load(), uint64(len(after)+1)*2*ledger.MaxBatchBytes))
	x.peers.Store(&after)
}

func (x *Exchange) peer(id rdmanet.PeerID) *peer { return (*x.peers.Load())[id] }

// Close ends the serving of blocks and waits for its goroutines. Calls of Fetch end with ErrClosed.
// A second Close also waits.
func (x *Exchange) Close() {
	x.closeOnce.Do(func() { close(x.closed) })
	x.requests.Close()
}

func (x *Exchange) isClosed() bool {
	select {
	case <-x.closed:
		return true
	default:
		return false
	}
}
