// Package sweep runs a simulation many times. Seeds runs many seeds on all processors, and a
// Shrinker looks for a smaller run that fails like a failing one. The simulator defines a run:
// package sim runs one group, package sim/multicast several, and package sim/book a book of several
// shards.
//
//	err := sweep.Seeds(ctx, 1, 1000, options.RunSeed, func(result Result) bool {
//		return len(result.Violations) == 0 // go on?
//	})
//
// The results do not depend on the number of processors: they arrive one at a time, in the order of
// the seeds. No goroutine is left when Seeds returns, and only a bounded number of results per
// processor wait to be reported.
package sweep
