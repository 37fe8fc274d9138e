package comparator

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/ledgerd/ledgerd/order"
)

const (
	// proposer is the server that proposes.
	proposer order.ServerID = 0
	// ballot is the only ballot, since no server competes with the proposer.
	ballot uint32 = 1
	// preparedWindow is how many instances phase 1 runs ahead, as in Libpaxos's default
	// configuration.
	preparedWindow = 128
)

// Paxos is one server of leader-based Paxos as in Libpaxos: one proposer, a few acceptors, and
// every server learns [Poke19, section 6.5]. Create it with NewPaxos.
//
//   - A server sends its message to the proposer. The proposer gives it the next instance for which
//     a majority of the acceptors has promised, and asks the acceptors to accept it.
//   - An acceptor that accepts tells all servers, and sends the message along.
//   - A message is learned when a majority of the acceptors accepted it, and A-delivered when the
//     instances before it are.
type Paxos struct {
	member
	proposing proposing
	// acceptors and servers are lists of servers without this one. leader is the proposer alone,
	// or empty at the proposer.
	acceptors, servers, leader []order.ServerID
	accepts                    bool
	majority                   int
	// instances are the instances from next on, up to the newest that some acceptor accepted.
	instances           []instance
	next                uint64
	sequence, sequenced []order.ServerID
}

// instance is what a learner knows about an instance.
type instance struct {
	frame    []byte // from the first acceptor
	accepted uint64 // one bit for each acceptor
}

// proposing is the proposer's state.
type proposing struct {
	// values are the frames of submitted messages that have no instance yet.
	values [][]byte
	// promised[i] are the acceptors that promised for instance open+i.
	promised []uint64
	open     uint64
}

var _ Sequencer = (*Paxos)(nil)

// NewPaxos returns a server of Paxos. The error wraps ErrConfig.
func NewPaxos(config Config) (*Paxos, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if err := config.can("Paxos", FaultDroppedRelay, FaultEarlyDelivery); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	p := &Paxos{
		member: newMember(config, 2*ahead), accepts: int(config.Self) < config.Acceptors,
		majority: config.Acceptors/2 + 1, next: 1,
		proposing: proposing{open: 1},
	}
	for s := range config.Servers {
		id := order.ServerID(s)
		if id == p.self {
			continue
		}
		p.servers = append(p.servers, id)
		if s < config.Acceptors {
			p.acceptors = append(p.acceptors, id)
		}
		if id == proposer {
			p.leader = []order.ServerID{proposer}
		}
	}
	return p, nil
}

// valueFrame returns a frame that carries a message.
func valueFrame(k kind, acceptor order.ServerID, number uint64, origin order.ServerID,
	round order.Round, payload []byte) []byte {
	frame := newFrame(valueHeaderSize+len(payload), k, uint16(acceptor), ballot)
	binary.LittleEndian.PutUint64(frame[8:], number)
	binary.LittleEndian.PutUint32(frame[16:], uint32(origin))
	binary.LittleEndian.PutUint64(frame[24:], uint64(round))
	copy(frame[valueHeaderSize:], payload)
	return frame
}

func originOf(frame []byte) order.ServerID {
	return order.ServerID(binary.LittleEndian.Uint32(frame[16:]))
}
func roundOf(frame []byte) order.Round {
	return order.Round(binary.LittleEndian.Uint64(frame[24:]))
}

// Broadcast submits this server's next message to the proposer.
func (p *Paxos) Broadcast(payload []byte) error {
	if err := p.begin(payload); err != nil {
		return err
	}
	frame := valueFrame(kindSubmit, 0, 0, p.self, p.sent, payload)
	if p.config.Fault == FaultEarlyDelivery {
		p.deliver(frame)
	}
	if p.self != proposer {
		p.send(p.leader, frame)
		return nil
	}
	return p.propose(frame)
}

// Receive takes one frame.
func (p *Paxos) Receive(from order.ServerID, frame []byte) error {
	k, err := kindOf(frame)
	if err != nil {
		return err
	}
	number := wideOf(frame)
	switch k {
	case kindSubmit, kindAccept, kindAccepted:
		if len(frame) < valueHeaderSize || len(frame) > valueHeaderSize+p.config.MaxPayload ||
			int(originOf(frame)) >= p.n {
			return fmt.Errorf("%w: %d bytes with a message", order.ErrFrame, len(frame))
		}
	case kindPrepare, kindPromise:
		if len(frame) != shortHeaderSize {
			return fmt.Errorf("%w: %d bytes without a message", order.ErrFrame, len(frame))
		}
	}
	isAcceptor := int(from) < p.config.Acceptors
	switch {
	case numberOf(frame) != ballot || (k == kindSubmit) != (number == 0):
	case k == kindSubmit && p.self == proposer && originOf(frame) == from && from != proposer:
		return p.propose(frame)
	case k == kindPrepare && p.accepts && from == proposer:
		p.send(p.leader, phaseOne(kindPromise, p.self, number))
		return nil
	case k == kindPromise && p.self == proposer && isAcceptor:
		return p.promise(from, number)
	case k == kindAccept && p.accepts && from == proposer:
		return p.accept(frame)
	case k == kindAccepted && isAcceptor && from != p.self:
		return p.learn(from, frame)
	}
	return fmt.Errorf("%w: kind %d of instance %d from %d", order.ErrFrame, k, number, from)
}

