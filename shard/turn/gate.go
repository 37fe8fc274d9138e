package turn

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// ErrRestarted says that a member came back in another life during its run. It has forgotten its
// rounds.
var ErrRestarted = errors.New("turn: it came back in another life")

// Incarnation numbers the lives of one server's process. No life has the number 0.
type Incarnation uint64

// GateConfig bounds what a gate keeps. A gate may exceed a bound of bytes by one frame.
type GateConfig struct {
	// Frames and Bytes bound the frames that were taken and wait for the next turn. One sender
	// fills three quarters of either, so that the others find room.
	Frames, Bytes int
	// Held bounds the held frames of later runs, for each sender. Bytes bounds their bytes.
	Held int
	// Fault plants a bug. Production leaves it FaultNone.
	Fault Fault
}

// Verdict says what happens to a frame.
type Verdict uint8

// The verdicts.
const (
	// Dropped frames are of no use: they belong to an earlier run, or their sender is ignored.
	Dropped Verdict = iota
	// Taken frames go into the next turn.
	Taken
	// Held frames belong to a later run and wait for it.
	Held
	// Refused frames show that their sender is in another life. The sender is silenced.
	Refused
)

// Gate decides which frames are taken, and keeps them and the opinions for the next turn. It serves
// a server for its whole life, run after run. Its methods must not be called concurrently.
type Gate struct {
	config GateConfig
	// run is the last activated run; open says that its engine runs.
	run      uint64
	open     bool
	closed   bool
	frames   []Arrival
	bytes    int
	turn     uint64 // counts how often frames were taken
	opinions []Opinion
	senders  []*Sender
}

// Sender is what a gate knows of one server. It keeps its identity while the places of servers
// change.
type Sender struct {
	// place is its place in the running group, -1 if it is not in the group.
	place int
	// incarnation is that of its first frame in this run, 0 before that.
	incarnation Incarnation
	// frames and bytes are what it has in the gate's frames, if turn is the gate's.
	frames, bytes int
	turn          uint64
	// silenced says that its frames of this run are dropped. It may begin a later run before this
	// server does.
	silenced bool
	// banned says that its frames of later runs are dropped as well: it sent bytes that are no
	// frame.
	banned bool
	// suspected says that the last opinion on it was not Trust.
	suspected bool
	// held are its frames of later runs, in the lane's order.
	held      []heldFrame
	heldBytes int
	early     earlySuspicion
}

type heldFrame struct {
	run         uint64
	incarnation Incarnation
	frame       []byte
}

// earlySuspicion is the detector's suspicion in a run that it already monitors and that has yet to
// begin here. Run 0 means none.
type earlySuspicion struct {
	run   uint64
	cause error
}

// NewSender returns a sender that is in no group.
func NewSender() *Sender { return &Sender{place: -1} }

// Member reports whether the sender is in the running group.
func (s *Sender) Member() bool { return s.place >= 0 }

func (s *Sender) releaseHeld() { s.held, s.heldBytes = nil, 0 }

// NewGate returns a gate with no open run.
func NewGate(config GateConfig) *Gate { return &Gate{config: config} }

// SetSenders replaces the senders. The index of a sender in the list is the ID of its server.
func (g *Gate) SetSenders(senders []*Sender) { g.senders = senders }

// Sender returns the sender of a server.
func (g *Gate) Sender(server order.ServerID) *Sender { return g.senders[server] }

// Dismiss drops everything more that comes from a sender that is no longer in the list.
func (g *Gate) Dismiss(s *Sender) {
	s.banned = true
	s.releaseHeld()
}

// Full reports whether a frame has to wait for room. It waits until Take, Activate, End, or until
// its sender is silenced.
func (g *Gate) Full(s *Sender, run uint64) bool {
	switch {
	case g.closed || s.banned:
		return false
	case run > g.run:
		return len(s.held) >= g.config.Held || s.heldBytes >= g.config.Bytes
	default:
		return g.takes(s, run) && (len(g.frames) >= g.config.Frames || g.bytes >= g.config.Bytes ||
			s.turn == g.turn && g.fills(s))
	}
}

// fills reports whether a sender has its share of the frames of this turn.
func (g *Gate) fills(s *Sender) bool {
	return 4*s.frames >= 3*g.config.Frames || 4*s.bytes >= 3*g.config.Bytes
}

// takes reports whether a frame goes into the next turn.
func (g *Gate) takes(s *Sender, run uint64) bool {
	current := run == g.run || run < g.run && g.config.Fault == FaultStaleFrames
	return current && g.open && s.place >= 0 && !s.silenced
}

// Admit judges a frame for which there is room, and keeps it if it is of use.
func (g *Gate) Admit(s *Sender, incarnation Incarnation, run uint64, frame []byte) Verdict {
	switch {
	case g.closed || s.banned:
	case run > g.run:
		s.held = append(s.held, heldFrame{run, incarnation, frame})
		s.heldBytes += len(frame)
		return Held
	case g.takes(s, run):
		return g.take(s, incarnation, frame)
	}
	return Dropped
}

