// Package peers tracks the peers of a host, in the same way for every provider: the incarnation of
// each peer, the number of lanes to and from it that are up, and the watchers of its events.
//
// Events are reported one at a time, under the tracker's lock, by the goroutine that detected them.
// So an event comes before anything that goroutine does next, and a PeerRestarted event comes
// before the first frame of the new incarnation. Incarnations only grow: the hello of an older one
// is refused.
package peers

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// ErrStale: the hello comes from an incarnation older than the known one.
var ErrStale = errors.New("stale incarnation")

// Tracker is the state that one host keeps about its peers.
type Tracker struct {
	restarted func(rdmanet.Peer)

	mu       sync.Mutex
	watchers []func(rdmanet.PeerEvent)
	peers    map[rdmanet.PeerID]*state
}

type state struct {
	incarnation rdmanet.Incarnation
	links       int
}

// New returns a tracker. It calls restarted before it reports a PeerRestarted event, to end
// everything that belonged to older incarnations. restarted must not call the tracker.
func New(restarted func(rdmanet.Peer)) *Tracker {
	return &Tracker{restarted: restarted, peers: make(map[rdmanet.PeerID]*state)}
}

// Watch adds a watcher.
func (t *Tracker) Watch(watch func(rdmanet.PeerEvent)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers = append(t.watchers, watch)
}

// Seen records that the peer was met in that incarnation, without a lane. It returns ErrStale for
// an older incarnation.
func (t *Tracker) Seen(peer rdmanet.Peer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.seen(peer)
	return err
}

// Up records that a lane to or from the peer came up, after the hello that stated its incarnation.
// It returns ErrStale for an older incarnation.
func (t *Tracker) Up(peer rdmanet.Peer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.seen(peer)
	if err != nil {
		return err
	}
	s.links++
	if s.links == 1 {
		t.tell(rdmanet.PeerEvent{Kind: rdmanet.PeerConnected, Peer: peer})
	}
	return nil
}

func (t *Tracker) seen(peer rdmanet.Peer) (*state, error) {
	s := t.peers[peer.ID]
	if s == nil {
		s = &state{incarnation: peer.Incarnation}
		t.peers[peer.ID] = s
	}
	if peer.Incarnation < s.incarnation {
		return nil, fmt.Errorf("%w %s of %s, %s is known", ErrStale, peer.Incarnation, peer.ID,
			s.incarnation)
	}
	if peer.Incarnation > s.incarnation {
		if s.links > 0 {
			t.tell(rdmanet.PeerEvent{Kind: rdmanet.PeerDisconnected,
				Peer: rdmanet.Peer{ID: peer.ID, Incarnation: s.incarnation}})
		}
		s.incarnation, s.links = peer.Incarnation, 0
		t.restarted(peer)
		t.tell(rdmanet.PeerEvent{Kind: rdmanet.PeerRestarted, Peer: peer})
	}
	return s, nil
}

// Down records that a lane for which Up was called went down.
func (t *Tracker) Down(peer rdmanet.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.peers[peer.ID]
	if s == nil || s.incarnation != peer.Incarnation || s.links == 0 {
		return
	}
	s.links--
	if s.links == 0 {
		t.tell(rdmanet.PeerEvent{Kind: rdmanet.PeerDisconnected, Peer: peer})
	}
}

// Tell reports an event that does not come from Up, Down or Seen.
func (t *Tracker) Tell(event rdmanet.PeerEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tell(event)
}

func (t *Tracker) tell(event rdmanet.PeerEvent) {
	for _, watch := range t.watchers {
		watch(event)
	}
}
