//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

// The memory of a lane's end holds a page of words followed by the ring. The sender writes the
// receiver's ring, and writes it from the ring of its own end, the mirror. The first words are
// written by the other side.
const (
	wordTail      = 0  // at the receiver: the length of the stream so far, in bytes
	wordConsumed  = 0  // at the sender: bytes that the receiver has read
	wordDelivered = 8  // at the sender: frames that the receiver's program has taken
	wordsOut      = 32 // the words that an end is about to write to the other end
	ringBegin     = 64
	wordsSize     = 16 // the bytes that the other side may write, at the sender
)

const (
	laneSendDepth    = 64
	laneReceiveDepth = 64
	// flushRequests is the largest number of requests of one flush: two parts of a ring that wraps,
	// and the tail.
	flushRequests = 3
)

// end is one side of a lane's queue pair. It owns its memory, its domain and its link. One
// goroutine uses it.
type end struct {
	engine  *engine
	memory  *segment.Segment
	domain  *ibverbs.Domain
	local   *ibverbs.Memory // all of the memory, for this side
	exposed *ibverbs.Memory // the memory that the other side may write
	link    *link
	peer    remoteMemory // the memory that this side may write

	done atomic.Uint64 // number of requests that have taken place
	// When the other side's device last gave a sign of life, in nanoseconds; 0 if never.
	heard  atomic.Int64
	wake   chan struct{} // a token: the other side wrote, or requests are done
	broken chan struct{} // closed with err
	err    error
	once   sync.Once
}

