package multicast

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
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
	x := &shrinker{options: options, result: result, property: result.Violations[0].Property,
		left: shrinkRuns}
	if options.OnlyMessages == nil && options.OnlyFaults == nil {
		x.deployment()
	}
	// Dropping a message may make a fault unnecessary, and the other way round.
	for before := -1; before != len(x.result.submitted)+len(x.result.struck) && x.left > 0; {
		before = len(x.result.submitted) + len(x.result.struck)
		x.list(x.result.struck, func(o *Options, keep []int) { o.OnlyFaults = keep })
		x.list(x.result.submitted, func(o *Options, keep []int) { o.OnlyMessages = keep })
	}
	return x.options, x.result
}

// shrinker holds the smallest run so far.
type shrinker struct {
	options  Options
	result   Result
	property order.Property
	left     int
}

// try accepts a run if it breaks the property first.
func (x *shrinker) try(options Options) bool {
	if x.left--; x.left < 0 {
		return false
	}
	result, err := Run(options)
	if err != nil || len(result.Violations) == 0 || result.Violations[0].Property != x.property {
		return false
	}
	x.options, x.result = options, result
	return true
}

// deployment looks for fewer groups, then for smaller ones.
func (x *shrinker) deployment() {
	original := x.options
	for replicas := 1; replicas <= 3; replicas++ {
		for groups := 1; groups <= min(3, x.result.Groups); groups++ {
			if original.Replicas != 0 && replicas > original.Replicas || original.Tree != nil &&
				groups != original.Groups || x.left < shrinkRuns/2 {
				continue
			}
			for seed := range uint64(shrinkSeeds) {
				smaller := original
				smaller.Groups, smaller.Replicas, smaller.Seed = groups, replicas,
					original.Seed+seed
				if x.try(smaller) {
					return
				}
			}
		}
	}
}

// list leaves out numbers in ever smaller parts, as long as the run still breaks the property.
func (x *shrinker) list(numbers []int, set func(*Options, []int)) {
	numbers = slices.Sorted(slices.Values(numbers))
	smaller := x.options
	set(&smaller, append([]int{}, numbers...)) // not nil, which would keep all
	if !x.try(smaller) {
		return // a planned event that did not happen matters after all
	}
	for part := len(numbers); part >= 1; part /= 2 {
		for from := 0; from < len(numbers); {
			rest := append(append([]int{}, numbers[:from]...),
				numbers[min(from+part, len(numbers)):]...)
			smaller = x.options
			if set(&smaller, rest); x.try(smaller) {
				numbers = rest
			} else {
				from += part
			}
		}
	}
}
