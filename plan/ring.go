package plan

import (
	"fmt"
	"time"
)

const (
	// RingMax is the largest ring of TRAINS.
	RingMax = 64
	// RingTrains is the number of trains of a planned ring, the default of package trains.
	RingTrains = 4
)

// ring estimates TRAINS while every server attaches a wagon with a payload to each of the trains
// [TRAINS, section III].
//
// A rotation takes as long as the hops of a train around the ring. If the trains together keep a
// processor, a link or another resource of one place busy for longer, it takes as long as that. A
// server A-delivers the wagons of a rotation when their train comes for the second time after it,
// so a wagon's own server does so after two rotations. The last server of the ring is the last one:
// it does so after 5n/2 - 1/2 hops on average [TRAINS, Table III], and 3n - 1 for the first server.
func ring(d Deployment, servers, payload int) (Engine, error) {
	// A train leaves a server with all wagons but that of the successor.
	frame := houseTrainHeader + (servers-1)*(wagonHeader+payload)
	c, err := newCarrier(d, servers, frame-messageHeader)
	if err != nil {
		return Engine{}, err
	}
	hops, toLast, l := time.Duration(0), time.Duration(0), c.newLoad()
	for v := range servers {
		hop := c.way(v, (v+1)%servers)
		hops += hop
		if v < servers-1 {
			toLast += time.Duration(v+1) * hop // on the ways of all servers up to this one
		}
		c.add(&l, v, (v+1)%servers, RingTrains)
	}
	toLast /= time.Duration(servers)
	rotation, bound := hops, ResourceDepth
	fibre, gateway := c.far(l)
	for _, each := range []struct {
		resource Resource
		busy     time.Duration
	}{
		{ResourceProcessor, 2 * RingTrains * c.overhead},
		{ResourceLink, RingTrains * c.model.HostRate.Serialisation(c.wire)},
		{ResourceFibre, fibre}, {ResourceGateway, gateway}, {ResourceWindow, l.connection},
	} {
		if each.busy > rotation {
			rotation, bound = each.busy, each.resource
		}
	}
	stretch := float64(rotation) / float64(hops)
	longest := hops - c.way(servers-1, 0)
	return Engine{
		Latency:  2 * rotation,
		All:      2*rotation + time.Duration(stretch*float64(toLast)),
		Worst:    2*rotation + time.Duration(stretch*float64(longest)),
		Messages: float64(RingTrains*servers) / rotation.Seconds(), Outstanding: 2 * RingTrains,
		Bound: bound, Wire: float64(c.wire) / float64(payload),
		Repair:    rotation - rotation/time.Duration(servers),
		Tolerated: servers - 1, Detector: DetectorPerfect,
	}, nil
}

// ringFits returns why a ring cannot have this many servers, or "".
func ringFits(servers int) string {
	if servers > RingMax {
		return fmt.Sprintf("a ring has at most %d servers", RingMax)
	}
	return ""
}
