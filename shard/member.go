package shard

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Errors of a member's end; match them with errors.Is.
var (
	// ErrRemoved says that the server is no member of the chain any more.
	ErrRemoved = errors.New("removed from the membership by the operator")
	// ErrFork says that a decision goes on from before a block that is durable.
	ErrFork = errors.New("fork: the shard goes on without a durable block")
)

// Timing is what a member waits for, in ticks. All members should have the same.
type Timing struct {
	// Grace is how long a proposer with enough promises waits for the others, and Patience how long
	// it waits for enough. See generation.Config.
	Grace, Patience int
	// Hearsay is how long what a member said of itself counts.
	Hearsay int
	// Announce is the time between two announcements to all.
	Announce int
	// Stall is for how long a group may get nowhere before its members may be asked to start anew
	// without it; Outside the same for a member that knows that it is outside of the majority.
	Stall, Outside int
	// Full is how long a member whose disk is full holds up its group before it steps out of it.
	Full int
	// Base is how long a member waits for the blocks up to a decision's base before it leaves the
	// decision to the others.
	Base int
	// Enter is the time between two wishes of one server, and Mark between two marks for one.
	Enter, Mark int
	// Removed is how long a member stays that was removed, and RemovedInDoubt the same where it
	// does not know that its removal is durable.
	Removed, RemovedInDoubt int
}

// DefaultTiming is production's, for ticks of a tenth of a second.
func DefaultTiming() Timing {
	return Timing{
		Grace: 15, Patience: 10, Hearsay: 50, Announce: 5, Stall: 20, Outside: 10, Full: 5, Base: 150,
		Enter: 10, Mark: 20, Removed: 10, RemovedInDoubt: 100,
	}
}

// Disk is what a member's process knows of its disk when it starts.
type Disk struct {
	ID generation.DiskID
	// Original says that the disk was made with the home. Another counts only once it is admitted.
	Original bool
	// New says in words why the disk is not the original one.
	New string
	// Perhaps says that the disk may have held more than it shows: something other than zeros
	// followed the last whole record.
	Perhaps bool
	// State is what the disk holds of the synod, and Held are the rounds whose contents it holds.
	State generation.State
	Held  [][32]byte
	// Gone says that an earlier process knew for good that the block at Former.Left removed it.
	Gone bool
}

// Config sets up a member.
type Config struct {
	Self   order.ServerID
	Disk   Disk
	Chain  Chain
	Timing Timing
	// Ticket is drawn at random for this process: its wishes count up from there.
	Ticket uint64
	// Perfect takes the failure detector at its word: members do not change.
	Perfect bool
	// APIAddress and Settings go into announcements.
	APIAddress, Settings string
	// Fault plants a bug; production leaves it FaultNone.
	Fault Fault
}

// ErrConfig says that a Config describes no member.
var ErrConfig = errors.New("shard: wrong configuration")

func (t Timing) check() error {
	for _, ticks := range []int{
		t.Grace, t.Patience, t.Hearsay, t.Announce, t.Stall, t.Outside, t.Full, t.Base, t.Enter, t.Mark,
		t.Removed, t.RemovedInDoubt,
	} {
		if ticks < 1 {
			return fmt.Errorf("%w: a time of %d ticks; want at least one", ErrConfig, ticks)
		}
	}
	return nil
}

// Fault is a bug to plant, to prove that a judge finds it.
type Fault uint8

// The faults; production has none.
const (
	FaultNone Fault = iota
)

// Member is the life of one member. It is a pure state machine; see the package comment.
type Member struct {
	config Config
	now    int // ticks since the process began
}

// New returns the member of a process that begins, from what its disk holds. ErrConfig, or
// generation.ErrConfig.
func New(config Config) (*Member, error) { return nil, errors.New("under construction") }

// Step takes one input.
func (m *Member) Step(input Input) {}

// Ready returns what is to be done now, in order, and forgets it. It is empty where everything is
// done or waits for an input.
func (m *Member) Ready() []Effect { return nil }

// View is what people and the driver see of a member.
type View struct {
	Mode Mode
	Why  string
	// Group is the run in which the engine works, nil for none. It is not changed.
	Group *Group
	// Stalled says that the run gets nowhere.
	Stalled bool
	// Learner says that the disk counts in no majority.
	Learner bool
	// Decided is the latest generation that was decided, as far as this member knows.
	Decided generation.Generation
}

// View returns what is to be seen of the member now.
func (m *Member) View() View { return View{} }
