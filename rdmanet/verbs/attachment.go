//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

const (
	// sendDepth is how many requests of an attachment the device holds. Further ones wait here.
	sendDepth = 128
	// bounceBytes is the size of the buffer through which an attachment copies when it writes from,
	// or reads into, memory that is not registered. bouncePiece bounds one such request.
	bounceBytes = 1 << 20
	bouncePiece = 64 << 10
	// directPiece bounds one request from registered memory, so that the deadline applies to a
	// bounded piece.
	directPiece = 64 << 10
	// flightBytes bounds the bytes under way to the capacity of a fast network. More bytes would
	// only be retransmitted in vain, and Soft-RoCE performs badly with more than some tens of
	// packets.
	flightBytes = 128 << 10
	// lineBytes aligns pieces in the ring.
	lineBytes = 64
)

// attachment is this host's access to a peer's region; it implements rdmanet.Attachment and owns a
// link.
type attachment struct {
	host       *host
	peer       rdmanet.Peer
	name       string
	size       int
	permission rdmanet.Permission
	number     uint64
	memory     remoteMemory
	link       *link
	inline     int

	mu       sync.Mutex
	verdict  error        // why it ended
	ended    bool         // verdict is set, and nothing takes place any more
	waiting  []*operation // posted and not fully passed to the device, from index at on
	at       int          // index into waiting
	pieces   []piece      // passed to the device, from index piecesAt on
	piecesAt int          // index into pieces
	requests []ibverbs.Request
	staging  *segment.Segment // inline bytes, one slot a request
	bounce   bounce
	flight   int // bytes under way
}

// piece is a request that the device holds: an operation or part of one.
type piece struct {
	operation *operation
	end       uint64 // done when the link has finished this many requests
	into      []byte // of a read: the bytes go here from the ring
	from      []byte
	ring      uint64 // bytes of the ring to release
	last      bool   // the last piece of its operation
	length    int    // bytes
}

// bounce is registered memory that pieces take and release in order.
type bounce struct {
	memory      *segment.Segment
	registered  *ibverbs.Memory
	taken, back uint64 // total bytes
}

// take returns a contiguous part of want bytes and how much of the ring it takes, or nil if there
// is no room.
func (b *bounce) take(want int) (part []byte, took uint64) {
	at := b.taken % bounceBytes
	length := (uint64(want) + lineBytes - 1) &^ (lineBytes - 1)
	if at+length > bounceBytes { // the rest of the ring stays unused
		took, at = bounceBytes-at, 0
	}
	took += length
	if b.taken+took-b.back > bounceBytes {
		return nil, 0
	}
	b.taken += took
	return b.memory.Bytes()[at : at+uint64(want)], took
}

// Attach implements rdmanet.RegionHost.
func (h *host) Attach(ctx context.Context, peer rdmanet.PeerID, name string) (rdmanet.Attachment,
	error) {
	if err := rdmanet.CheckRegion(name, rdmanet.WordSize); err != nil {
		return nil, err
	}
	if !h.isMember(peer) {
		return nil, fmt.Errorf("attach to region %q of %q: %w", name, peer, rdmanet.ErrNotMember)
	}
	if h.isClosing() {
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	for {
		a, err := h.attach(ctx, peer, name)
		// If the peer restarted during the request, ask again.
		if err == nil || !errors.Is(err, rdmanet.ErrReset) || ctx.Err() != nil {
			if err != nil {
				return nil, fmt.Errorf("attach to region %q of %s: %w", name, peer, err)
			}
			return a, nil
		}
	}
}

func (h *host) attach(ctx context.Context, peer rdmanet.PeerID, name string) (*attachment, error) {
	a := &attachment{host: h, name: name, number: h.number.Add(1)}
	staging, err := segment.New(sendDepth * rdmanet.InlineMax)
	if err != nil {
		return nil, err
	}
	a.staging = staging
	if a.link, err = h.engine.newLink(h.engine.client, a, sendDepth, 0, 0); err != nil {
		return nil, err
	}
	a.inline = a.link.inline()
	from, answer, err := h.control.ask(ctx, peer, message{kind: messageAttach, attachment: a.number,
		name: name, endpoint: a.link.endpoint()})
	if err == nil {
		err = attachError(answer.status)
	}
	if err == nil {
		a.peer, a.permission, a.memory, a.size = from, answer.permission, answer.memory,
			int(answer.memory.size)
		if err = h.enter(a); err == nil {
			if err = a.link.connect(answer.endpoint); err != nil {
				a.end(err)
			}
		}
	}
	if err != nil {
		a.link.over.Store(true)
		a.link.destroy()
		return nil, err
	}
	return a, nil
}

// attachError returns the fabric's error for an owner's status.
func attachError(s status) error {
	switch s {
	case statusWelcome:
		return nil
	case statusAccess:
		return rdmanet.ErrAccess
	case statusNoRegion:
		return rdmanet.ErrNoRegion
	default:
		return fmt.Errorf("%w: %s", rdmanet.ErrUnreachable, s)
	}
}

// enter registers an attachment, unless its host is closing or the peer's incarnation is over.
func (h *host) enter(a *attachment) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closing:
		return rdmanet.ErrClosed
	case a.peer.Incarnation < h.newest[a.peer.ID]:
		return rdmanet.ErrReset
	}
	h.attachments[a.number] = a
	return nil
}

