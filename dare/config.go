package dare

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// ErrConfig is returned by New for a configuration that is inconsistent or out of bounds.
var ErrConfig = errors.New("dare: bad configuration")

// EngineName is the engine's name in flags and reports.
const EngineName = "dare"

// Bounds of a configuration.
const (
	// ServersMax bounds the servers of a group. The leader writes to each of them.
	ServersMax = 64
	// peerIDMax bounds the names of peers, in bytes.
	peerIDMax = 64
	// TermMax bounds the terms of a run.
	TermMax = 1<<32 - 1
	// slotsMax bounds LogSlots and Window.
	slotsMax = 1 << 16
)

// Config is what a server is told. All servers of a group are told the same, except for Self, Fault
// and Note.
type Config struct {
	// Self is this server.
	Self order.ServerID
	// Peers are the incarnations of the servers, by number. A server that restarted is another
	// incarnation, and no member of the run until it is added.
	Peers []rdmanet.Peer
	// Shard is the number of members of the shard, of which the group is a part. 0 means the number
	// of Peers. All majorities are those of the shard. The servers of such a run stay the same.
	Shard int
	// Seats is how many servers the group may grow to. 0 is the number of Peers.
	Seats int
	// Joins says that the server is no member yet. It waits until an entry of the group's log names
	// it, recovers, and then takes part. Peers are the servers that it asks, as far as it knows
	// them: those that it does not know are zero. Its own number is that of its seat.
	Joins bool
	// Run is a part of the names of all regions, so that no run shares memory with another.
	Run uint64
	// FirstRound is the round of the first entry.
	FirstRound order.Round
	// PayloadMax is the maximum length of a payload.
	PayloadMax int
	// MessagesMax is the most bytes of all messages of an entry, at least PayloadMax. 0 means that
	// an entry has room for the largest message of each server.
	MessagesMax int
	// FullRounds makes each round hold the next message of every server of the group that the
	// leader does not think missing or gone, as rounds of AllConcur do. A server that has nothing
	// to say A-broadcasts an empty message when it is solicited (Server.Solicited). So what servers
	// A-broadcast at a time is in one round. An entry has room for the largest message of each
	// server then. It is for runs whose servers stay.
	FullRounds bool
	// LogSlots is how many entries a log holds, without one more that frees a full log or ends the
	// run. Window is how many payloads of a server may be A-broadcast and not A-delivered by it.
	LogSlots, Window int
	// Timeout is Δto to begin with: how long a leader may be silent before its followers suspect it
	// [Poke19, section 4.4.2.2]. A server adds to it with each mistake. Beat is the interval of
	// a leader's heartbeats, and should be a small part of Timeout.
	Timeout, Beat time.Duration
	// Patience is how long a server waits for an answer before it asks again, at first.
	Patience time.Duration
	// Change reports whether a round changes the group. Such a round is the last one of the run. It
	// is a function of the round, and may be nil: then the run has no end. It must not keep the
	// payloads.
	Change func(order.Delivery) bool
	// Fault plants a bug.
	Fault Fault
	// Note is told about the steps of the protocol, unless it is nil.
	Note func(format string, arguments ...any)
}

