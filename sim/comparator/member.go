package comparator

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Sequencer is implemented by the comparators that A-deliver messages one by one, in a sequence
// that is the same at all servers: *LCR and *Paxos.
type Sequencer interface {
	order.Broadcaster
	// Sequence returns the origins of the messages that this server A-delivered one by one between
	// the last two calls of Ready, in their order. The k-th message of an origin is its message of
	// round k. The slice is valid until the next call of Ready.
	Sequence() []order.ServerID
}

// ahead is how many rounds a server's messages may be ahead of the last round that it delivered, if
// they are sequenced one by one.
const ahead = 4

// member is the common part of all comparators: the state of one server that does not depend on how
// messages travel.
type member struct {
	config Config
	self   order.ServerID
	n      int
	// sent counts this server's A-broadcasts. ordered counts its messages that are A-delivered,
	// alone or with their round.
	sent, ordered order.Round
	// heard is the newest round in which another server has A-broadcast, as far as this server
	// knows.
	heard  order.Round
	rounds collector
	// sends holds the sends for the next Ready, handed those of the last one.
	sends, handed []order.Send
	suspected     []bool
	// outstanding is how many messages of this server may be under way, and ahead how many rounds
	// they may be ahead of the last one that it delivered.
	outstanding, ahead order.Round
}

// newMember returns the common part. window is how many rounds, from the first incomplete one, may
// have messages here.
func newMember(config Config, window int) member {
	return member{
		config: config, self: config.Self, n: config.Servers,
		rounds:    newCollector(config.Servers, window),
		suspected: make([]bool, config.Servers), outstanding: 1, ahead: ahead,
	}
}

// CanBroadcast reports whether the last message of this server is A-delivered, so that it may
// A-broadcast another. With several outstanding, all but the last few have to be.
func (m *member) CanBroadcast() bool {
	return m.sent < m.ordered+m.outstanding && m.sent < m.rounds.first-1+m.ahead
}

// Solicited reports whether CanBroadcast holds and another server is in a round in which this
// server has no message yet.
func (m *member) Solicited() bool { return m.heard > m.sent && m.CanBroadcast() }

// Undelivered returns false: no message waits for a later round.
func (m *member) Undelivered() bool { return false }

// Suspect records a suspicion for Status. It has no other effect.
func (m *member) Suspect(server order.ServerID) error { return m.suspect(server, true) }

// Trust withdraws a suspicion.
func (m *member) Trust(server order.ServerID) error { return m.suspect(server, false) }

func (m *member) suspect(server order.ServerID, is bool) error {
	if int(server) >= m.n {
		return fmt.Errorf("%w: server %d is none of 0 to %d", order.ErrFrame, server, m.n-1)
	}
	m.suspected[server] = is
	return nil
}

// Ready returns the actions since the last call, and forgets them.
func (m *member) Ready() order.Ready {
	clear(m.handed)
	m.handed, m.sends = m.sends, m.handed[:0]
	return order.Ready{Sends: m.handed, Deliveries: m.rounds.take()}
}

// Status describes the server.
func (m *member) Status() order.Status {
	status := order.Status{Epoch: 1, Round: m.rounds.first}
	for s := range m.n {
		id := order.ServerID(s)
		status.Members = append(status.Members, id)
		if m.suspected[s] {
			status.Suspected = append(status.Suspected, id)
		}
		if !m.rounds.has(id, m.rounds.first) {
			status.Awaited = append(status.Awaited, id)
		}
	}
	return status
}

// begin counts an A-broadcast, or returns why none is possible now.
func (m *member) begin(payload []byte) error {
	if !m.CanBroadcast() {
		return order.ErrNotNow
	}
	if len(payload) > m.config.MaxPayload {
		return fmt.Errorf("%w: %d bytes, at most %d", order.ErrTooLarge, len(payload),
			m.config.MaxPayload)
	}
	m.sent++
	return nil
}

// send puts a frame into the next Ready. It never changes the list.
func (m *member) send(to []order.ServerID, frame []byte) {
	if len(to) > 0 {
		m.sends = append(m.sends, order.Send{To: to, Frame: frame})
	}
}

// collector assembles rounds of messages. A round is complete when the messages of all servers have
// arrived, and rounds are handed out in order.
type collector struct {
	n int
	// first is the first incomplete round.
	first order.Round
	// slots hold rounds first to first+len(slots)-1, each at its number modulo the number of slots.
	slots []slot
	// missing is how many messages a complete round lacks. It is 0 except for a planted bug.
	missing int
	// free are slices of messages for reuse.
	free [][]order.Message
	// ready are the complete rounds for the next Ready, handed those of the last one.
	ready, handed []order.Delivery
}

// slot is a round under way.
type slot struct {
	messages []order.Message // nil before the first message
	have     []bool
	count    int
}

func newCollector(servers, window int) collector {
	c := collector{n: servers, first: 1, slots: make([]slot, window)}
	for i := range c.slots {
		c.slots[i].have = make([]bool, servers)
	}
	return c
}

func (c *collector) slot(round order.Round) *slot {
	return &c.slots[uint64(round)%uint64(len(c.slots))]
}

// beyond reports whether a round is further ahead than any server can be.
func (c *collector) beyond(round order.Round) bool {
	return round >= c.first+order.Round(len(c.slots)) || round == 0
}

// has reports whether the message of an origin in a round has arrived, or the round is complete.
func (c *collector) has(origin order.ServerID, round order.Round) bool {
	return round < c.first || c.slot(round).have[origin]
}

// put takes a message that has not arrived before, of a round that is not beyond, and completes
// rounds.
func (c *collector) put(origin order.ServerID, round order.Round, payload []byte) {
	s := c.slot(round)
	if s.messages == nil {
		s.messages = c.grab()
	}
	s.messages[origin].Payload = payload
	s.have[origin] = true
	s.count++
	for {
		s := c.slot(c.first)
		if s.count < max(1, c.n-c.missing) {
			return
		}
		c.ready = append(c.ready, order.Delivery{Epoch: 1, Round: c.first, Messages: s.messages})
		s.messages, s.count = nil, 0
		clear(s.have)
		c.first++
	}
}

// grab returns an empty round.
func (c *collector) grab() []order.Message {
	if last := len(c.free) - 1; last >= 0 {
		messages := c.free[last]
		c.free = c.free[:last]
		return messages
	}
	messages := make([]order.Message, c.n)
	for s := range messages {
		messages[s].Origin = order.ServerID(s)
	}
	return messages
}

// take hands out the complete rounds. It reuses the rounds of the last call.
func (c *collector) take() []order.Delivery {
	for _, d := range c.handed {
		for s := range d.Messages {
			d.Messages[s].Payload = nil
		}
		c.free = append(c.free, d.Messages)
	}
	clear(c.handed)
	c.handed, c.ready = c.ready, c.handed[:0]
	return c.handed
}
