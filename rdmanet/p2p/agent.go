package p2p

import (
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

// attachmentsMax bounds the working attachments of one stream. Attachments that are over are
// removed when there is no room.
const attachmentsMax = 1024

// agent serves one peer's region stream: it performs requests in their order and answers each. Its
// memory for a peer is bounded by intakeBytes, answersMax and attachmentsMax. It waits for the
// network only while it holds no admission.
type agent struct {
	host    *Host
	from    rdmanet.Peer // its incarnation is 0 before the hello
	opening uint64
	ended   chan struct{}   // closed when nothing of the stream can land any more
	stopped context.Context // ended by stop
	cancel  context.CancelFunc

	mu sync.Mutex
	// carrier is the stream at first, then the direct connection that carries the requests.
	carrier carrier

	intake   *intake
	answers  answers
	accesses map[uint32]access
	highest  uint32 // the highest attachment number so far
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

// begin makes c the carrier of requests, without a deadline, unless stop was called.
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
	a := newAgent(r.host, rdmanet.Peer{ID: r.host.id, Incarnation: r.host.incarnation},
		pipeEnd{there})
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

// conclude records that the stream ended, and why.
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

// run reads the peer's hello, answers it and serves the peer.
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
	if _, err := stream.Write(regionAnswer{status: statusWelcome,
		incarnation: h.incarnation}.append(nil)); err != nil {
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

// refuse answers a hello with a refusal, and waits until the peer has read it.
func (a *agent) refuse(stream network.Stream, word status) error {
	if _, err := stream.Write(regionAnswer{status: word,
		incarnation: a.host.incarnation}.append(nil)); err != nil {
		return fmt.Errorf("region answer: %w", err)
	}
	var one [1]byte
	_, _ = stream.Read(one[:]) // the peer resets the stream, or the deadline ends the wait
	return fmt.Errorf("refused: %s", word)
}

// claim makes this the peer's agent, once nothing from its earlier stream can land any more.
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
		before != nil && a.from.Incarnation == before.from.Incarnation &&
			a.opening <= before.opening:
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
func (a *agent) serve(stream io.ReadWriter) (err error) {
	a.answers.to = pieceWriterTo(stream)
	if a.intake, err = newIntake(stream, a.answers.flush); err != nil {
		return err
	}
	for {
		header, err := a.intake.peek(requestSize)
		if err != nil {
			return err
		}
		wanted, err := parseRequest(header)
		if err != nil {
			return err
		}
		a.intake.take(requestSize)
		if err := a.perform(wanted); err != nil {
			return err
		}
	}
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

// access finds the attachment of a request. It returns the zero value if the attachment was removed
// because it was over.
func (a *agent) access(wanted request) (access, error) {
	served, ok := a.accesses[wanted.attachment]
	if !ok && wanted.attachment > a.highest {
		return access{}, fmt.Errorf("%w: attachment %d was never made", errRegionProtocol,
			wanted.attachment)
	}
	return served, nil
}

// write performs a write as its bytes arrive: it applies each available part, from the first to the
// last. Once a part is refused, it reads and drops the rest.
func (a *agent) write(wanted request) error {
	served, err := a.access(wanted)
	if err != nil {
		return err
	}
	word, err := outcomeAccess, error(nil)
	if served.region != nil {
		word, err = outcomeOf(served.region.Check(served.admission, int(wanted.offset),
			int(wanted.length)))
	}
	offset, left := int(wanted.offset), int(wanted.length)
	for first := true; err == nil && (first || left > 0); first = false {
		bytes, failure := a.intake.part(offset, left)
		if failure != nil {
			return unexpected(failure)
		}
		if word == outcomeDone {
			word, err = outcomeOf(served.region.Write(served.admission, offset, bytes,
				wanted.ring && len(bytes) == left))
		}
		a.intake.take(len(bytes))
		offset, left = offset+len(bytes), left-len(bytes)
	}
	if err != nil {
		return err
	}
	return a.answers.end(word)
}

func (a *agent) read(wanted request) error {
	served, err := a.access(wanted)
	if err != nil {
		return err
	}
	length := int(wanted.length)
	if served.region == nil {
		return a.answers.end(outcomeAccess)
	}
	if length == 0 {
		word, err := outcomeOf(served.region.Read(served.admission, int(wanted.offset), nil))
		if err != nil {
			return err
		}
		return a.answers.end(word)
	}
	word, err := outcomeOf(served.region.Read(served.admission, int(wanted.offset),
		a.answers.begin(length)))
	if err != nil {
		return err
	}
	return a.answers.done(length, word)
}

func (a *agent) attach(wanted request) error {
	name, err := a.intake.peek(int(wanted.length))
	if err != nil {
		return unexpected(err)
	}
	region := a.host.regions.find(string(name))
	a.intake.take(len(name))
	if wanted.attachment <= a.highest {
		return fmt.Errorf("%w: attachment %d after %d", errRegionProtocol, wanted.attachment,
			a.highest)
	}
	a.highest = wanted.attachment
	if len(a.accesses) == attachmentsMax {
		maps.DeleteFunc(a.accesses, func(_ uint32, s access) bool {
			return s.admission.Err() != nil
		})
	}
	switch {
	case region == nil:
		return a.answers.end(outcomeNoRegion)
	case len(a.accesses) == attachmentsMax:
		return a.answers.end(outcomeTooMany)
	}
	admission, err := region.Admit(a.from)
	word, err := outcomeOf(err)
	if err != nil {
		return err
	}
	if word != outcomeDone {
		return a.answers.end(word)
	}
	a.accesses[wanted.attachment] = access{region, admission}
	attached{size: uint32(region.Size()), permission: admission.Permission()}.append(
		a.answers.begin(attachedSize)[:0])
	return a.answers.done(attachedSize, outcomeDone)
}
