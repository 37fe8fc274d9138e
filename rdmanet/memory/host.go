package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

const (
	// owedTimeout bounds how long Close waits for receive functions to return, so that it can
	// acknowledge their frames.
	owedTimeout = 5 * time.Second
	// closeGrace is how long Close waits, after its context has ended, for goroutines that only
	// have to notice the end.
	closeGrace = time.Second
)

// Host is one host of a Network; it implements rdmanet.RegionHost.
type Host struct {
	network     *Network
	id          rdmanet.PeerID
	incarnation rdmanet.Incarnation
	peers       *peers.Tracker
	goroutines  sync.WaitGroup // lanes' goroutines, and those that call this host's receivers
	closed      chan struct{}  // closed when the host is dead
	calls       *calls         // running calls of this host's receive functions

	receivers map[string]rdmanet.ReceiveFunc // guarded by the network's lock
	// The members, or nil if every peer is one. Guarded by the network's lock. The map is replaced,
	// never changed.
	members map[rdmanet.PeerID]bool
	// introduced takes introductions. Guarded by the network's lock.
	introduced takeFunc

	mu      sync.Mutex
	closing bool // no new lane, receiver or frame
	dead    bool // no new goroutine
	lanes   map[laneKey]*lane
	lost    map[laneKey]lostFrames

	regions     map[string]*segment.Region // of this host
	attachments map[*attachment]struct{}   // of this host, working as far as it knows
	queues      map[*queue]struct{}
	links       map[rdmanet.PeerID]*link
}

var _ rdmanet.RegionHost = (*Host)(nil)

type laneKey struct {
	peer rdmanet.PeerID
	name string
}

// lostFrames counts frames that earlier lanes of a name gave up on their way to an incarnation, or
// to any incarnation (0), and that have not been reported to the receiver.
type lostFrames struct {
	incarnation rdmanet.Incarnation
	frames      uint64
}

// ID implements rdmanet.Host.
func (h *Host) ID() rdmanet.PeerID { return h.id }

// Incarnation implements rdmanet.Host.
func (h *Host) Incarnation() rdmanet.Incarnation { return h.incarnation }

func (h *Host) peer() rdmanet.Peer { return rdmanet.Peer{ID: h.id, Incarnation: h.incarnation} }

// Watch implements rdmanet.Host.
func (h *Host) Watch(watch func(rdmanet.PeerEvent)) { h.peers.Watch(watch) }

// Receive implements rdmanet.Host.
func (h *Host) Receive(name string, receive rdmanet.ReceiveFunc) error {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return err
	}
	if h.isClosing() {
		return fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if h.receivers[name] != nil {
		return fmt.Errorf("receiver of lane %q: %w", name, rdmanet.ErrDuplicate)
	}
	h.receivers[name] = receive
	if p := h.network.place(h.id); p.host == h {
		p.change()
	}
	return nil
}

// Lane implements rdmanet.Host.
func (h *Host) Lane(peer rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return nil, err
	}
	if !h.isMember(peer) {
		return nil, fmt.Errorf("lane %q to %q: %w", name, peer, rdmanet.ErrNotMember)
	}
	key := laneKey{peer, name}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	if l := h.lanes[key]; l != nil {
		if !l.window.Broken() {
			return l, nil
		}
		h.retireLocked(l)
	}
	l := &lane{host: h, key: key, window: window.New(h.network.limits)}
	h.lanes[key] = l
	h.goroutines.Add(1)
	go l.run()
	return l, nil
}

// SetMembers replaces the member set. Until the first call, and after a call with nil, every peer
// is a member. The addresses are ignored. Lanes and attachments to a removed peer end with
// ErrNotMember, and its grants are withdrawn. If the peer is added again, the frames that its lanes
// had not delivered are lost.
func (h *Host) SetMembers(members map[rdmanet.PeerID]string) error {
	var set map[rdmanet.PeerID]bool
	if members != nil {
		set = make(map[rdmanet.PeerID]bool, len(members))
		for id := range members {
			set[id] = true
		}
	}
	h.network.mu.Lock()
	h.members = set
	h.network.place(h.id).change()
	h.network.mu.Unlock()
	if set == nil {
		return nil
	}
	h.mu.Lock()
	for key, l := range h.lanes {
		if !set[key.peer] {
			l.window.Break(l.wrap(rdmanet.ErrNotMember))
			h.retireLocked(l)
		}
	}
	regions, attachments := slices.Collect(maps.Values(h.regions)),
		slices.Collect(maps.Keys(h.attachments))
	h.mu.Unlock()
	for _, region := range regions {
		region.Retain(func(id rdmanet.PeerID) bool { return set[id] })
	}
	for _, a := range attachments {
		if !set[a.peer.ID] {
			a.end(rdmanet.ErrNotMember)
		}
	}
	return nil
}

