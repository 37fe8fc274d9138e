package comparator

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Unreliable is one server of unreliable agreement: every round is an MPI_Allgather, by a schedule
// of steps [Poke19, section 5.7.4]. Create it with NewUnreliable.
type Unreliable struct {
	member
	algorithm string
	steps     []step
	// done is how many steps of the current round are complete. The blocks of the next step are
	// sent as soon as this server has A-broadcast.
	done int
	// early[k] is the frame of step k of the current round, and next[k] that of the round after it,
	// if it arrived before this server reached that step.
	early, next [][]byte
	blocks      [][]byte
}

var _ order.Broadcaster = (*Unreliable)(nil)

// NewUnreliable returns a server of unreliable agreement. The error wraps ErrConfig.
func NewUnreliable(config Config) (*Unreliable, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if err := config.can("unreliable agreement", FaultDroppedRelay,
		FaultEarlyDelivery); err != nil {
		return nil, err
	}
	u := &Unreliable{member: newMember(config.withDefaults(), 1),
		algorithm: algorithmOf(config.Servers, config.BlockSize),
		blocks:    make([][]byte, config.Servers)}
	u.steps = schedule(u.n, int(u.self), u.algorithm)
	u.early, u.next = make([][]byte, len(u.steps)), make([][]byte, len(u.steps))
	return u, nil
}

// Algorithm returns the name of the allgather algorithm: recursive doubling, bruck, neighbour
// exchange or ring.
func (u *Unreliable) Algorithm() string { return u.algorithm }

// Broadcast A-broadcasts this server's message of the current round.
func (u *Unreliable) Broadcast(payload []byte) error {
	if err := u.begin(payload); err != nil {
		return err
	}
	u.take(u.self, bytes.Clone(payload))
	u.sendStep()
	return u.advance()
}

// Receive takes the blocks of one step.
func (u *Unreliable) Receive(from order.ServerID, frame []byte) error {
	k, err := kindOf(frame)
	if err != nil {
		return err
	}
	at, round := int(smallOf(frame)), order.Round(wideOf(frame))
	if k != kindBlocks || at >= len(u.steps) || u.steps[at].from != from ||
		int(numberOf(frame)) != len(u.steps[at].receive) {
		return fmt.Errorf("%w: kind %d, step %d with %d blocks from %d", order.ErrFrame, k,
			at, numberOf(frame), from)
	}
	if err := u.checkBlocks(frame, len(u.steps[at].receive)); err != nil {
		return err
	}
	var kept [][]byte
	switch current := u.rounds.first; {
	case round < current || round == current && at < u.done:
		return nil
	case round == current:
		kept = u.early
	case round == current+1:
		kept = u.next
	default:
		return fmt.Errorf("%w: round %d, this server is in round %d", order.ErrFrame, round,
			current)
	}
	if kept[at] != nil {
		return nil
	}
	kept[at] = frame
	u.heard = max(u.heard, round)
	return u.advance()
}

// checkBlocks returns an error unless a frame consists of the given number of blocks.
func (u *Unreliable) checkBlocks(frame []byte, count int) error {
	left := frame[shortHeaderSize:]
	for range count {
		if len(left) < blockHeaderSize {
			return fmt.Errorf("%w: too few blocks", order.ErrFrame)
		}
		size := binary.LittleEndian.Uint32(left)
		left = left[blockHeaderSize:]
		if uint64(size) > uint64(len(left)) || uint64(size) > uint64(u.config.MaxPayload) {
			return fmt.Errorf("%w: a block of %d bytes", order.ErrFrame, size)
		}
		left = left[size:]
	}
	if len(left) > 0 {
		return fmt.Errorf("%w: %d bytes too many", order.ErrFrame, len(left))
	}
	return nil
}

// advance goes through the steps whose blocks have arrived, and from round to round.
func (u *Unreliable) advance() error {
	for u.sent == u.rounds.first && u.done < len(u.steps) && u.early[u.done] != nil {
		left := u.early[u.done][shortHeaderSize:]
		for _, origin := range u.steps[u.done].receive {
			size := binary.LittleEndian.Uint32(left)
			u.take(origin, rest(left[:blockHeaderSize+size], blockHeaderSize))
			left = left[blockHeaderSize+size:]
		}
		u.early[u.done] = nil
		u.done++
		u.sendStep()
	}
	last := len(u.steps)
	if u.config.Fault == FaultEarlyDelivery {
		last = max(1, last-1)
	}
	if u.sent == u.rounds.first && u.done >= min(last, len(u.steps)) {
		for origin, payload := range u.blocks {
			u.rounds.put(order.ServerID(origin), u.sent, payload)
		}
		clear(u.blocks)
		u.ordered, u.done = u.sent, 0
		clear(u.early)
		u.early, u.next = u.next, u.early
	}
	return nil
}

func (u *Unreliable) take(origin order.ServerID, payload []byte) { u.blocks[origin] = payload }

// sendStep sends the blocks of the next step.
func (u *Unreliable) sendStep() {
	if u.done == len(u.steps) || u.done > 0 && u.config.Fault == FaultDroppedRelay {
		return
	}
	due := u.steps[u.done]
	size := shortHeaderSize
	for _, origin := range due.send {
		size += blockHeaderSize + len(u.blocks[origin])
	}
	frame := newFrame(size, kindBlocks, uint16(u.done), uint32(len(due.send)))
	binary.LittleEndian.PutUint64(frame[8:], uint64(u.sent))
	end := frame[shortHeaderSize:shortHeaderSize]
	for _, origin := range due.send {
		end = binary.LittleEndian.AppendUint32(end, uint32(len(u.blocks[origin])))
		end = append(end, u.blocks[origin]...)
	}
	u.send(due.to, frame)
}
