package figure

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
)

// sweep runs cases, several at a time and the most expensive first, and returns their results in
// the cases' order. The first error ends it.
func sweep[Case, Result any](ctx context.Context, options Options, cases []Case,
	weight func(Case) float64,
	do func(context.Context, Case) (Result, error)) ([]Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	total := 0.0
	order := make([]int, len(cases))
	for i, c := range cases {
		order[i] = i
		total += weight(c)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(weight(cases[b]), weight(cases[a]))
	})

	var (
		mutex   sync.Mutex
		next    int
		done    float64
		failed  error
		results = make([]Result, len(cases))
		workers sync.WaitGroup
	)
	if options.Workers == 0 {
		options.Workers = runtime.GOMAXPROCS(0)
	}
	for range min(options.Workers, len(cases)) {
		workers.Go(func() {
			for {
				mutex.Lock()
				if next == len(order) || failed != nil {
					mutex.Unlock()
					return
				}
				i := order[next]
				next++
				mutex.Unlock()
				result, err := do(ctx, cases[i])
				mutex.Lock()
				results[i] = result
				done += weight(cases[i])
				if err != nil && failed == nil {
					failed = err
					cancel()
				}
				if options.Progress != nil && err == nil {
					options.Progress(done, total)
				}
				mutex.Unlock()
			}
		})
	}
	workers.Wait()
	return results, failed
}
