package plan

import (
	"math"
	"time"
)

// Mode is the estimate for one mode of a shard, without failures.
type Mode struct {
	// Round is one round in this mode.
	Round
	// Latency is the time between a server's A-broadcast of a message and its A-delivery.
	Latency time.Duration
	// Throughput is the number of transactions A-delivered a second.
	Throughput float64
}

// Failures is the effect of failures on the unreliable mode [Poke19, section 6.5.2]. δu and δr are
// the durations of rounds.
type Failures struct {
	// Between is the mean time between two failures among all servers, MTTF/n. Rounds is the number
	// of unreliable rounds between them, λ.
	Between time.Duration
	Rounds  float64
	// Latency is the expected latency, 2δu + (δu+2δr)/λ. Throughput is the expected number of
	// transactions a second, at (1-1/λ)/(δu+δr/λ) rounds a second.
	Latency    time.Duration
	Throughput float64
	// WorstLatency is the latency of a round with one failure, 3δu+δr. WorstLatencyMany is that
	// with any number of failures, 3δu+2δr. Both leave out the time to detect the failures.
	WorstLatency, WorstLatencyMany time.Duration
	// WorstThroughput is the throughput with a failure in every second unreliable round, at
	// 1/(2δu+δr) rounds a second.
	WorstThroughput float64
	// Pause is the time without A-deliveries after a crash that only the timeout detects: Δto and
	// the reliable round.
	Pause time.Duration
}

// robust computes the model of section 6.5.2. batch is the number of transactions in a round.
func robust(unreliable, reliable time.Duration, servers int, mttf, timeout time.Duration,
	batch float64) Failures {
	u, r := unreliable.Seconds(), reliable.Seconds()
	f := Failures{
		Between: mttf / time.Duration(servers), WorstLatency: 3*unreliable + reliable,
		WorstLatencyMany: 3*unreliable + 2*reliable,
		Pause:            timeout + reliable,
	}
	f.Rounds = f.Between.Seconds() / u
	// The model requires at least three rounds between failures; below that, use the worst case.
	lambda := math.Max(3, f.Rounds)
	f.Latency = seconds(2*u + (u+2*r)/lambda)
	f.Throughput = batch * (1 - 1/lambda) / (u + r/lambda)
	f.WorstThroughput = batch / (2*u + r)
	return f
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Excess is the probability that the depth of a round exceeds the fault diameter because a server
// fails while it sends its message [Poke19, section 5.6.2.2].
type Excess struct {
	// Window is the time in which a server sends its own message, d·o. Round is the probability for
	// one round, 1 - e^(-n·d·o/MTTF).
	Window time.Duration
	Round  float64
	// Million is the probability for a million rounds.
	Million float64
}

func excess(servers, degree int, gap, mttf time.Duration) Excess {
	e := Excess{Window: time.Duration(degree) * gap}
	perRound := float64(servers) * float64(e.Window) / float64(mttf)
	e.Round = -math.Expm1(-perRound)
	e.Million = -math.Expm1(-1e6 * perRound)
	return e
}

// Unreliability returns 1 - ρ: the probability that more than the given number of servers fail
// within a period [Poke19, section 5.6.4].
func Unreliability(servers, failures int, period, mttf time.Duration) float64 {
	fails := -math.Expm1(-float64(period) / float64(mttf))
	if fails <= 0 {
		return 0
	}
	// Sum the upper tail from its first term, because a subtraction from one would lose precision.
	// Each term is a binomial probability, computed with logarithms.
	lgamma := func(x int) float64 { value, _ := math.Lgamma(float64(x)); return value }
	sum := 0.0
	for i := failures + 1; i <= servers; i++ {
		log := lgamma(servers+1) - lgamma(i+1) - lgamma(servers-i+1) + float64(i)*math.Log(fails)
		if i < servers {
			log += float64(servers-i) * -float64(period) / float64(mttf)
		}
		sum += math.Exp(log)
	}
	return math.Min(1, sum)
}
