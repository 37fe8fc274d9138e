package plan

import (
	"math"
	"time"
)

// Mode is the estimate of one way to run a shard, without failures.
type Mode struct {
	// Round is one round of it.
	Round
	// Latency is the time between a server's A-broadcast of a message and its A-delivery.
	Latency time.Duration
	// Throughput is how many transactions a second are A-delivered.
	Throughput float64
}

// Failures is what failures make of the unreliable mode [Poke19, section 6.5.2], with δu and δr as
// the durations of rounds.
type Failures struct {
	// Between is the mean time between two failures among all servers, MTTF/n, and Rounds how many
	// unreliable rounds lie between them, λ.
	Between time.Duration
	Rounds  float64
	// Latency is the expected one, 2δu + (δu+2δr)/λ, and Throughput the expected transactions a
	// second, (1-1/λ)/(δu+δr/λ) rounds.
	Latency    time.Duration
	Throughput float64
	// WorstLatency is that of a round with one failure, 3δu+δr, and WorstLatencyMany with any
	// number, 3δu+2δr; both without the time to notice.
	WorstLatency, WorstLatencyMany time.Duration
	// WorstThroughput is that of failures in every second unreliable round, 1/(2δu+δr) rounds.
	WorstThroughput float64
	// Pause is how long nothing is A-delivered after a crash that only the timeout tells: Δto and
	// the reliable round.
	Pause time.Duration
}

// robust follows the model of section 6.5.2. batch is how many transactions a round holds.
func robust(unreliable, reliable time.Duration, servers int, mttf, timeout time.Duration,
	batch float64) Failures {
	u, r := unreliable.Seconds(), reliable.Seconds()
	f := Failures{
		Between: mttf / time.Duration(servers), WorstLatency: 3*unreliable + reliable,
		WorstLatencyMany: 3*unreliable + 2*reliable,
		Pause:            timeout + reliable,
	}
	f.Rounds = f.Between.Seconds() / u
	// The model is for three rounds and more between failures; below it is the worst case.
	lambda := math.Max(3, f.Rounds)
	f.Latency = seconds(2*u + (u+2*r)/lambda)
	f.Throughput = batch * (1 - 1/lambda) / (u + r/lambda)
	f.WorstThroughput = batch / (2*u + r)
	return f
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Excess is how likely it is that the depth of a round exceeds the fault diameter, because a server
// fails while it sends its message [Poke19, section 5.6.2.2].
type Excess struct {
	// Window is how long a server sends its own message, d·o, and Round the probability for one
	// round, 1 - e^(-n·d·o/MTTF).
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

// Unreliability is 1 - ρ: the probability that more servers fail within a period than the given
// number [Poke19, section 5.6.4].
func Unreliability(servers, failures int, period, mttf time.Duration) float64 {
	fails := -math.Expm1(-float64(period) / float64(mttf))
	if fails <= 0 {
		return 0
	}
	// The upper tail is summed from its first term on, so that nothing is taken from one. A term is
	// a binomial probability, by logarithms.
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
