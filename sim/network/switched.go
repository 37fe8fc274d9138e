package network

import "time"

// The components of the paper's cluster [TRAINS, section V-A].
const (
	// fastEthernetRate is the rate at which TCP comes to the 94 Mbit/s from point to point that the
	// authors measured.
	fastEthernetRate = 100 * Megabit
	// switchedDelay is half of the delay of the switch: the paper does not give it. Throughput does
	// not depend on it, if enough is under way.
	switchedDelay = 5 * time.Microsecond
	// Linux uses TCP's timestamps: 12 bytes of each segment.
	timestampBytes = 12
)

// oneSwitch is one switch between all hosts. It has no ports but those that lead to hosts.
type oneSwitch struct{}

func (oneSwitch) Ports() []Port { return nil }

func (oneSwitch) AppendRoute(route []PortID, _, _ int) []PortID { return route }

// Switched returns the servers of [TRAINS, section V-A]: a switch with a link of 100 Mbit/s to each
// of them, and TCP with timestamps, which carries 94.15 Mbit/s of long messages. Processors take no
// time.
func Switched(servers int) Model {
	return Model{
		Name: "servers on a switch, 100 Mbit/s", Servers: servers, HostRate: fastEthernetRate,
		HostDelay: switchedDelay, Segment: ethernetSegment - timestampBytes,
		SegmentHeader: ethernetSegmentHeader + timestampBytes,
		Chunk:         11 * (ethernetSegment - timestampBytes), Window: receiveWindow,
		Topology: oneSwitch{},
	}
}

// Stream returns the rate at which a connection of this model carries long messages: that of a
// host's link, less the headers of segments.
func (m *Model) Stream() float64 {
	if m.Segment == 0 {
		return float64(m.HostRate)
	}
	return float64(m.HostRate) * float64(m.Segment) / float64(m.Segment+m.SegmentHeader)
}
