package plan

import (
	"fmt"
	"math"
	"time"
)

// Component is a part of a server that can fail by itself, or the network [Poke19, Table 4.2].
type Component struct {
	// Name is for people.
	Name string
	// AnnualFailures is the annualized failure rate: the share of components that fail in a year.
	AnnualFailures float64
	// MTTF is the mean time to failure.
	MTTF time.Duration
}

// The components, with the highest failure rates that the dissertation found in the literature
// [Poke19, Table 4.2]. Server is a server as a whole, in systems that exchange messages.
var (
	Network = Component{"network", 0.01, 876_000 * time.Hour}
	NIC     = Component{"NIC", 0.01, 876_000 * time.Hour}
	Memory  = Component{"memory", 0.395, 22_177 * time.Hour}
	CPU     = Component{"CPU", 0.419, 20_906 * time.Hour}
	Server  = Component{"server", 0.479, 18_304 * time.Hour}
)

// Fails returns the probability that the component fails within a period. Its lifetime is
// exponentially distributed.
func (c Component) Fails(period time.Duration) float64 {
	return -math.Expm1(-float64(period) / float64(c.MTTF))
}

// Nines returns the reliability 1-p in the number of nines notation, which is not rounded here.
func Nines(p float64) float64 { return -math.Log10(p) }

// Zombies returns the share of failures that leave a zombie: a server whose processor is blocked,
// and whose memory and NIC work. Peers can still read and write its memory [Poke19, section 4.6.1].
func Zombies() float64 {
	return CPU.AnnualFailures / (Network.AnnualFailures + NIC.AnnualFailures +
		Memory.AnnualFailures + CPU.AnnualFailures)
}

// MemoryUnreliability returns 1 - ρ_j(q-1, n): the probability that entries which are only in the
// memory of q = ⌈(n+1)/2⌉ of n servers may get lost, because q or more of all memories fail
// [Poke19, section 4.6.2]. A memory that failed in an epoch, which is a period long, is back after
// the next epoch, so the failures of two epochs count. mttf is the memory's mean time to failure.
//
// The result is for the second epoch, which is the worst: the first begins with all memories there.
// Lifetimes are exponential, so the paper's recurrence comes to a binomial distribution: each
// memory fails within the two epochs independently. The error wraps ErrQuestion.
func MemoryUnreliability(servers int, period, mttf time.Duration) (float64, error) {
	if servers < 1 || servers > ServersMax || period <= 0 || period > math.MaxInt64/2 || mttf <= 0 {
		return 0, fmt.Errorf("%w: memory of %d servers, which fails every %v, for %v", ErrQuestion,
			servers, mttf, period)
	}
	return Unreliability(servers, memoryQuorum(servers)-1, 2*period, mttf), nil
}

// memoryQuorum returns q = ⌈(n+1)/2⌉, the number of servers to which entries are copied.
func memoryQuorum(servers int) int { return servers/2 + 1 }
