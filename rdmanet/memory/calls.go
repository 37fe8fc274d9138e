package memory

import (
	"sync"
	"sync/atomic"
)

// callsSealed is added to the count by seal.
const callsSealed = 1 << 32

// calls counts the running receive calls of a host. Once it is sealed, no further call begins.
type calls struct {
	state atomic.Int64 // the number of calls, plus callsSealed once sealed
	seals sync.Once
	once  sync.Once
	quiet chan struct{} // closed when sealed and no call is running
}

func newCalls() *calls { return &calls{quiet: make(chan struct{})} }

// begin counts a call that is about to run. It returns false if the call must not run.
func (c *calls) begin() bool {
	if c.state.Add(1) > callsSealed {
		c.end()
		return false
	}
	return true
}

// end removes a returned call from the count.
func (c *calls) end() { c.check(c.state.Add(-1)) }

// seal lets no further call begin. It returns a channel that is closed once no call is running.
func (c *calls) seal() <-chan struct{} {
	c.seals.Do(func() { c.check(c.state.Add(callsSealed)) })
	return c.quiet
}

func (c *calls) check(state int64) {
	if state == callsSealed {
		c.once.Do(func() { close(c.quiet) })
	}
}
