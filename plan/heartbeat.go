package plan

import (
	"fmt"
	"math"
	"time"
)

const (
	// heartbeatsPerTimeout is Δto/Δhb: the paper's settings have it, 10 ms and 100 ms (figure
	// 5.11), 1 ms and 10 ms (figure 6.7), and so has the node's default.
	heartbeatsPerTimeout = 10
	// heartbeatStep is what heartbeat periods are rounded up to.
	heartbeatStep = time.Millisecond
	// heartbeatMax is the longest period that is looked at.
	heartbeatMax = 24 * time.Hour
)

// Delay is the distribution of heartbeats' delays: the network's latency, and beyond it an
// exponential tail.
type Delay struct {
	// Base is the latency, and Tail the mean of what is beyond it.
	Base, Tail time.Duration
}

// Exceeds is Pr[T > t].
func (d Delay) Exceeds(t time.Duration) float64 {
	switch {
	case t < d.Base:
		return 1
	case d.Tail <= 0:
		return 0
	}
	return math.Exp(-float64(t-d.Base) / float64(d.Tail))
}

// Heartbeat is a setting of the failure detector, and how accurate it is.
type Heartbeat struct {
	// Period is Δhb, Timeout is Δto.
	Period, Timeout time.Duration
	// Wrong bounds the probability that some server suspects another one wrongly within one
	// timeout, and WrongInPeriod within the plan's period.
	Wrong, WrongInPeriod float64
}

// Inaccuracy is one minus the accuracy of [Poke19, section 5.2.1.1], which is
//
//	(1 - Π_{k=1..⌊Δto/Δhb⌋} Pr[T > Δto - k·Δhb])^(n·d)
//
// for n servers in a digraph of degree d, where delayed(t) gives Pr[T > t]. It is computed as the
// complement since it is so small: an accuracy of 1 - 10^-17 is no number that a machine has. The
// bound takes the delays of heartbeats as independent. The error wraps ErrQuestion.
func Inaccuracy(servers, degree int, heartbeat, timeout time.Duration,
	delayed func(time.Duration) float64) (float64, error) {
	if servers < 1 || degree < 0 || heartbeat <= 0 || timeout < heartbeat || delayed == nil {
		return 0, fmt.Errorf("%w: accuracy of %d servers of degree %d with heartbeats every %v "+
			"and a timeout of %v", ErrQuestion, servers, degree, heartbeat, timeout)
	}
	allLate := 1.0
	for k := time.Duration(1); k <= timeout/heartbeat; k++ {
		p := delayed(timeout - k*heartbeat)
		if !(p >= 0 && p <= 1) {
			return 0, fmt.Errorf("%w: %v is no probability", ErrQuestion, p)
		}
		allLate *= p
	}
	return oneOf(allLate, float64(servers)*float64(degree)), nil
}

// oneOf is the probability that at least one of so many independent events happens, 1-(1-p)^count,
// also where p is below what 1-p can tell from 1.
func oneOf(p, count float64) float64 {
	if p >= 1 {
		if count == 0 {
			return 0
		}
		return 1
	}
	return -math.Expm1(count * math.Log1p(-p))
}

// heartbeat finds the shortest timeout, ten heartbeats long, with which nobody is suspected wrongly
// within the period with the wanted probability of being wrong. Every heartbeat begins a new
// timeout. judged says how inaccurate a timeout is.
func heartbeat(period time.Duration, wanted float64,
	judged func(heartbeat, timeout time.Duration) (float64, error)) (Heartbeat, error) {
	var found Heartbeat
	good := func(steps int64) (bool, error) {
		h := Heartbeat{Period: time.Duration(steps) * heartbeatStep}
		h.Timeout = heartbeatsPerTimeout * h.Period
		wrong, err := judged(h.Period, h.Timeout)
		if err != nil {
			return false, err
		}
		h.Wrong, h.WrongInPeriod = wrong, oneOf(wrong,
			math.Max(1, float64(period)/float64(h.Period)))
		if h.WrongInPeriod > wanted {
			return false, nil
		}
		found = h
		return true, nil
	}
	low, high := int64(0), int64(1) // low is not good enough
	for {
		enough, err := good(high)
		if err != nil {
			return Heartbeat{}, err
		}
		if enough {
			break
		}
		low, high = high, 2*high
		if time.Duration(high)*heartbeatStep > heartbeatMax {
			return Heartbeat{}, fmt.Errorf("%w: no timeout is accurate enough", ErrQuestion)
		}
	}
	for low+1 < high {
		middle := (low + high) / 2
		enough, err := good(middle)
		if err != nil {
			return Heartbeat{}, err
		}
		if enough {
			high = middle
		} else {
			low = middle
		}
	}
	return found, nil
}

// heartbeats are two settings: one as the paper counts, and a careful one, which takes it that a
// pause delays all heartbeats of a timeout at once, so that the first of them decides.
func heartbeats(servers, degree int, delay Delay, period time.Duration,
	wanted float64) (independent, together Heartbeat, err error) {
	independent, err = heartbeat(period, wanted, func(heartbeat, timeout time.Duration) (float64,
		error) {
		return Inaccuracy(servers, degree, heartbeat, timeout, delay.Exceeds)
	})
	if err != nil {
		return independent, together, err
	}
	together, err = heartbeat(period, wanted, func(heartbeat, timeout time.Duration) (float64,
		error) {
		return oneOf(delay.Exceeds(timeout-heartbeat), float64(servers)*float64(degree)), nil
	})
	return independent, together, err
}