// phaseOne returns a frame of phase 1.
func phaseOne(k kind, acceptor order.ServerID, number uint64) []byte {
	frame := newFrame(shortHeaderSize, k, uint16(acceptor), ballot)
	binary.LittleEndian.PutUint64(frame[8:], number)
	return frame
}

// propose appends a message to the queue of the proposer.
func (p *Paxos) propose(frame []byte) error {
	if len(p.proposing.values) >= ahead*p.n {
		return fmt.Errorf("%w: server %d submits more than it may", order.ErrFrame, originOf(frame))
	}
	p.proposing.values = append(p.proposing.values, frame)
	if err := p.prepare(); err != nil {
		return err
	}
	return p.openInstances()
}

// prepare runs phase 1 for the instances of the window.
func (p *Paxos) prepare() error {
	for len(p.proposing.promised) < preparedWindow {
		number := p.proposing.open + uint64(len(p.proposing.promised))
		p.proposing.promised = append(p.proposing.promised, 1<<proposer) // it accepts itself
		p.send(p.acceptors, phaseOne(kindPrepare, 0, number))
	}
	return nil
}

// promise takes an acceptor's promise.
func (p *Paxos) promise(from order.ServerID, number uint64) error {
	if number < p.proposing.open {
		return nil
	}
	at := number - p.proposing.open
	if at >= uint64(len(p.proposing.promised)) {
		return fmt.Errorf("%w: a promise for instance %d, which is not prepared", order.ErrFrame,
			number)
	}
	p.proposing.promised[at] |= 1 << from
	return p.openInstances()
}

// openInstances gives messages their instances, as far as there are promises.
func (p *Paxos) openInstances() error {
	for len(p.proposing.values) > 0 && bits.OnesCount64(p.proposing.promised[0]) >= p.majority {
		value, number := p.proposing.values[0], p.proposing.open
		p.proposing.values = dropFirst(p.proposing.values)
		p.proposing.promised = dropFirst(p.proposing.promised)
		p.proposing.open++
		frame := valueFrame(kindAccept, 0, number, originOf(value), roundOf(value),
			rest(value, valueHeaderSize))
		p.send(p.acceptors, frame)
		if err := p.prepare(); err != nil {
			return err
		}
		if err := p.accept(frame); err != nil {
			return err
		}
	}
	return nil
}

// dropFirst removes the first item of a queue, in place.
func dropFirst[Item any](queue []Item) []Item {
	last := copy(queue, queue[1:])
	clear(queue[last:])
	return queue[:last]
}

// accept accepts a message and tells all servers.
func (p *Paxos) accept(frame []byte) error {
	accepted := valueFrame(kindAccepted, p.self, wideOf(frame), originOf(frame), roundOf(frame),
		rest(frame, valueHeaderSize))
	learners := p.servers
	if p.config.Fault == FaultDroppedRelay && len(learners) > 0 {
		learners = learners[:len(learners)-1]
	}
	p.send(learners, accepted)
	return p.learn(p.self, accepted)
}

// learn takes the announcement that an acceptor accepted a message.
func (p *Paxos) learn(from order.ServerID, frame []byte) error {
	number := wideOf(frame)
	if number < p.next {
		return nil
	}
	at := number - p.next
	if at >= uint64(2*ahead*p.n) || p.rounds.beyond(roundOf(frame)) {
		return fmt.Errorf("%w: instance %d with round %d, this server awaits instance %d",
			order.ErrFrame, number, roundOf(frame), p.next)
	}
	for uint64(len(p.instances)) <= at {
		p.instances = append(p.instances, instance{})
	}
	i := &p.instances[at]
	if i.frame == nil {
		i.frame = frame
		if origin := originOf(frame); origin != p.self {
			p.heard = max(p.heard, roundOf(frame))
		}
	}
	i.accepted |= 1 << from
	for len(p.instances) > 0 && bits.OnesCount64(p.instances[0].accepted) >= p.majority {
		first := p.instances[0]
		p.instances = dropFirst(p.instances)
		p.next++
		if p.config.Fault != FaultEarlyDelivery || originOf(first.frame) != p.self {
			p.deliver(first.frame)
		}
	}
	return nil
}

// deliver A-delivers a message.
func (p *Paxos) deliver(frame []byte) {
	origin, round := originOf(frame), roundOf(frame)
	p.sequence = append(p.sequence, origin)
	if origin == p.self {
		p.ordered++
	}
	if !p.rounds.has(origin, round) {
		p.rounds.put(origin, round, rest(frame, valueHeaderSize))
	}
}

// Ready returns the actions since the last call, and forgets them.
func (p *Paxos) Ready() order.Ready {
	p.sequenced, p.sequence = p.sequence, p.sequenced[:0]
	return p.member.Ready()
}

// Sequence returns the origins of the messages A-delivered between the last two calls of Ready.
func (p *Paxos) Sequence() []order.ServerID { return p.sequenced }
