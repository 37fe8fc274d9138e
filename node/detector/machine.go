package detector

import (
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Defaults of Timing.
const (
	DefaultHeartbeat = 500 * time.Millisecond
	DefaultTimeout   = 5 * time.Second
	DefaultGrace     = time.Second
)

// Why a server is suspected; match with errors.Is.
var (
	ErrSilent       = errors.New("no heartbeat")
	ErrDisconnected = errors.New("its connection is down")
	ErrRestarted    = errors.New("it restarted")
	ErrAccused      = errors.New("another server cannot reach it")
)

// Timing says how often and how long. Zero values stand for the defaults.
type Timing struct {
	// Heartbeat is the period Δhb of heartbeats.
	Heartbeat time.Duration
	// Timeout is Δto: a server that is silent for so long is suspected, at the earliest. It is at
	// least two heartbeats.
	Timeout time.Duration
	// TimeoutMax bounds the timeout as it adapts: 12 timeouts by default.
	TimeoutMax time.Duration
	// Grace is how long a connection may be down. It is at most the timeout, up to which it adapts.
	Grace time.Duration
}

// withDefaults fills in what is zero and refuses what makes no sense.
func (t Timing) withDefaults() (Timing, error) {
	if t.Heartbeat == 0 {
		t.Heartbeat = DefaultHeartbeat
	}
	if t.Timeout == 0 {
		t.Timeout = DefaultTimeout
	}
	if t.TimeoutMax == 0 {
		t.TimeoutMax = timeoutMaxFactor * t.Timeout
	}
	if t.Grace == 0 {
		t.Grace = min(DefaultGrace, t.Timeout)
	}
	if t.Heartbeat < 0 || t.Timeout < 2*t.Heartbeat || t.TimeoutMax < t.Timeout || t.Grace < 0 ||
		t.Grace > t.Timeout {
		return t, fmt.Errorf("detector: heartbeats every %v, a timeout of %v to %v and a grace "+
			"of %v make no sense: the timeout is at least two heartbeats and the grace",
			t.Heartbeat, t.Timeout, t.TimeoutMax, t.Grace)
	}
	return t, nil
}

// timeoutMaxFactor is how many timeouts TimeoutMax is by default.
const timeoutMaxFactor = 12

// Suspicion is a server that is suspected, and why; or one that is not suspected any more.
type Suspicion struct {
	Server    order.ServerID
	Cause     error // nil where TakenBack
	TakenBack bool
}

// Machine is the detector of one server in one run. Time goes in with every call and never comes
// from a clock; the methods are called one at a time. Methods that give a Suspicion give it once,
// until it is taken back.
type Machine struct {
	timing       Timing
	predecessors []watched
	nextBeat     time.Time
	lastTick     time.Time
	final        bool // no suspicion is taken back
}

// watched is one predecessor.
type watched struct {
	server       order.ServerID
	incarnation  rdmanet.Incarnation // that sent the first heartbeat, 0 before
	deadline     time.Time           // of the next heartbeat
	down         bool                // its connection
	downDeadline time.Time
	state        opinion
	link         link
}

// opinion is what the machine thinks of a predecessor.
type opinion uint8

const (
	trusted opinion = iota
	// silent, disconnected and gone are suspicions that a heartbeat takes back: by the timeout, by
	// the grace, by what the fabric said.
	silent
	disconnected
	gone
	// failed is for good.
	failed
)

// NewMachine watches the predecessors, each of which has a whole timeout for its first heartbeat.
// The first own heartbeat is due at once.
func NewMachine(timing Timing, predecessors []order.ServerID, now time.Time) (*Machine, error) {
	timing, err := timing.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Machine{timing: timing, nextBeat: now, lastTick: now}
	for _, server := range predecessors {
		m.predecessors = append(m.predecessors, watched{server: server,
			deadline: now.Add(timing.Timeout), link: newLink(timing)})
	}
	return m, nil
}

// learn takes over what the machine of an earlier run, nil for none, knows of the links.
func (m *Machine) learn(past *Machine) {
	if past == nil {
		return
	}
	for i := range m.predecessors {
		w := &m.predecessors[i]
		if was := past.find(w.server); was != nil {
			w.link = was.link
			w.link.last = time.Time{}
			w.deadline = w.deadline.Add(w.link.timeout(m.timing) - m.timing.Timeout)
		}
	}
}

// Next is when Tick has something to do.
func (m *Machine) Next() time.Time {
	next := m.nextBeat
	for i := range m.predecessors {
		w := &m.predecessors[i]
		if w.state != trusted {
			continue
		}
		if w.deadline.Before(next) {
			next = w.deadline
		}
		if w.down && w.downDeadline.Before(next) {
			next = w.downDeadline
		}
	}
	return next
}

// Tick tells whether heartbeats are due now, and who is suspected as of now.
func (m *Machine) Tick(now time.Time) (beat bool, suspicions []Suspicion) {
	if now.Sub(m.lastTick) > 2*m.timing.Heartbeat {
		m.paused(now)
	}
	m.lastTick = now
	for i := range m.predecessors {
		w := &m.predecessors[i]
		switch {
		case w.state != trusted:
		case !now.Before(w.deadline):
			suspicions = append(suspicions, m.suspect(w,
				silent, fmt.Errorf("%w for %v", ErrSilent,
					w.link.timeout(m.timing).Round(time.Millisecond)))...)
		case w.down && !now.Before(w.downDeadline):
			suspicions = append(suspicions, m.suspect(w, disconnected,
				fmt.Errorf("%w for %v", ErrDisconnected, w.link.grace))...)
		}
	}
	if beat = !now.Before(m.nextBeat); beat {
		m.nextBeat = now.Add(m.timing.Heartbeat)
	}
	return beat, suspicions
}

// paused gives everybody a fresh timeout, since it was this process that stood still.
func (m *Machine) paused(now time.Time) {
	for i := range m.predecessors {
		w := &m.predecessors[i]
		w.deadline = now.Add(w.link.timeout(m.timing))
		w.downDeadline = now.Add(w.link.grace)
		w.link.last = time.Time{} // the gap was ours
	}
}

// suspect goes over to a worse opinion of a predecessor, and tells the first of them.
func (m *Machine) suspect(w *watched, state opinion, cause error) []Suspicion {
	was := w.state
	if m.final {
		state = failed
	}
	w.state = max(was, state)
	if was != trusted {
		return nil
	}
	return []Suspicion{{Server: w.server, Cause: cause}}
}

func (m *Machine) find(server order.ServerID) *watched {
	for i := range m.predecessors {
		if m.predecessors[i].server == server {
			return &m.predecessors[i]
		}
	}
	return nil
}

// Heard takes a heartbeat of this run. It takes back what was suspected for want of one.
func (m *Machine) Heard(server order.ServerID, incarnation rdmanet.Incarnation,
	now time.Time) []Suspicion {
	w := m.find(server)
	if w == nil {
		return nil
	}
	if w.incarnation == 0 {
		w.incarnation = incarnation
	}
	return m.heard(w, incarnation, now)
}

// HeardElsewhere takes a heartbeat of an earlier or a later run of the same generation.
func (m *Machine) HeardElsewhere(server order.ServerID, incarnation rdmanet.Incarnation, later bool,
	now time.Time) []Suspicion {
	w := m.find(server)
	if w == nil || !later && w.incarnation != 0 && w.incarnation != incarnation {
		return nil // watched elsewhere; or its last life's, overtaken
	}
	return m.heard(w, incarnation, now)
}

func (m *Machine) heard(w *watched, incarnation rdmanet.Incarnation, now time.Time) []Suspicion {
	if w.incarnation != 0 && w.incarnation != incarnation {
		return m.suspect(w, failed, fmt.Errorf("%w as incarnation %v", ErrRestarted, incarnation))
	}
	if w.state == trusted {
		w.link.heard(m.timing, now)
	}
	w.deadline = now.Add(w.link.timeout(m.timing))
	if w.state == trusted || w.state == failed || w.down {
		return nil // one that came while the connection is down says nothing about now
	}
	w.link.mistake(m.timing, w.state, now)
	w.deadline = now.Add(w.link.timeout(m.timing))
	w.state = trusted
	return []Suspicion{{Server: w.server, TakenBack: true}}
}

// Forget watches the server no more.
func (m *Machine) Forget(server order.ServerID) {
	if w := m.find(server); w != nil {
		w.state = failed
	}
}

// Disconnected notes that the connection is down.
func (m *Machine) Disconnected(server order.ServerID, now time.Time) {
	if w := m.find(server); w != nil && !w.down {
		w.down, w.downDeadline = true, now.Add(w.link.grace)
	}
}

// Connected notes that the connection is up.
func (m *Machine) Connected(server order.ServerID) {
	if w := m.find(server); w != nil {
		w.down = false
	}
}

// Restarted takes the news that a server is there as that incarnation. One that was not heard in
// this run yet may be in its first life there.
func (m *Machine) Restarted(server order.ServerID, incarnation rdmanet.Incarnation) []Suspicion {
	if w := m.find(server); w != nil && w.incarnation != 0 && w.incarnation != incarnation {
		return m.suspect(w, failed, fmt.Errorf("%w as incarnation %v", ErrRestarted, incarnation))
	}
	return nil
}

// concerns tells whether news of that incarnation, 0 if it never answered, may be of the life that
// takes part in this run, or of a server that is not watched here.
func (m *Machine) concerns(server order.ServerID, incarnation rdmanet.Incarnation) bool {
	w := m.find(server)
	return w == nil || incarnation == 0 || w.incarnation == 0 || incarnation == w.incarnation
}

// Unreachable takes the fabric's word that that incarnation of a server, 0 if it never answered, is
// not there. A later heartbeat proves it wrong.
func (m *Machine) Unreachable(server order.ServerID, incarnation rdmanet.Incarnation,
	cause error) []Suspicion {
	w := m.find(server)
	if w == nil || !m.concerns(server, incarnation) {
		return nil
	}
	return m.suspect(w, gone, cause)
}

// Lost takes the news that messages between a server and others are lost in this run: the suspicion
// stands.
func (m *Machine) Lost(server order.ServerID, cause error) []Suspicion {
	w := m.find(server)
	if w == nil {
		return nil
	}
	return m.suspect(w, failed, cause)
}
