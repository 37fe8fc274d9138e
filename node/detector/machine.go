package detector

import (
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/internal/beat"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Defaults of Timing.
const (
	DefaultHeartbeat = 500 * time.Millisecond
	DefaultTimeout   = 5 * time.Second
	DefaultGrace     = time.Second
)

// Causes of suspicions. Match them with errors.Is.
var (
	ErrSilent       = errors.New("no heartbeat")
	ErrDisconnected = errors.New("its connection is down")
	ErrRestarted    = errors.New("it restarted")
	ErrAccused      = errors.New("another server cannot reach it")
)

// Timing configures periods and timeouts. Zero values mean the defaults.
type Timing struct {
	// Heartbeat is the period Δhb of heartbeats.
	Heartbeat time.Duration
	// Quiet is their period while the sender has nothing under way (Machine.SetQuiet). The default
	// is five heartbeats, but at most 5/8 of the timeout, and three heartbeats less than that. It
	// is at least Heartbeat.
	Quiet time.Duration
	// Timeout is Δto: the shortest silence after which a server is suspected. It is at least two
	// heartbeats.
	Timeout time.Duration
	// TimeoutMax bounds the timeout as it adapts. The default is 12 timeouts.
	TimeoutMax time.Duration
	// Grace is how long a connection may be down. It is at most Timeout, and adapts up to Timeout.
	Grace time.Duration
}

// withDefaults fills in zero values and returns an error for invalid ones.
func (t Timing) withDefaults() (Timing, error) {
	if t.Heartbeat == 0 {
		t.Heartbeat = DefaultHeartbeat
	}
	if t.Timeout == 0 {
		t.Timeout = DefaultTimeout
	}
	if t.Quiet == 0 {
		// A pause of this process that ends after its own heartbeat was due must be noticed before
		// the others' are missed (Tick).
		t.Quiet = max(min(5*t.Heartbeat, t.Timeout/8*5, t.Timeout-3*t.Heartbeat), t.Heartbeat)
	}
	if t.TimeoutMax == 0 {
		t.TimeoutMax = timeoutMaxFactor * t.Timeout
	}
	if t.Grace == 0 {
		t.Grace = min(DefaultGrace, t.Timeout)
	}
	if t.Heartbeat < 0 || t.Timeout < 2*t.Heartbeat || t.TimeoutMax < t.Timeout || t.Grace < 0 ||
		t.Grace > t.Timeout || t.Quiet < t.Heartbeat || t.Quiet > t.Timeout {
		return t, fmt.Errorf("detector: invalid timing: heartbeats every %v, quiet ones every %v, "+
			"a timeout of %v to %v, a grace of %v; the timeout must be at least two heartbeats, a "+
			"quiet one and the grace", t.Heartbeat, t.Quiet, t.Timeout, t.TimeoutMax, t.Grace)
	}
	return t, nil
}

// timeoutMaxFactor is the default of TimeoutMax, in timeouts.
const timeoutMaxFactor = 12

// Suspicion is a server that is suspected, and why, or a server that is no longer suspected.
type Suspicion struct {
	Server    order.ServerID
	Cause     error // nil if TakenBack
	TakenBack bool
}

// Machine is the detector of one server in one run. The caller passes in the time and makes one
// call at a time. Methods that return a Suspicion return it once, until it is taken back.
type Machine struct {
	timing       Timing
	predecessors []watched
	nextBeat     time.Time
	lastTick     time.Time
	quiet        bool
	final        bool // if set, no suspicion is taken back
}

// watched is one predecessor.
type watched struct {
	server       order.ServerID
	incarnation  rdmanet.Incarnation // of the first heartbeat's sender; 0 before that heartbeat
	deadline     time.Time           // of the next heartbeat
	down         bool                // its connection is down
	downDeadline time.Time
	state        opinion
	link         link
}

// opinion is the machine's opinion of a predecessor.
type opinion uint8

const (
	trusted opinion = iota
	// silent, disconnected and gone are suspicions because of the timeout, the grace, and a report
	// of the fabric. A heartbeat takes them back.
	silent
	disconnected
	gone
	// failed is never taken back.
	failed
)

// NewMachine watches the predecessors. Each of them has a whole timeout for its first heartbeat.
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

// learn takes over the knowledge of the links from the machine of an earlier run, or nil.
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

// Next returns when Tick has something to do.
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

// SetQuiet records whether this server has nothing under way, before Tick. Then a failure of this
// server holds nobody up, and its heartbeats come every Timing.Quiet.
func (m *Machine) SetQuiet(quiet bool) { m.quiet = quiet }

// UntilNext returns how long it is until the next heartbeat at most. A heartbeat that is sent after
// a Tick says so.
func (m *Machine) UntilNext(now time.Time) time.Duration { return m.nextBeat.Sub(now) }

// Tick reports whether heartbeats are due now, and returns the servers that become suspected.
func (m *Machine) Tick(now time.Time) (due bool, suspicions []Suspicion) {
	if heartbeat := m.timing.Heartbeat; now.Sub(m.lastTick) > 2*heartbeat &&
		now.Sub(m.nextBeat) > heartbeat {
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
	period := m.timing.Heartbeat
	if m.quiet {
		period = m.timing.Quiet
	}
	due = !now.Before(m.nextBeat)
	if next := beat.Next(now, period); due || next.Before(m.nextBeat) {
		m.nextBeat = next
	}
	return due, suspicions
}

// paused gives every predecessor a fresh timeout, since this process itself stood still.
func (m *Machine) paused(now time.Time) {
	for i := range m.predecessors {
		w := &m.predecessors[i]
		w.deadline = now.Add(w.link.timeout(m.timing))
		w.downDeadline = now.Add(w.link.grace)
		w.link.last = time.Time{} // this process caused the gap
	}
}

// suspect worsens the opinion of a predecessor. It returns a Suspicion if the predecessor was
// trusted.
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

// Heard handles a heartbeat of this run. The next one comes after the period at most, as this one
// says; 0 means Timing.Heartbeat. It takes back suspicions that a heartbeat proves wrong.
func (m *Machine) Heard(server order.ServerID, incarnation rdmanet.Incarnation,
	period time.Duration, now time.Time) []Suspicion {
	w := m.find(server)
	if w == nil {
		return nil
	}
	if w.incarnation == 0 {
		w.incarnation = incarnation
	}
	return m.heard(w, incarnation, period, now)
}

// HeardElsewhere handles a heartbeat of an earlier or a later run of the same generation.
func (m *Machine) HeardElsewhere(server order.ServerID, incarnation rdmanet.Incarnation, later bool,
	period time.Duration, now time.Time) []Suspicion {
	w := m.find(server)
	if w == nil || !later && w.incarnation != 0 && w.incarnation != incarnation {
		return nil // not watched here; or a late heartbeat of its previous incarnation
	}
	return m.heard(w, incarnation, period, now)
}

func (m *Machine) heard(w *watched, incarnation rdmanet.Incarnation, period time.Duration,
	now time.Time) []Suspicion {
	if w.incarnation != 0 && w.incarnation != incarnation {
		return m.suspect(w, failed, fmt.Errorf("%w as incarnation %v", ErrRestarted, incarnation))
	}
	if period == 0 {
		period = m.timing.Heartbeat
	}
	period = min(period, m.timing.Quiet) // a member that lies may not be silent for longer
	if w.state == trusted {
		w.link.heard(m.timing, period, now)
	}
	w.deadline = now.Add(w.link.timeout(m.timing))
	if w.state == trusted || w.state == failed || w.down {
		return nil // a heartbeat that came while the connection is down says nothing about now
	}
	w.link.mistake(m.timing, w.state, period, now)
	w.deadline = now.Add(w.link.timeout(m.timing))
	w.state = trusted
	return []Suspicion{{Server: w.server, TakenBack: true}}
}

// Forget stops watching the server.
func (m *Machine) Forget(server order.ServerID) {
	if w := m.find(server); w != nil {
		w.state = failed
	}
}

// Disconnected records that the connection is down.
func (m *Machine) Disconnected(server order.ServerID, now time.Time) {
	if w := m.find(server); w != nil && !w.down {
		w.down, w.downDeadline = true, now.Add(w.link.grace)
	}
}

// Connected records that the connection is up.
func (m *Machine) Connected(server order.ServerID) {
	if w := m.find(server); w != nil {
		w.down = false
	}
}

// Restarted handles the report that a server runs as that incarnation. If it was not heard in this
// run yet, that may be its first incarnation in the run.
func (m *Machine) Restarted(server order.ServerID, incarnation rdmanet.Incarnation) []Suspicion {
	if w := m.find(server); w != nil && w.incarnation != 0 && w.incarnation != incarnation {
		return m.suspect(w, failed, fmt.Errorf("%w as incarnation %v", ErrRestarted, incarnation))
	}
	return nil
}

// concerns reports whether a report about an incarnation (0 if it never answered) may be about the
// one that takes part in this run. It also returns true for a server that this machine does not
// watch.
func (m *Machine) concerns(server order.ServerID, incarnation rdmanet.Incarnation) bool {
	w := m.find(server)
	return w == nil || incarnation == 0 || w.incarnation == 0 || incarnation == w.incarnation
}

// Unreachable handles the fabric's report that that incarnation of a server (0 if it never
// answered) is not there. A later heartbeat proves it wrong.
func (m *Machine) Unreachable(server order.ServerID, incarnation rdmanet.Incarnation,
	cause error) []Suspicion {
	w := m.find(server)
	if w == nil || !m.concerns(server, incarnation) {
		return nil
	}
	return m.suspect(w, gone, cause)
}

// Lost handles the report that messages between a server and others are lost in this run. The
// suspicion stands.
func (m *Machine) Lost(server order.ServerID, cause error) []Suspicion {
	w := m.find(server)
	if w == nil {
		return nil
	}
	return m.suspect(w, failed, cause)
}
