package network

import (
	"fmt"
	"time"
)

// The components of the dissertation's datacentres [Poke19, section 6.5].
const (
	ethernetRate = Gigabit
	// hostCableDelay is the delay of 10 m of cable, switchCableDelay that of 100 m.
	hostCableDelay   = 50 * time.Nanosecond
	switchCableDelay = 500 * time.Nanosecond
	// The overhead of a segment on Gigabit Ethernet: preamble and gap 20, frame 18, IP 20 and TCP
	// 20 bytes. A segment has at most 1,460 bytes of contents.
	ethernetSegment       = 1460
	ethernetSegmentHeader = 78
	// receiveWindow is TCP's window without scaling.
	receiveWindow = 65_535
	// chunkBytes is about a quarter of the window. Long messages share links in pieces of this
	// size.
	chunkBytes = 11 * ethernetSegment
	// laneHeader is the size that the production lanes add to a frame, assuming that the frame
	// travels in a batch of its own.
	laneHeader = 16
)

// fatTree is a fat-tree of k-port switches in three layers, with one server a subnet: k/2 edge
// switches a pod, each with a server; k/2 aggregation switches a pod, each connected with all edge
// switches of its pod; (k/2)² core switches, each connected with one aggregation switch of every
// pod.
type fatTree struct {
	half int // k/2
	pods int
	// first is the number of the tree's first port.
	first PortID
}

// ports lists the tree's ports. For each pod these are the ports of the edge switches upwards, of
// the aggregation switches upwards and downwards, and of the core switches to the pod.
func (t fatTree) ports() []Port {
	ports := make([]Port, t.pods*t.podPorts())
	for i := range ports {
		ports[i] = Port{Rate: ethernetRate, Delay: switchCableDelay}
	}
	return ports
}

func (t fatTree) servers() int { return t.pods * t.half }

func (t fatTree) podPorts() int { return 4 * t.half * t.half }

// port returns the number of a port of a pod, given by one of the four layers and two places from 0
// to k/2-1.
func (t fatTree) port(pod, layer, a, b int) PortID {
	return t.first + PortID(pod*t.podPorts()+(layer*t.half+a)*t.half+b)
}

const (
	edgeUp          = iota // edge switch a to aggregation switch b
	aggregationUp          // aggregation switch a to its core switch b
	coreDown               // core switch b of aggregation switches a, to the pod
	aggregationDown        // aggregation switch a to edge switch b
)

// spread returns the aggregation switch, and which of its core switches, that a connection uses. It
// depends on the receiver, as in the two-level routing tables of fat-trees, shifted by the sender.
// Connections with one receiver therefore meet at its own link only.
func (t fatTree) spread(from, to int) (aggregation, core int) {
	return (from + to) % t.half, (from/t.half + to/t.half) % t.half
}

// up appends the way from a server to a core switch.
func (t fatTree) up(route []PortID, server, aggregation, core int) []PortID {
	pod, edge := server/t.half, server%t.half
	return append(route, t.port(pod, edgeUp, edge, aggregation),
		t.port(pod, aggregationUp, aggregation, core))
}

// down appends the way from a core switch to a server's edge switch.
func (t fatTree) down(route []PortID, server, aggregation, core int) []PortID {
	pod, edge := server/t.half, server%t.half
	return append(route, t.port(pod, coreDown, aggregation, core),
		t.port(pod, aggregationDown, aggregation, edge))
}

// within appends the way between two servers of this tree.
func (t fatTree) within(route []PortID, from, to int) []PortID {
	aggregation, core := t.spread(from, to)
	if pod := from / t.half; pod == to/t.half {
		return append(route, t.port(pod, edgeUp, from%t.half, aggregation),
			t.port(pod, aggregationDown, aggregation, to%t.half))
	}
	return t.down(t.up(route, from, aggregation, core), to, aggregation, core)
}

// singleDatacentre is a fat-tree as a Topology.
type singleDatacentre struct{ tree fatTree }

func (s singleDatacentre) Ports() []Port { return s.tree.ports() }

func (s singleDatacentre) AppendRoute(route []PortID, from, to int) []PortID {
	return s.tree.within(route, from, to)
}

// SDC returns the single datacentre of [Poke19, section 6.5] for n = k²/2 servers with an even k >=
// 4. The error wraps ErrModel.
func SDC(servers int) (Model, error) {
	for k := 4; k*k/2 <= servers; k += 2 {
		if k*k/2 == servers {
			return ethernet(fmt.Sprintf("one datacentre, fat-tree of %d-port switches", k), servers,
				singleDatacentre{fatTree{half: k / 2, pods: k}}), nil
		}
	}
	return Model{}, fmt.Errorf("%w: %d servers do not fill a fat-tree with one server a subnet; "+
		"use k²/2 servers for an even k: 8, 18, 32, 50, 72 and so on", ErrModel, servers)
}

// ethernet returns the model that both deployments share.
func ethernet(name string, servers int, topology Topology) Model {
	return Model{
		Name: name, Servers: servers, HostRate: ethernetRate, HostDelay: hostCableDelay,
		FrameHeader: laneHeader, Segment: ethernetSegment,
		SegmentHeader: ethernetSegmentHeader, Chunk: chunkBytes, Window: receiveWindow,
		Topology: topology,
	}
}
