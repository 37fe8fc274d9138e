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
	// Timeout is Δto: a server that is silent for so long is suspected. It is at least two heartbeats.
	Timeout time.Duration
	// Grace is how long a connection may be down. It is at most the timeout.
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
	if t.Grace == 0 {
		t.Grace = min(DefaultGrace, t.Timeout)
	}
	if t.Heartbeat < 0 || t.Timeout < 2*t.Heartbeat || t.Grace < 0 || t.Grace > t.Timeout {
		return t, fmt.Errorf("detector: heartbeats every %v, a timeout of %v and a grace of %v make no sense: the timeout is at least two heartbeats and the grace",
			t.Heartbeat, t.Timeout, t.Grace)
	}
	return t, nil
}

// Suspicion is a server that is suspected, and why.
type Suspicion struct {
	Server order.ServerID
	Cause  error
}

// Machine is the detector of one server in one generation. Time goes in with every call and never comes from a clock; the methods are called one at a
// time. Methods that give a Suspicion give it once for each server.
type Machine struct {
	timing       Timing
	predecessors []watched
	nextBeat     time.Time
	lastTick     time.Time
}

// watched is one predecessor.
type watched struct {
	server       order.ServerID
	incarnation  rdmanet.Incarnation // that sent the first heartbeat, 0 before
	deadline     time.Time           // of the next heartbeat
	down         bool                // its connection
	downDeadline time.Time
	suspected    bool
}

// NewMachine watches the predecessors, each of which has a whole timeout for its first heartbeat. The first own heartbeat is due at once.
func NewMachine(timing Timing, predecessors []order.ServerID, now time.Time) (*Machine, error) {
	timing, err := timing.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Machine{timing: timing, nextBeat: now, lastTick: now}
	for _, server := range predecessors {
		m.predecessors = append(m.predecessors, watched{server: server, deadline: now.Add(timing.Timeout)})
	}
	return m, nil
}

// Next is when Tick has something to do.
func (m *Machine) Next() time.Time {
	next := m.nextBeat
	for i := range m.predecessors {
		w := &m.predecessors[i]
		if w.suspected {
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
		case w.suspected:
		case !now.Before(w.deadline):
			suspicions = append(suspicions, w.suspect(fmt.Errorf("%w for %v", ErrSilent, m.timing.Timeout))...)
		case w.down && !now.Before(w.downDeadline):
			suspicions = append(suspicions, w.suspect(fmt.Errorf("%w for %v", ErrDisconnected, m.timing.Grace))...)
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
		w.deadline = now.Add(m.timing.Timeout)
		w.downDeadline = now.Add(m.timing.Grace)
	}
}

func (w *watched) suspect(cause error) []Suspicion {
	if w.suspected {
		return nil
	}
	w.suspected = true
	return []Suspicion{{w.server, cause}}
}

func (m *Machine) find(server order.ServerID) *watched {
	for i := range m.predecessors {
		if m.predecessors[i].server == server {
			return &m.predecessors[i]
		}
	}
	return nil
}

// Heard takes a heartbeat of this generation.
func (m *Machine) Heard(server order.ServerID, incarnation rdmanet.Incarnation, now time.Time) []Suspicion {
	w := m.find(server)
	if w == nil {
		return nil
	}
	if w.incarnation == 0 {
		w.incarnation = incarnation
	}
	if w.incarnation != incarnation {
		return w.suspect(fmt.Errorf("%w as incarnation %v", ErrRestarted, incarnation))
	}
	w.deadline = now.Add(m.timing.Timeout)
	return nil
}

// Forget watches the server no more.
func (m *Machine) Forget(server order.ServerID) {
	if w := m.find(server); w != nil {
		w.suspected = true
	}
}

// Disconnected notes that the connection is down.
func (m *Machine) Disconnected(server order.ServerID, now time.Time) {
	if w := m.find(server); w != nil && !w.down {
		w.down, w.downDeadline = true, now.Add(m.timing.Grace)
	}
}

// Connected notes that the connection is up.
func (m *Machine) Connected(server order.ServerID) {
	if w := m.find(server); w != nil {
		w.down = false
	}
}

// Restarted takes the news that a server is there as that incarnation. One that was not heard in this generation yet may be in its first life there.
func (m *Machine) Restarted(server order.ServerID, incarnation rdmanet.Incarnation) []Suspicion {
	if w := m.find(server); w != nil && w.incarnation != 0 && w.incarnation != incarnation {
		return w.suspect(fmt.Errorf("%w as incarnation %v", ErrRestarted, incarnation))
	}
	return nil
}

// Unreachable takes the news that a lane to that incarnation of a server, 0 if it never answered, broke for good. It tells whether
// the server is watched here at all.
func (m *Machine) Unreachable(server order.ServerID, incarnation rdmanet.Incarnation, cause error) (suspicions []Suspicion, watched bool) {
	w := m.find(server)
	if w == nil {
		return nil, false
	}
	if incarnation != 0 && w.incarnation != 0 && incarnation != w.incarnation {
		return nil, true
	}
	return w.suspect(cause), true
}
