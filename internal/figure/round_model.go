package figure

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// roundModel runs engines in rounds [TRAINS, section II]: in one round, the network card of a
// server sends one message and receives another. Messages that have to wait for their card leave
// in order. Nothing else takes time.
type roundModel struct {
	engines []order.Broadcaster
	// say returns what a server that may A-broadcast says now, and whether it does.
	say func(server order.ServerID) (payload []byte, says bool)
	// watch, unless it is nil, is called for each frame when it leaves its server.
	watch func(from, to order.ServerID, frame []byte)
	// round counts the rounds, and waiting has what waits for each server's card.
	round   int
	waiting [][]roundFrame
	// said has the round of each message of a server, and heard the last round in which a server
	// A-delivered it so far, both by the server and the message's number. delivered counts what
	// each server A-delivered of each, by receiver and origin.
	said, heard [][]int
	delivered   [][]int
	// deliver, unless it is nil, is called for each round of messages that a server A-delivers.
	deliver func(server order.ServerID, delivery order.Delivery)
}

// roundFrame is a frame on its way.
type roundFrame struct {
	from, to order.ServerID
	frame    []byte
}

// errRounds is returned for a run that does not reach its goal.
var errRounds = errors.New("figure: too many rounds")

// newRoundModel returns the model of a group. A server first says something after it received
// something, unless begin is called for it.
func newRoundModel(servers int,
	engine func(order.ServerID) (order.Broadcaster, error)) (*roundModel, error) {
	m := &roundModel{waiting: make([][]roundFrame, servers), said: make([][]int, servers),
		heard: make([][]int, servers), delivered: make([][]int, servers)}
	for id := range servers {
		e, err := engine(order.ServerID(id))
		if err != nil {
			return nil, fmt.Errorf("make the engine of server %d: %w", id, err)
		}
		m.engines = append(m.engines, e)
		m.delivered[id] = make([]int, servers)
		m.carryOut(order.ServerID(id))
	}
	return m, nil
}

// run runs rounds until enough holds, at most limit of them.
func (m *roundModel) run(limit int, enough func() bool) error {
	for !enough() {
		if m.round == limit {
			return fmt.Errorf("%w: %d", errRounds, limit)
		}
		m.round++
		var arriving []roundFrame
		for id := range m.waiting {
			if queue := m.waiting[id]; len(queue) > 0 {
				arriving = append(arriving, queue[0])
				m.waiting[id] = queue[1:]
			}
		}
		for _, f := range arriving {
			if m.watch != nil {
				m.watch(f.from, f.to, f.frame)
			}
			if err := m.engines[f.to].Receive(f.from, f.frame); err != nil {
				return fmt.Errorf("server %d receives from %d: %w", f.to, f.from, err)
			}
			if err := m.begin(f.to); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin lets a server say what it has to say, and carries out what follows from it.
func (m *roundModel) begin(id order.ServerID) error {
	for m.engines[id].CanBroadcast() {
		payload, says := m.say(id)
		if !says {
			break
		}
		m.said[id], m.heard[id] = append(m.said[id], m.round), append(m.heard[id], 0)
		if err := m.engines[id].Broadcast(payload); err != nil {
			return fmt.Errorf("server %d: %w", id, err)
		}
	}
	m.carryOut(id)
	return nil
}

// carryOut takes what a server's engine has to send, and what it A-delivered.
func (m *roundModel) carryOut(id order.ServerID) {
	ready := m.engines[id].Ready()
	for _, send := range ready.Sends {
		for _, to := range send.To {
			m.waiting[id] = append(m.waiting[id], roundFrame{id, to, send.Frame})
		}
	}
	if s, one := m.engines[id].(sequencer); one {
		for _, origin := range s.Sequence() {
			m.hear(id, origin)
		}
		return
	}
	for _, delivery := range ready.Deliveries {
		if m.deliver != nil {
			m.deliver(id, delivery)
		}
		for _, message := range delivery.Messages {
			m.hear(id, message.Origin)
		}
	}
}

// hear notes that a server A-delivered the next message of an origin.
func (m *roundModel) hear(id, origin order.ServerID) {
	number := m.delivered[id][origin]
	m.delivered[id][origin]++
	m.heard[origin][number] = max(m.heard[origin][number], m.round)
}

// everywhere reports whether all servers A-delivered a number of messages of an origin.
func (m *roundModel) everywhere(origin order.ServerID, messages int) bool {
	for id := range m.delivered {
		if m.delivered[id][origin] < messages {
			return false
		}
	}
	return true
}

// latency returns how many rounds passed from the A-broadcast of a message until the last server
// A-delivered it.
func (m *roundModel) latency(origin order.ServerID, number int) int {
	return m.heard[origin][number] - m.said[origin][number]
}
