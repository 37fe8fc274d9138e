package multicast

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

const (
	// shrinkRuns is the maximum number of runs that Shrink makes.
	shrinkRuns = 400
	// shrinkSeeds is how many seeds are tried for each smaller deployment.
	shrinkSeeds = 12
)

// Shrink looks for a smaller run that breaks the same property first as result, which is the result
// of options: fewer groups of fewer replicas, if necessary with another seed, and then without the
// messages and faults that it does not need. It returns that run's options and result, or the given
// ones if it finds none.
func Shrink(options Options, result Result) (Options, Result) {
	if len(result.Violations) == 0 {
		return options, result
	}
	options.Trace = nil
	x := &shrinker{sweep.NewShrinker(options, result, Run, Result.broken)}
	x.Left = shrinkRuns
	if options.OnlyMessages == nil && options.OnlyFaults == nil {
		x.deployment()
	}
	// Dropping a message may make a fault unnecessary, and the other way round.
	for before := -1; before != len(x.Result.submitted)+len(x.Result.struck) && x.Left > 0; {
		before = len(x.Result.submitted) + len(x.Result.struck)
		x.list(x.Result.struck, func(o *Options, keep []int) { o.OnlyFaults = keep })
		x.list(x.Result.submitted, func(o *Options, keep []int) { o.OnlyMessages = keep })
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

// shrinker tries smaller runs.
type shrinker struct {
	*sweep.Shrinker[Options, Result]
}

// deployment looks for fewer groups, then for smaller ones.
func (x *shrinker) deployment() {
	original := x.Options
	for replicas := 1; replicas <= 3; replicas++ {
		for groups := 1; groups <= min(3, x.Result.Groups); groups++ {
			if original.Replicas != 0 && replicas > original.Replicas || original.Tree != nil &&
				groups != original.Groups || x.Left < shrinkRuns/2 {
				continue
			}
			for seed := range uint64(shrinkSeeds) {
				smaller := original
				smaller.Groups, smaller.Replicas, smaller.Seed = groups, replicas,
					original.Seed+seed
				if x.Try(smaller) {
					return
				}
			}
		}
	}
}

// list leaves out numbers in ever smaller parts, as long as the run still breaks the property.
func (x *shrinker) list(numbers []int, set func(*Options, []int)) {
	numbers = slices.Sorted(slices.Values(numbers))
	smaller := x.Options
	set(&smaller, append([]int{}, numbers...)) // not nil, which would keep all
	if !x.Try(smaller) {
		return // a planned event that did not happen matters after all
	}
	for part := len(numbers); part >= 1; part /= 2 {
		for from := 0; from < len(numbers); {
			rest := append(append([]int{}, numbers[:from]...),
				numbers[min(from+part, len(numbers)):]...)
			smaller = x.Options
			if set(&smaller, rest); x.Try(smaller) {
				numbers = rest
			} else {
				from += part
			}
		}
	}
}