// Peer implements rdmanet.Attachment.
func (a *attachment) Peer() rdmanet.Peer { return a.peer }

// Name implements rdmanet.Attachment.
func (a *attachment) Name() string { return a.name }

// Size implements rdmanet.Attachment.
func (a *attachment) Size() int { return a.size }

// Permission implements rdmanet.Attachment.
func (a *attachment) Permission() rdmanet.Permission { return a.permission }

// Err implements rdmanet.Attachment.
func (a *attachment) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.verdict
}

// Close implements rdmanet.Attachment.
func (a *attachment) Close() error {
	a.end(rdmanet.ErrClosed)
	return nil
}

// enqueue adds an operation, or returns why the attachment is over.
func (a *attachment) enqueue(o *operation) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return a.verdict
	}
	a.waiting = append(a.waiting, o)
	return nil
}

// start passes enqueued operations to the device as far as there is room, and copies the small
// writes among the rest.
func (a *attachment) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pump()
	for i := len(a.waiting) - 1; i >= a.at; i-- {
		o := a.waiting[i]
		if o.copied || o.Kind == rdmanet.OperationRead || len(o.Bytes) > rdmanet.InlineMax {
			continue
		}
		o.Bytes, o.copied = o.own[:copy(o.own[:], o.Bytes)], true
	}
}

// pump passes operations to the device. The caller holds the lock.
func (a *attachment) pump() {
	if a.ended || a.at == len(a.waiting) {
		return
	}
	room := a.link.room()
	a.requests = a.requests[:0]
	first := len(a.pieces)
	for a.at < len(a.waiting) && len(a.requests) < room && a.request(a.waiting[a.at]) {
	}
	if a.at == len(a.waiting) {
		clear(a.waiting)
		a.waiting, a.at = a.waiting[:0], 0
	}
	if len(a.requests) == 0 {
		return
	}
	number, err := a.link.post(a.requests)
	for i := range a.pieces[first:] {
		a.pieces[first+i].end = number + uint64(i) + 1
	}
	if err != nil {
		// The failure of the link reports itself. Another goroutine must end the link, because the
		// lock is held.
		a.host.spawn(func() { a.link.end(fmt.Errorf("%w: %w", errSilent, err)) })
	}
}

// request makes the next request of an operation. It returns false if the bounce buffer is full or
// too many bytes are under way. A device reads in any order. So a read of more than a word first
// reads the last word, in a request of its own, and then the rest: a reader that finds the mark
// then has the complete entry.
func (a *attachment) request(o *operation) bool {
	begin := o.started
	ahead := o.Kind == rdmanet.OperationRead && o.limit == len(o.Bytes) &&
		o.Offset%rdmanet.WordSize+len(o.Bytes) > rdmanet.WordSize
	if ahead {
		begin = (o.Offset+len(o.Bytes)-1)&^(rdmanet.WordSize-1) - o.Offset
	}
	rest := o.Bytes[begin:o.limit]
	if a.flight > 0 && a.flight+min(len(rest), directPiece) > flightBytes {
		return false
	}
	r := ibverbs.Request{Opcode: ibverbs.OpcodeWrite,
		Remote: a.memory.base + uint64(o.Offset+begin), RemoteKey: a.memory.key}
	p := piece{operation: o}
	read := o.Kind == rdmanet.OperationRead
	length := len(rest)
	key, direct := a.host.source(rest)
	switch {
	case !read && length <= a.inline:
		place := a.staging.Bytes()[len(a.requests)*rdmanet.InlineMax:]
		copy(place, rest)
		r.Local, r.Flags = address(place), ibverbs.FlagInline
	case direct:
		length = min(length, directPiece)
		r.Local, r.LocalKey = address(rest), key
	default:
		length = min(length, bouncePiece)
		if a.bounce.memory == nil && !a.makeBounce() {
			return false
		}
		part, took := a.bounce.take(length)
		if part == nil {
			return false
		}
		r.Local, r.LocalKey, p.ring = address(part), a.bounce.registered.LocalKey(), took
		if read {
			p.into, p.from = rest[:length], part
		} else {
			copy(part, rest)
		}
	}
	r.Length, p.length = uint32(length), length
	a.flight += length
	if ahead {
		o.limit = begin
	} else {
		o.started += length
		p.last = o.started == o.limit
	}
	switch {
	case read:
		r.Opcode = ibverbs.OpcodeRead
	case o.Ring && p.last:
		r.Opcode = ibverbs.OpcodeWriteImmediate
	}
	a.requests = append(a.requests, r)
	a.pieces = append(a.pieces, p)
	if p.last {
		a.at++
	}
	return true
}

