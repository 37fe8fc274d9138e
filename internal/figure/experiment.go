package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/network"
)

// experiment is one run: a group of engines over a network, their load, the failures, and what is
// measured.
type experiment struct {
	model network.Model
	// engine returns the engine of a server.
	engine func(self order.ServerID) (order.Broadcaster, error)
	load   load
	// warmUp and window are numbers of rounds. The measuring window lasts from when every server
	// has A-delivered warmUp·n messages to when every server has A-delivered (warmUp+window)·n
	// [Poke19, section 6.5.1]. A window of 0 measures until the end.
	warmUp, window int
	// until bounds the run in virtual time. 0 is runMax.
	until time.Duration
	// failures are crashes. detector decides when the crashed server's successors in reliable, or
	// in the eon's G_R, suspect it.
	failures []failure
	// joins are crashed servers that come back with a new engine. Engines must then be eonServers.
	joins    []failure
	detector heartbeat
	reliable *digraph.Digraph
	// watch, unless it is nil, is called for each round that a server A-delivers.
	watch func(at time.Duration, server order.ServerID, delivery order.Delivery)
}

// failure is a crash, or the end of one.
type failure struct {
	at     time.Duration
	server order.ServerID
}

// heartbeat is a failure detector. Every server sends a heartbeat each period to its successors,
// which suspect it when none arrived for the timeout [Poke19, section 5.2.1.1].
type heartbeat struct {
	period, timeout time.Duration
}

// measurement is the result of an experiment.
type measurement struct {
	// latency is the time from A-broadcast to A-delivery of servers' own messages that were
	// A-delivered in the window. If requests arrive at a rate, only messages with requests count.
	latency spread
	// messages and bytes are how many messages and payload bytes a server A-delivered a second in
	// the window, on average.
	messages, bytes float64
	// elapsed is the length of the window.
	elapsed time.Duration
	// sent is how many bytes of frames all servers together sent in the window.
	sent int64
	// unstable reports that requests arrived faster than the group could agree on them.
	unstable bool
	// carried is the network's statistics.
	carried network.Statistics
}

const (
	// runMax is the maximum length of a run in virtual time.
	runMax = 10 * time.Minute
	// checkEvery is how many events pass between checks of the context.
	checkEvery = 1 << 14
	// actionsMax is the maximum number of A-broadcasts of a server in a row without input.
	actionsMax = 1 << 10
)

// errStuck is returned for a run that ended before its window did.
var errStuck = errors.New("figure: the run came to a standstill")

// The caller's timers, in the upper half of a token.
const (
	timerStart uint64 = iota << 32
	timerRequest
	timerCrash
	timerJoin
	timerSuspect
	timerKind = 0xffffffff << 32
)

// ownMessage is a message that a server A-broadcast and has not A-delivered yet. Its latency counts
// unless it is the empty answer of a server without requests.
type ownMessage struct {
	at     time.Duration
	counts bool
}

// sequencer is implemented by engines that A-deliver messages one by one, as comparator.Sequencer
// describes.
type sequencer interface {
	Sequence() []order.ServerID
}

// server is one server of a run.
type server struct {
	engine   order.Broadcaster
	sequence sequencer
	// several is the engine if it has several rounds in flight, whose A-broadcasts pace spreads.
	several *interleave.Engine
	pace    *interleave.Pace
	crashed bool
	// own are the messages under way, oldest first. They are A-delivered in this order.
	own []ownMessage
	// requests counts the requests taken. timer reports that a timer will wake the server at the
	// next request.
	requests int64
	timer    bool
	// messages and bytes count what was A-delivered. messagesAtStart and bytesAtStart are their
	// values when the window began.
	messages, bytes               int64
	messagesAtStart, bytesAtStart int64
}

// run is an experiment in progress.
type run struct {
	experiment
	net     *network.Network
	servers []server
	payload []byte
	// behind counts the servers that have not A-delivered goal messages.
	behind int
	goal   int64
	// measuring reports that the window is open, and done that it is over.
	measuring, done bool
	windowStart     time.Duration
	sentAtStart     int64
	samples         []time.Duration
	unstable        bool
}

// measure runs the experiment.
func (e experiment) measure(ctx context.Context) (measurement, error) {
	r, err := newRun(e)
	if err != nil {
		return measurement{}, err
	}
	for events := 0; !r.done; events++ {
		if events%checkEvery == 0 && ctx.Err() != nil {
			return measurement{}, ctx.Err()
		}
		event, more := r.net.Next()
		if !more || event.At > r.until {
			if r.window > 0 {
				return measurement{}, fmt.Errorf("%w after %v of virtual time", errStuck,
					r.net.Now())
			}
			r.done = true
			break
		}
		if err := r.handle(event); err != nil {
			return measurement{}, fmt.Errorf("server %d at %v: %w", event.Server, event.At, err)
		}
	}
	return r.result(), nil
}

