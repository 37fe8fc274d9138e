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
	// ErrConfig is returned for an inconsistent configuration or member list.
	ErrConfig = errors.New("bad stream configuration")
	// ErrFull is returned if the writer has no room for the entry now. Offer it again when the
	// child's position has moved or writes have completed.
	ErrFull = errors.New("no room for the entry")
	// ErrNumber is returned if the offered entry is not the next one.
	ErrNumber = errors.New("not the next entry")
	// ErrTooLarge is returned if the entry is larger than Config.EntryMax.
	ErrTooLarge = errors.New("entry too large")
	// ErrMember is returned for an unknown member.
	ErrMember = errors.New("no such member")
	// ErrRecord is returned for a ring that holds data that no writer writes.
	ErrRecord = errors.New("bad record in a ring")
)

// Config is what the writers and carriers of a stream agree on.
type Config struct {
	// Writers are the members of the parent, Carriers those of the child, ascending. A ServerID
	// names the same process for the lifetime of the machine that is given it.
	Writers, Carriers []order.ServerID
	// Self is this member: one of Writers for a Writer, one of Carriers for a Carrier. A member
	// that is not listed takes no part until SetMembers lists it.
	Self order.ServerID
	// Stretch is the number of consecutive entries that have the same writers and carriers, at
	// least 1. A carrier that is new in a stretch waits until the log has the stretch before. A
	// carrier that already acted in that stretch does not wait.
	Stretch uint64
	// Patience is how long a member lets the position stand still before it takes over, in ticks,
	// at least 1.
	Patience uint64
	// Entries is the maximum number of entries under way, 1 to EntriesMax.
	Entries int
	// EntryMax is the maximum size of an entry in bytes, at least 1.
	EntryMax int
	// RingSize is the size of a ring in bytes: a multiple of 8, at least twice
	// RecordSize(EntryMax), at most RingSizeMax. A writer keeps as much in memory. Rings use all of
	// their memory over and over, so a member whose rings together fit into its processor's cache
	// is several times as fast.
	RingSize int
	// Depth is the maximum number of outstanding writes to one carrier, at least 2.
	Depth int
	// Witnessed makes an entry count at a carrier only once more than half of the present Writers
	// wrote the same bytes for its number into their own rings. Then a minority of writers that lie
	// forges no entry. All carriers receive each entry, from more than half of the writers at once.
	Witnessed bool
	// Fault plants a bug, to prove that a checker finds it. It is FaultNone in production.
	Fault Fault
}

// check returns ErrConfig with the reason.
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

// checkMembers returns ErrConfig unless both lists are non-empty and ascending without repeats.
func checkMembers(writers, carriers []order.ServerID) error {
	for _, members := range [][]order.ServerID{writers, carriers} {
		if len(members) == 0 {
			return fmt.Errorf("%w: a group without members", ErrConfig)
		}
		for i := 1; i < len(members); i++ {
			if members[i-1] >= members[i] {
				return fmt.Errorf("%w: members %v; list them in ascending order, each once",
					ErrConfig,
					members)
			}
		}
	}
	return nil
}

// tolerated returns how many of n members may crash.
func tolerated(n int) int { return (n - 1) / 2 }

// majority returns how many of n members are more than half.
func majority(n int) int { return n/2 + 1 }

// seat is a member's place among the members of its group.
type seat struct {
	place, of int // place is -1 for a process that is not a member
}

func seatOf(members []order.ServerID, member order.ServerID) seat {
	place, exact := slices.BinarySearch(members, member)
	if !exact {
		place = -1
	}
	return seat{place, len(members)}
}

// taken reports whether a member has the seat.
func (s seat) taken() bool { return s.place >= 0 }

// rank returns a seat's rank among the seats that act on an entry. The first seat in rank moves on
// by one for each stretch. The first 1 + tolerated act at once. A seat without a member ranks
// behind all others.
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

// eager reports whether a member acts on an entry at once.
func (c *Config) eager(s seat, number uint64) bool {
	if c.Fault == FaultLoneWriter {
		return c.rank(s, number) == 0
	}
	return c.rank(s, number) <= tolerated(s.of)
}

// takeover returns how many ticks after the position stopped a member acts on an entry that it need
// not act on at once. Members take over one after the other, so that not all of them do.
func (c *Config) takeover(s seat, number uint64) uint64 {
	return c.Patience * uint64(1+max(0, c.rank(s, number)-tolerated(s.of)))
}

// writes reports whether a writer writes an entry to a carrier at once.
func (c *Config) writes(writer, carrier seat, number uint64) bool {
	if c.Witnessed && c.Fault != FaultLoneWriter {
		return c.rank(writer, number) < majority(writer.of)
	}
	return c.eager(writer, number) && c.eager(carrier, number)
}

// writerTakeover is takeover for a writer. In a witnessed stream, members that act at once write to
// all carriers. The first of the others is therefore the first that takes over.
func (c *Config) writerTakeover(s seat, number uint64) uint64 {
	if c.Witnessed {
		return c.Patience * uint64(max(1, c.rank(s, number)-majority(s.of)+1))
	}
	return c.takeover(s, number)
}

// Fault is a bug that is planted on purpose, to show that a judge of a stream can reject one.
type Fault uint8

const (
	// FaultNone is the correct stream.
	FaultNone Fault = iota
	// FaultLoneWriter makes one member write an entry to one carrier, and no member take over. An
	// entry is lost with its writer.
	FaultLoneWriter
	// FaultNoTakeover makes no member take over.
	FaultNoTakeover
	// FaultEarlyReuse treats a write that has landed as read, and overwrites it.
	FaultEarlyReuse
	// FaultForgottenRing drops the contents of a ring that is detached.
	FaultForgottenRing
	// FaultGreedyRing writes an entry wherever it fits, without keeping room for those before it.
	FaultGreedyRing
	// FaultFewWitnesses makes one writer enough for an entry of a witnessed stream.
	FaultFewWitnesses
	// FaultRepeatedWitness counts a writer again each time that it writes an entry.
	FaultRepeatedWitness
	// FaultTrustedPosition makes one carrier's position count for the child of a witnessed stream.
	FaultTrustedPosition
	// FaultHeightsKept keeps the positions of blocks that the log took back.
	FaultHeightsKept
	faultEnd
)

// String returns the name of the fault.
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
	case FaultFewWitnesses:
		return "few-witnesses"
	case FaultRepeatedWitness:
		return "repeated-witness"
	case FaultTrustedPosition:
		return "trusted-position"
	case FaultHeightsKept:
		return "heights-kept"
	default:
		return fmt.Sprintf("fault(%d)", uint8(f))
	}
}

// takesOver reports whether members take over, as they should.
func (f Fault) takesOver() bool { return f != FaultNoTakeover && f != FaultLoneWriter }
