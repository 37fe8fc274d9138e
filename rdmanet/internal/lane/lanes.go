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

// SettleTimeout bounds how long a closing host waits for receive functions to return, to
// acknowledge what they got.
const SettleTimeout = 5 * time.Second

// Peers is what the lanes tell of the peers that they meet, and whom they ask; peers.Tracker is
// one.
type Peers interface {
	// Up notes that a lane to or from the peer came up, Down that it went down again. An error of
	// Up says that the peer is not to be served.
	Up(rdmanet.Peer) error
	Down(rdmanet.Peer)
	// Seen notes that the peer was met in that incarnation, without a lane.
	Seen(rdmanet.Peer) error
	// Tell passes an event on to the host's watchers.
	Tell(rdmanet.PeerEvent)
}

// Outlet is a connection at its sending end. One goroutine uses it.
type Outlet interface {
	// Start begins to hear the peer: from now on Sender.Acknowledged is called.
	Start()
	// Write puts the frames on their way as one batch, the first of them with that number. The
	// slice that lists them is only lent, the frames stay as they are. It may wait for room.
	Write(frames [][]byte, first uint64) error
	// Wait waits until ready has a token; it gives an error when the connection is broken or its
	// context has ended.
	Wait(ready <-chan struct{}) error
	// Close ends the connection, after the error that Write or Wait gave. Nothing is acknowledged
	// once it has returned. It tells when the peer last gave a sign of life, zero if it never did,
	// and why the connection broke.
	Close(error) (heard time.Time, err error)
}

// Config is what a host's lanes are made with. All of it is needed.
type Config struct {
	// Self is this host.
	Self rdmanet.Peer
	// Limits of all lanes.
	Limits window.Limits
	// MendTimeout is how long a lane may be broken, since the peer's last sign of life.
	MendTimeout time.Duration
	// AttemptTimeout bounds the first attempt to connect; it doubles while attempts run out of it.
	// 0: only the mend timeout does.
	AttemptTimeout time.Duration
	Peers          Peers
	// Member tells whether a peer may have lanes to and from this host. It is called with locks
	// held and must not call back.
	Member func(rdmanet.PeerID) bool
	// Dial makes one attempt to connect a lane: it greets with Sender.Hello, has Sender.Accept
	// judge the answer, and makes the connection. The attempt takes no longer than patience; the
	// connection, too, ends with ctx: its Write and Wait return.
	Dial func(ctx context.Context, s *Sender, patience time.Duration) (Outlet, error)
	Log  *slog.Logger
}

// key names a lane among those to, or those from, all peers.
type key struct {
	peer rdmanet.PeerID
	name string
}

// lostFrames are frames that earlier openings of a lane gave up on their way to an incarnation, or
// to whoever it would have been (0), and that no answered hello has told of.
type lostFrames struct {
	incarnation rdmanet.Incarnation
	frames      uint64
}

// receiver is what a program takes a lane's frames with.
type receiver struct {
	call rdmanet.ReceiveFunc
	lent bool // it keeps none of them
}

// Lanes are all lanes of one host. All methods may be called from several goroutines.
type Lanes struct {
	config  Config
	senders sync.WaitGroup // their goroutines

	mu        sync.Mutex
	closing   bool // no new lane, receiver or frame
	dead      bool // no new goroutine, and no connection that feeds a lane
	receivers map[string]receiver
	out       map[key]*Sender
	openings  map[key]uint64
	lost      map[key]lostFrames
	in        map[key]*inboundLane
	// of peers that restarted: no connection of an older one is served
	newest map[rdmanet.PeerID]rdmanet.Incarnation
}

// New gives the lanes of a host: none yet.
func New(config Config) *Lanes {
	if config.AttemptTimeout == 0 {
		config.AttemptTimeout = math.MaxInt64
	}
	return &Lanes{
		config:    config,
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

// Receive is that of rdmanet.Host. If lent is set, the function keeps no frame: they too are only
// lent to it.
func (l *Lanes) Receive(name string, receive rdmanet.ReceiveFunc, lent bool) error {
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
	l.receivers[name] = receiver{call: receive, lent: lent}
	return nil
}

// Open is rdmanet.Host's Lane.
func (l *Lanes) Open(to rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return nil, err
	}
	k := key{to, name}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case to == l.config.Self.ID || !l.config.Member(to):
		return nil, fmt.Errorf("lane %q to %q: %w", name, to, rdmanet.ErrNotMember)
	case l.closing:
		return nil, l.errClosed()
	}
	if s := l.out[k]; s != nil {
		if !s.window.Broken() {
			return s, nil
		}
		l.retireLocked(s)
	}
	l.openings[k]++
	s := newSender(l, k, l.openings[k], l.lost[k])
	l.out[k] = s
	l.senders.Go(s.run)
	return s, nil
}

// retire takes a lane that broke out of the host and remembers what it gave up.
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
	// What was lost before this lane is news until its hello was answered.
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

// Restarted ends everything to and from incarnations of the peer that are older than this one.
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

// Expel ends everything to and from a peer that is no member any more.
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

// Unreachable breaks the lanes that lead to an incarnation of the peer, because whoever watches
// over it gave it up; each hears the peer out first. What comes from it is stopped.
func (l *Lanes) Unreachable(peer rdmanet.PeerID, cause error) {
	for _, s := range l.to(peer) {
		if s.bound() != 0 {
			s.giveUp(cause)
		}
	}
	l.stopFrom(peer)
}

// Sever ends the connections to and from a peer once, as a broken wire would.
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

// Hurry spares lanes to a peer that wait to connect the rest of their pause.
func (l *Lanes) Hurry(peer rdmanet.PeerID) {
	for _, s := range l.to(peer) {
		s.hurry()
	}
}

// HeardLately reports whether the peer gave a sign of life on any lane to it within half the mend
// timeout.
func (l *Lanes) HeardLately(peer rdmanet.PeerID) bool {
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

// stopFrom stops what feeds the lanes from a peer.
func (l *Lanes) stopFrom(peer rdmanet.PeerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, in := range l.in {
		if k.peer == peer {
			in.supersede(nil)
		}
	}
}

// Flush accepts nothing more and waits until what was sent is taken or its lane broke. ctx's error,
// if it ends before.
func (l *Lanes) Flush(ctx context.Context) error {
	l.mu.Lock()
	l.closing = true
	senders := slices.Collect(maps.Values(l.out))
	l.mu.Unlock()
	for _, s := range senders {
		s.window.Seal(s.wrap(rdmanet.ErrClosed))
	}
	for _, s := range senders {
		// A lane's own end is no reason to wait longer, and is told to whoever sends.
		if err := s.window.Flushed(ctx); err != nil && ctx.Err() != nil {
			return fmt.Errorf("host %s: frames are left unsent: %w", l.config.Self.ID, ctx.Err())
		}
	}
	return nil
}

// Settle hands nothing more over and waits for the receive functions that run, as long as ctx and
// SettleTimeout let it, so that what is owed to the peers is known. It comes after Flush.
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

// End breaks all lanes, stops what feeds those that come in, and lets no other begin. It does not
// wait.
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

// Wait waits for the goroutines of all lanes to peers. Those that feed lanes are the provider's.
func (l *Lanes) Wait() { l.senders.Wait() }
