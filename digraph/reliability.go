package digraph

import (
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// DefaultNines is the number of nines of a zero [Target]: 1 - 1e-6.
	DefaultNines = 6
	// DefaultPeriod is the period of a zero [Target].
	DefaultPeriod = 24 * time.Hour
	// DefaultMTTF is the server MTTF of a zero [Target], about two years [Poke19, table 4.2]. With
	// exactly two years GS(128,d) would need a degree of 6, where [Poke19, table 5.3] has 5.
	DefaultMTTF = 18304 * time.Hour
	// MaxNines is the largest number of nines that a [Target] may ask for.
	MaxNines = 30
)

// Target states how reliable a digraph must be. A zero field stands for its default.
type Target struct {
	// Nines asks for a probability of at least 1 - 10^-Nines that no more servers fail within the
	// period than the digraph tolerates. The range is 1 to [MaxNines].
	Nines int
	// Period is the time after which failed servers have been replaced.
	Period time.Duration
	// MTTF is the mean time to failure of one server. Lifetimes are distributed exponentially.
	MTTF time.Duration
}

// withDefaults replaces zero fields by their defaults and rejects fields out of range.
func (target Target) withDefaults() (Target, error) {
	if target.Nines == 0 {
		target.Nines = DefaultNines
	}
	if target.Period == 0 {
		target.Period = DefaultPeriod
	}
	if target.MTTF == 0 {
		target.MTTF = DefaultMTTF
	}
	switch {
	case target.Nines < 1 || target.Nines > MaxNines:
		return target, fmt.Errorf("%w: %d nines, want 1 to %d", ErrTarget, target.Nines, MaxNines)
	case target.Period < 0:
		return target, fmt.Errorf("%w: the period %v is negative", ErrTarget, target.Period)
	case target.MTTF < 0:
		return target, fmt.Errorf("%w: the mean time to failure %v is negative", ErrTarget,
			target.MTTF)
	case target.Period/target.MTTF >= maxPeriods:
		return target, fmt.Errorf("%w: the period %v is more than %d times the mean time to "+
			"failure %v, so almost no server survives it", ErrTarget,
			target.Period, maxPeriods, target.MTTF)
	}
	return target, nil
}

// Degree returns the smallest d >= 3 for which GS(n,d) meets the target: with the wanted
// probability at most d-1 of the n servers fail within the period [Poke19, section 5.6.4]. The
// error wraps [ErrOrder], [ErrTarget] or [ErrDegree]. ErrDegree means that only a degree with n <
// 2d would meet the target, and no such GS(n,d) exists.
func Degree(n int, target Target) (int, error) {
	if err := checkOrder(n); err != nil {
		return 0, err
	}
	target, err := target.withDefaults()
	if err != nil {
		return 0, err
	}
	survives := survivalProbability(target.Period, target.MTTF)
	fails := sub(number(1), survives)
	allowed := new(big.Float).SetPrec(precision).SetInt(new(big.Int).Exp(big.NewInt(10),
		big.NewInt(int64(target.Nines)), nil))
	allowed.Quo(number(1), allowed)
	// term is the probability that exactly 0, 1, ... servers fail, each computed from the one
	// before. withinReach is their sum.
	term := power(survives, n)
	withinReach := number(0)
	for i := 0; 2*i <= n; i++ {
		// At this point withinReach is the probability that at most i-1 servers fail.
		if i >= 3 && sub(number(1), withinReach).Cmp(allowed) <= 0 {
			return i, nil
		}
		withinReach = add(withinReach, term)
		term = quo(mul(mul(term, number(n-i)), fails), mul(number(i+1), survives))
	}
	return 0, fmt.Errorf("%w: no degree with n >= 2d meets %d nines with %d servers over %v "+
		"with a mean time to failure of %v", ErrDegree,
		target.Nines, n, target.Period, target.MTTF)
}

// Reliable returns G_R, the digraph over which a shard of n servers broadcasts reliably: GS(n,d)
// with the [Degree] of the target. If no such GS exists, which is always so for n < 6, it returns
// the complete digraph. The complete digraph tolerates as many failures as n servers can tolerate
// at all. For few servers this may be fewer than the target asks for.
func Reliable(n int, target Target) (*Digraph, error) {
	d, err := Degree(n, target)
	if errors.Is(err, ErrDegree) {
		return Complete(n)
	}
	if err != nil {
		return nil, err
	}
	return GS(n, d)
}

// Tolerated returns the number of failures f that a shard over g survives, min(κ-1, ⌊(n-1)/2⌋). It
// is below the connectivity, so that the other servers reach each other. It is less than half of
// the servers, as uniform delivery and an eventually perfect failure detector require.
func Tolerated(g *Digraph) int {
	return max(0, min(g.Connectivity()-1, (g.order-1)/2))
}

const (
	// precision is the precision of all numbers here, in bits. Added to 1, a term of 10^-30 keeps
	// more than 100 digits.
	precision = 512
	// maxPeriods bounds the period in mean times to failure. Added to 1, e^-maxPeriods keeps its
	// digits too.
	maxPeriods = 64
)

// number, add, sub, mul and quo use math/big with a fixed precision. The result is the same on
// every machine.
func number(x int) *big.Float { return new(big.Float).SetPrec(precision).SetInt64(int64(x)) }

func add(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Add(x, y) }
func sub(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Sub(x, y) }
func mul(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Mul(x, y) }
func quo(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Quo(x, y) }

// power returns x to the power of a non-negative exponent, by squaring.
func power(x *big.Float, exponent int) *big.Float {
	result := number(1)
	for ; exponent > 0; exponent >>= 1 {
		if exponent&1 == 1 {
			result = mul(result, x)
		}
		x = mul(x, x)
	}
	return result
}

// survivalProbability returns the probability that a server survives the period, e^(-period/mttf)
// [Poke19, equation 5.4].
func survivalProbability(period, mttf time.Duration) *big.Float {
	x := quo(number(int(period)), number(int(mttf)))
	// e^-x = (e^-y)^(2^halvings) with y = x/2^halvings < 1/2, for which the series converges
	// quickly.
	halvings := 0
	half := quo(number(1), number(2))
	y := x
	for ; y.Cmp(half) >= 0; halvings++ {
		y = mul(y, half)
	}
	exponential, term := number(1), number(1)
	for i := 1; i <= 128; i++ {
		term = quo(mul(term, y), number(-i))
		exponential = add(exponential, term)
	}
	for range halvings {
		exponential = mul(exponential, exponential)
	}
	return exponential
}
