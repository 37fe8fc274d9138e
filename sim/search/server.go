package search

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// server is a state of one server: its engine, and the state of its driver and its detector. All
// states of all servers are numbered. Equal states have the same number, so a server is one word of
// a state of the group.
type server struct {
	id order.ServerID
	// engine is nil if the server has stopped. It must not be changed.
	engine machine
	// stopped reports that the server takes and does nothing any more: it crashed, or its engine
	// halted.
	stopped bool
	halted  string
	crashed bool
	// starting reports that the engine has frames to send before its first input. They are sent
	// with that input, or by inputStart.
	starting bool
	// mayCrash reports that this server crashes at some time.
	mayCrash bool
	// lies[q] is how often this server may still suspect q falsely. suspects has a bit for each
	// server that it suspects falsely now, and closed one for each server that it knows to have
	// stopped.
	lies     [ServersMax]uint8
	suspects uint16
	closed   uint16
	// accused has a bit for each server that this one suspects falsely at some time.
	accused serverSet
	// submitted has a bit for each round in which this server A-broadcast a payload.
	submitted uint32
	// delivered is the number of the sequence that it A-delivered.
	delivered uint32
	// recorded is the number of the sequence of its records, concluded that of its closings.
	recorded  uint32
	concluded uint32
	// promise is the number of what it would promise if it stopped now, with prompt delivery.
	promise uint32
	// inputs are the steps that it can take by itself.
	inputs []input
	// outcome is the number of its outcome, for the judge.
	outcome uint32

	epoch    order.Epoch
	round    order.Round
	reliable bool
}

// input is what a server takes or does: its kind, another server, and a frame.
type input uint32

// inputKind is the kind of an input.
type inputKind uint8

const (
	// inputReceive takes the first frame of the channel from a peer.
	inputReceive inputKind = iota
	// inputBroadcast A-broadcasts a payload, inputEmpty an empty message.
	inputBroadcast
	inputEmpty
	// inputSuspect suspects a peer falsely, inputTrust withdraws that.
	inputSuspect
	inputTrust
	// inputCrash is a crash between two other inputs.
	inputCrash
	// inputStart sends what an engine has to send before its first input.
	inputStart
)

const (
	inputPeerShift = 24
	inputKindShift = 28
	framesMax      = 1 << inputPeerShift
)

func newInput(kind inputKind, peer int, frame uint32) input {
	return input(uint32(kind)<<inputKindShift | uint32(peer)<<inputPeerShift | frame)
}

func (i input) kind() inputKind { return inputKind(i >> inputKindShift) }
func (i input) peer() int       { return int(i >> inputPeerShift & 15) }
func (i input) frame() uint32   { return uint32(i) & (framesMax - 1) }

// prepare computes what a server can do by itself.
func (x *explorer) prepare(s *server) {
	if s.stopped {
		return
	}
	status := s.engine.Status()
	s.epoch, s.round, s.reliable = status.Epoch, status.Round, status.Reliable
	if s.engine.CanBroadcast() {
		payload := s.round <= order.Round(x.options.Rounds) && s.submitted>>s.round&1 == 0
		if payload {
			s.inputs = append(s.inputs, newInput(inputBroadcast, 0, 0))
		}
		if s.engine.Solicited() && (!payload || x.options.Idle) || s.engine.Undelivered() &&
			!payload {
			s.inputs = append(s.inputs, newInput(inputEmpty, 0, 0))
		}
	}
	for peer := range x.n {
		if s.closed>>peer&1 != 0 {
			continue
		}
		if s.suspects>>peer&1 != 0 {
			s.inputs = append(s.inputs, newInput(inputTrust, peer, 0))
		} else if s.lies[peer] > 0 {
			s.inputs = append(s.inputs, newInput(inputSuspect, peer, 0))
		}
	}
	if s.starting {
		s.inputs = append(s.inputs, newInput(inputStart, 0, 0))
	}
	if s.mayCrash {
		s.inputs = append(s.inputs, newInput(inputCrash, 0, 0))
	}
}

