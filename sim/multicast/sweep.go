package multicast

import (
	"context"
	"runtime"
	"sync"
)

// Sweep runs count seeds from first on, on all processors, and hands each result to report: in the order of the seeds, one at a time. It ends early when report returns false or the context is done, and
// returns the error of the first run that could not be had, or the context's. Options.Trace must be nil.
func Sweep(ctx context.Context, options Options, first uint64, count int, report func(Result) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	type outcome struct {
		result Result
		err    error
	}
	workers := min(runtime.GOMAXPROCS(0), count)
	// Worker w runs the seeds first+w, first+w+workers, ... so that taking from the workers in turn gives the seeds in order.
	outcomes := make([]chan outcome, workers)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for w := range workers {
		outcomes[w] = make(chan outcome, 64)
		running.Go(func() {
			for number := w; number < count; number += workers {
				own := options
				own.Seed = first + uint64(number)
				result, err := Run(own)
				select {
				case outcomes[w] <- outcome{result, err}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for number := range count {
		select {
		case o := <-outcomes[number%workers]:
			if o.err != nil {
				return o.err
			}
			if !report(o.result) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
