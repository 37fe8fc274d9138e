// Package parallel runs a simulation over many seeds, on all processors, with results that do not
// depend on how many there are: they come in the order of the seeds, one at a time. What a run is
// belongs to its user: package sim's runs of one group, package sim/multicast's of several.
//
// What always holds: no goroutine is left when Seeds returns, and no more than some results a
// processor wait to be reported.
package parallel

import (
	"context"
	"runtime"
	"sync"
)

// ahead bounds the results of one processor that wait for their turn.
const ahead = 64

// Seeds runs count seeds from first on, and hands each result to report, in the order of the seeds,
// from the caller's goroutine. It ends early when report returns false or the context is done, and
// returns the error of the first run that could not be had, or the context's. Several calls of run
// go on at once.
func Seeds[R any](ctx context.Context, first uint64, count int, run func(seed uint64) (R, error),
	report func(R) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	type outcome struct {
		result R
		err    error
	}
	workers := min(runtime.GOMAXPROCS(0), count)
	// Worker w runs the seeds first+w, first+w+workers, ... so that taking from the workers in turn
	// gives the seeds in order.
	outcomes := make([]chan outcome, workers)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for w := range workers {
		outcomes[w] = make(chan outcome, ahead)
		running.Go(func() {
			for number := w; number < count; number += workers {
				result, err := run(first + uint64(number))
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
