package dare

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is the configuration of a group [Poke19, sections 4.3.1.1 and 4.3.4], and where a
// server finds it: in its log.

// Phase is the state of a configuration.
type Phase uint8

// The phases of a configuration [Poke19, section 4.3.4].
const (
	// Stable: the servers in the first Size seats elect and commit.
	Stable Phase = iota
	// Extended: so do they, and a server in the next seat recovers.
	Extended
	// Transitional: a majority of the first Size seats and one of the first Next seats elect and
	// commit together.
	Transitional
)

// String returns the phase in a word.
func (p Phase) String() string {
	return [...]string{"stable", "extended", "transitional"}[min(p, Transitional)]
}

// Seat is a place in a group, which one incarnation of a server holds. It is the paper's slot.
type Seat struct {
	// Peer is the incarnation, zero if the seat is free.
	Peer rdmanet.Peer
	// From is the entry up to which the server needs nothing of the log: all servers had applied it
	// when this one was named (G11).
	From uint64
}

// Configuration is the servers of a group, and which of them elect and commit. It does not change;
// a later entry of the log has another one.
type Configuration struct {
	Phase Phase
	// Size is n, Next n'. They are the same unless the group is being resized. A run of a part of a
	// shard has the size of the shard, and seats for the group only (Config.Shard).
	Size, Next int
	Seats      []Seat

	// head is the entry up to which none of these servers needed the log when this was appended.
	head uint64
}

// placed is a configuration and the entry that has it, without an index if none has.
type placed struct {
	index, born uint64
	Configuration
}

// newer reports whether an entry's configuration is more recent than another's.
func (p *placed) newer(other *placed) bool {
	return p.born > other.born || p.born == other.born && p.index > other.index
}

// firstConfiguration is the configuration before any entry.
func firstConfiguration(peers []rdmanet.Peer, seats, size int) Configuration {
	c := Configuration{Size: size, Next: size, Seats: make([]Seat, seats)}
	for seat, peer := range peers {
		c.Seats[seat].Peer = peer
	}
	return c
}

func (c *Configuration) held(seat int) bool { return c.Seats[seat].Peer != (rdmanet.Peer{}) }

// sizes returns the numbers of seats of which majorities are needed.
func (c *Configuration) sizes() [2]int {
	if c.Phase == Transitional {
		return [2]int{c.Size, c.Next}
	}
	return [2]int{c.Size, c.Size}
}

// most reports whether the servers that something is true for are a majority: of both sizes, if the
// group is being resized. A free seat counts for the size, because n and q stay when a server
// leaves [Poke19, section 4.3.4].
func (c *Configuration) most(holds func(seat int) bool) bool {
	for _, size := range c.sizes() {
		count := 0
		for seat := range min(size, len(c.Seats)) {
			if c.held(seat) && holds(seat) {
				count++
			}
		}
		if 2*count <= size {
			return false
		}
	}
	return true
}

// reached returns the greatest number that a majority has reached.
func (c *Configuration) reached(by func(seat int) uint64) uint64 {
	least := ^uint64(0)
	for _, size := range c.sizes() {
		var all [ServersMax]uint64
		seats := min(size, len(c.Seats))
		for seat := range seats {
			if c.held(seat) {
				all[seat] = by(seat)
			}
		}
		slices.Sort(all[:seats])
		// Members of the shard that have no seat reached nothing, and come before these.
		at := (size-1)/2 - (size - seats)
		if at < 0 {
			return 0
		}
		least = min(least, all[at])
	}
	return least
}

// with returns the configuration with another server in a seat.
func (c *Configuration) with(seat int, holder Seat) Configuration {
	own := *c
	own.Seats = slices.Clone(c.Seats)
	own.Seats[seat] = holder
	return own
}

// Servers lists the servers that hold a seat, ascending.
func (c *Configuration) Servers() []order.ServerID {
	var all []order.ServerID
	for seat := range c.Seats {
		if c.held(seat) {
			all = append(all, order.ServerID(seat))
		}
	}
	return all
}

// seated returns the seats that are held, as a set.
func (c *Configuration) seated() (set uint64) {
	for seat := range c.Seats {
		if c.held(seat) {
			set |= 1 << seat
		}
	}
	return set
}

// String describes the configuration.
func (c Configuration) String() string {
	var all []string
	for _, seat := range c.Servers() {
		all = append(all, fmt.Sprintf("%d %v", seat, c.Seats[seat].Peer))
	}
	size := fmt.Sprint(c.Size)
	if c.Next != c.Size {
		size += fmt.Sprintf(" and %d", c.Next)
	}
	return fmt.Sprintf("%v of %s: %s", c.Phase, size, strings.Join(all, ", "))
}