func newRun(e experiment) (*run, error) {
	net, err := network.New(e.model)
	if err != nil {
		return nil, err
	}
	if e.until == 0 {
		e.until = runMax
	}
	n := e.model.Servers
	r := &run{experiment: e, net: net, servers: make([]server, n),
		payload: make([]byte, max(e.load.bytes, e.load.payloadMax))}
	for id := range r.servers {
		engine, err := e.engine(order.ServerID(id))
		if err != nil {
			return nil, fmt.Errorf("make the engine of server %d: %w", id, err)
		}
		r.servers[id].engine = engine
		r.servers[id].sequence, _ = engine.(sequencer)
		if several, are := engine.(*interleave.Engine); are {
			r.servers[id].several = several
			r.servers[id].pace = interleave.NewPace(len(several.Engines()))
		}
		net.After(0, order.ServerID(id), timerStart)
	}
	for _, f := range e.failures {
		net.After(f.at, f.server, timerCrash)
	}
	for _, j := range e.joins {
		net.After(j.at, j.server, timerJoin)
	}
	r.aim()
	return r, nil
}

// aim sets the next goal: the beginning of the window, or its end.
func (r *run) aim() {
	rounds := r.warmUp
	if r.measuring {
		rounds += r.window
	}
	r.goal, r.behind = int64(rounds)*int64(len(r.servers)), 0
	for id := range r.servers {
		if s := &r.servers[id]; !s.crashed && s.messages < r.goal {
			r.behind++
		}
	}
	if r.behind == 0 && !r.measuring {
		r.reached()
	}
}

// reached opens the window, or closes it.
func (r *run) reached() {
	if r.measuring {
		r.done = r.window > 0
		return
	}
	r.measuring, r.windowStart = true, r.net.Now()
	r.sentAtStart = r.net.Statistics().Bytes
	for id := range r.servers {
		s := &r.servers[id]
		s.messagesAtStart, s.bytesAtStart = s.messages, s.bytes
	}
	if r.window > 0 {
		r.aim()
	}
}

// handle handles one event.
func (r *run) handle(event network.Event) error {
	s := &r.servers[event.Server]
	if s.crashed {
		if event.Frame != nil || event.Token != timerJoin {
			return nil
		}
		if err := r.join(event.Server); err != nil {
			return err
		}
	}
	if event.Frame != nil {
		if err := s.engine.Receive(event.From, event.Frame); err != nil {
			return fmt.Errorf("receive from %d: %w", event.From, err)
		}
		return r.act(event.Server)
	}
	switch event.Token & timerKind {
	case timerRequest:
		s.timer = false
	case timerCrash:
		r.crash(event.Server)
		return nil
	case timerSuspect:
		suspect := order.ServerID(event.Token &^ timerKind)
		if r.net.UnderWay(suspect, event.Server) {
			// A perfect detector suspects a server only after its last frame.
			r.net.After(r.detector.period, event.Server, event.Token)
			return nil
		}
		if err := s.engine.Suspect(suspect); err != nil {
			return fmt.Errorf("suspect %d: %w", suspect, err)
		}
	}
	return r.act(event.Server)
}

// crash crashes a server and schedules the suspicions of its successors. The last heartbeat was
// sent at the last multiple of the period, shifted by the server.
func (r *run) crash(id order.ServerID) {
	r.servers[id].crashed = true
	r.net.Crash(id)
	now := r.net.Now()
	phase := r.detector.period * time.Duration(id) / time.Duration(len(r.servers))
	last := (now - phase).Truncate(r.detector.period) + phase
	for _, successor := range r.successors(id) {
		arrives := r.model.Unloaded(int(id), int(successor), 0)
		r.net.After(last+arrives+r.detector.timeout-now, successor, timerSuspect|uint64(id))
	}
}

// successors returns the successors of a server in the reliable digraph.
func (r *run) successors(id order.ServerID) []order.ServerID {
	if s, changes := r.servers[id].engine.(*eonServer); changes {
		return s.successors()
	}
	var successors []order.ServerID
	for _, p := range r.reliable.Successors(int(id)) {
		successors = append(successors, order.ServerID(p))
	}
	return successors
}

// join makes a crashed server start again. The requests that would have arrived at it meanwhile
// went elsewhere.
func (r *run) join(id order.ServerID) error {
	engine, err := r.engine(id)
	if err != nil {
		return fmt.Errorf("make the engine of a server that joins: %w", err)
	}
	r.net.Revive(id)
	s := &r.servers[id]
	s.engine, s.crashed, s.own = engine, false, nil
	s.requests = r.load.arrived(r.net.Now(), int(id), len(r.servers))
	engine.(*eonServer).join()
	return nil
}

