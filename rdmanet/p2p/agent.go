package p2p

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

const (
	// attachmentsMax bounds the attachments of one stream that work. Those that are over are forgotten when there is no room.
	attachmentsMax = 1024
	// regionBufferBytes is the size of the buffers that requests and responses go through: one record of a sealed connection.
	regionBufferBytes = recordBytesMax
)

// agent serves one peer's region stream: it performs requests in their order and answers each. What it holds for a peer is bounded by
// two buffers, one piece and attachmentsMax; it waits for the network only while it holds no admission.
type agent struct {
	host    *Host
	from    rdmanet.Peer // its incarnation is 0 before the hello
	opening uint64
	ended   chan struct{}   // closed when nothing of the stream lands any more
	stopped context.Context // ended by stop
	cancel  context.CancelFunc

	mu      sync.Mutex
	carrier carrier // what requests come over: a direct connection, and the stream before it is made

	reader   *bufio.Reader
	writer   *bufio.Writer
	accesses map[uint32]access
	highest  uint32   // number of an attachment
	piece    []byte   // what is longer than the reader's buffer, and what is read
	same     response // requests that came to the same end, not yet written
	scratch  [responseSize + attachedSize]byte
}

// access is the owner's side of an attachment.
type access struct {
	region    *segment.Region
	admission *segment.Admission
}

// stop ends the stream from outside, without waiting.
func (a *agent) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel()
	unblock(a.carrier)
}

// begin makes that what requests come over, without a deadline, unless stop was called.
func (a *agent) begin(c carrier) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped.Err() != nil {
		return errSuperseded
	}
	a.carrier = c
	return c.SetDeadline(time.Time{})
}

func newAgent(h *Host, from rdmanet.Peer, c carrier) *agent {
	stopped, cancel := context.WithCancel(h.alive)
	return &agent{
		host: h, from: from, carrier: c,
		stopped: stopped, cancel: cancel,
		ended:    make(chan struct{}),
		accesses: make(map[uint32]access),
	}
}

// serveRegions is libp2p's handler of region streams.
func (h *Host) serveRegions(stream network.Stream) {
	r, caller := h.regions, stream.Conn().RemotePeer()
	a := newAgent(h, rdmanet.Peer{ID: rdmanet.PeerID(caller.String())}, stream)
	r.mu.Lock()
	if r.closed.Load() || !h.gater.isMember(caller) {
		r.mu.Unlock()
		a.cancel()
		stream.Reset()
		return
	}
	r.serving[a] = struct{}{}
	r.goroutines.Add(1)
	r.mu.Unlock()
	defer r.goroutines.Done()
	defer stream.Reset()
	a.conclude(a.run(stream))
}

// loopback connects the host to its own regions, with an agent of their own.
func (r *regions) loopback() (carrier, error) {
	here, there := net.Pipe()
	a := newAgent(r.host, rdmanet.Peer{ID: r.host.id, Incarnation: r.host.incarnation}, pipeEnd{there})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		a.cancel()
		return nil, errors.Join(r.errHostClosed(), here.Close(), there.Close())
	}
	r.serving[a], r.agents[a.from.ID] = struct{}{}, a
	r.goroutines.Go(func() {
		a.conclude(a.serve(a.carrier))
		there.Close()
	})
	return pipeEnd{here}, nil
}

// pipeEnd is a connection within the process.
type pipeEnd struct{ net.Conn }

// Reset implements carrier.
func (p pipeEnd) Reset() error { return p.Close() }

// conclude notes that the stream ended, and why.
func (a *agent) conclude(err error) {
	h := a.host
	a.cancel()
	for _, served := range a.accesses {
		served.admission.End(rdmanet.ErrClosed)
	}
	close(a.ended)
	h.regions.mu.Lock()
	delete(h.regions.serving, a)
	if h.regions.agents[a.from.ID] == a {
		delete(h.regions.agents, a.from.ID)
	}
	h.regions.mu.Unlock()
	switch {
	case errors.Is(err, errRegionProtocol), errors.Is(err, errProtocol):
		h.log.Warn("region stream dropped", "peer", a.from.String(), "error", err)
	case err != nil && !errors.Is(err, io.EOF):
		h.log.Debug("region stream ended", "peer", a.from.String(), "error", err)
	}
}

