package streams

import (
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// received is a message with its sender's peer and incarnation.
type received struct {
	from    rdmanet.Peer
	message message
}

// mail holds the input that arrived since the loop last looked.
type mail struct {
	mu sync.Mutex
	contents
}

// contents of the mail. Of each kind and peer only the last letter is kept, so the mail is bounded
// by the members and by the operations that the loop itself started.
type contents struct {
	asks, offers, feedbacks map[rdmanet.PeerID]received
	restarted               map[rdmanet.PeerID]rdmanet.Incarnation
	connected               map[rdmanet.PeerID]bool
	attached                []*attaching
	completions             []rdmanet.Completion
	reset                   bool
}

// put stores a letter under its sender.
func put(into *map[rdmanet.PeerID]received, l received) {
	if *into == nil {
		*into = map[rdmanet.PeerID]received{}
	}
	(*into)[l.from.ID] = l
}

// deliver stores a message.
func (m *mail) deliver(l received) {
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

// event stores an event of a peer.
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

// take returns the contents and empties the mail.
func (m *mail) take() contents {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.contents
	m.contents = contents{}
	return taken
}
