package plan

import (
	"fmt"
	"time"
)

// The names of the engines that are compared.
const (
	EngineAllConcurPlus = "allconcur+"
	EngineAllConcur     = "allconcur"
	EngineTrains        = "trains"
	EngineDARE          = "dare"
	EngineTRAM          = "tram"
)

// Detector is what an engine needs of its failure detector to go on after a failure.
type Detector string

// The detectors.
const (
	// DetectorEventual is ◇P: it may err, and order goes on all the same.
	DetectorEventual Detector = "eventual"
	// DetectorPerfect is P: it makes no mistake.
	DetectorPerfect Detector = "perfect"
)

// Engine is the estimate for one engine. All servers always have something to send. The time that a
// transaction waits until its server sends the next message is not counted.
type Engine struct {
	// Name is one of the names above.
	Name string
	// Excluded is why the engine cannot have the deployment. Then nothing else is set but Name.
	Excluded string
	// Latency is the mean time from the A-broadcast of a message to its A-delivery at the same
	// server, which is what a client waits for. All is the mean time to the A-delivery at the last
	// server, and Worst the longest such time without failures. For DARE, they are those of a group
	// in which each server has one message outstanding.
	Latency, All, Worst time.Duration
	// Messages is the number of messages A-delivered a second, with Outstanding messages of each
	// server outstanding. Transactions and Bytes count what is in them.
	Messages            float64
	Transactions, Bytes float64
	Outstanding         int
	// Bound is what bounds the throughput. With DARE it is a part of the leader.
	Bound Resource
	// Wire is the number of bytes on all links for each byte of payload.
	Wire float64
	// Pause is the time without A-deliveries after a crash that only the timeout detects: the
	// careful timeout of the plan, and Repair, which follows the suspicion. With DARE the first
	// candidate waits in between.
	Pause, Repair time.Duration
	// NodePause is Pause with the eventually perfect detector that nodes have. It is longer for an
	// engine that needs a perfect one: without the server that is suspected, the others agree on a
	// group anew (renewal). NodeTolerated is Tolerated with that detector.
	NodePause     time.Duration
	NodeTolerated int
	// Tolerated is the number of failures that the group survives with the Detector. Uninterrupted
	// is the number of them after which order goes on without a pause. With DARE these are
	// followers: when the leader fails, there is a pause.
	Tolerated, Uninterrupted int
	Detector                 Detector
	// Carries reports whether Transactions reaches the load of the question.
	Carries bool

	// renewal is the time from the suspicion to a group without the suspected server, in nodes.
	renewal time.Duration
}

// EngineNames lists the engines in the order of Plan.Engines.
func EngineNames() []string {
	return []string{EngineAllConcurPlus, EngineAllConcur, EngineTrains, EngineDARE,
		EngineTRAM}
}

// compare estimates all engines.
func (p *Plan) compare(c carrier) error {
	q := p.Question
	payload := q.Batch * q.Transaction
	for _, name := range EngineNames() {
		e, err := p.engine(name, c, payload)
		if err != nil {
			return fmt.Errorf("estimate %s: %w", name, err)
		}
		e.Name = name
		if e.Excluded == "" {
			e.Transactions = e.Messages * float64(q.Batch)
			e.Bytes = e.Messages * float64(payload)
			e.Pause = p.Careful.Timeout + e.Repair
			if name == EngineDARE {
				// The first candidate waits up to two timeouts, by a number of its own.
				e.Pause += 2 * p.Careful.Timeout / time.Duration(q.Servers)
			}
			e.NodePause, e.NodeTolerated = e.Pause, e.Tolerated
			if e.Detector == DetectorPerfect {
				e.NodeTolerated = tolerated(q.Servers)
				e.NodePause = p.Careful.Timeout + e.renewal
			}
			e.Carries = e.Transactions >= q.Load
		}
		p.Engines = append(p.Engines, e)
	}
	return nil
}

func (p *Plan) engine(name string, c carrier, payload int) (Engine, error) {
	q := p.Question
	switch {
	case name == EngineAllConcurPlus:
		return p.dual(c, payload), nil
	case name == EngineAllConcur:
		return p.single(c, payload), nil
	case name == EngineTrains && ringFits(q.Servers) != "":
		return Engine{Excluded: ringFits(q.Servers)}, nil
	case name == EngineDARE && leaderFits(q.Servers) != "":
		return Engine{Excluded: leaderFits(q.Servers)}, nil
	case name == EngineTRAM && tramFits(q.Servers) != "":
		return Engine{Excluded: tramFits(q.Servers)}, nil
	case q.Servers == 1:
		return p.alone(), nil
	case name == EngineTrains:
		return ring(q.Deployment, q.Servers, payload)
	case name == EngineTRAM:
		return tramGroup(q.Deployment, q.Servers, payload)
	}
	return leader(q.Deployment, q.Servers, payload)
}

// alone is a ring or a leader without others.
func (p *Plan) alone() Engine {
	busy := max(p.Question.Deployment.Overhead, 1)
	return Engine{Latency: busy, All: busy, Worst: busy, Messages: 1 / busy.Seconds(),
		Outstanding: 1, Bound: ResourceProcessor, Detector: DetectorEventual}
}

// dual is AllConcur+ with uniform delivery and without failures.
func (p *Plan) dual(c carrier, payload int) Engine {
	m := p.Unreliable
	return p.rounds(Engine{
		Latency: p.Uniform, All: p.Uniform, Worst: 3 * m.Duration,
		Wire: float64((p.Question.Servers-1)*c.wire) / float64(payload),
	}, m)
}

// single is AllConcur with its votes.
func (p *Plan) single(c carrier, payload int) Engine {
	m, messages := p.Eventual, p.Received
	e := p.rounds(Engine{
		Latency: m.Latency, All: max(p.spread.all, m.Latency),
		Worst: max(p.spread.worst, m.Latency),
		Wire:  float64(messages*c.wire+(m.Sent-messages)*c.control) / float64(payload),
	}, m)
	// Most messages of the round under way are there before the suspicion. Notifications and votes
	// are left, and take as long ways.
	e.Repair = (m.Pace + m.Duration) / 2
	return e
}

// rounds completes what engines of rounds have in common.
func (p *Plan) rounds(e Engine, m Mode) Engine {
	e.Messages, e.Outstanding = m.Throughput/float64(p.Question.Batch), 1
	e.Bound, e.Repair = m.Bound, p.Eventual.Duration
	e.Tolerated, e.Detector = p.Tolerated, DetectorEventual
	return e
}

// Quickest returns the engine with the smallest latency of those that carry the load, and
// Strongest the one with the greatest throughput. They report false if there is none.
func Quickest(engines []Engine) (best Engine, found bool) {
	return choose(engines, func(a, b *Engine) bool { return a.Latency < b.Latency })
}

// Strongest is described with Quickest.
func Strongest(engines []Engine) (best Engine, found bool) {
	return choose(engines, func(a, b *Engine) bool { return a.Messages > b.Messages })
}

func choose(engines []Engine, better func(a, b *Engine) bool) (best Engine, found bool) {
	for i := range engines {
		e := &engines[i]
		if e.Excluded == "" && e.Carries && (!found || better(e, &best)) {
			best, found = *e, true
		}
	}
	return best, found
}
