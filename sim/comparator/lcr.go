package comparator

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ledgerd/ledgerd/order"
)

// LCR is one server of LCR. Servers form a ring and send to their successors only. n and places are
// counted along the ring. Create it with NewLCR.
//
//   - A message goes from its origin to the origin's predecessor, and each server forwards it. At
//     the predecessor, all servers have it, so it is stable. An acknowledgement follows it around
//     the ring, to the predecessor of the server that sent the acknowledgement.
//   - The order of messages is the order in which the server at the last place receives them. All
//     servers derive it from the vector clock: each message carries how many messages of each
//     server its origin had, and the servers between an origin and the last place are exactly those
//     of higher places.
//   - A message is A-delivered when it and all messages before it are stable.
type LCR struct {
	member
	// ring holds the servers by place, and place is its inverse. at is this server's place.
	ring  []order.ServerID
	place []int
	at    int
	next  []order.ServerID
	// clock counts the messages of the server at each place that have arrived.
	clock []uint32
	// pending are the messages that are not A-delivered yet, in their order, from head on.
	pending []*pendingMessage
	head    int
	free    []*pendingMessage
	// delivered counts the A-delivered messages of each place.
	delivered           []uint32
	sequence, sequenced []order.ServerID
}

// pendingMessage is a message that waits for its turn.
type pendingMessage struct {
	frame  []byte
	place  int
	number uint32
	stable bool
}

var _ Sequencer = (*LCR)(nil)

// NewLCR returns a server of LCR. The error wraps ErrConfig.
func NewLCR(config Config) (*LCR, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if err := config.can("LCR", FaultDroppedRelay, FaultEarlyDelivery, FaultUnordered); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	further := order.Round(ahead - 1 + config.Outstanding)
	l := &LCR{
		member: newMember(config, 2*int(further)), ring: config.Ring,
		place: make([]int, config.Servers),
		clock: make([]uint32, config.Servers), delivered: make([]uint32, config.Servers),
	}
	l.outstanding, l.ahead = order.Round(config.Outstanding), further
	if l.ring == nil {
		l.ring = make([]order.ServerID, l.n)
		for i := range l.ring {
			l.ring[i] = order.ServerID(i)
		}
	}
	for place, server := range l.ring {
		l.place[server] = place
	}
	l.at = l.place[l.self]
	l.next = l.ring[(l.at+1)%l.n:][:1:1]
	return l, nil
}

// before returns the place that lies the given number of steps before another.
func (l *LCR) before(place, steps int) int { return ((place-steps)%l.n + l.n) % l.n }

// header returns the size of the header before a payload.
func (l *LCR) header() int { return clockOffset + entrySize*l.n }

// entry reads a place's entry of the clock in a frame.
func entry(frame []byte, place int) uint32 {
	return binary.LittleEndian.Uint32(frame[clockOffset+entrySize*place:])
}

// Broadcast sends this server's next message around the ring.
func (l *LCR) Broadcast(payload []byte) error {
	if l.sent == math.MaxUint32 {
		return order.ErrHalted
	}
	if err := l.begin(payload); err != nil {
		return err
	}
	l.clock[l.at]++
	frame := newFrame(l.header()+len(payload), kindLinked, 0, uint32(l.self))
	for place, count := range l.clock {
		binary.LittleEndian.PutUint32(frame[clockOffset+entrySize*place:], count)
	}
	copy(frame[l.header():], payload)
	l.insert(frame, l.at, l.clock[l.at], l.n == 1)
	if l.n > 1 {
		l.send(l.next, frame)
	}
	return l.deliver()
}

// Receive takes a message or an acknowledgement from the predecessor.
func (l *LCR) Receive(from order.ServerID, frame []byte) error {
	k, err := kindOf(frame)
	if err != nil {
		return err
	}
	origin := order.ServerID(numberOf(frame))
	if int(origin) >= l.n || l.n == 1 || from != l.ring[l.before(l.at, 1)] || smallOf(frame) != 0 {
		return fmt.Errorf("%w: origin %d, from %d", order.ErrFrame, origin, from)
	}
	switch k {
	case kindLinked:
		return l.message(l.place[origin], frame)
	case kindStable:
		return l.acknowledgement(l.place[origin], frame)
	default:
		return fmt.Errorf("%w: kind %d", order.ErrFrame, k)
	}
}

