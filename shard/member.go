package shard

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Errors of a member's end; match them with errors.Is.
var (
	// ErrRemoved says that the server is no longer a member of the chain.
	ErrRemoved = errors.New("removed from the membership by the operator")
	// ErrFork says that a decision goes on from a point before a durable block.
	ErrFork = errors.New("fork: the shard continues without a durable block")
)

// Timing has the times that a member waits, in ticks. All members should have the same.
type Timing struct {
	// Grace is how long a proposer with enough promises waits for the others. Patience is how long
	// it waits for enough. See generation.Config.
	Grace, Patience int
	// Hearsay is how long a member's announcement counts.
	Hearsay int
	// Announce is the time between two announcements to all. For a member that rests (Member.Rest)
	// it is Rest, or less if it gets a tick in the last Announce-1 ticks before.
	Announce, Rest int
	// Stall is how long a group may make no progress before its members may be asked to start anew
	// without it. Outside is the same for a member that knows that it is outside of the majority.
	// Stuck is the same for a member that does not go on without members that it suspects.
	Stall, Outside, Stuck int
	// Full is how long a member with a full disk holds up its group before it steps out of the
	// group.
	Full int
	// Base is how long a member waits for the blocks up to a decision's base before it leaves the
	// decision to the others.
	Base int
	// Enter is the time between two wishes of one server, and Mark between two marks for one.
	Enter, Mark int
	// Bench is the number of the last 30 ticks in which the rounds may wait for one member alone.
	Bench int
	// Trouble is how long a removal or a bench is remembered. For each one after the first, a
	// member must have announced itself regularly for Steady before it may enter again. Gap is the
	// longest time between two announcements that counts as regular.
	Trouble, Steady, Gap int
	// Removed is the minimum time that a removed member stays. Leaver is how long the others talk
	// to it once its removal is durable.
	Removed, Leaver int
}

// DefaultTiming returns production's timing, for ticks of a tenth of a second.
func DefaultTiming() Timing {
	return Timing{
		Grace: 15, Patience: 10, Hearsay: 50, Announce: 5, Rest: 10, Stall: 20, Outside: 10,
		Stuck: 1,
		Full:  5, Base: 150,
		Enter: 10, Mark: 20, Bench: 10, Trouble: 600, Steady: 30, Gap: 8, Removed: 10, Leaver: 30,
	}
}

// Disk is what a member's process knows of its disk when it starts.
type Disk struct {
	ID generation.DiskID
	// Original says that the disk was created with the home. Any other disk counts only once it is
	// admitted.
	Original bool
	// New says why the disk is not the original one, for people.
	New string
	// Perhaps says that the disk may have held more than it shows: something other than zeros
	// followed the last whole record. Doubt says what that was.
	Perhaps bool
	Doubt   string
	// State is the synod's state on the disk. Held are the rounds whose contents the disk holds.
	State generation.State
	Held  [][32]byte
	// Record is the last record on the disk, nil for none. The driver serves the contents of its
	// rounds to other servers.
	Record *Record
	// Gone says that an earlier process recorded, for good, that the block at Former.Left removed
	// this server.
	Gone bool
}

// Config sets up a member.
type Config struct {
	Self   order.ServerID
	Disk   Disk
	Chain  Chain
	Timing Timing
	// Ticket is a random number for this process. Its wishes count up from there.
	Ticket uint64
	// Home is the folder named in advice to people.
	Home string
	// APIAddress and Settings go into announcements.
	APIAddress, Settings string
	// Prompt says that the group's engines deliver promptly.
	Prompt bool
	// Fault and SynodFault plant a bug, here or in the synod. Production sets neither.
	Fault      Fault
	SynodFault generation.Fault
}

// ErrConfig says that a Config describes no member.
var ErrConfig = errors.New("shard: wrong configuration")

func (t Timing) check() error {
	for _, ticks := range []int{
		t.Grace, t.Patience, t.Hearsay, t.Announce, t.Rest, t.Stall, t.Outside, t.Stuck, t.Full,
		t.Base, t.Enter, t.Mark, t.Bench, t.Trouble, t.Steady, t.Gap, t.Removed, t.Leaver,
	} {
		if ticks < 1 {
			return fmt.Errorf("%w: a time of %d ticks; want at least one", ErrConfig, ticks)
		}
	}
	return nil
}

// Fault is a bug that a test plants to prove that a judge finds it.
type Fault uint8

// The faults; production has none.
const (
	FaultNone Fault = iota
	// FaultRecordNotPromised leaves the record out of a promise of a member that did not restart.
	FaultRecordNotPromised
	// FaultRecordLastOnly records the last complete round without the one before it.
	FaultRecordLastOnly
	// FaultRecordOfAnyValue counts the record of a round that was rerun with another value.
	FaultRecordOfAnyValue
	// FaultEngineLate begins a run with the engine that the chain named before the last block.
	FaultEngineLate
)

// job is the change of the chain under way; one at a time.
type job uint8

const (
	idle job = iota
	settling
	fetching
	settingAside
	replaying
)

// Member is the life of one member. It is a pure state machine; see the package comment.
type Member struct {
	config Config
	chain  Chain
	synod  *generation.Synod
	now    int // ticks since the process began
	job    job
	end    error

	view    View
	effects []Effect
	// announced is the tick of the last announcement to all.
	announced int
	// news says that something to announce has changed since the last announcement.
	news bool

	// peers are ascending by server.
	peers []peer
	// ticket is the ticket of this process's next entrance.
	ticket   uint64
	stopping bool

	forming
	running
	following
	leaving
}