// take keeps a frame of the running run.
func (g *Gate) take(s *Sender, incarnation Incarnation, frame []byte) Verdict {
	if s.incarnation == 0 {
		s.incarnation = incarnation
	}
	if s.incarnation != incarnation {
		was := s.incarnation
		g.gone(s, fmt.Errorf("%w: incarnation %d after %d", ErrRestarted, incarnation, was))
		return Refused
	}
	g.frames = append(g.frames, Arrival{order.ServerID(s.place), frame})
	g.bytes += len(frame)
	if s.turn != g.turn {
		s.frames, s.bytes, s.turn = 0, 0, g.turn
	}
	s.frames++
	s.bytes += len(frame)
	return Taken
}

// Malformed records that a sender sent bytes that are no frame of any run. It reports whether that
// is new.
func (g *Gate) Malformed(s *Sender, cause error) bool {
	if g.closed || s.banned {
		return false
	}
	g.Dismiss(s)
	g.gone(s, cause)
	return true
}

// gone drops everything more from the sender in this run, and tells the machine.
func (g *Gate) gone(s *Sender, cause error) {
	s.silenced = true
	g.note(s, Opinion{Kind: Gone, Cause: cause})
}

// note keeps an opinion on a member of the running group.
func (g *Gate) note(s *Sender, o Opinion) {
	if g.open && s.place >= 0 {
		s.suspected = o.Kind != Trust
		o.Server = order.ServerID(s.place)
		g.opinions = append(g.opinions, o)
	}
}

// Silence drops everything more from a server in this run. The machine asks for it.
func (g *Gate) Silence(server order.ServerID) { g.senders[server].silenced = true }

// Suspect takes the detector's suspicion of a server. It does nothing if the server is suspected
// already. A suspicion in a later run waits for that run.
func (g *Gate) Suspect(run uint64, server order.ServerID, cause error) {
	if int(server) >= len(g.senders) {
		return
	}
	s := g.senders[server]
	switch {
	case run > g.run:
		s.early = earlySuspicion{run, cause}
	case run == g.run && !s.suspected:
		g.note(s, Opinion{Kind: Suspect, Cause: cause})
	}
}

// Trust withdraws a suspicion. The machine decides whether that is allowed.
func (g *Gate) Trust(run uint64, server order.ServerID) {
	if int(server) >= len(g.senders) {
		return
	}
	s := g.senders[server]
	if s.early.run == run {
		s.early = earlySuspicion{}
	}
	if run == g.run && s.suspected {
		g.note(s, Opinion{Kind: Trust})
	}
}

// Probe has the engine of a run show whether the run still goes on, if it can: a server announced
// that it left the run. The engine may have been told to suspect it before, in error.
func (g *Gate) Probe(run uint64) {
	if g.open && run == g.run {
		g.opinions = append(g.opinions, Opinion{Kind: Probe})
	}
}

// Waiting returns the number of frames that wait for the next turn.
func (g *Gate) Waiting() int { return len(g.frames) }

// Opinions returns the number of opinions that wait for the next turn.
func (g *Gate) Opinions() int { return len(g.opinions) }

// Holds returns the number of frames of later runs that are held for a sender.
func (g *Gate) Holds(s *Sender) int { return len(s.held) }

// Take returns everything that waits, in exchange for an empty slice to fill.
func (g *Gate) Take(empty []Arrival) ([]Arrival, []Opinion) {
	frames, opinions := g.frames, g.opinions
	g.frames, g.opinions, g.bytes = empty, nil, 0
	g.turn++
	return frames, opinions
}

// Activate begins a run with the frames and suspicions that were held for it. Members are the
// servers of its group, as indexes into the list of senders.
func (g *Gate) Activate(run uint64, members []order.ServerID) {
	g.run, g.open = run, true
	g.clear()
	for _, s := range g.senders {
		*s = Sender{place: -1, held: s.held, heldBytes: s.heldBytes, early: s.early}
	}
	for place, member := range members {
		g.senders[member].place = place
	}
	for _, s := range g.senders {
		if s.early.run == run {
			g.note(s, Opinion{Kind: Suspect, Cause: s.early.cause})
		}
		if s.early.run <= run {
			s.early = earlySuspicion{}
		}
		held := s.held
		s.releaseHeld()
		for _, h := range held {
			g.Admit(s, h.incarnation, h.run, h.frame)
		}
	}
}

// End drops the frames that wait, and those of the run that come later.
func (g *Gate) End() {
	g.open = false
	g.clear()
}

func (g *Gate) clear() {
	clear(g.frames)
	g.frames, g.opinions, g.bytes = g.frames[:0], nil, 0
	g.turn++
}

// Close drops everything, now and later.
func (g *Gate) Close() {
	g.closed = true
	g.End()
	for _, s := range g.senders {
		s.releaseHeld()
	}
}
