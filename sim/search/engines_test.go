package search

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// plain is an engine that no server's failure may meet: every server sends its message to all
// others, and A-delivers a round when it has all messages. hasty is a bug: it waits for one less.
type plain struct {
	order.Broadcaster // nothing of it is called
	self              order.ServerID
	servers           int
	hasty             bool
	round             order.Round
	// received are the payloads by round, of the current round and the next.
	received map[order.Round]map[order.ServerID]byte
	ready    order.Ready
}

func newPlain(self order.ServerID, servers int, hasty bool) *plain {
	return &plain{self: self, servers: servers, hasty: hasty, round: 1,
		received: map[order.Round]map[order.ServerID]byte{}}
}

func (e *plain) has(p order.ServerID) bool {
	_, has := e.received[e.round][p]
	return has
}

func (e *plain) CanBroadcast() bool { return !e.has(e.self) }
func (e *plain) Solicited() bool    { return !e.has(e.self) && len(e.received[e.round]) > 0 }
func (e *plain) Undelivered() bool  { return false }

func (e *plain) Broadcast(payload []byte) error {
	frame := append([]byte{byte(e.round), 0}, payload...)
	for p := range e.servers {
		if order.ServerID(p) != e.self {
			e.ready.Sends = append(e.ready.Sends,
				order.Send{To: []order.ServerID{order.ServerID(p)}, Frame: frame})
		}
	}
	return e.Receive(e.self, frame)
}

func (e *plain) Receive(from order.ServerID, frame []byte) error {
	round := order.Round(frame[0])
	if e.received[round] == nil {
		e.received[round] = map[order.ServerID]byte{}
	}
	e.received[round][from] = frame[len(frame)-1]
	want := e.servers
	if e.hasty {
		want--
	}
	for e.has(e.self) && len(e.received[e.round]) >= want {
		d := order.Delivery{Epoch: 1, Round: e.round}
		for p := range e.servers {
			if id := order.ServerID(p); e.has(id) {
				m := order.Message{Origin: id}
				if payload := e.received[e.round][id]; payload != 0 {
					m.Payload = []byte{payload}
				}
				d.Messages = append(d.Messages, m)
			}
		}
		e.ready.Deliveries = append(e.ready.Deliveries, d)
		delete(e.received, e.round)
		e.round++
	}
	return nil
}

func (e *plain) Ready() order.Ready {
	ready := e.ready
	e.ready = order.Ready{}
	return ready
}

func (e *plain) Status() order.Status { return order.Status{Epoch: 1, Round: e.round} }

func (e *plain) AppendState(state []byte) []byte {
	return fmt.Append(state, e.self, e.round, e.received) // maps are printed in order
}

func (e *plain) Clone() *plain {
	c := newPlain(e.self, e.servers, e.hasty)
	c.round = e.round
	for round, messages := range e.received {
		c.received[round] = map[order.ServerID]byte{}
		for p, payload := range messages {
			c.received[round][p] = payload
		}
	}
	return c
}

// TestAnyEngine explores an engine that is not one of the table, and finds its bug.
func TestAnyEngine(t *testing.T) {
	t.Parallel()
	all, err := digraph.Complete(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, hasty := range []bool{false, true} {
		x := explore(Options{Servers: 3, Rounds: 2}, &model{
			watch: all, tolerated: 0, nameless: true, copyOf: cloned[*plain],
			make: func(self order.ServerID) (machine, error) {
				return newPlain(self, 3, hasty), nil
			},
			sends:    func(int, int) bool { return true },
			describe: func(frame []byte) string { return fmt.Sprint(frame) },
		})
		result := x.run(t.Context(), nil)
		t.Logf("hasty %t: %+v", hasty, result)
		if found := len(result.Violations) > 0; found != hasty || result.Complete == hasty ||
			result.States < 10 {
			t.Errorf("hasty %t: %+v", hasty, result)
		}
	}
}
