package turn

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// ErrRestarted says that a member came back in another life while its run goes on. It has forgotten
// its rounds.
var ErrRestarted = errors.New("turn: it came back in another life")

// Incarnation numbers the lives of one server's process. No life has the number 0.
type Incarnation uint64

// GateConfig says how much a gate keeps. A gate may hold one frame more than a bound of bytes says.
type GateConfig struct {
	// Frames and Bytes bound what was taken and waits for the next turn.
	Frames, Bytes int
	// Held bounds the frames of later runs that are held, for each sender; their bytes are bounded
	// by Bytes.
	Held int
	// Fault plants a bug. Production leaves it FaultNone.
	Fault Fault
}

// Verdict is what becomes of a frame.
type Verdict uint8

// The verdicts.
const (
	// Dropped frames are of no use: of an earlier run, or of a sender of which nothing is taken.
	Dropped Verdict = iota
	// Taken frames are in the next turn.
	Taken
	// Held frames are of a later run and wait for it.
	Held
	// Refused frames show that their sender is in another life: it is silenced.
	Refused
)

// Gate decides whose frames are taken, and keeps them and the opinions for the next turn. It serves
// a server for its whole life, run after run. Its methods are called one at a time.
type Gate struct {
	config GateConfig
	// run is the last one activated; open tells that its engine runs.
	run      uint64
	open     bool
	closed   bool
	frames   []Arrival
	bytes    int
	opinions []Opinion
	senders  []*Sender
}

// Sender is what a gate knows of one server. It keeps its identity while the places of servers
// change.
type Sender struct {
	// place is the one in the running group, -1 of a server that is not in it.
	place int
	// incarnation is that of the first frame in this run, 0 before.
	incarnation Incarnation
	// silenced tells that its frames of this run are not wanted any more. It may begin a later run
	// before this server does.
	silenced bool
	// banned tells that frames of later runs are not wanted, either: it sent what is no frame.
	banned bool
	// suspected tells what the last opinion on it was.
	suspected bool
	// held are frames of later runs, in the lane's order.
	held      []heldFrame
	heldBytes int
	early     earlySuspicion
}

type heldFrame struct {
	run         uint64
	incarnation Incarnation
	frame       []byte
}

// earlySuspicion is what the detector says of a run that it watches already and that has yet to
// begin here; run 0 stands for nothing.
type earlySuspicion struct {
	run   uint64
	cause error
}

// NewSender makes a sender that is in no group.
func NewSender() *Sender { return &Sender{place: -1} }

// Member reports whether the sender is in the running group.
func (s *Sender) Member() bool { return s.place >= 0 }

func (s *Sender) releaseHeld() { s.held, s.heldBytes = nil, 0 }

// NewGate makes a gate that no run has opened yet.
func NewGate(config GateConfig) *Gate { return &Gate{config: config} }

// SetSenders replaces the senders. The place of a sender in the list is the name of its server.
func (g *Gate) SetSenders(senders []*Sender) { g.senders = senders }

// Sender is that of a server.
func (g *Gate) Sender(server order.ServerID) *Sender { return g.senders[server] }

// Dismiss takes nothing more from a sender that is in the list no longer.
func (g *Gate) Dismiss(s *Sender) {
	s.banned = true
	s.releaseHeld()
}

// Full reports whether a frame has to wait for room: until Take, Activate, End, or the silence of
// its sender.
func (g *Gate) Full(s *Sender, run uint64) bool {
	switch {
	case g.closed || s.banned:
		return false
	case run > g.run:
		return len(s.held) >= g.config.Held || s.heldBytes >= g.config.Bytes
	default:
		return g.takes(s, run) && (len(g.frames) >= g.config.Frames || g.bytes >= g.config.Bytes)
	}
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
	return Taken
}

// Malformed takes note of bytes that are no frame of any run. It reports whether that is news.
func (g *Gate) Malformed(s *Sender, cause error) bool {
	if g.closed || s.banned {
		return false
	}
	g.Dismiss(s)
	g.gone(s, cause)
	return true
}

// gone drops whatever else comes from the sender in this run, and says so to the machine.
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

// Silence drops whatever else comes from a server in this run. The machine asks for it.
func (g *Gate) Silence(server order.ServerID) { g.senders[server].silenced = true }

// Suspect takes the detector's suspicion of a server that it does not suspect yet. That of a later
// run waits for that run.
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

// Trust takes a suspicion back. The machine judges whether it may be.
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

// Waiting counts the frames that wait for the next turn.
func (g *Gate) Waiting() int { return len(g.frames) }

// Opinions counts the opinions that wait for the next turn.
func (g *Gate) Opinions() int { return len(g.opinions) }

// Holds counts the frames of later runs that are held for a sender.
func (g *Gate) Holds(s *Sender) int { return len(s.held) }

// Take gives everything that waits, in exchange for an empty slice to fill.
func (g *Gate) Take(empty []Arrival) ([]Arrival, []Opinion) {
	frames, opinions := g.frames, g.opinions
	g.frames, g.opinions, g.bytes = empty, nil, 0
	return frames, opinions
}

// Activate begins a run with the frames that were held for it, and the suspicions. Members are the
// servers of its group by their places in the list of senders.
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

// End drops what waits and what comes of the run.
func (g *Gate) End() {
	g.open = false
	g.clear()
}

func (g *Gate) clear() {
	clear(g.frames)
	g.frames, g.opinions, g.bytes = g.frames[:0], nil, 0
}

// Close drops everything, now and later.
func (g *Gate) Close() {
	g.closed = true
	g.End()
	for _, s := range g.senders {
		s.releaseHeld()
	}
}
