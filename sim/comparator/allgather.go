package comparator

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// AllGather is one server of AllGather. Every message travels down the binomial tree of its origin,
// and a round is complete when all its messages have arrived [Poke19, section 6.5]. Create it with
// NewAllGather.
type AllGather struct {
	member
	// children[o] are this server's children in the tree of o.
	children [][]order.ServerID
}

var _ order.Broadcaster = (*AllGather)(nil)

// NewAllGather returns a server of AllGather. The error wraps ErrConfig.
func NewAllGather(config Config) (*AllGather, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if err := config.can("AllGather", FaultDroppedRelay, FaultEarlyDelivery); err != nil {
		return nil, err
	}
	a := &AllGather{member: newMember(config.withDefaults(), 2),
		children: make([][]order.ServerID, config.Servers)}
	if config.Fault == FaultEarlyDelivery {
		a.rounds.missing = 1
	}
	// A server has n-1 different children in all, and the same children in many trees. The lists
	// share one array.
	flat := make([]order.ServerID, 0, max(0, config.Servers-1))
	var places []int
	for origin := range a.children {
		places = digraph.AppendBinomialChildren(places[:0], a.n, origin, int(a.self))
		start := len(flat)
		for _, place := range places {
			flat = append(flat, order.ServerID(place))
		}
		a.children[origin] = flat[start:len(flat):len(flat)]
	}
	return a, nil
}

// Broadcast A-broadcasts this server's message of the current round.
func (a *AllGather) Broadcast(payload []byte) error {
	if err := a.begin(payload); err != nil {
		return err
	}
	frame := newFrame(shortHeaderSize+len(payload), kindMessage, 0, uint32(a.self))
	binary.LittleEndian.PutUint64(frame[8:], uint64(a.sent))
	copy(frame[shortHeaderSize:], payload)
	a.send(a.children[a.self], frame)
	a.put(a.self, a.sent, rest(frame, shortHeaderSize))
	return nil
}

// Receive takes one frame and forwards it.
func (a *AllGather) Receive(from order.ServerID, frame []byte) error {
	k, err := kindOf(frame)
	if err != nil {
		return err
	}
	origin, round := order.ServerID(numberOf(frame)), order.Round(wideOf(frame))
	switch {
	case k != kindMessage || smallOf(frame) != 0 || int(origin) >= a.n || origin == a.self ||
		int(from) >= a.n:
		return fmt.Errorf("%w: kind %d, origin %d, from %d", order.ErrFrame, k, origin, from)
	case len(frame) > shortHeaderSize+a.config.MaxPayload:
		return fmt.Errorf("%w: %d bytes", order.ErrFrame, len(frame))
	case a.rounds.beyond(round):
		return fmt.Errorf("%w: round %d, this server is in round %d", order.ErrFrame, round,
			a.rounds.first)
	case a.rounds.has(origin, round):
		return nil
	}
	a.heard = max(a.heard, round)
	if a.config.Fault != FaultDroppedRelay {
		a.send(a.children[origin], frame)
	}
	a.put(origin, round, rest(frame, shortHeaderSize))
	return nil
}

func (a *AllGather) put(origin order.ServerID, round order.Round, payload []byte) {
	a.rounds.put(origin, round, payload)
	a.ordered = min(a.sent, a.rounds.first-1)
}
