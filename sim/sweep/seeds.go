package sweep

import (
	"context"
	"runtime"
	"sync"
)

// ahead is how many results of one processor may wait for their turn.
const ahead = 64

// Seeds runs count seeds from first on and hands each result to report, in the order of the seeds,
// from the caller's goroutine. It ends early when report returns false or the context is done. It
// returns the error of the first run that failed, or the context's. Calls of run are concurrent.
func Seeds[R any](ctx context.Context, first uint64, count int, run func(seed uint64) (R, error),
	report func(R) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	type outcome struct {
		result R
		err    error
	}
	workers := min(runtime.GOMAXPROCS(0), count)
	// Worker w runs the seeds first+w, first+w+workers, and so on. Taking results from the workers
	// in turn therefore gives the order of the seeds.
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
