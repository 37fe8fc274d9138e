package plan

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/digraph"
)

const (
	// ServersMax is the number of servers in the largest shard that can be planned.
	ServersMax = 1024
	// BatchMax is the largest batch, in transactions.
	BatchMax = 1 << 16
	// TransactionDefault is the default size of a transaction in bytes [Poke19, section 6.5].
	TransactionDefault = 250
	// TransactionMax is the maximum size of a transaction in bytes.
	TransactionMax = 1 << 20
	// AccuracyDefault is the default of the wanted accuracy.
	AccuracyDefault = 0.999999
	// DistanceMax is the longest distance of a deployment.
	DistanceMax = time.Minute
	// LoadMax is the greatest load, in transactions a second.
	LoadMax = 1e12
	// payloadMax is the maximum size of a message in bytes.
	payloadMax = 1 << 26
)

// Question is the input of a plan. Fields that are zero stand for their defaults, except Servers
// and Deployment, which have none.
type Question struct {
	// Servers is n, from 1 to ServersMax.
	Servers int
	// Target is the reliability that determines the degree of the overlay.
	Target digraph.Target
	// Deployment is the network.
	Deployment Deployment
	// Batch is the number of transactions in a message; 0 means 1.
	Batch int
	// Transaction is the size of a transaction in bytes; 0 means TransactionDefault.
	Transaction int
	// Accuracy is the wanted probability, above 0 and below 1, that no server is wrongly suspected
	// within the target's period; 0 means AccuracyDefault.
	Accuracy float64
	// Load is the number of transactions a second that the shard has to carry. 0 means that any
	// engine carries it.
	Load float64
}

// Plan is the answer to a question.
type Plan struct {
	// Question is the question, with the defaults filled in.
	Question Question
	// Overlay is G_R.
	Overlay *digraph.Digraph
	// Degree, Connectivity, Diameter and FaultDiameter describe the overlay. FaultDiameter is a
	// bound for one failure less than the connectivity.
	Degree, Connectivity, Diameter, FaultDiameter int
	// Tolerated is f, the number of failures that the shard survives.
	Tolerated int
	// Unreliability is the probability that more than Tolerated servers fail within the period.
	// Meets reports whether that is within the target.
	Unreliability float64
	Meets         bool
	// Received is the number of messages that a server receives in a round in reliable mode,
	// (n-1)d. ReceivedFailures is the maximum with f failures, (n-1)d + f·d².
	Received, ReceivedFailures int
	// Unreliable is AllConcur+ without failures, whose latency is two rounds. Uniform is its
	// latency with uniform delivery, which needs the messages of a quorum from a third round.
	Unreliable Mode
	Uniform    time.Duration
	// Reliable is AllConcur with a perfect failure detector. Eventual is AllConcur with an
	// eventually perfect one, in which the servers vote on each round in addition.
	Reliable, Eventual Mode
	// Failures is the effect of failures on the unreliable mode.
	Failures Failures
	// Excess is the probability that a round exceeds the fault diameter.
	Excess Excess
	// Delay is the assumed delay of heartbeats. Heartbeat has the wanted accuracy if their delays
	// are independent, and Careful if a pause delays all of them.
	Delay              Delay
	Heartbeat, Careful Heartbeat
	// Engines compares the engines, in the order of EngineNames.
	Engines []Engine

	// spread is that of the messages of Eventual.
	spread spread
}

// withDefaults fills in the defaults. It returns ErrQuestion if a field is invalid.
func (q Question) withDefaults() (Question, error) {
	if q.Batch == 0 {
		q.Batch = 1
	}
	if q.Transaction == 0 {
		q.Transaction = TransactionDefault
	}
	if q.Accuracy == 0 {
		q.Accuracy = AccuracyDefault
	}
	if q.Target.Nines == 0 {
		q.Target.Nines = digraph.DefaultNines
	}
	if q.Target.Period == 0 {
		q.Target.Period = digraph.DefaultPeriod
	}
	if q.Target.MTTF == 0 {
		q.Target.MTTF = digraph.DefaultMTTF
	}
	switch {
	case q.Servers < 1 || q.Servers > ServersMax:
		return q, fmt.Errorf("%w: %d servers, want 1 to %d", ErrQuestion, q.Servers, ServersMax)
	case q.Deployment.build == nil:
		return q, fmt.Errorf("%w: no deployment", ErrQuestion)
	case q.Deployment.Tail < 0 || q.Deployment.Overhead < 0 || q.Deployment.Window < 0 ||
		q.Deployment.Distance < 0 || q.Deployment.Distance > DistanceMax:
		return q, fmt.Errorf("%w: a negative tail, overhead or window, or a distance that is not "+
			"0 to %v", ErrQuestion, DistanceMax)
	case q.Batch < 1 || q.Batch > BatchMax:
		return q, fmt.Errorf("%w: a batch of %d transactions, want 1 to %d", ErrQuestion, q.Batch,
			BatchMax)
	case q.Transaction < 1 || q.Transaction > TransactionMax || q.Transaction*q.Batch > payloadMax:
		return q, fmt.Errorf("%w: %d transactions of %d bytes in a message, want at most %d "+
			"bytes in all", ErrQuestion, q.Batch, q.Transaction, payloadMax)
	case !(q.Load >= 0 && q.Load <= LoadMax):
		return q, fmt.Errorf("%w: a load of %v transactions a second", ErrQuestion, q.Load)
	case !(q.Accuracy > 0 && q.Accuracy < 1):
		return q, fmt.Errorf("%w: an accuracy of %v, want above 0 and below 1", ErrQuestion,
			q.Accuracy)
	}
	return q, nil
}

