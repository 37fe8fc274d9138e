package stream

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Bounds of a configuration.
const (
	// EntriesMax bounds Config.Entries.
	EntriesMax = 1 << 16
	// RingSizeMax bounds Config.RingSize, in bytes.
	RingSizeMax = 1 << 30
)

// Errors of this package.
var (
	// ErrConfig: a configuration, or a member list, does not hold together.
	ErrConfig = errors.New("bad stream configuration")
	// ErrFull: the writer has no room for the entry now. It is offered again when the child's
	// position has moved, or writes have completed.
	ErrFull = errors.New("no room for the entry")
	// ErrNumber: the entry offered is not the next one.
	ErrNumber = errors.New("not the next entry")
	// ErrTooLarge: the entry is larger than Config.EntryMax.
	ErrTooLarge = errors.New("entry too large")
	// ErrMember: no such member.
	ErrMember = errors.New("no such member")
	// ErrRecord: the ring holds what no writer writes.
	ErrRecord = errors.New("bad record in a ring")
)

// Config is what the writers and carriers of a stream agree on.
type Config struct {
	// Writers are the members of the parent, Carriers those of the child, ascending. A ServerID
	// names the same process for as long as the machine that is told it.
	Writers, Carriers []order.ServerID
	// Self is this member: one of Writers for a Writer, of Carriers for a Carrier. One that is not
	// has no part in it until SetMembers names it.
	Self order.ServerID
	// Stretch is how many entries in a row have the same writers and carriers, at least 1. A
	// carrier that is new in a stretch waits for the log to have the one before; one that was in it
	// already does not.
	Stretch uint64
	// Patience is how long a member watches the position stand still before it takes over, in
	// ticks, at least 1.
	Patience uint64
	// Entries bounds how many entries are on their way, 1 to EntriesMax.
	Entries int
	// EntryMax bounds an entry, in bytes, at least 1.
	EntryMax int
	// RingSize is the size of a ring in bytes: a multiple of 8, at least twice
	// RecordSize(EntryMax), at most RingSizeMax. A writer keeps as much in memory. Rings go through
	// all of their memory, over and over: a member whose rings fit into its processor's cache
	// together is several times as quick.
	RingSize int
	// Depth bounds the writes outstanding to one carrier, at least 2.
	Depth int
	// Fault plants a bug, to prove that a checker finds it. Production leaves it FaultNone.
	Fault Fault
}

// check gives ErrConfig with the reason.
func (c *Config) check() error {
	switch {
	case c.Stretch < 1:
		return fmt.Errorf("%w: a stretch of %d entries, want at least 1", ErrConfig, c.Stretch)
	case c.Patience < 1:
		return fmt.Errorf("%w: a patience of %d ticks, want at least 1", ErrConfig, c.Patience)
	case c.Entries < 1 || c.Entries > EntriesMax:
		return fmt.Errorf("%w: %d entries, want 1 to %d", ErrConfig, c.Entries, EntriesMax)
	case c.RingSize < 0 || c.RingSize > RingSizeMax || c.RingSize%wordSize != 0:
		return fmt.Errorf("%w: a ring of %d bytes, want a multiple of %d up to %d", ErrConfig,
			c.RingSize, wordSize, RingSizeMax)
	case c.EntryMax < 1 || c.EntryMax > c.RingSize || 2*RecordSize(c.EntryMax) > c.RingSize:
		return fmt.Errorf("%w: entries of up to %d bytes in a ring of %d; want room for two "+
			"with their records", ErrConfig, c.EntryMax, c.RingSize)
	case c.Depth < 2:
		return fmt.Errorf("%w: %d writes outstanding, want at least 2", ErrConfig, c.Depth)
	case c.Fault >= faultEnd:
		return fmt.Errorf("%w: fault %d", ErrConfig, c.Fault)
	}
	return checkMembers(c.Writers, c.Carriers)
}

// checkMembers gives ErrConfig unless both lists are ascending without repeats, and not empty.
func checkMembers(writers, carriers []order.ServerID) error {
	for _, members := range [][]order.ServerID{writers, carriers} {
		if len(members) == 0 {
			return fmt.Errorf("%w: a group without members", ErrConfig)
		}
		for i := 1; i < len(members); i++ {
			if members[i-1] >= members[i] {
				return fmt.Errorf("%w: members %v, want them ascending and each once", ErrConfig,
					members)
			}
		}
	}
	return nil
}

// tolerated is how many of n members may crash.
func tolerated(n int) int { return (n - 1) / 2 }

// seat is a member's place among the members of its group.
type seat struct {
	place, of int // place is -1 for who is no member
}

func seatOf(members []order.ServerID, member order.ServerID) seat {
	place, exact := slices.BinarySearch(members, member)
	if !exact {
		place = -1
	}
	return seat{place, len(members)}
}

// taken tells whether there is a member in the seat.
func (s seat) taken() bool { return s.place >= 0 }

// rank is a seat's place in the line of those who act on an entry, which begins one further on for
// each stretch. The first 1 + tolerated act at once. A seat that nobody has comes behind all.
func (c *Config) rank(s seat, number uint64) int {
	if !s.taken() {
		return s.of
	}
	rank := s.place - int((number-1)/c.Stretch%uint64(s.of))
	if rank < 0 {
		rank += s.of
	}
	return rank
}

// eager tells whether a member acts on an entry at once.
func (c *Config) eager(s seat, number uint64) bool {
	if c.Fault == FaultLoneWriter {
		return c.rank(s, number) == 0
	}
	return c.rank(s, number) <= tolerated(s.of)
}

// takeover is how many ticks after the position stood still a member acts on an entry that it is
// not the first to act on. They do so one after the other, so that not all do.
func (c *Config) takeover(s seat, number uint64) uint64 {
	return c.Patience * uint64(1+max(0, c.rank(s, number)-tolerated(s.of)))
}

// Fault is a bug to plant on purpose: whoever judges a stream shows with it that the judge can say
// no.
type Fault uint8

const (
	// FaultNone is the stream as it should be.
	FaultNone Fault = iota
	// FaultLoneWriter has one member write an entry to one carrier, and nobody take over: an entry
	// is lost with its writer.
	FaultLoneWriter
	// FaultNoTakeover has nobody take over.
	FaultNoTakeover
	// FaultEarlyReuse takes a write that has landed for one that was read, and writes over it.
	FaultEarlyReuse
	// FaultForgottenRing forgets what is in a ring that is taken away.
	FaultForgottenRing
	// FaultGreedyRing writes an entry wherever it fits, without keeping room for those before it.
	FaultGreedyRing
	faultEnd
)

// String names the fault.
func (f Fault) String() string {
	switch f {
	case FaultNone:
		return "none"
	case FaultLoneWriter:
		return "lone-writer"
	case FaultNoTakeover:
		return "no-takeover"
	case FaultEarlyReuse:
		return "early-reuse"
	case FaultForgottenRing:
		return "forgotten-ring"
	case FaultGreedyRing:
		return "greedy-ring"
	default:
		return fmt.Sprintf("fault(%d)", uint8(f))
	}
}

// takesOver tells whether somebody takes over, as it should be.
func (f Fault) takesOver() bool { return f != FaultNoTakeover && f != FaultLoneWriter }
