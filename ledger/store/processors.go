package store

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// onAllProcessors calls do for each part from 0 to parts-1, on all processors, and returns when all
// calls have.
func onAllProcessors(parts int, do func(part int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), parts) {
		working.Go(func() {
			for part := int(next.Add(1)) - 1; part < parts; part = int(next.Add(1)) - 1 {
				do(part)
			}
		})
	}
	working.Wait()
}
