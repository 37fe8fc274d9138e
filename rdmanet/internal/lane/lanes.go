package lane

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// SettleTimeout bounds how long a closing host waits for receive functions to return, so that it
// can acknowledge their frames.
const SettleTimeout = 5 * time.Second

// Peers records the peers that the lanes meet and reports their events. peers.Tracker implements
// it.
type Peers interface {
	// Up records that a lane to or from the peer came up, Down that it went down again. If Up
	// returns an error, the peer must not be served.
	Up(rdmanet.Peer) error
	Down(rdmanet.Peer)
	// Seen records that the peer was met in that incarnation, without a lane.
	Seen(rdmanet.Peer) error
	// Tell reports an event to the host's watchers.
	Tell(rdmanet.PeerEvent)
}

// Outlet is the sending end of a connection. One goroutine uses it.
type Outlet interface {
	// Start starts reading from the peer: from now on the outlet calls Sender.Acknowledged.
	Start()
	// Write sends the frames as one batch; first is the number of the first of them. The slice that
	// lists them is only lent; the frames themselves do not change. It may wait for room.
	Write(frames [][]byte, first uint64) error
	// Wait waits until ready has a token. It returns an error if the connection is broken or its
	// context has ended.
	Wait(ready <-chan struct{}) error
	// Close ends the connection, after an error that Write or Wait returned. Nothing is
	// acknowledged once it has returned. It returns the time of the peer's last sign of life, zero
	// if there was none, and why the connection broke.
	Close(error) (heard time.Time, err error)
}

// PromptOutlet is an Outlet that can also write without waiting. Then a batch that finds the lane
// idle leaves from its sender's goroutine, which saves a switch to the lane's own.
type PromptOutlet interface {
	Outlet
	// PromptBytes returns how many bytes a batch may have at most to leave that way.
	PromptBytes() int
	// TryWrite is like Write, but never waits. It reports whether the connection took the whole
	// batch. The rest leaves with Flush. Until then, neither TryWrite nor Write is called. TryWrite
	// and Write are never called at the same time.
	TryWrite(frames [][]byte, first uint64) (whole bool)
	// Flush writes the rest of the batch that TryWrite was given last, and may wait. It returns the
	// error of TryWrite, if there was one.
	Flush() error
}

// Config configures the lanes of a host. All fields are required, except AttemptTimeout
// and Poison.
type Config struct {
	// Self is this host.
	Self rdmanet.Peer
	// Limits apply to every lane.
	Limits window.Limits
	// MendTimeout is how long a lane may be broken, since the peer's last sign of life.
	MendTimeout time.Duration
	// AttemptTimeout bounds the first attempt to connect. It doubles when an attempt times out.
	// With 0 only the mend timeout bounds attempts.
	AttemptTimeout time.Duration
	Peers          Peers
	// Member reports whether a peer may have lanes to and from this host. It is called with locks
	// held and must not call back.
	Member func(rdmanet.PeerID) bool
	// Dial makes one attempt to connect a lane: it sends Sender.Hello, passes the answer to
	// Sender.Accept, and makes the connection. The attempt takes no longer than patience. The
	// connection ends with ctx: its Write and Wait then return.
	Dial func(ctx context.Context, s *Sender, patience time.Duration) (Outlet, error)
	Log  *slog.Logger
	// Poison overwrites lent frames once nobody holds them. It is for tests.
	Poison bool
}

// key identifies a lane among those to all peers, or among those from all peers.
type key struct {
	peer rdmanet.PeerID
	name string
}

// lostFrames counts frames that earlier openings of a lane gave up on their way to an incarnation,
// or to any incarnation (0), and that no answered hello has reported yet.
type lostFrames struct {
	incarnation rdmanet.Incarnation
	frames      uint64
}

// receiver is a program's receive function for a lane.
type receiver struct {
	call   rdmanet.ReceiveFunc
	lent   bool                    // the function keeps no frame
	prompt *rdmanet.PromptReceiver // nil if it is not prompt; call is its Receive
}

