package plan

import (
	"fmt"
	"time"
)

const (
	// LeaderMax is the largest group of DARE.
	LeaderMax = 64
	// LeaderWindow is the number of messages that each server of DARE has outstanding while the
	// group carries as much as it can.
	LeaderWindow = 16
	// offerTrailer, entryHeader and entryTrailer are what DARE adds to a message in a ring of
	// proposals, to each message of an entry, and to an entry, in bytes.
	offerTrailer, entryHeader, entryTrailer = 16, 12, 32
	// wordSize is the size of a pointer in a log, in bytes.
	wordSize = 8
)

// leader estimates DARE over a deployment: a server writes a message into the memory of all others,
// the leader writes it into the logs, then their tails, and then the commit pointers.
//
// The leader's own messages are A-delivered after one round trip to a majority. Those of a follower
// also travel to the leader and back, so they take about twice as long, and a follower has half as
// many in the same time. The entries hold the followers' messages together, and the leader's by
// themselves. Hence of n+1 messages two are the leader's, and they make three entries.
//
// Every server may lead, so latencies and throughputs are means over all leaders, and Worst and
// Repair are those of the worst one.
func leader(d Deployment, servers, payload int) (Engine, error) {
	r, err := newRemote(d, servers)
	if err != nil {
		return Engine{}, err
	}
	return r.overLeaders(servers, func(first int) Engine {
		return r.leads(first, servers, payload)
	}), nil
}

// leads estimates a group with a certain leader.
func (r *remote) leads(first, servers, payload int) Engine {
	g := r.led(first, servers, payload)
	n := time.Duration(servers)
	work := n * g.work(1) // for a message of each server
	e := Engine{
		Latency: max(g.mean, work), Worst: g.worst + work, Repair: g.election,
		Outstanding: LeaderWindow, Bound: ResourceDepth, Detector: DetectorEventual,
		Tolerated: tolerated(servers), Uninterrupted: tolerated(servers),
	}
	// In a busy group the leader's messages reach the others with the next ones.
	e.All = max(g.all, work+work/n)
	cycle := g.mean + n*(LeaderWindow-1)*g.work(LeaderWindow)/2
	if busy := n * LeaderWindow * g.work(LeaderWindow); busy > cycle {
		cycle, e.Bound = busy, g.bound(LeaderWindow)
	}
	e.Messages = float64(servers) * LeaderWindow / cycle.Seconds()
	offer := r.wire(payload + offerTrailer)
	entries := 3 * float64(r.wire(entryTrailer+servers*entryHeader)) / float64(servers+1)
	words := 3 * float64(2*r.wire(wordSize)) / LeaderWindow / float64(servers+1)
	e.Wire = float64(servers-1) * (float64(offer+payload) + entries + words) / float64(payload)
	return e
}

// leaderFits returns why a leader cannot have this many servers, or "".
func leaderFits(servers int) string {
	if servers > LeaderMax {
		return fmt.Sprintf("a leader has at most %d servers", LeaderMax)
	}
	return ""
}

// led is what a group with a certain leader does. The times are those in an idle group.
type led struct {
	servers int
	// mean is the mean time from the A-broadcast of a message to its A-delivery at its own server,
	// all that to the last server's A-delivery, and worst the longest such time.
	mean, all, worst time.Duration
	// election is the time from a campaign to the first A-delivery of all.
	election time.Duration
	// operation is the time in which a processor posts an operation and takes its completion. link
	// is the time in which a link carries a message alone, and share that of a message in an entry.
	operation, link, share time.Duration
}

// led estimates a group with a certain leader, one message of each server outstanding.
func (r *remote) led(first, servers, payload int) led {
	others := time.Duration(servers - 1)
	g := led{servers: servers, operation: r.post + r.poll, link: r.bytes(payload + entryHeader)}
	together := max(1, (servers+1)/3)
	g.share = r.bytes(together*(payload+entryHeader)) / time.Duration(together)
	quorum, farthest := r.roundTrips(first, servers)
	needed := memoryQuorum(servers) - 1
	// The leader posts the entry and the tail for all, the owners take both, and the leader takes
	// the completions that it needs.
	replicate := 2*others*r.post + time.Duration(needed)*(g.link+2*r.poll) + quorum + 2*r.target
	offer := others * max(r.post, g.link) // posting a message for all others
	commit := others*r.post + farthest + r.target
	own := offer + replicate
	perMessage := 1 / own.Seconds()
	// With its own message committed, the leader sends the next one, and the pointers follow that.
	behind := 2 * others * g.link
	allOf := perMessage * (own + behind + commit).Seconds()
	g.worst = own + behind + commit
	for v := range servers {
		if v == first {
			continue
		}
		there := others*r.post + g.link + r.way(v, first) + r.target
		latency := there + replicate + others*r.post + r.way(first, v) + r.target
		perMessage += 1 / latency.Seconds()
		allOf += (there + replicate + commit).Seconds() / latency.Seconds()
		g.worst = max(g.worst, there+replicate+commit)
	}
	g.mean = seconds(float64(servers) / perMessage)
	g.all = seconds(allOf / perMessage)
	// Requests, copies of the votes, and votes; then the leader reads what may not be committed,
	// and adjusts and updates the logs; and all servers offer a message. These are some 22
	// operations for each other server, half of them while others are under way.
	g.election = 3*quorum + 11*others*g.operation + replicate + commit
	return g
}

// work returns how long the leader's busiest part works for each message, with a number of messages
// of each server outstanding. It writes each entry to all others, and a tail and a commit pointer
// once for all outstanding ones. Its own messages it also writes into the others' memory.
func (g *led) work(window int) time.Duration {
	processor, link := g.shares(window)
	return max(processor, link)
}

// bound returns the leader's busiest part.
func (g *led) bound(window int) Resource {
	if processor, link := g.shares(window); processor > link {
		return ResourceProcessor
	}
	return ResourceLink
}

// shares returns how long the leader's processor and its link work for each message. Of n+1
// messages, it writes two as its own into the rings of the others, three entries into their logs,
// and three tails and as many commit pointers for each window.
func (g *led) shares(window int) (processor, link time.Duration) {
	others, parts := time.Duration(g.servers-1), time.Duration(g.servers+1)
	return others * g.operation * time.Duration(5*window+6) / parts / time.Duration(window),
		others * (parts*g.share + 2*g.link) / parts
}
