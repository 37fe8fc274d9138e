package streams

import (
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// letter is a message with the life of its sender.
type letter struct {
	from    rdmanet.Peer
	message message
}

// mail is what came in since the loop last looked.
type mail struct {
	mu sync.Mutex
	contents
}

// contents of the mail. Of each kind and peer the last one counts, so it is bounded by the members
// and by what the loop itself began.
type contents struct {
	asks, offers, feedbacks map[rdmanet.PeerID]letter
	restarted               map[rdmanet.PeerID]rdmanet.Incarnation
	connected               map[rdmanet.PeerID]bool
	attached                []*attaching
	completions             []rdmanet.Completion
	reset                   bool
}

// put keeps a letter.
func put(into *map[rdmanet.PeerID]letter, l letter) {
	if *into == nil {
		*into = map[rdmanet.PeerID]letter{}
	}
	(*into)[l.from.ID] = l
}

// deliver keeps a message.
func (m *mail) deliver(l letter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch l.message.kind {
	case messageAsk:
		put(&m.asks, l)
	case messageOffer:
		put(&m.offers, l)
	case messageFeedback:
		put(&m.feedbacks, l)
	}
}

// event keeps what happened to a peer.
func (m *mail) event(event rdmanet.PeerEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if event.Kind == rdmanet.PeerRestarted {
		if m.restarted == nil {
			m.restarted = map[rdmanet.PeerID]rdmanet.Incarnation{}
		}
		m.restarted[event.Peer.ID] = max(m.restarted[event.Peer.ID], event.Peer.Incarnation)
		return
	}
	if m.connected == nil {
		m.connected = map[rdmanet.PeerID]bool{}
	}
	m.connected[event.Peer.ID] = true
}

// take gives what is there, and keeps nothing of it.
func (m *mail) take() contents {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.contents
	m.contents = contents{}
	return taken
}
