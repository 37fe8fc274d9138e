package network

import (
	"errors"
	"fmt"
	"time"
)

// ServersMax is the maximum number of servers of a model.
const ServersMax = 2048

// ErrModel is returned for a Model that describes no network. Match it with errors.Is.
var ErrModel = errors.New("network: wrong model")

// BitsPerSecond is the rate of a link. 0 is unlimited.
type BitsPerSecond int64

// Rates of links.
const (
	Megabit BitsPerSecond = 1_000_000
	Gigabit               = 1000 * Megabit
)

// Serialisation returns the time that the given number of bytes takes to pass a link, rounded up to
// a nanosecond, so that no link carries more than its rate.
func (r BitsPerSecond) Serialisation(bytes int) time.Duration {
	if r <= 0 {
		return 0
	}
	const nanosecondBits = 8 * int64(time.Second)
	return time.Duration((int64(bytes)*nanosecondBits + int64(r) - 1) / int64(r))
}

// Port is the outgoing port of a switch, with the cable behind it.
type Port struct {
	Rate  BitsPerSecond
	Delay time.Duration
}

// PortID numbers the ports of a topology, from 0.
type PortID int32

// Topology is the network between the hosts' own links.
type Topology interface {
	// Ports lists the ports of all switches except those that lead to hosts.
	Ports() []Port
	// AppendRoute appends the ports on the way from one server to another, in order. The result
	// depends on its arguments only: all frames of a connection go the same way.
	AppendRoute(route []PortID, from, to int) []PortID
}

// Model describes a network and the servers on it.
type Model struct {
	// Name is for people.
	Name string
	// Servers is n, 1 to ServersMax.
	Servers int
	// Overhead is LogP's o: how long a processor is busy with each frame that it sends or receives,
	// one at a time.
	Overhead time.Duration
	// HostRate is the rate of a host's link in each direction, and HostDelay the delay of its
	// cable.
	HostRate  BitsPerSecond
	HostDelay time.Duration
	// FrameHeader is what a lane adds to each frame, in bytes. The frame and this header are cut
	// into segments of at most Segment bytes. Each has SegmentHeader bytes more on the wire, gaps
	// included. A Segment of 0 does not cut.
	FrameHeader, Segment, SegmentHeader int
	// Chunk is the maximum size in bytes of a piece of a frame that takes a link at once. 0 does
	// not cut.
	Chunk int
	// Window bounds the unacknowledged bytes of a connection. 0 is no bound. A single chunk may be
	// longer.
	Window int
	// Topology is the network between the hosts. If it is nil, there are only the hosts' cables.
	Topology Topology
}

// Validate returns an error that wraps ErrModel if the model is wrong.
func (m Model) Validate() error {
	switch {
	case m.Servers < 1 || m.Servers > ServersMax:
		return fmt.Errorf("%w: %d servers, want 1 to %d", ErrModel, m.Servers, ServersMax)
	case m.Overhead < 0 || m.HostRate < 0 || m.HostDelay < 0:
		return fmt.Errorf("%w: a negative overhead, rate or delay", ErrModel)
	case m.FrameHeader < 0 || m.Segment < 0 || m.SegmentHeader < 0 || m.Chunk < 0 || m.Window < 0:
		return fmt.Errorf("%w: a negative number of bytes", ErrModel)
	case m.Segment > 0 && m.Chunk > 0 && m.Chunk%m.Segment != 0:
		return fmt.Errorf("%w: chunks of %d bytes are not a whole number of segments of %d",
			ErrModel,
			m.Chunk, m.Segment)
	}
	return nil
}

// Wire returns how many bytes a piece of a frame takes on a link, including its segments' headers.
func (m *Model) Wire(bytes int) int {
	if m.Segment == 0 {
		return bytes + m.SegmentHeader
	}
	segments := max(1, (bytes+m.Segment-1)/m.Segment)
	return bytes + segments*m.SegmentHeader
}

// firstSegment returns how many of a piece's bytes on the wire a switch must have before it sends
// on. It is 0 without switches.
func (m *Model) firstSegment(wire int) int {
	switch {
	case m.Topology == nil:
		return 0
	case m.Segment == 0:
		return wire
	}
	return min(wire, m.Segment+m.SegmentHeader)
}

// Unloaded returns how long a frame of the given size takes from one server's engine to another's
// on an idle network.
func (m *Model) Unloaded(from, to, bytes int) time.Duration {
	if m.Topology == nil {
		return m.unloaded(nil, nil, bytes)
	}
	return m.unloaded(m.Topology.Ports(), m.Topology.AppendRoute(nil, from, to), bytes)
}

// unloaded is Unloaded over a route.
func (m *Model) unloaded(ports []Port, route []PortID, bytes int) time.Duration {
	bytes += m.FrameHeader
	chunk := bytes
	if m.Chunk > 0 {
		chunk = min(chunk, m.Chunk)
	}
	wire := m.Wire(chunk)
	first := m.firstSegment(wire)
	total := 2*m.Overhead + 2*m.HostDelay
	slowest := m.HostRate
	total += 2 * m.HostRate.Serialisation(first)
	for _, id := range route {
		total += ports[id].Rate.Serialisation(first) + ports[id].Delay
		if rate := ports[id].Rate; rate > 0 && (slowest == 0 || rate < slowest) {
			slowest = rate
		}
	}
	return total + slowest.Serialisation(m.wireOf(bytes)-first)
}

// wireOf returns how many bytes a frame, including its lane's header, takes on a link in all its
// chunks.
func (m *Model) wireOf(bytes int) int {
	if m.Chunk == 0 || bytes <= m.Chunk {
		return m.Wire(bytes)
	}
	rest := bytes % m.Chunk
	wire := bytes / m.Chunk * m.Wire(m.Chunk)
	if rest > 0 {
		wire += m.Wire(rest)
	}
	return wire
}