// message takes a message, and forwards it or begins its acknowledgement.
func (l *LCR) message(place int, frame []byte) error {
	if len(frame) < l.header() || len(frame) > l.header()+l.config.MaxPayload || place == l.at {
		return fmt.Errorf("%w: a message of %d bytes from place %d", order.ErrFrame, len(frame),
			place)
	}
	number := entry(frame, place)
	switch known := l.clock[place]; {
	case number <= known:
		return nil
	case number != known+1 || l.rounds.beyond(order.Round(number)):
		return fmt.Errorf("%w: message %d of place %d comes after %d", order.ErrFrame, number,
			place, known)
	}
	l.clock[place] = number
	l.heard = max(l.heard, order.Round(number))
	last := l.at == l.before(place, 1)
	l.insert(frame, place, number, last)
	switch {
	case l.config.Fault == FaultDroppedRelay:
	case last:
		ack := newFrame(shortHeaderSize, kindStable, 0, uint32(l.ring[place]))
		binary.LittleEndian.PutUint32(ack[8:], number)
		l.send(l.next, ack)
	default:
		l.send(l.next, frame)
	}
	return l.deliver()
}

// acknowledgement takes the announcement that a message is stable, and forwards it.
func (l *LCR) acknowledgement(place int, frame []byte) error {
	number := binary.LittleEndian.Uint32(frame[8:])
	if len(frame) != shortHeaderSize || number > l.clock[place] {
		return fmt.Errorf("%w: an acknowledgement of %d bytes of message %d of place %d",
			order.ErrFrame, len(frame), number, place)
	}
	if number <= l.delivered[place] {
		return nil
	}
	for _, m := range l.pending[l.head:] {
		if m.place == place && m.number == number {
			if m.stable {
				return nil
			}
			m.stable = true
			break
		}
	}
	if l.at != l.before(place, 2) {
		l.send(l.next, frame)
	}
	return l.deliver()
}

// insert puts a message into its place in the order.
func (l *LCR) insert(frame []byte, place int, number uint32, stable bool) {
	var m *pendingMessage
	if last := len(l.free) - 1; last >= 0 {
		m, l.free = l.free[last], l.free[:last]
	} else {
		m = new(pendingMessage)
	}
	*m = pendingMessage{frame: frame, place: place, number: number, stable: stable ||
		l.config.Fault == FaultEarlyDelivery}
	if l.head > 0 && len(l.pending) == cap(l.pending) {
		l.pending = l.pending[:copy(l.pending, l.pending[l.head:])]
		l.head = 0
	}
	l.pending = append(l.pending, m)
	if l.config.Fault == FaultUnordered {
		return
	}
	// Most messages come last, and few have to be overtaken.
	for i := len(l.pending) - 1; i > l.head && precedes(m, l.pending[i-1]); i-- {
		l.pending[i], l.pending[i-1] = l.pending[i-1], m
	}
}

// precedes reports whether the server at the last place receives a before b. The message from the
// lower place passes the origin of the other one on its way there. It is first if that origin had
// it when it sent its own.
func precedes(a, b *pendingMessage) bool {
	switch {
	case a.place == b.place:
		return a.number < b.number
	case a.place < b.place:
		return entry(b.frame, a.place) >= a.number
	default:
		return entry(a.frame, b.place) < b.number
	}
}

// deliver A-delivers the messages whose turn it is.
func (l *LCR) deliver() error {
	for l.head < len(l.pending) && l.pending[l.head].stable {
		m := l.pending[l.head]
		l.pending[l.head] = nil
		l.head++
		if m.number != l.delivered[m.place]+1 {
			return fmt.Errorf("%w: message %d of place %d is to be A-delivered after %d",
				order.ErrFrame, m.number, m.place, l.delivered[m.place])
		}
		l.delivered[m.place] = m.number
		if m.place == l.at {
			l.ordered++
		}
		l.sequence = append(l.sequence, l.ring[m.place])
		l.rounds.put(l.ring[m.place], order.Round(m.number), rest(m.frame, l.header()))
		m.frame = nil
		l.free = append(l.free, m)
	}
	if l.head == len(l.pending) {
		l.pending, l.head = l.pending[:0], 0
	}
	return nil
}

// Ready returns the actions since the last call, and forgets them.
func (l *LCR) Ready() order.Ready {
	l.sequenced, l.sequence = l.sequence, l.sequenced[:0]
	return l.member.Ready()
}

// Sequence returns the origins of the messages A-delivered between the last two calls of Ready.
func (l *LCR) Sequence() []order.ServerID { return l.sequenced }
