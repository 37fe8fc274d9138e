package plan

import (
	"fmt"
	"time"
)

const (
	// RingMax is the largest ring of TRAINS.
	RingMax = 64
	// nodeTick is how often a node looks whether its engine makes progress, as package node has it.
	nodeTick = 100 * time.Millisecond
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
	frames, err := ringFramesOf(d, servers, payload)
	if err != nil {
		return Engine{}, err
	}
	hops, toLast := time.Duration(0), time.Duration(0)
	for v := range servers {
		hop := frames.way(v, (v+1)%servers)
		hops += hop
		if v < servers-1 {
			toLast += time.Duration(v+1) * hop // on the ways of all servers up to this one
		}
	}
	toLast /= time.Duration(servers)
	rotation, bound := hops, ResourceDepth
	for _, each := range frames.busy() {
		if each.busy > rotation {
			rotation, bound = each.busy, each.resource
		}
	}
	stretch := float64(rotation) / float64(hops)
	longest := hops - frames.way(servers-1, 0)
	e := Engine{
		Latency:  2 * rotation,
		All:      2*rotation + time.Duration(stretch*float64(toLast)),
		Worst:    2*rotation + time.Duration(stretch*float64(longest)),
		Messages: float64(RingTrains*servers) / rotation.Seconds(), Outstanding: 2 * RingTrains,
		Bound: bound, Wire: float64(frames.wire()) / float64(payload),
		Repair:    rotation - rotation/time.Duration(servers),
		Tolerated: servers - 1, Detector: DetectorPerfect,
	}
	// A message is at the next server after hops/servers, on average.
	e.renewal = renewal(servers, hops/time.Duration(servers)) + 3*rotation
	return e, nil
}

// renewal estimates how long the nodes of a ring need after they suspect one of them, until the
// others have agreed on a group without it (package allconcur/generation).
//
// A ring under an eventually perfect detector stands still: it cannot know whether the suspected
// server A-delivers. At its next tick each node notices that, half a tick later on average. One
// tick later the first node stops its engine, and after one more it has the turn to propose. If the
// suspected server is the first one, the second one takes the turn, two ticks later. The proposer
// collects what the others' engines did, and has its proposal accepted: two round trips, and a tick
// until it knows that it can reach nobody else. The new ring's first message is A-delivered by all
// after three rotations. TestRenewalAgainstSimulator finds half a second.
func renewal(servers int, way time.Duration) time.Duration {
	return nodeTick*7/2 + 2*nodeTick/time.Duration(servers) + 4*way
}

// ringFrames are the frames in which a train leaves a server, with all wagons but that of the
// successor: wagons with frames of their own, if the payload is large, and then the train.
type ringFrames struct {
	wagons       int
	wagon, train carrier
}

func ringFramesOf(d Deployment, servers, payload int) (f ringFrames, err error) {
	train, wagon := houseTrainHeader+(servers-1)*wagonHeader, wagonFrameHeader+payload
	if payload < wagonFrameMin {
		train += (servers - 1) * payload
	} else {
		f.wagons = servers - 1
		if f.wagon, err = newCarrier(d, servers, wagon-messageHeader); err != nil {
			return ringFrames{}, err
		}
	}
	f.train, err = newCarrier(d, servers, train-messageHeader)
	return f, err
}

// way returns the time of a hop. The frames of wagons follow each other as quickly as a processor
// or a link takes them, and the small one of the train follows the last of them.
func (f *ringFrames) way(from, to int) time.Duration {
	if f.wagons == 0 {
		return f.train.way(from, to)
	}
	return time.Duration(f.wagons-1)*max(f.wagon.overhead, f.wagon.link()) +
		f.wagon.way(from, to) + max(f.train.overhead, f.train.link())
}

// wire returns the bytes of a hop on a link.
func (f *ringFrames) wire() int { return f.wagons*f.wagon.wire + f.train.wire }

// busy lists how long a rotation of all trains keeps resources busy.
func (f *ringFrames) busy() busy {
	n := f.train.servers
	all := busy{
		{resource: ResourceProcessor, busy: f.train.overhead * time.Duration(
			2*RingTrains*(f.wagons+1))},
		{resource: ResourceLink, busy: RingTrains * f.train.model.HostRate.Serialisation(f.wire())},
		{resource: ResourceFibre}, {resource: ResourceGateway}, {resource: ResourceWindow},
	}
	add := func(c *carrier, frames int) {
		l := c.newLoad()
		for v := range n {
			c.add(&l, v, (v+1)%n, RingTrains*frames)
		}
		fibre, gateway := c.far(l)
		all[2].busy += fibre
		all[3].busy += gateway
		all[4].busy += l.connection
	}
	add(&f.train, 1)
	if f.wagons > 0 {
		add(&f.wagon, f.wagons)
	}
	return all
}

// ringFits returns why a ring cannot have this many servers, or "".
func ringFits(servers int) string {
	if servers > RingMax {
		return fmt.Sprintf("a ring has at most %d servers", RingMax)
	}
	return ""
}
