package plan

import (
	"fmt"
	"math"
	"time"
)

const (
	// heartbeatsPerTimeout is Δto/Δhb. The paper uses this ratio (10 ms and 100 ms in figure 5.11,
	// 1 ms and 10 ms in figure 6.7), and so does the default of the node.
	heartbeatsPerTimeout = 10
	// heartbeatStep is the unit of heartbeat periods. Periods are rounded up to it.
	heartbeatStep = time.Millisecond
	// heartbeatMax bounds the periods that are tried.
	heartbeatMax = 24 * time.Hour
)

// Delay is the distribution of the delays of heartbeats: the network's latency plus an exponential
// tail.
type Delay struct {
	// Base is the latency, and Tail the mean of the tail.
	Base, Tail time.Duration
}

// Exceeds returns Pr[T > t].
func (d Delay) Exceeds(t time.Duration) float64 {
	switch {
	case t < d.Base:
		return 1
	case d.Tail <= 0:
		return 0
	}
	return math.Exp(-float64(t-d.Base) / float64(d.Tail))
}

// Heartbeat is a setting of the failure detector and its accuracy.
type Heartbeat struct {
	// Period is Δhb, and Timeout is Δto.
	Period, Timeout time.Duration
	// Wrong bounds the probability that some server wrongly suspects another one within one
	// timeout. WrongInPeriod bounds it within the period of the plan.
	Wrong, WrongInPeriod float64
}

// Inaccuracy returns one minus the accuracy of [Poke19, section 5.2.1.1], which is
//
//	(1 - Π_{k=1..⌊Δto/Δhb⌋} Pr[T > Δto - k·Δhb])^(n·d)
//
// for n servers in a digraph of degree d, where delayed(t) returns Pr[T > t]. It computes the
// complement because it can be very small: a float64 cannot represent an accuracy of 1 - 10^-17.
// The bound assumes that the delays of heartbeats are independent. The error wraps ErrQuestion.
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
			return 0, fmt.Errorf("%w: %v is not a probability", ErrQuestion, p)
		}
		allLate *= p
	}
	return probabilityOfAny(allLate, float64(servers)*float64(degree)), nil
}

// probabilityOfAny returns the probability that at least one of count independent events happens,
// 1-(1-p)^count. It is accurate even if p is so small that 1-p rounds to 1.
func probabilityOfAny(p, count float64) float64 {
	if p >= 1 {
		if count == 0 {
			return 0
		}
		return 1
	}
	return -math.Expm1(count * math.Log1p(-p))
}

// heartbeat returns the setting with the shortest timeout, of heartbeatsPerTimeout heartbeats, for
// which the probability of a wrong suspicion within the period is at most wanted. Every heartbeat
// starts a new timeout. judged returns the inaccuracy of a timeout.
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
		h.Wrong, h.WrongInPeriod = wrong, probabilityOfAny(wrong,
			math.Max(1, float64(period)/float64(h.Period)))
		if h.WrongInPeriod > wanted {
			return false, nil
		}
		found = h
		return true, nil
	}
	low, high := int64(0), int64(1) // low is not accurate enough
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

// heartbeats returns two settings. independent follows the paper and assumes independent delays.
// together is the careful one: it assumes that a pause delays all heartbeats of a timeout at once,
// so that the first of them decides.
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
		return probabilityOfAny(delay.Exceeds(timeout-heartbeat), float64(servers)*float64(degree)),
			nil
	})
	return independent, together, err
}