func (c *Config) validate() error {
	switch {
	case len(c.Peers) < 1 || len(c.Peers) > ServersMax:
		return fmt.Errorf("%w: %d servers, want 1 to %d", ErrConfig, len(c.Peers), ServersMax)
	case c.Seats < len(c.Peers) || c.Seats > ServersMax:
		return fmt.Errorf("%w: %d seats for %d servers, want up to %d", ErrConfig, c.Seats,
			len(c.Peers), ServersMax)
	case int(c.Self) >= len(c.Peers) && !c.Joins || int(c.Self) >= c.Seats:
		return fmt.Errorf("%w: server %d of %d", ErrConfig, c.Self, len(c.Peers))
	case c.Shard != 0 && c.Shard < len(c.Peers):
		return fmt.Errorf("%w: %d servers of a shard of %d", ErrConfig, len(c.Peers), c.Shard)
	case c.fixed() && (c.Joins || c.Seats != len(c.Peers)):
		return fmt.Errorf("%w: the servers of a run with an end, or of a part of a shard, stay: "+
			"%d seats for %d servers, joins: %v", ErrConfig, c.Seats, len(c.Peers), c.Joins)
	case c.MessagesMax != 0 && c.MessagesMax < c.PayloadMax:
		return fmt.Errorf("%w: %d bytes of messages in an entry, and up to %d in each message",
			ErrConfig, c.MessagesMax, c.PayloadMax)
	case c.FullRounds && !c.fixed():
		return fmt.Errorf("%w: full rounds need servers that stay: a run with an end, or of a "+
			"part of a shard", ErrConfig)
	case c.FullRounds && c.messagesMax() < c.Seats*c.PayloadMax:
		return fmt.Errorf("%w: %d bytes of messages in an entry, and full rounds of %d servers "+
			"with up to %d in each message", ErrConfig, c.MessagesMax, c.Seats, c.PayloadMax)
	case slices.ContainsFunc(c.Peers, func(p rdmanet.Peer) bool { return len(p.ID) > peerIDMax }):
		return fmt.Errorf("%w: a peer's name of more than %d bytes", ErrConfig, peerIDMax)
	case c.LogSlots < 2 || c.LogSlots > slotsMax || c.Window < 1 || c.Window > slotsMax:
		return fmt.Errorf("%w: a log of %d slots and a window of %d, want 2 and 1 to %d",
			ErrConfig, c.LogSlots, c.Window, slotsMax)
	case c.PayloadMax < 0 || rdmanet.CheckRegion("log", c.layout().size()) != nil:
		return fmt.Errorf("%w: payloads of up to %d bytes make a log of %d bytes", ErrConfig,
			c.PayloadMax, c.layout().size())
	case c.Timeout <= 0 || c.Beat <= 0 || c.Patience <= 0:
		return fmt.Errorf("%w: timeout %v, beat %v, patience %v, want more than 0", ErrConfig,
			c.Timeout, c.Beat, c.Patience)
	}
	return nil
}

// fixed reports whether the servers of the run stay the same. In a node, the chain says who they
// are: the run has an end, and a part of a shard may be its group.
func (c *Config) fixed() bool { return c.Change != nil || c.Shard != 0 }

// size is the number of which majorities are needed before any configuration: of the shard. So
// each has a server in common with the majority of which the reports say what the next generation
// begins with (package generation). A member of the shard that is outside of the group is like a
// seat that is free.
func (c *Config) size() int { return max(c.Shard, len(c.Peers)) }

// messagesMax returns the most bytes of all messages of an entry.
func (c *Config) messagesMax() int {
	all := c.Seats * c.PayloadMax
	if c.MessagesMax > 0 {
		return min(all, c.MessagesMax)
	}
	return all
}

// offerRing is the layout of a ring of proposals.
func (c *Config) offerRing() protected.Ring {
	return protected.BufferRing(c.Window, c.PayloadMax)
}

// region names a region of the run. The name tells the sizes of what is in the regions, too, so
// servers with other sizes, which would write to other places than this one reads, cannot attach.
func (c *Config) region(what string) string {
	sizes := fnv.New32a()
	fmt.Fprintln(sizes, c.Seats, c.PayloadMax, c.messagesMax(), c.LogSlots, c.Window)
	return fmt.Sprintf("dare/%d/%08x/%s", c.Run, sizes.Sum32(), what)
}

// offerRegion names the ring of a server's proposals.
func (c *Config) offerRegion(origin int) string {
	return c.region(fmt.Sprintf("proposals/%d", origin))
}

func (c *Config) note(format string, arguments ...any) {
	if c.Note != nil {
		c.Note(format, arguments...)
	}
}