// act is the loop of order.Broadcaster's comment, from "if engine.CanBroadcast()" until there is
// nothing more to do.
func (r *run) act(id order.ServerID) error {
	s := &r.servers[id]
	for range actionsMax {
		broadcast, err := r.broadcast(id)
		if err != nil {
			return err
		}
		if s.pace != nil {
			s.pace.Observe(r.net.Now(), s.several.InFlight())
		}
		ready := s.engine.Ready()
		for _, send := range ready.Sends {
			r.net.Send(id, send.To, send.Frame)
		}
		r.deliver(id, ready.Deliveries)
		if r.done || !broadcast && len(ready.Deliveries) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d A-broadcasts without any input", actionsMax)
}

// broadcast A-broadcasts a message if one is due. It reports whether one was.
func (r *run) broadcast(id order.ServerID) (bool, error) {
	s := &r.servers[id]
	if !s.engine.CanBroadcast() {
		return false, nil
	}
	var payload []byte
	now := r.net.Now()
	since := now
	switch {
	case r.load.compose != nil:
		payload = r.load.compose(id)
	case r.load.isFixed():
		payload = r.payload[:r.load.bytes]
	case r.load.single:
		switch {
		case int(id) == r.load.sender && s.messages == 0 && len(s.own) == 0:
			payload = r.payload[:r.load.bytes]
		case !s.engine.Solicited() && !s.engine.Undelivered():
			return false, nil
		}
	default:
		waiting := r.load.arrived(now, int(id), len(r.servers)) - s.requests
		due := r.load.undelivered && s.engine.Undelivered()
		if solicited := s.engine.Solicited(); waiting == 0 && !solicited && !due {
			r.awaitRequest(id)
			return false, nil
		} else if !solicited && r.holds(id) {
			return false, nil
		}
		if room := int64(r.load.payloadMax / r.load.requestBytes); waiting > room {
			waiting, r.unstable = room, true
		}
		if r.load.fromArrival && waiting > 0 {
			since = r.load.meanArrival(s.requests+1, s.requests+waiting, int(id), len(r.servers))
		}
		s.requests += waiting
		payload = r.payload[:int(waiting)*r.load.requestBytes]
	}
	if err := s.engine.Broadcast(payload); err != nil {
		return false, fmt.Errorf("its turn to A-broadcast: %w", err)
	}
	if s.pace != nil {
		s.pace.Broadcast(now)
	}
	s.own = append(s.own, ownMessage{at: since, counts: r.load.perMinute == 0 || len(payload) > 0})
	return true, nil
}

// holds reports whether a server's next round has to wait, so that rounds spread. It wakes the
// server then.
func (r *run) holds(id order.ServerID) bool {
	s := &r.servers[id]
	if s.pace == nil {
		return false
	}
	wait := s.pace.Wait(r.net.Now())
	if wait > 0 && !s.timer {
		s.timer = true
		r.net.After(wait, id, timerRequest)
	}
	return wait > 0
}

// awaitRequest wakes a server when its next request arrives.
func (r *run) awaitRequest(id order.ServerID) {
	s := &r.servers[id]
	if s.timer {
		return
	}
	s.timer = true
	r.net.After(r.load.next(s.requests+1, int(id), len(r.servers))-r.net.Now(), id, timerRequest)
}

// deliver counts what a server A-delivered.
func (r *run) deliver(id order.ServerID, deliveries []order.Delivery) {
	s := &r.servers[id]
	was := s.messages
	for _, delivery := range deliveries {
		if r.watch != nil {
			r.watch(r.net.Now(), id, delivery)
		}
		if s.sequence != nil {
			continue
		}
		for i := range delivery.Messages {
			m := &delivery.Messages[i]
			s.bytes += int64(len(m.Payload))
			if m.Origin == id {
				r.ownDelivered(s)
			}
		}
		s.messages += int64(len(delivery.Messages))
	}
	if s.sequence != nil {
		for _, origin := range s.sequence.Sequence() {
			s.messages++
			s.bytes += int64(r.load.bytes)
			if origin == id {
				r.ownDelivered(s)
			}
		}
	}
	if was < r.goal && s.messages >= r.goal {
		if r.behind--; r.behind == 0 {
			r.reached()
		}
	}
}

// ownDelivered records the latency of a server's oldest message under way.
func (r *run) ownDelivered(s *server) {
	if r.measuring && s.own[0].counts {
		r.samples = append(r.samples, r.net.Now()-s.own[0].at)
	}
	copy(s.own, s.own[1:])
	s.own = s.own[:len(s.own)-1]
}

// result computes the measurement.
func (r *run) result() measurement {
	m := measurement{latency: spreadOf(r.samples), elapsed: r.net.Now() - r.windowStart,
		unstable: r.unstable, carried: r.net.Statistics()}
	m.sent = m.carried.Bytes - r.sentAtStart
	working := 0
	var messages, bytes int64
	for id := range r.servers {
		if s := &r.servers[id]; !s.crashed {
			working++
			messages += s.messages - s.messagesAtStart
			bytes += s.bytes - s.bytesAtStart
		}
	}
	if span := seconds(m.elapsed) * float64(working); span > 0 {
		m.messages, m.bytes = float64(messages)/span, float64(bytes)/span
	}
	// If many requests arrived in the window and the group agreed on clearly fewer, messages grow
	// without bound.
	const many, fewer = 20, 0.85
	if offered := r.load.offered(len(r.servers)); offered*seconds(m.elapsed) > many*float64(
		len(r.servers)*r.load.requestBytes) && m.bytes < fewer*offered {
		m.unstable = true
	}
	return m
}