// newEnd makes one side of a lane with a ring of ringBytes bytes. The other side may write the
// first exposed bytes.
func (e *engine) newEnd(ringBytes, exposed int) (*end, error) {
	memory, err := segment.New(ringBegin + ringBytes)
	if err != nil {
		return nil, err
	}
	n := &end{engine: e, memory: memory, wake: make(chan struct{}, 1), broken: make(chan struct{})}
	err = e.use(func() (err error) {
		if n.domain, err = e.context.NewDomain(); err != nil {
			return err
		}
		if n.local, err = n.domain.Register(memory.Bytes(), ibverbs.AccessLocalWrite); err != nil {
			return err
		}
		n.exposed, err = n.domain.Register(memory.Bytes()[:exposed],
			ibverbs.AccessLocalWrite|ibverbs.AccessRemoteWrite)
		return err
	})
	if err == nil {
		n.link, err = e.newLink(n.domain, n, laneSendDepth, laneReceiveDepth,
			ibverbs.AccessRemoteWrite)
	}
	if err == nil && n.link.inline() < wordsSize {
		err = errors.New("the device takes no inline data")
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *end) progressed(done uint64) {
	n.done.Store(done)
	n.rung()
}

func (n *end) rung() {
	n.heard.Store(time.Now().UnixNano())
	notify(n.wake)
}

func (n *end) broke(err error) { n.stop(err) }

// stop makes the goroutine that uses the end give up. It does not wait.
func (n *end) stop(err error) {
	n.once.Do(func() {
		n.err = err
		close(n.broken)
	})
}

// close frees everything.
func (n *end) close() error {
	n.stop(errLinkOver)
	if n.link != nil {
		n.link.destroy()
	}
	err := n.engine.use(func() (err error) {
		for _, memory := range []*ibverbs.Memory{n.exposed, n.local} {
			if memory != nil {
				err = errors.Join(err, memory.Close())
			}
		}
		if n.domain != nil {
			err = errors.Join(err, n.domain.Close())
		}
		return err
	})
	if err == nil || errors.Is(err, rdmanet.ErrClosed) {
		n.memory.Free() // free it now, not when the garbage collector runs
		return nil
	}
	return err
}

// exposure returns the address, key and size with which the other side can write here.
func (n *end) exposure(size int) remoteMemory {
	return remoteMemory{base: address(n.memory.Bytes()), key: n.exposed.RemoteKey(),
		size: uint64(size)}
}

// words makes the request that writes this side's outgoing words to the other side, and rings.
func (n *end) words(count int) ibverbs.Request {
	return ibverbs.Request{Opcode: ibverbs.OpcodeWriteImmediate, Flags: ibverbs.FlagInline,
		Local: address(n.memory.Bytes()[wordsOut:]), Length: uint32(count * rdmanet.WordSize),
		Remote: n.peer.base, RemoteKey: n.peer.key}
}

// notify leaves a token for the one goroutine that waits on c, unless there is one already.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sender is the sending end of a lane's ring, a stream of bytes; it implements lane.Outlet.
type sender struct {
	*end
	host             *host
	lane             *lane.Sender
	ctx              context.Context // ends with the connection
	size             uint64          // of the ring
	written, flushed uint64          // bytes put into the mirror, and passed to the device
	landed           uint64          // bytes that are in the receiver's ring
	acknowledged     uint64          // frames known to be taken by the receiver's program
	marks            []mark          // flushes that are not known to have landed
	requests         [flushRequests]ibverbs.Request
	header           []byte // reused for every batch
	probe            *time.Timer
	probing          time.Duration
}

// mark states how many bytes have landed once that many requests are done.
type mark struct{ requests, bytes uint64 }

// room returns how many bytes the mirror can take now. Bytes are free once the receiver has read
// them and the device has released them.
func (s *sender) room() (uint64, error) {
	done := s.done.Load()
	for len(s.marks) > 0 && s.marks[0].requests <= done {
		s.landed = s.marks[0].bytes
		s.marks = append(s.marks[:0], s.marks[1:]...)
	}
	consumed := s.memory.Load(wordConsumed)
	if consumed > s.flushed {
		return 0, fmt.Errorf("%w: %d bytes were read, %d written", errProtocol, consumed, s.flushed)
	}
	return s.size - (s.written - min(consumed, s.landed)), nil
}

// write adds bytes to the stream, and waits for room. flush sends them.
func (s *sender) write(bytes []byte) error {
	for len(bytes) > 0 {
		room, err := s.room()
		if err != nil {
			return err
		}
		if room == 0 {
			if err := s.flush(); err != nil {
				return err
			}
			if err := s.wait(nil); err != nil {
				return err
			}
			continue
		}
		at := s.written % s.size
		n := copy(s.memory.Bytes()[ringBegin+at:], bytes[:min(uint64(len(bytes)), room, s.size-at)])
		s.written += uint64(n)
		bytes = bytes[n:]
		// Send a first part of a long frame while the rest is copied.
		if s.written-s.flushed >= s.size/4 && s.link.room() >= flushRequests {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes the new bytes of the mirror to the receiver's ring, then the tail.
func (s *sender) flush() error {
	if s.flushed == s.written {
		return nil
	}
	for s.link.room() < flushRequests {
		if err := s.wait(nil); err != nil {
			return err
		}
	}
	requests := s.requests[:0]
	for from := s.flushed; from < s.written; {
		at := from % s.size
		length := min(s.written-from, s.size-at)
		requests = append(requests, ibverbs.Request{Opcode: ibverbs.OpcodeWrite,
			Local: address(s.memory.Bytes()[ringBegin+at:]), Length: uint32(length),
			LocalKey: s.local.LocalKey(),
			Remote:   s.peer.base + ringBegin + at, RemoteKey: s.peer.key})
		from += length
	}
	s.memory.Store(wordsOut, s.written)
	requests = append(requests, s.words(1))
	first, err := s.link.post(requests)
	if err != nil {
		return err
	}
	s.flushed = s.written
	s.marks = append(s.marks, mark{requests: first + uint64(len(requests)), bytes: s.flushed})
	return nil
}

// wait waits for the receiver, for the device or until there is something to send. Then it reads
// the receiver's acknowledgements. At intervals it makes the device write, to check that the
// receiver's device is there.
func (s *sender) wait(ready <-chan struct{}) error {
	s.probe.Reset(s.probing)
	select {
	case <-ready:
	case <-s.wake:
	case <-s.broken:
		return s.err
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-s.probe.C:
		if s.lane.Pending() > 0 && s.link.room() > 0 {
			s.memory.Store(wordsOut, s.flushed)
			if _, err := s.link.post(append(s.requests[:0], s.words(1))); err != nil {
				return err
			}
		}
	}
	return s.hear()
}

// hear reads the receiver's acknowledgement.
func (s *sender) hear() error {
	delivered := s.memory.Load(wordDelivered)
	// The word is 0 until the receiver has acknowledged something on this connection.
	if delivered == s.acknowledged || delivered == 0 {
		return nil
	}
	s.acknowledged = delivered
	return s.lane.Acknowledged(delivered)
}

// receiver is the receiving end of a lane's ring; it implements io.Reader.
type receiver struct {
	*end
	stream             *inboundStream
	size               uint64
	consumed, credited uint64 // bytes read, and bytes reported to the sender as read
	delivered          uint64 // frames reported to the sender
	request            [1]ibverbs.Request
	delay              *time.Timer
}

// Read implements io.Reader. It waits for bytes and sends acknowledgements meanwhile.
func (r *receiver) Read(into []byte) (int, error) {
	for {
		if r.stream.isUrgent() {
			if err := r.credit(); err != nil {
				return 0, err
			}
		}
		tail := r.memory.Load(wordTail)
		if tail-r.consumed > r.size {
			return 0, fmt.Errorf("%w: a stream of %d bytes, %d read, in a ring of %d", errProtocol,
				tail, r.consumed, r.size)
		}
		if tail > r.consumed {
			at := r.consumed % r.size
			n := copy(into, r.memory.Bytes()[ringBegin+at:ringBegin+min(at+tail-r.consumed,
				r.size)])
			r.consumed += uint64(n)
			if r.consumed-r.credited >= r.size/4 {
				return n, r.credit()
			}
			return n, nil
		}
		if err := r.wait(); err != nil {
			return 0, err
		}
	}
}

// wait waits for the sender. After a short delay it sends the acknowledgements owed, together with
// those that arise meanwhile.
func (r *receiver) wait() error {
	var due <-chan time.Time
	if r.owes() {
		r.delay.Reset(ackDelay)
		due = r.delay.C
	}
	select {
	case <-r.wake:
		return nil
	case <-r.broken:
		return r.err
	case <-r.stream.inbound.Sealed():
		return lane.ErrSealed
	case <-due:
		return r.credit()
	}
}

func (r *receiver) owes() bool {
	return r.consumed != r.credited || r.stream.inbound.Delivered() != r.delivered
}

// credit reports to the sender which bytes were read and which frames were taken.
func (r *receiver) credit() error {
	if r.link.room() == 0 {
		return nil // the next wake-up, when requests are done, retries
	}
	delivered := r.stream.inbound.Acknowledging()
	r.memory.Store(wordsOut, r.consumed)
	r.memory.Store(wordsOut+rdmanet.WordSize, delivered)
	r.request[0] = r.words(2)
	if _, err := r.link.post(r.request[:]); err != nil {
		return err
	}
	r.credited, r.delivered = r.consumed, delivered
	return nil
}

// part reports to the sender of a sealed lane how many frames the program has taken, once no
// receive call is running. It waits until the sender's device has the report.
func (r *receiver) part() error {
	select {
	case <-r.stream.inbound.Quiet():
	case <-r.broken:
		return r.err
	}
	for r.owes() || r.link.room() < laneSendDepth {
		if err := r.credit(); err != nil {
			return err
		}
		select {
		case <-r.wake:
		case <-r.broken:
			return r.err
		}
	}
	return lane.ErrSealed
}
