package plan

import (
	"fmt"
	"slices"
	"time"
)

const (
	// TRAMMax is the largest group of TRAM.
	TRAMMax = 255
	// multicastHeader is what a message has before its payload, with one group as its destination,
	// bufferTrailer what it has behind it in a client's buffer, and logTrailer in a group's log, in
	// bytes.
	multicastHeader, bufferTrailer, logTrailer = 24, 16, 40
)

// tramGroup estimates one group of TRAM over a deployment. Each server has a replica and a client
// on one host, and all messages are for the group. A client writes its message into the memory of
// all replicas, its own among them. The leader writes each message as an entry of its own into the
// logs of the others. A message is ordered once a majority has it. The leader A-delivers it then,
// and the others with the next entry, which says so [TRAM, Algorithms 1 and 2].
//
// So the leader's own messages take one round trip to a majority, and those of a follower two. The
// followers wait for the leader's next message, which it sends as soon as its last one is ordered.
//
// Every server may lead, so latencies and throughputs are means over all leaders, and Worst and
// Repair are those of the worst one.
func tramGroup(d Deployment, servers, payload int) (Engine, error) {
	r, err := newRemote(d, servers)
	if err != nil {
		return Engine{}, err
	}
	return r.overLeaders(servers, func(first int) Engine {
		return r.tramLed(first, servers, payload)
	}), nil
}

// tramLed estimates a group with a certain leader.
func (r *remote) tramLed(first, servers, payload int) Engine {
	n, others := time.Duration(servers), time.Duration(servers-1)
	message := (multicastHeader + payload + wordSize - 1) / wordSize * wordSize
	offer, entry := r.bytes(message+bufferTrailer), r.bytes(message+logTrailer)
	e := Engine{Outstanding: LeaderWindow, Bound: ResourceProcessor, Detector: DetectorEventual,
		Tolerated: tolerated(servers), Uninterrupted: tolerated(servers)}

	// Of n messages the leader offers one to all replicas, and it writes n to all others.
	work := n * (r.post + r.poll)
	if link := offer + others*entry; link > work {
		work, e.Bound = link, ResourceLink
	}

	quorum, farthest := r.roundTrips(first, servers)
	put := max(r.post, offer) // a client's message for one replica
	replicate := others*max(r.post, entry) + quorum + 2*r.target + r.poll
	own := n*put + replicate
	// The entry that says what is ordered follows the leader's next message.
	told := n*put + others*max(r.post, entry) + r.target
	perMessage := 1 / own.Seconds()
	allOf := perMessage * (own + told + farthest).Seconds()
	e.Worst = own + told + farthest
	rate := LeaderWindow / (own + (LeaderWindow-1)*n*work/2).Seconds()
	for v := range servers {
		if v == first {
			continue
		}
		there := n*put + r.way(v, first) + r.target
		latency := there + replicate + told + r.way(first, v)
		last := there + replicate + told + farthest
		perMessage += 1 / latency.Seconds()
		allOf += last.Seconds() / latency.Seconds()
		rate += LeaderWindow / (latency + (LeaderWindow-1)*n*work/2).Seconds()
		e.Worst = max(e.Worst, last)
	}
	// On a message's way the leader's processor also works for most of the others' messages.
	meanwhile := others * n * (r.post + r.poll) * 3 / 4
	e.Latency = max(seconds(float64(servers)/perMessage)+meanwhile, n*work)
	e.All = max(seconds(allOf/perMessage)+meanwhile, n*work+work)
	e.Worst += n * work
	if e.Messages = 1 / work.Seconds(); rate < e.Messages {
		e.Messages, e.Bound = rate, ResourceDepth
	}
	e.Wire = float64(servers-1) * float64(r.wire(message+bufferTrailer)+
		r.wire(message+logTrailer)) / float64(payload)
	// Tickets and their answers, what the members have taken and their entries; then the messages
	// that all clients have waiting.
	e.Repair = 3*quorum + 6*others*(r.post+r.poll) + replicate + told + farthest + 2*n*work
	return e
}

// roundTrips returns the time of a byte to the majority that is nearest to a leader and back, and
// the time of one to the farthest server.
func (r *remote) roundTrips(first, servers int) (quorum, farthest time.Duration) {
	var trips []time.Duration
	for v := range servers {
		if v != first {
			trips = append(trips, r.way(first, v)+r.way(v, first))
			farthest = max(farthest, r.way(first, v))
		}
	}
	slices.Sort(trips)
	if needed := memoryQuorum(servers) - 1; needed > 0 {
		quorum = trips[needed-1]
	}
	return quorum, farthest
}

// overLeaders returns the means over all leaders of latencies and throughputs, and the longest of
// the worst latencies and repairs.
func (r *remote) overLeaders(servers int, leads func(first int) Engine) Engine {
	mean := Engine{}
	var latency, all time.Duration
	for first := range servers {
		e := leads(first)
		latency += e.Latency
		all += e.All
		e.Worst, e.Repair = max(e.Worst, mean.Worst), max(e.Repair, mean.Repair)
		e.Messages += mean.Messages
		mean = e
	}
	mean.Latency, mean.All = latency/time.Duration(servers), all/time.Duration(servers)
	mean.Messages /= float64(servers)
	return mean
}

// tramFits returns why a group of TRAM cannot have this many servers, or "".
func tramFits(servers int) string {
	if servers > TRAMMax {
		return fmt.Sprintf("a group of TRAM has at most %d servers", TRAMMax)
	}
	return ""
}