// isMember reports whether a peer is a member.
func (h *Host) isMember(id rdmanet.PeerID) bool {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	return h.members == nil || h.members[id]
}

// retire removes a broken lane from the host and remembers the frames that it gave up.
func (h *Host) retire(l *lane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retireLocked(l)
}

func (h *Host) retireLocked(l *lane) {
	if h.lanes[l.key] != l {
		return
	}
	delete(h.lanes, l.key)
	lost := h.lost[l.key]
	if receiver := l.bound(); receiver != 0 && lost.incarnation != receiver {
		lost = lostFrames{incarnation: receiver}
	}
	lost.frames += uint64(l.window.Pending())
	if lost.frames > 0 {
		h.lost[l.key] = lost
	}
}

// takeLost returns and clears the number of lost frames to report to the receiver in that
// incarnation.
func (h *Host) takeLost(key laneKey, incarnation rdmanet.Incarnation) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := h.lost[key]
	delete(h.lost, key)
	if lost.incarnation != 0 && lost.incarnation != incarnation {
		return 0
	}
	return lost.frames
}

// restarted is the tracker's hook. It does nothing: every lane detects by itself that its receiver
// is gone.
func (h *Host) restarted(rdmanet.Peer) {}

func (h *Host) isClosing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}

// serve starts a goroutine that this host's Close waits for. It returns false if the host is dead.
func (h *Host) serve(work func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return false
	}
	h.goroutines.Add(1)
	go func() {
		defer h.goroutines.Done()
		work()
	}()
	return true
}

// Close implements rdmanet.Host.
func (h *Host) Close(ctx context.Context) error {
	err := h.flush(ctx)
	owed := time.NewTimer(owedTimeout)
	defer owed.Stop()
	select {
	case <-h.calls.seal():
	case <-owed.C:
	case <-ctx.Done():
	}
	h.end(true)
	ended := make(chan struct{})
	go func() {
		h.goroutines.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return err
	case <-time.After(closeGrace):
		return fmt.Errorf("host %s: a receive function does not return: %w", h.id, ctx.Err())
	}
}

// flush refuses further frames and waits for those that were sent.
func (h *Host) flush(ctx context.Context) error {
	h.mu.Lock()
	h.closing = true
	lanes := make([]*lane, 0, len(h.lanes))
	for _, l := range h.lanes {
		lanes = append(lanes, l)
	}
	h.mu.Unlock()
	for _, l := range lanes {
		l.window.Seal(l.wrap(rdmanet.ErrClosed))
	}
	for _, l := range lanes {
		// A lane that breaks is no reason to wait longer. Its senders get the error.
		if err := l.window.Flushed(ctx); err != nil && ctx.Err() != nil {
			return fmt.Errorf("host %s: frames are left unsent: %w", h.id, ctx.Err())
		}
	}
	return nil
}

// end takes the host off the network, with or without a goodbye, and ends its lanes, regions,
// attachments and queues.
func (h *Host) end(goodbye bool) {
	h.mu.Lock()
	h.closing = true
	if h.dead {
		h.mu.Unlock()
		return
	}
	h.dead = true
	close(h.closed)
	lanes := make([]*lane, 0, len(h.lanes))
	for _, l := range h.lanes {
		lanes = append(lanes, l)
	}
	regions, attachments := slices.Collect(maps.Values(h.regions)),
		slices.Collect(maps.Keys(h.attachments))
	queues := slices.Collect(maps.Keys(h.queues))
	h.mu.Unlock()
	h.network.mu.Lock()
	p := h.network.place(h.id)
	p.host = nil
	if goodbye {
		p.left = h.incarnation
	}
	p.change()
	h.network.mu.Unlock()
	for _, l := range lanes {
		l.window.Break(l.wrap(rdmanet.ErrClosed))
	}
	for _, region := range regions {
		region.End(fmt.Errorf("%w: %s is gone", rdmanet.ErrUnreachable, h.peer()))
	}
	for _, a := range attachments {
		a.end(rdmanet.ErrClosed)
	}
	for _, q := range queues {
		q.completions.Seal()
	}
}