// Lanes holds all lanes of one host. All methods may be called from several goroutines.
type Lanes struct {
	config  Config
	senders sync.WaitGroup // their goroutines
	slabs   slabPool       // for frames that are lent to prompt receivers

	mu        sync.Mutex
	closing   bool // no new lane, receiver or frame
	dead      bool // no new goroutine, and no connection that feeds a lane
	receivers map[string]receiver
	out       map[key]*Sender
	openings  map[key]uint64
	lost      map[key]lostFrames
	in        map[key]*inboundLane
	// The newest incarnation of each restarted peer. Connections of older ones are not served.
	newest map[rdmanet.PeerID]rdmanet.Incarnation
}

// New returns the lanes of a host, initially none.
func New(config Config) *Lanes {
	if config.AttemptTimeout == 0 {
		config.AttemptTimeout = math.MaxInt64
	}
	return &Lanes{
		config:    config,
		slabs:     slabPool{poison: config.Poison, free: make(map[int][]*slab)},
		receivers: make(map[string]receiver),
		out:       make(map[key]*Sender),
		openings:  make(map[key]uint64),
		lost:      make(map[key]lostFrames),
		in:        make(map[key]*inboundLane),
		newest:    make(map[rdmanet.PeerID]rdmanet.Incarnation),
	}
}

func (l *Lanes) errClosed() error {
	return fmt.Errorf("host %s: %w", l.config.Self.ID, rdmanet.ErrClosed)
}

// Receive implements rdmanet.Host's Receive. If lent is set, the frames are only lent to the
// function, which keeps none.
func (l *Lanes) Receive(name string, receive rdmanet.ReceiveFunc, lent bool) error {
	return l.register(name, receiver{call: receive, lent: lent})
}

// ReceivePrompt implements rdmanet.PromptHost's ReceivePrompt.
func (l *Lanes) ReceivePrompt(name string, prompt rdmanet.PromptReceiver) error {
	return l.register(name, receiver{call: prompt.Receive, prompt: &prompt})
}

func (l *Lanes) register(name string, r receiver) error {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closing:
		return l.errClosed()
	case l.receivers[name].call != nil:
		return fmt.Errorf("receiver of lane %q: %w", name, rdmanet.ErrDuplicate)
	}
	l.receivers[name] = r
	return nil
}

// Open implements rdmanet.Host's Lane.
func (l *Lanes) Open(to rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return nil, err
	}
	k := key{to, name}
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.out[k]
	if known != nil && !l.closing && !known.window.Broken() {
		return known, nil // its peer is a member: Expel breaks the lanes of others
	}
	switch {
	case to == l.config.Self.ID || !l.config.Member(to):
		return nil, fmt.Errorf("lane %q to %q: %w", name, to, rdmanet.ErrNotMember)
	case l.closing:
		return nil, l.errClosed()
	}
	if known != nil {
		l.retireLocked(known)
	}
	l.openings[k]++
	s := newSender(l, k, l.openings[k], l.lost[k])
	l.out[k] = s
	l.senders.Go(s.run)
	return s, nil
}

// retire removes a broken lane from the host and remembers the frames that it gave up.
func (l *Lanes) retire(s *Sender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retireLocked(s)
}

func (l *Lanes) retireLocked(s *Sender) {
	if l.out[s.key] != s {
		return
	}
	delete(l.out, s.key)
	// Losses from before this lane are still unreported until its hello is answered.
	lost := s.lost
	if bound := s.bound(); bound != 0 {
		lost = lostFrames{incarnation: bound}
	}
	lost.frames += uint64(s.window.Pending())
	if lost.frames > 0 {
		l.lost[s.key] = lost
	} else {
		delete(l.lost, s.key)
	}
}

// Restarted ends everything to and from incarnations of the peer that are older than peer.
func (l *Lanes) Restarted(peer rdmanet.Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest[peer.ID] = peer.Incarnation
	for k, s := range l.out {
		if bound := s.bound(); k.peer == peer.ID && bound != 0 && bound < peer.Incarnation {
			s.end(fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset,
				peer.Incarnation))
		}
	}
	for k, in := range l.in {
		if k.peer == peer.ID {
			in.supersedeOlder(peer.Incarnation)
		}
	}
}