// intern numbers a server's state.
func (x *explorer) intern(s server) uint32 {
	k := append(x.key[:0], byte(s.id), flag(s.stopped), flag(s.crashed), flag(s.mayCrash),
		flag(s.starting))
	k = append(k, s.lies[:]...)
	k = binary.LittleEndian.AppendUint16(k, s.suspects)
	k = binary.LittleEndian.AppendUint16(k, s.closed)
	k = binary.LittleEndian.AppendUint16(k, uint16(s.accused))
	k = binary.LittleEndian.AppendUint32(k, s.submitted)
	k = binary.LittleEndian.AppendUint32(k, s.delivered)
	k = binary.LittleEndian.AppendUint32(k, s.recorded)
	k = binary.LittleEndian.AppendUint32(k, s.concluded)
	k = binary.LittleEndian.AppendUint32(k, s.promise)
	if !s.stopped {
		k = s.engine.AppendState(k)
	}
	x.key = k
	id, known := x.serverIDs[string(k)]
	if known {
		return id
	}
	x.prepare(&s)
	s.outcome = x.judge.outcome(&s)
	id = uint32(len(x.servers))
	x.servers = append(x.servers, s)
	x.claims.idle, x.claims.next, x.claims.before = append(x.claims.idle, nil),
		append(x.claims.next, nil), append(x.claims.before, nil)
	x.serverIDs[string(k)] = id
	return id
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// step is the effect of an input on a server.
type step struct {
	next uint32
	// sent is the place of the sequences that go on the channels, one for each server, in
	// explorer.sent.
	sent uint32
	// crashes and crashesEnd delimit, in explorer.crashSteps, the ways in which the server crashes
	// in the middle of sending.
	crashes, crashesEnd uint32
	// sends counts the frames that go on channels. delivers reports that the server A-delivers
	// something.
	sends    int
	delivers bool
	// broken is the violation in the step, if any.
	broken *order.Violation
}

// crashStep is a crash in the middle of sending: the server after it, and what went on the
// channels.
type crashStep struct {
	next uint32
	sent uint32
}

// step takes an input, or returns the remembered step.
func (x *explorer) step(at uint32, in input) *step {
	key := uint64(at)<<32 | uint64(in)
	place, known := x.stepIDs[key]
	if !known {
		place = uint32(len(x.steps))
		x.steps = append(x.steps, x.take(x.servers[at], in))
		x.stepIDs[key] = place
		if s := &x.steps[place]; s.broken == nil && s.next != at && !x.servers[s.next].stopped {
			x.claims.connect(at, s.next)
		}
	}
	return &x.steps[place]
}

// take makes a copy of a server's engine take an input.
func (x *explorer) take(s server, in input) step {
	before := s
	s.inputs = nil
	if in.kind() == inputCrash {
		next, sent := x.crash(s, nil)
		return step{next: next, sent: sent}
	}
	x.engineSteps++
	s.engine = x.model.copyOf(s.engine)
	s.starting = false
	ready, broken := x.drive(&s, in)
	if broken != nil {
		return step{broken: broken}
	}
	for to := range x.sending {
		x.sending[to] = x.sending[to][:0]
	}
	result := step{delivers: len(ready.Deliveries)+len(ready.Closings) > 0}
	for _, send := range ready.Sends {
		frame := x.contents.frame(send.Frame)
		result.sends += len(send.To)
		for _, to := range send.To {
			x.sending[to] = append(x.sending[to], frame)
		}
	}
	for _, d := range ready.Deliveries {
		s.delivered = x.judge.deliver(s.delivered, d)
	}
	for _, c := range ready.Closings {
		s.concluded = x.judge.close(s.concluded, c)
	}
	if x.model.votes {
		s.promise = x.judge.promise(s.engine.(order.Voter))
		result.delivers = result.delivers || s.promise != before.promise
	}
	if x.options.Records {
		s.recorded = x.judge.record(s.recorded, s.engine.(completer), x.options.RecordsAnyGroup)
		before.recorded = s.recorded // the disk may be quicker than the sends
	}
	if s.mayCrash {
		result.crashes, result.crashesEnd = x.crashInside(before, s.submitted)
	}
	if status := s.engine.Status(); status.Halted != "" {
		s.stopped, s.halted, s.engine = true, status.Halted, nil
		x.closeChannels(s.id)
	} else if x.model.inspect != nil {
		if result.broken = x.model.inspect(s.id, s.engine); result.broken != nil {
			return result
		}
	}
	result.sent = x.send()
	result.next = x.intern(s)
	return result
}

// drive gives an input to an engine as a driver would, and recovers from a panic.
func (x *explorer) drive(s *server, in input) (ready order.Ready, broken *order.Violation) {
	defer func() {
		if cause := recover(); cause != nil {
			broken = &order.Violation{Property: Contract,
				Evidence: []string{fmt.Sprintf("server %d panics: %v", s.id, cause)}}
		}
	}()
	var err error
	peer := order.ServerID(in.peer())
	switch in.kind() {
	case inputReceive:
		if in.frame() != endOfChannel {
			err = s.engine.Receive(peer, x.contents.frames[in.frame()])
			break
		}
		s.closed |= 1 << peer
		if s.suspects>>peer&1 != 0 {
			s.suspects &^= 1 << peer // it will not be withdrawn any more
		} else {
			err = s.engine.Suspect(peer)
		}
		s.lies[peer] = 0
	case inputBroadcast:
		s.submitted |= 1 << s.round
		err = s.engine.Broadcast([]byte{byte(s.round)})
	case inputEmpty:
		err = s.engine.Broadcast(nil)
	case inputSuspect:
		s.lies[peer]--
		s.suspects |= 1 << peer
		err = s.engine.Suspect(peer)
	case inputTrust:
		s.suspects &^= 1 << peer
		err = s.engine.Trust(peer)
	}
	if err != nil {
		return ready, &order.Violation{Property: Contract,
			Evidence: []string{fmt.Sprintf("server %d refuses what is right: %v", s.id, err)}}
	}
	return s.engine.Ready(), nil
}

// closeChannels appends the end to the channels of a server that stops, to each server whose
// detector watches it.
func (x *explorer) closeChannels(id order.ServerID) {
	for _, to := range x.model.watch.Successors(int(id)) {
		x.sending[to] = append(x.sending[to], endOfChannel)
	}
}

// send numbers the contents that go on the channels.
func (x *explorer) send() uint32 {
	place := uint32(len(x.sent))
	for _, frames := range x.sending {
		x.sent = append(x.sent, x.contents.sequence(frames))
	}
	return place
}

// crash stops a server after it sent some frames: sending[q][:kept[q]] to each q, or none if kept
// is nil.
func (x *explorer) crash(s server, kept []int) (next, sent uint32) {
	s.engine, s.inputs, s.stopped, s.crashed, s.mayCrash = nil, nil, true, true, false
	s.lies, s.suspects, s.closed, s.promise = [ServersMax]uint8{}, 0, 0, 0
	s.starting = false
	place := uint32(len(x.sent))
	for to := range x.n {
		x.prefix = x.prefix[:0]
		if kept != nil {
			x.prefix = append(x.prefix, x.sending[to][:kept[to]]...)
		}
		if x.model.watch.HasEdge(int(s.id), to) {
			x.prefix = append(x.prefix, endOfChannel)
		}
		x.sent = append(x.sent, x.contents.sequence(x.prefix))
	}
	return x.intern(s), place
}

// crashInside lists the crashes in the middle of a send: each channel gets a prefix of the frames
// meant for it, some channel gets something, and nothing is A-delivered, since that comes after the
// sends. (A crash before the first frame equals a crash before the input.)
func (x *explorer) crashInside(before server, submitted uint32) (first, end uint32) {
	first = uint32(len(x.crashSteps))
	before.submitted = submitted
	kept := make([]int, x.n)
	for {
		at := 0
		for ; at < x.n; at++ {
			if kept[at]++; kept[at] <= len(x.sending[at]) {
				break
			}
			kept[at] = 0
		}
		if at == x.n {
			return first, uint32(len(x.crashSteps))
		}
		next, sent := x.crash(before, kept)
		x.crashSteps = append(x.crashSteps, crashStep{next, sent})
	}
}