// New returns the member of a new process, with the state of its disk. It returns ErrConfig or
// generation.ErrConfig if the configuration is wrong.
func New(config Config) (*Member, error) {
	if config.Chain == nil {
		return nil, fmt.Errorf("%w: no chain", ErrConfig)
	}
	if err := config.Timing.check(); err != nil {
		return nil, err
	}
	m := &Member{config: config, chain: config.Chain, ticket: config.Ticket, news: true}
	m.wishedAt = -config.Timing.Enter
	m.announced = -config.Timing.Announce
	m.perhaps, m.recorded = config.Disk.Perhaps, config.Disk.Record
	m.flushed = m.chain.Heights().Durable
	if err := m.newSynod(); err != nil {
		return nil, err
	}
	m.view.Mode, m.view.Why, m.view.Reason = Starting, "looking for the other nodes",
		because(Looking)
	m.view.Learner = m.learner()
	return m, nil
}

// Step takes one input.
func (m *Member) Step(input Input) {
	if m.end != nil {
		return
	}
	tick := false
	switch in := input.(type) {
	case Tick:
		m.now++
		tick = true
	case Linked:
		m.onLinked(in)
	case SynodReceived:
		m.synod.Receive(in.From, in.Message)
	case AnnouncementReceived:
		m.onAnnouncement(in)
	case WishReceived:
		m.onWish(in)
	case Progressed:
		m.onProgressed(in)
	case EonEnded:
		m.onEonEnded(in)
	case EngineHalted:
		m.onHalted(in)
	case Settled:
		m.onSettled(in)
	case Saved:
		m.onSaved()
	case SaveFailed:
		m.onSaveFailed(in)
	case Fetched:
		m.onFetched(in)
	case RoundHeld:
		m.onRoundHeld(in)
	case RoundMissing:
		m.onRoundMissing(in)
	case WasSetAside:
		m.onSetAside(in)
	case Replayed:
		m.onReplayed(in)
	case DiskFull:
		m.onDiskFull(in)
	case Failed:
		m.finish(in.Err)
	case Stopping:
		m.stopping, m.news = true, true
	}
	m.advance(tick)
}

// advance does what is due after an input. Calling it more often does no harm.
func (m *Member) advance(tick bool) {
	if m.end != nil {
		return
	}
	m.report() // before follow changes the chain again: it may have become shorter
	m.checkGroup()
	if m.synod.MustEnd() && m.group != nil && m.starting == nil {
		m.freeze(0) // Settled finds out whether the last round arrived here too
		m.setMode(Starting, because(Between), "the group restarts")
	}
	m.leave()
	if tick {
		m.askForRegroup()
		m.tickSynod()
	}
	if tick || m.called() {
		m.follow()
	}
	m.pump(tick)
	m.activate()
	if learner := m.learner(); m.view.Learner != learner {
		m.view.Learner, m.news = learner, true
		m.changed()
	}
}

// Ready returns the effects to carry out now, in order, and forgets them. It returns none if
// everything is done or waits for an input.
func (m *Member) Ready() []Effect {
	m.announce()
	effects := m.effects
	m.effects = nil
	return effects
}

func (m *Member) emit(e Effect) { m.effects = append(m.effects, e) }

// changed tells the driver that the view changed.
func (m *Member) changed() {
	if n := len(m.effects); n > 0 {
		if _, already := m.effects[n-1].(Changed); already {
			return
		}
	}
	m.emit(Changed{})
}

// finish ends this member for good.
func (m *Member) finish(err error) {
	if m.end != nil {
		return
	}
	if m.group != nil {
		m.freeze(0)
	}
	m.end = err
	kind := Broken
	switch {
	case errors.Is(err, ErrRemoved):
		kind = Removed
	case errors.Is(err, ErrFork):
		kind = Forked
	}
	m.setMode(Halted, because(kind), "%v", err)
	m.emit(End{err})
}

// View is the state of a member as people and the driver see it.
type View struct {
	Mode Mode
	// Why explains to people why the member does not order; Reason does so for programs.
	Why    string
	Reason Reason
	// Group is the run in which the engine works, nil for none. It must not be changed.
	Group *Group
	// Stalled says that the run makes no progress.
	Stalled bool
	// Learner says that the disk counts in no majority.
	Learner bool
	// Decided is the latest decided generation that this member knows.
	Decided generation.Generation
	// Between says that the member left the mode Ordering when it began to look for its next group.
	Between bool
}

// Decided returns the latest decision that this member knows, nil for none. It must not be changed.
func (m *Member) Decided() *generation.Decision { return m.synod.Decided() }

// View returns the present state of the member.
func (m *Member) View() View {
	view := m.view
	view.Group, view.Stalled = m.group, m.stalled
	if d := m.synod.Decided(); d != nil {
		view.Decided = d.Generation
	}
	return view
}

// setMode sets the member's mode and its reason. The text contains everything that the reason does.
func (m *Member) setMode(mode Mode, reason Reason, format string, arguments ...any) {
	why := fmt.Sprintf(format, arguments...)
	if m.view.Mode == mode && m.view.Why == why {
		return
	}
	if m.view.Mode != mode {
		m.view.Between = m.view.Mode == Ordering
	}
	m.view.Mode, m.view.Why, m.view.Reason = mode, why, reason
	m.news = true
	m.changed()
}