// run greets the peer and serves it.
func (a *agent) run(stream network.Stream) error {
	h := a.host
	if err := stream.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	greeting, err := readRegionHello(stream)
	if err != nil {
		return err
	}
	a.from.Incarnation, a.opening = greeting.sender, greeting.opening
	switch {
	case greeting.receiver != 0 && greeting.receiver != h.incarnation:
		return a.refuse(stream, statusRestarted)
	case greeting.trusted != h.trusted:
		return a.refuse(stream, statusTrust)
	}
	if err := h.peers.Up(a.from); err != nil {
		return errors.Join(err, a.refuse(stream, statusStale))
	}
	defer h.peers.Down(a.from)
	if word := a.claim(stream.Conn().RemotePeer()); word != statusWelcome {
		return a.refuse(stream, word)
	}
	if _, err := stream.Write(regionAnswer{status: statusWelcome, incarnation: h.incarnation}.append(nil)); err != nil {
		return fmt.Errorf("region answer: %w", err)
	}
	conn, err := h.direct(a.stopped, stream)
	if err != nil {
		return err
	}
	defer conn.Reset()
	stream.Reset()
	if err := a.begin(conn); err != nil {
		return err
	}
	return a.serve(conn)
}

// refuse answers a hello with anything but a welcome, and waits for the peer to have read it.
func (a *agent) refuse(stream network.Stream, word status) error {
	if _, err := stream.Write(regionAnswer{status: word, incarnation: a.host.incarnation}.append(nil)); err != nil {
		return fmt.Errorf("region answer: %w", err)
	}
	var one [1]byte
	_, _ = stream.Read(one[:]) // the peer resets the stream, or the deadline ends the wait
	return fmt.Errorf("refused: %s", word)
}

// claim makes this the peer's agent, once nothing that came over its earlier stream lands any more.
func (a *agent) claim(caller peer.ID) status {
	r := a.host.regions
	r.mu.Lock()
	a.host.mu.Lock()
	newest := a.host.newest[a.from.ID]
	a.host.mu.Unlock()
	before := r.agents[a.from.ID]
	switch {
	case r.closed.Load():
		r.mu.Unlock()
		return statusClosing
	case a.from.Incarnation < newest, !a.host.gater.isMember(caller),
		before != nil && a.from.Incarnation < before.from.Incarnation,
		before != nil && a.from.Incarnation == before.from.Incarnation && a.opening <= before.opening:
		r.mu.Unlock()
		return statusStale
	}
	r.agents[a.from.ID] = a
	r.mu.Unlock()
	if before != nil {
		before.stop()
		<-before.ended
	}
	return statusWelcome
}

// serve performs requests until the stream breaks.
func (a *agent) serve(stream io.ReadWriter) error {
	a.reader, a.writer = bufio.NewReaderSize(stream, regionBufferBytes), bufio.NewWriterSize(stream, regionBufferBytes)
	for {
		header, err := a.peek(requestSize)
		if err != nil {
			return err
		}
		wanted, err := parseRequest(header)
		if err != nil {
			return err
		}
		if _, err := a.reader.Discard(requestSize); err != nil {
			return err
		}
		if err := a.perform(wanted); err != nil {
			return err
		}
	}
}

// peek gives the next bytes of the stream, at most a buffer of them, still in the buffer. What was answered goes out before it waits.
func (a *agent) peek(n int) ([]byte, error) {
	if a.reader.Buffered() < n {
		if err := a.flush(); err != nil {
			return nil, err
		}
	}
	return a.reader.Peek(n)
}

func (a *agent) perform(wanted request) error {
	switch wanted.kind {
	case requestWrite:
		return a.write(wanted)
	case requestRead:
		return a.read(wanted)
	case requestAttach:
		return a.attach(wanted)
	default:
		served, err := a.access(wanted)
		if err != nil || served == (access{}) {
			return err
		}
		served.admission.End(rdmanet.ErrClosed)
		delete(a.accesses, wanted.attachment)
		return nil
	}
}

// access finds the attachment of a request. It is the zero value if the attachment was forgotten, since it was over.
func (a *agent) access(wanted request) (access, error) {
	served, ok := a.accesses[wanted.attachment]
	if !ok && wanted.attachment > a.highest {
		return access{}, fmt.Errorf("%w: attachment %d was never made", errRegionProtocol, wanted.attachment)
	}
	return served, nil
}

