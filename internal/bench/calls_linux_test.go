package bench

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The counter counts the calls of threads that are there before it, and of those that start later.
func TestCallCounter(t *testing.T) {
	t.Parallel()
	counter, err := newCallCounter()
	if err != nil {
		t.Skip("system calls are not counted here: ", err)
	}
	defer func() {
		if err := counter.close(); err != nil {
			t.Error(err)
		}
	}()
	before, err := counter.total()
	if err != nil {
		t.Fatal(err)
	}
	// Each of these goroutines has a thread of its own. There are more of them than threads before.
	const each = 1000
	threads := 4 * len(counter.counters)
	var called, callers sync.WaitGroup
	called.Add(threads)
	for range threads {
		callers.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range each {
				_ = unix.Getppid()
			}
			called.Done()
			called.Wait()
		})
	}
	callers.Wait()
	after, err := counter.total()
	if err != nil {
		t.Fatal(err)
	}
	if after-before < uint64(threads*each) {
		t.Errorf("counted %d of %d calls", after-before, threads*each)
	}
}

// The messages are read together with the calls, after the counter is made and before it is closed.
// Both take long.
func TestCallCountingReadsBothTogether(t *testing.T) {
	t.Parallel()
	var c *callCounting
	reads := uint64(0)
	c = beginCalls(func() uint64 {
		if c != nil && c.counter == nil {
			t.Error("read after the counter was closed")
		}
		reads++
		return 100 * reads
	})
	if c.err != nil {
		t.Skip("system calls are not counted here: ", c.err)
	}
	if counted := c.end(); counted.Messages != 100 || counted.Uncounted != "" || reads != 2 {
		t.Errorf("%+v after %d reads", counted, reads)
	}
}