const (
	configurationHead = 3 + 8
	seatHead          = 8 + 8 + 1
)

// configurationMax bounds the length of a configuration as bytes.
func configurationMax(seats int) int { return configurationHead + seats*(seatHead+peerIDMax) }

// appendConfiguration appends a configuration as bytes.
func appendConfiguration(b []byte, c *Configuration) []byte {
	b = append(b, byte(c.Phase), byte(c.Size), byte(c.Next))
	b = binary.BigEndian.AppendUint64(b, c.head)
	for _, s := range c.Seats {
		b = binary.BigEndian.AppendUint64(b, s.From)
		b = binary.BigEndian.AppendUint64(b, uint64(s.Peer.Incarnation))
		b = append(b, byte(len(s.Peer.ID)))
		b = append(b, s.Peer.ID...)
	}
	return b
}

// readConfiguration reads a configuration of the given number of seats. It reports whether the
// bytes are ones that a server writes.
func readConfiguration(b []byte, seats int) (c Configuration, is bool) {
	if len(b) < configurationHead {
		return c, false
	}
	c = Configuration{Phase(b[0]), int(b[1]), int(b[2]), make([]Seat, seats),
		binary.BigEndian.Uint64(b[3:])}
	resized := c.Size != c.Next
	if c.Phase > Transitional || c.Size < 1 || c.Next < 1 || max(c.Size, c.Next) > seats ||
		resized == (c.Phase == Stable) || c.Phase == Extended && c.Next != c.Size+1 {
		return c, false
	}
	b = b[configurationHead:]
	for seat := range c.Seats {
		if len(b) < seatHead || b[seatHead-1] > peerIDMax || len(b) < seatHead+int(b[seatHead-1]) {
			return c, false
		}
		length := int(b[seatHead-1])
		c.Seats[seat] = Seat{rdmanet.Peer{ID: rdmanet.PeerID(b[seatHead:][:length]),
			Incarnation: rdmanet.Incarnation(binary.BigEndian.Uint64(b[8:]))},
			binary.BigEndian.Uint64(b)}
		if c.held(seat) && seat >= max(c.Size, c.Next) {
			return c, false
		}
		b = b[seatHead+length:]
	}
	return c, len(b) == 0
}

// group returns the configuration in force: the last one in the own log, whether or not its entry
// is committed.
func (s *Server) group() *placed {
	if s.config.Fault == FaultConfigLate {
		return &s.configs[0]
	}
	return &s.configs[len(s.configs)-1]
}

// Configuration returns the configuration in force at this server.
func (s *Server) Configuration() Configuration { return s.group().Configuration }

// seek looks for configurations in entries that the log did not have, or has no more. A leader
// writes a follower's log without its program, so a server seeks before it acts.
func (s *Server) seek() {
	if s.config.fixed() {
		return
	}
	tail := s.tail()
	from, same := s.sought, s.sought.index <= tail
	if from.index > s.applied {
		same = same && s.at(from.index).born == from.born
	}
	changed := false
	if !same {
		from = sought{index: s.applied}
		if len(s.configs) > 1 {
			s.configs, changed = s.configs[:1:1], true
		}
	} else if from.index == tail {
		return
	}
	from.index = max(from.index, s.applied)
	for from.index < tail && tail-s.applied <= uint64(s.layout.slots) {
		e := s.at(from.index + 1)
		if e.index == 0 {
			break
		}
		from = sought{e.index, e.born}
		if e.kind != kindConfig {
			continue
		}
		c, is := readConfiguration(s.body(e), s.config.Seats)
		if !is {
			s.halt(fmt.Sprintf("entry %d has a configuration that no server writes", e.index))
			return
		}
		s.configs = append(slices.Clip(s.configs), placed{e.index, e.born, c})
		changed = true
		s.config.note("has configuration %d in its log: %v", e.index, c)
	}
	s.sought = from
	if changed {
		s.seatAll()
	}
}

// sought is the last entry of the own log in which a configuration was sought.
type sought struct{ index, born uint64 }

// enter makes the configuration of an applied entry the oldest one that the server remembers.
func (s *Server) enter(e entry) {
	c, is := readConfiguration(s.body(e), s.config.Seats)
	if !is {
		s.halt(fmt.Sprintf("entry %d has a configuration that no server writes", e.index))
		return
	}
	rest := s.configs[1:]
	for len(rest) > 0 && rest[0].index <= e.index {
		rest = rest[1:]
	}
	s.configs = append([]placed{{e.index, e.born, c}}, rest...)
	s.config.note("enters configuration %d: %v", e.index, c)
	s.seatAll()
}
