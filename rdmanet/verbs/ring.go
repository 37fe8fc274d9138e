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
	heard atomic.Int64
	// wanting is set while the goroutine waits for requests to be done, and not only for the other
	// side.
	wanting atomic.Bool
	polled  atomic.Pointer[polledLane] // what the engine's goroutine does when the other side wrote
	wake    chan struct{}              // a token: the other side wrote, or requests are done
	broken  chan struct{}              // closed with err
	err     error
	once    sync.Once
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
	n.heard.Store(time.Now().UnixNano())
	if n.wanting.Swap(false) {
		notify(n.wake)
	}
}

func (n *end) rung() {
	n.heard.Store(time.Now().UnixNano())
	if p := n.polled.Load(); p != nil {
		n.engine.note(p)
		return
	}
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

// sender is the sending end of a lane's ring, a stream of bytes; it implements lane.PromptOutlet.
type sender struct {
	*end
	host *host
	lane *lane.Sender
	ctx  context.Context // ends with the connection
	size uint64          // of the ring

	// posting is held while TryWrite or a probe uses the device: one of them belongs to another
	// goroutine than the lane's.
	posting sync.Mutex
	rest    [][]byte // of TryWrite: the batch that it did not write
	first   uint64   // the number of the first frame of rest
	tried   error    // of TryWrite

	written, flushed uint64 // bytes put into the mirror, and passed to the device
	landed           uint64 // bytes that are in the receiver's ring
	acknowledged     uint64 // frames known to be taken by the receiver's program
	marks            []mark // flushes that are not known to have landed
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
			if err := s.await(func() bool {
				room, err := s.room()
				return room > 0 || err != nil
			}); err != nil {
				return err
			}
			continue
		}
		bytes = bytes[s.put(bytes, room):]
		// Send a first part of a long frame while the rest is copied.
		if s.written-s.flushed >= s.size/4 && s.link.room() >= flushRequests {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// put copies the first of the bytes into the mirror, which has that room, and returns how many.
func (s *sender) put(bytes []byte, room uint64) int {
	at := s.written % s.size
	n := copy(s.memory.Bytes()[ringBegin+at:], bytes[:min(uint64(len(bytes)), room, s.size-at)])
	s.written += uint64(n)
	return n
}

// flush writes the new bytes of the mirror to the receiver's ring, then the tail. It waits for the
// device to take that.
func (s *sender) flush() error {
	if s.flushed == s.written {
		return nil
	}
	enough := func() bool { return s.link.room() >= flushRequests }
	for !enough() {
		if err := s.await(enough); err != nil {
			return err
		}
	}
	return s.post()
}

// post is flush for a device that has room for flushRequests requests.
func (s *sender) post() error {
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

// await waits once for the receiver or the device, unless there is enough already.
func (s *sender) await(enough func() bool) error {
	s.wanting.Store(true) // before the question: what is done after it wakes this goroutine
	if enough() {
		return nil
	}
	_, err := s.wait(nil)
	return err
}

// wait waits for the receiver, for the device if it is wanted, or until there is something to send,
// and reports whether there is. Then it reads the receiver's acknowledgements. At intervals it
// makes the device write, to check that the receiver's device is there.
func (s *sender) wait(ready <-chan struct{}) (something bool, err error) {
	s.probe.Reset(s.probing)
	select {
	case <-ready:
		something = true
	case <-s.wake:
	case <-s.broken:
		return false, s.err
	case <-s.ctx.Done():
		return false, s.ctx.Err()
	case <-s.probe.C:
		if err := s.askDevice(); err != nil {
			return false, err
		}
	}
	return something, s.hear()
}

// askDevice writes the tail again, if frames wait for an acknowledgement.
func (s *sender) askDevice() error {
	s.posting.Lock()
	defer s.posting.Unlock()
	if s.lane.Pending() == 0 || s.link.room() == 0 {
		return nil
	}
	s.memory.Store(wordsOut, s.flushed)
	_, err := s.link.post(append(s.requests[:0], s.words(1)))
	return err
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

// receiver is the receiving end of a lane's ring; it implements io.Reader. For a lane with a prompt
// receiver, polledLane guards the counts.
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
		tail, err := r.tail()
		if err != nil {
			return 0, err
		}
		if tail > r.consumed {
			return r.take(into, tail)
		}
		if err := r.wait(); err != nil {
			return 0, err
		}
	}
}

// tail returns the length of the stream so far, in bytes.
func (r *receiver) tail() (uint64, error) {
	tail := r.memory.Load(wordTail)
	if tail-r.consumed > r.size {
		return 0, fmt.Errorf("%w: a stream of %d bytes, %d read, in a ring of %d", errProtocol,
			tail, r.consumed, r.size)
	}
	return tail, nil
}

// take copies bytes of the stream before tail, and returns how many.
func (r *receiver) take(into []byte, tail uint64) (int, error) {
	at := r.consumed % r.size
	n := copy(into, r.memory.Bytes()[ringBegin+at:ringBegin+min(at+tail-r.consumed, r.size)])
	r.consumed += uint64(n)
	if r.consumed-r.credited >= r.size/4 {
		return n, r.credit()
	}
	return n, nil
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
		if r.wanting.Store(true); r.link.room() == 0 {
			return nil // the next wake-up, when requests are done, retries
		}
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
		if r.wanting.Store(true); r.link.room() == laneSendDepth {
			continue
		}
		select {
		case <-r.wake:
		case <-r.broken:
			return r.err
		}
	}
	return lane.ErrSealed
}