// makeBounce allocates the ring, which most attachments never need.
func (a *attachment) makeBounce() bool {
	memory, err := segment.New(bounceBytes)
	if err == nil {
		a.bounce.memory = memory
		a.bounce.registered, err = a.host.engine.register(a.host.engine.client, memory.Bytes(),
			ibverbs.AccessLocalWrite)
	}
	if err != nil {
		a.bounce.memory = nil
		a.host.spawn(func() { a.link.end(fmt.Errorf("%w: %w", errSilent, err)) })
	}
	return err == nil
}

// progressed completes operations whose requests are done, and passes more to the device.
func (a *attachment) progressed(done uint64) {
	var few [64]*operation
	finished := few[:0]
	a.mu.Lock()
	for !a.ended && a.piecesAt < len(a.pieces) {
		p := &a.pieces[a.piecesAt]
		if p.end > done {
			break
		}
		copy(p.into, p.from)
		a.bounce.back += p.ring
		a.flight -= p.length
		if p.last {
			finished = append(finished, p.operation)
		}
		*p = piece{}
		a.piecesAt++
	}
	if a.piecesAt == len(a.pieces) {
		a.pieces, a.piecesAt = a.pieces[:0], 0
	}
	a.compact()
	a.pump()
	a.mu.Unlock()
	for _, o := range finished {
		o.queue.finish(o, nil)
	}
}

// compact bounds the lists under a steady load that never empties them.
func (a *attachment) compact() {
	if a.piecesAt > 2*sendDepth {
		a.pieces = append(a.pieces[:0], a.pieces[a.piecesAt:]...)
		a.piecesAt = 0
	}
	if a.at > len(a.waiting)/2 && a.at > 2*sendDepth {
		n := copy(a.waiting, a.waiting[a.at:])
		clear(a.waiting[n:])
		a.waiting, a.at = a.waiting[:n], 0
	}
}

// rung is never called: no peer has a key of this host for this queue pair.
func (a *attachment) rung() {}

// broke ends the attachment, with the owner's refusal or with the state that the owner reports.
func (a *attachment) broke(err error) {
	if !isTransport(err) {
		a.host.spawn(func() { a.end(err) })
		return
	}
	a.host.spawn(func() { a.end(a.inquire(err)) })
}

// inquire asks the owner for the state of an attachment on which the owner's device stopped
// answering.
func (a *attachment) inquire(cause error) error {
	a.mu.Lock()
	known := a.verdict
	a.mu.Unlock()
	if known != nil {
		return known
	}
	ctx, cancel := context.WithTimeout(a.host.alive, a.host.mendTimeout/2)
	defer cancel()
	from, answer, err := a.host.control.ask(ctx, a.peer.ID,
		message{kind: messageAsk, attachment: a.number, name: a.name})
	switch {
	case a.host.alive.Err() != nil:
		return rdmanet.ErrClosed
	case errors.Is(err, rdmanet.ErrReset) || err == nil && from != a.peer:
		return fmt.Errorf("%w: it restarted", rdmanet.ErrReset)
	case errors.Is(err, rdmanet.ErrNotMember):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, cause)
	case answer.status == statusAccess:
		return fmt.Errorf("%w: the owner changed the permission", rdmanet.ErrAccess)
	default:
		return fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, cause)
	}
}

// end ends the attachment with the first error that it is given. Outstanding operations complete
// with that error.
func (a *attachment) end(err error) {
	err = fmt.Errorf("region %q of %s: %w", a.name, a.peer.ID, err)
	a.mu.Lock()
	if a.verdict != nil {
		a.mu.Unlock()
		return
	}
	a.verdict = err
	a.mu.Unlock()
	// The program may reuse its buffers only once the device has released them.
	a.link.over.Store(true)
	a.link.destroy()
	a.mu.Lock()
	a.ended = true
	var left []*operation
	for _, p := range a.pieces[a.piecesAt:] {
		if p.last {
			left = append(left, p.operation)
		}
	}
	left = append(left, a.waiting[a.at:]...)
	a.pieces, a.waiting, a.piecesAt, a.at = nil, nil, 0, 0
	bounced := a.bounce
	a.bounce = bounce{}
	a.mu.Unlock()
	for _, o := range left {
		o.queue.finish(o, err)
	}
	if bounced.registered != nil {
		if err := a.host.engine.use(bounced.registered.Close); err != nil {
			a.host.log.Warn("memory stays registered", "region", a.name, "peer", a.peer.String(),
				"error", err)
		} else {
			bounced.memory.Free() // free it now, not when the garbage collector runs
		}
		runtime.KeepAlive(bounced.memory)
	}
	h := a.host
	h.mu.Lock()
	delete(h.attachments, a.number)
	h.mu.Unlock()
	h.control.tell(a.peer.ID, message{kind: messageDetach, attachment: a.number, name: a.name})
}
