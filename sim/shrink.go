package sim

import "github.com/ledgerd/ledgerd/order"

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
	property := result.Violations[0].Property
	options.Trace = nil
	for bit := range faultNames {
		smaller := options
		smaller.Faults &^= 1 << bit
		if smaller.Faults == options.Faults || smaller.lives() != options.lives() {
			continue
		}
		if found, err := Check(smaller); err == nil && breaks(found, property) {
			options, result = smaller, found
		}
	}
	crashes := len(result.Crashed)
	rounds := roundsMax
	if options.Rounds > 0 {
		rounds = min(rounds, options.Rounds)
	}
	runs := 0
	for allowed := 0; allowed <= crashes; allowed++ {
		for submitted := 1; submitted <= rounds; submitted++ {
			if runs++; runs > shrinkRuns {
				return options, result
			}
			smaller := options
			smaller.Crashes, smaller.Rounds = allowed, submitted
			if found, err := Check(smaller); err == nil && breaks(found, property) {
				return smaller, found
			}
		}
	}
	return options, result
}

// breaks reports whether the first broken property of a run is the given one.
func breaks(result Result, property order.Property) bool {
	return len(result.Violations) > 0 && result.Violations[0].Property == property
}
