// Package peers keeps what a host knows of its peers, the same for every provider: which
// incarnation each one is in, how many lanes to and from it are up, and who wants to be told.
//
// Events are told one at a time, under the tracker's lock, by the goroutine that found out: an
// event comes before whatever that goroutine does next, a PeerRestarted event before the first
// frame of the new incarnation. Incarnations only grow: the greeting of an older one is refused.
package peers

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// ErrStale: the greeting comes from an incarnation older than the one known.
var ErrStale = errors.New("stale incarnation")

// Tracker is one host's knowledge of its peers.
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

// New gives a tracker. restarted is called before a PeerRestarted event is told, to end what
// belonged to older incarnations; it must not call the tracker.
func New(restarted func(rdmanet.Peer)) *Tracker {
	return &Tracker{restarted: restarted, peers: make(map[rdmanet.PeerID]*state)}
}

// Watch adds a watcher.
func (t *Tracker) Watch(watch func(rdmanet.PeerEvent)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers = append(t.watchers, watch)
}

// Seen notes that the peer was met in that incarnation, without a lane. ErrStale.
func (t *Tracker) Seen(peer rdmanet.Peer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.seen(peer)
	return err
}

// Up notes that a lane to or from the peer came up, after the greetings that told its incarnation.
// ErrStale.
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

// Down notes that a lane for which Up was called went down.
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

// Tell passes an event on that does not come from Up and Down.
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