// Expel ends everything to and from a peer that is no longer a member.
func (l *Lanes) Expel(peer rdmanet.PeerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, s := range l.out {
		if k.peer == peer {
			s.end(rdmanet.ErrNotMember)
		}
	}
	for k, in := range l.in {
		if k.peer == peer {
			in.supersede(nil)
			delete(l.in, k)
		}
	}
}

// Unreachable breaks the lanes that lead to an incarnation of the peer, because the peer's monitor
// has given it up. Each lane first takes the last acknowledgements from its current connection.
// Unreachable also stops the connections from the peer.
func (l *Lanes) Unreachable(peer rdmanet.PeerID, cause error) {
	for _, s := range l.to(peer) {
		if s.bound() != 0 {
			s.giveUp(cause)
		}
	}
	l.stopFrom(peer)
}

// Sever ends the connections to and from a peer once, as a broken network would.
func (l *Lanes) Sever(peer rdmanet.PeerID) {
	for _, s := range l.to(peer) {
		s.sever()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, in := range l.in {
		if k.peer == peer {
			in.sever()
		}
	}
}

// ReconnectNow makes the lanes to a peer that are pausing between attempts connect at once.
func (l *Lanes) ReconnectNow(peer rdmanet.PeerID) {
	for _, s := range l.to(peer) {
		s.hurry()
	}
}

// HeardRecently reports whether the peer gave a sign of life within half the mend timeout on any
// lane to it.
func (l *Lanes) HeardRecently(peer rdmanet.PeerID) bool {
	since := time.Now().Add(-l.config.MendTimeout / 2).UnixNano()
	return slices.ContainsFunc(l.to(peer), func(s *Sender) bool { return s.heard.Load() > since })
}

func (l *Lanes) to(peer rdmanet.PeerID) []*Sender {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*Sender
	for k, s := range l.out {
		if k.peer == peer {
			found = append(found, s)
		}
	}
	return found
}

// stopFrom stops the connections that feed the lanes from a peer.
func (l *Lanes) stopFrom(peer rdmanet.PeerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, in := range l.in {
		if k.peer == peer {
			in.supersede(nil)
		}
	}
}

// Flush stops accepting frames and waits until all sent frames are taken or their lanes have
// broken. It returns ctx's error if ctx ends first.
func (l *Lanes) Flush(ctx context.Context) error {
	l.mu.Lock()
	l.closing = true
	senders := slices.Collect(maps.Values(l.out))
	l.mu.Unlock()
	for _, s := range senders {
		s.window.Seal(s.wrap(rdmanet.ErrClosed))
	}
	for _, s := range senders {
		// A lane that breaks is no reason to wait longer. Its senders get the error.
		if err := s.window.Flushed(ctx); err != nil && ctx.Err() != nil {
			return fmt.Errorf("host %s: frames are left unsent: %w", l.config.Self.ID, ctx.Err())
		}
	}
	return nil
}

// Settle stops handing over frames and waits for the receive functions that run, as long as ctx and
// SettleTimeout allow. The acknowledgements owed to the peers are then known. Call it after Flush.
func (l *Lanes) Settle(ctx context.Context) {
	l.mu.Lock()
	lanes := slices.Collect(maps.Values(l.in))
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, SettleTimeout)
	defer cancel()
	for _, in := range lanes {
		in.seal()
	}
	for _, in := range lanes {
		select {
		case <-in.quiet:
		case <-ctx.Done():
			return
		}
	}
}

// End breaks all lanes, stops the connections that feed incoming lanes, and lets no new one begin.
// It does not wait.
func (l *Lanes) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing, l.dead = true, true
	for _, s := range l.out {
		s.end(rdmanet.ErrClosed)
	}
	for _, in := range l.in {
		in.supersede(nil)
	}
}

// Wait waits for the goroutines of all lanes to peers. The provider owns the goroutines that feed
// incoming lanes.
func (l *Lanes) Wait() { l.senders.Wait() }
