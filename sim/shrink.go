package sim

import (
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

// shrinkRuns is the maximum number of runs that Shrink makes after leaving out kinds of fault.
const shrinkRuns = 80

// Shrink looks for a smaller run with the same seed that breaks the same property first as result,
// which is the result of options. It first leaves out kinds of fault, then tries fewer crashes
// before fewer payloads. It returns that run's options and result, or the given ones if it finds
// none.
func Shrink(options Options, result Result) (Options, Result) {
	if len(result.Violations) == 0 {
		return options, result
	}
	options.Trace = nil
	x := sweep.NewShrinker(options, result, Check, Result.broken)
	x.Left = len(faultNames)
	for bit := range faultNames {
		smaller := x.Options
		smaller.Faults &^= 1 << bit
		if smaller.Faults != x.Options.Faults && smaller.lives() == x.Options.lives() {
			x.Try(smaller)
		}
	}
	crashes := len(x.Result.Crashed)
	rounds := roundsMax
	if x.Options.Rounds > 0 {
		rounds = min(rounds, x.Options.Rounds)
	}
	x.Left = shrinkRuns
	for allowed := 0; allowed <= crashes; allowed++ {
		for submitted := 1; submitted <= rounds; submitted++ {
			smaller := x.Options
			smaller.Crashes, smaller.Rounds = allowed, submitted
			if x.Try(smaller) || x.Left == 0 {
				return x.Options, x.Result
			}
		}
	}
	return x.Options, x.Result
}

// broken returns the property that the run breaks first, or "".
func (r Result) broken() order.Property {
	if len(r.Violations) == 0 {
		return ""
	}
	return r.Violations[0].Property
}
