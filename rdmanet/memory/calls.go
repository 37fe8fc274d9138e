package memory

import (
	"sync"
	"sync/atomic"
)

// callsSealed is added to the count by seal.
const callsSealed = 1 << 32

// calls counts the receive calls that run on a host, until it is sealed: from then on none begins.
type calls struct {
	state atomic.Int64 // the number, and callsSealed
	seals sync.Once
	once  sync.Once
	quiet chan struct{} // closed when it is sealed and none runs
}

func newCalls() *calls { return &calls{quiet: make(chan struct{})} }

// begin counts a call that is about to run; false if it must not.
func (c *calls) begin() bool {
	if c.state.Add(1) > callsSealed {
		c.end()
		return false
	}
	return true
}

// end takes a call that has returned out of the count.
func (c *calls) end() { c.check(c.state.Add(-1)) }

// seal lets no further call begin. What it gives is closed once none runs.
func (c *calls) seal() <-chan struct{} {
	c.seals.Do(func() { c.check(c.state.Add(callsSealed)) })
	return c.quiet
}

func (c *calls) check(state int64) {
	if state == callsSealed {
		c.once.Do(func() { close(c.quiet) })
	}
}