// write performs a write.
func (s access) write(wanted request, bytes []byte) (outcome, error) {
	if s.region == nil {
		return outcomeAccess, nil
	}
	return outcomeOf(s.region.Write(s.admission, int(wanted.offset), bytes, wanted.ring))
}

// read performs a read.
func (s access) read(wanted request, into []byte) (outcome, error) {
	if s.region == nil {
		return outcomeAccess, nil
	}
	return outcomeOf(s.region.Read(s.admission, int(wanted.offset), into))
}

func (a *agent) write(wanted request) error {
	served, err := a.access(wanted)
	if err != nil {
		return err
	}
	length := int(wanted.length)
	var bytes []byte
	inBuffer := length <= regionBufferBytes
	if inBuffer {
		bytes, err = a.peek(length)
	} else {
		bytes, err = a.fetch(length)
	}
	if err != nil {
		return unexpected(err)
	}
	word, err := served.write(wanted, bytes)
	if err != nil {
		return err
	}
	if inBuffer {
		if _, err := a.reader.Discard(length); err != nil {
			return err
		}
	}
	return a.answer(word)
}

// fetch reads what is too long for the reader's buffer.
func (a *agent) fetch(length int) ([]byte, error) {
	if err := a.flush(); err != nil {
		return nil, err
	}
	piece := a.room(length)
	_, err := io.ReadFull(a.reader, piece)
	return piece, err
}

// room gives the piece's buffer, at that length.
func (a *agent) room(length int) []byte {
	if cap(a.piece) < length {
		a.piece = make([]byte, max(length, 4<<10))
	}
	return a.piece[:length]
}

func (a *agent) read(wanted request) error {
	served, err := a.access(wanted)
	if err != nil {
		return err
	}
	bytes := a.room(int(wanted.length))
	word, err := served.read(wanted, bytes)
	if err != nil {
		return err
	}
	if word != outcomeDone || len(bytes) == 0 {
		return a.answer(word)
	}
	return a.answerWith(bytes)
}

func (a *agent) attach(wanted request) error {
	name, err := a.peek(int(wanted.length))
	if err != nil {
		return unexpected(err)
	}
	region := a.host.regions.find(string(name))
	if _, err := a.reader.Discard(len(name)); err != nil {
		return err
	}
	if wanted.attachment <= a.highest {
		return fmt.Errorf("%w: attachment %d after %d", errRegionProtocol, wanted.attachment, a.highest)
	}
	a.highest = wanted.attachment
	if len(a.accesses) == attachmentsMax {
		maps.DeleteFunc(a.accesses, func(_ uint32, s access) bool { return s.admission.Err() != nil })
	}
	switch {
	case region == nil:
		return a.answer(outcomeNoRegion)
	case len(a.accesses) == attachmentsMax:
		return a.answer(outcomeTooMany)
	}
	admission, err := region.Admit(a.from)
	word, err := outcomeOf(err)
	if err != nil {
		return err
	}
	if word != outcomeDone {
		return a.answer(word)
	}
	a.accesses[wanted.attachment] = access{region, admission}
	return a.answerWith(attached{size: uint32(region.Size()), permission: admission.Permission()}.append(a.scratch[responseSize:responseSize]))
}

// answer tells how a request ended, together with those that ended the same way.
func (a *agent) answer(word outcome) error {
	if a.same.count > 0 && (a.same.outcome != word || a.same.count == responsesMax) {
		if err := a.put(a.same); err != nil {
			return err
		}
		a.same.count = 0
	}
	a.same.outcome = word
	a.same.count++
	return nil
}

// answerWith answers a request that came to a good end with bytes.
func (a *agent) answerWith(bytes []byte) error {
	if err := a.settle(); err != nil {
		return err
	}
	if err := a.put(response{outcome: outcomeDone, count: 1, length: uint32(len(bytes))}); err != nil {
		return err
	}
	_, err := a.writer.Write(bytes)
	return err
}

// settle writes the answers that wait for more of their kind.
func (a *agent) settle() error {
	if a.same.count == 0 {
		return nil
	}
	err := a.put(a.same)
	a.same.count = 0
	return err
}

func (a *agent) put(r response) error {
	_, err := a.writer.Write(r.append(a.scratch[:0]))
	return err
}

// flush sends what was answered.
func (a *agent) flush() error {
	if err := a.settle(); err != nil {
		return err
	}
	return a.writer.Flush()
}