// Make computes the plan for a question. The error wraps ErrQuestion or an error of package
// digraph.
func Make(q Question) (Plan, error) {
	q, err := q.withDefaults()
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Question: q}
	if err := p.choose(); err != nil {
		return Plan{}, err
	}
	n, d := q.Servers, p.Degree
	c, err := newCarrier(q.Deployment, n, q.Batch*q.Transaction)
	if err != nil {
		return Plan{}, err
	}
	if err := p.estimate(c); err != nil {
		return Plan{}, err
	}
	p.Received = (n - 1) * d
	p.ReceivedFailures = p.Received + p.Tolerated*d*d
	p.Excess = excess(n, d, c.gap, q.Target.MTTF)
	p.Delay = Delay{Tail: q.Deployment.Tail}
	for _, way := range c.ways {
		p.Delay.Base = max(p.Delay.Base, way)
	}
	p.Heartbeat, p.Careful, err = heartbeats(n, d, p.Delay, q.Target.Period, 1-q.Accuracy)
	if err != nil {
		return Plan{}, err
	}
	p.Failures = robust(p.Unreliable.Duration, p.Eventual.Duration, n, q.Target.MTTF,
		p.Careful.Timeout, float64(n*q.Batch))
	return p, p.compare(c)
}

// choose selects the overlay and computes its properties.
func (p *Plan) choose() error {
	q := p.Question
	g, err := digraph.Reliable(q.Servers, q.Target)
	if err != nil {
		return err
	}
	p.Overlay, p.Degree, p.Connectivity, p.Tolerated = g, g.Degree(), g.Connectivity(),
		digraph.Tolerated(g)
	if p.Diameter, err = g.Diameter(); err != nil {
		return err
	}
	if p.FaultDiameter, err = g.FaultDiameterBound(max(0, p.Connectivity-1)); err != nil {
		return err
	}
	p.Unreliability = Unreliability(q.Servers, p.Tolerated, q.Target.Period, q.Target.MTTF)
	allowed := 1.0
	for range q.Target.Nines {
		allowed /= 10
	}
	p.Meets = p.Unreliability <= allowed
	return nil
}

// estimate computes the estimates of the modes.
func (p *Plan) estimate(c carrier) error {
	transactions := float64(p.Question.Servers * p.Question.Batch)
	mode := func(r Round, rounds time.Duration) Mode {
		// A lone server waits for no other; its duration does not depend on the network.
		r.Duration = max(r.Duration, c.overhead, 1)
		return Mode{Round: r, Latency: rounds * r.Duration,
			Throughput: transactions / r.Duration.Seconds()}
	}
	p.Unreliable = mode(c.unreliable(), 2)
	p.Reliable = mode(c.reliable(p.Overlay, 1), 1)
	// The messages of a third round arrive spread over its duration, and delivery waits for those
	// of a fast quorum.
	n := p.Question.Servers
	p.Uniform = p.Unreliable.Latency + p.Unreliable.Duration*time.Duration(quorum(n))/time.Duration(
		n)

	// Each vote names a set of servers.
	control, err := newCarrier(p.Question.Deployment, n, (n+63)/64*8)
	if err != nil {
		return err
	}
	var round Round
	round, p.spread = c.voted(p.Overlay, control)
	p.Eventual = mode(round, 1)
	return nil
}

// quorum returns the number of servers, out of n, that must have gone on before an unreliable round
// is delivered uniformly without a perfect failure detector. It is the smallest number above n -
// c/2, where c is the majority.
func quorum(n int) int {
	majority := n/2 + 1
	return n - (majority+1)/2 + 1
}
