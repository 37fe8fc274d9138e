package sim

import (
	"context"

	"github.com/ledgerd/ledgerd/sim/parallel"
)

// Sweep runs count seeds from first on, on all processors, and hands each result to report, one at
// a time, in the order of the seeds. It ends early when report returns false or the context is
// done. It returns the error of the first run that failed, or the context's. Options.Trace must be
// nil.
func Sweep(ctx context.Context, options Options, first uint64, count int,
	report func(Result) bool) error {
	return parallel.Seeds(ctx, first, count, func(seed uint64) (Result, error) {
		own := options
		own.Seed = seed
		return Check(own)
	}, report)
}
