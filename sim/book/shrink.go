package book

import (
	"slices"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

const (
	// shrinkRuns is the maximum number of runs that Shrink makes.
	shrinkRuns = 300
	// shrinkSeeds is how many seeds are tried for each smaller book.
	shrinkSeeds = 8
)

// Shrink looks for a smaller run that breaks the same property as result, which is the result of
// options: fewer shards of fewer members, if necessary with another seed, and then without the
// bundles and faults that it does not need. It returns that run's options and result, or the given
// ones if it finds none.
func Shrink(options Options, result Result) (Options, Result) {
	if len(result.Violations) == 0 {
		return options, result
	}
	options.Trace = nil
	x := &shrinker{sweep.NewShrinker(options, result, Run, Result.broken)}
	x.Left = shrinkRuns
	if options.OnlySubmissions == nil && options.OnlyFaults == nil {
		x.book()
	}
	// Leaving out a bundle may make a fault unnecessary, and the other way round.
	for before := -1; before != len(x.Result.submitted)+len(x.Result.struck) && x.Left > 0; {
		before = len(x.Result.submitted) + len(x.Result.struck)
		x.list(x.Result.struck, func(o *Options, keep []int) { o.OnlyFaults = keep })
		x.list(x.Result.submitted, func(o *Options, keep []int) { o.OnlySubmissions = keep })
	}
	return x.Options, x.Result
}

// shrinker tries smaller runs.
type shrinker struct {
	*sweep.Shrinker[Options, Result]
}

// book looks for fewer shards, then for smaller ones.
func (x *shrinker) book() {
	original := x.Options
	for members := 1; members <= 3; members += 2 {
		for shards := 2; shards <= min(3, x.Result.Shards); shards++ {
			if original.Members != 0 || original.Shards != 0 || x.Left < shrinkRuns/2 {
				continue
			}
			for seed := range uint64(shrinkSeeds) {
				smaller := original
				smaller.Shards, smaller.Members, smaller.Seed = shards, members, original.Seed+seed
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
