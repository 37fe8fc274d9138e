package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// use is what processes used in a part of a run.
type use struct {
	// CPU is user and system time.
	CPU time.Duration `json:"cpu"`
	// Switches are context switches of all threads, voluntary and involuntary.
	Switches uint64 `json:"switches"`
	// ReadsAndWrites are system calls that read or write, also those that moved nothing. It is nil
	// if the system does not count them.
	ReadsAndWrites *uint64 `json:"reads_and_writes"`
}

func (u use) plus(other use) use {
	return use{u.CPU + other.CPU, u.Switches + other.Switches,
		combined(u.ReadsAndWrites, other.ReadsAndWrites, func(a, b uint64) uint64 { return a + b })}
}

// since returns what was used after an earlier use of the same process.
func (u use) since(before use) use {
	return use{u.CPU - before.CPU, u.Switches - before.Switches,
		combined(u.ReadsAndWrites, before.ReadsAndWrites,
			func(a, b uint64) uint64 { return a - b })}
}

// combined returns nil if one of the counts is unknown.
func combined(a, b *uint64, combine func(a, b uint64) uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	result := combine(*a, *b)
	return &result
}

// processUse returns what this process has used since its start.
func processUse() (use, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return use{}, fmt.Errorf("bench: processor time: %w", err)
	}
	return use{CPU: time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
		Switches: uint64(usage.Nvcsw) + uint64(usage.Nivcsw), ReadsAndWrites: readsAndWrites()}, nil
}

// cpuTime returns the user and system time that this process has used.
func cpuTime() (time.Duration, error) {
	used, err := processUse()
	return used.CPU, err
}

// readsAndWrites returns the kernel's count for this process, or nil if there is none.
func readsAndWrites() *uint64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return nil
	}
	return parseReadsAndWrites(string(text))
}

// parseReadsAndWrites adds two of the lines of /proc/PID/io. It returns nil if one is missing.
func parseReadsAndWrites(text string) *uint64 {
	sum, found := uint64(0), 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name != "syscr" && name != "syscw" {
			continue
		}
		number, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return nil
		}
		sum += number
		found++
	}
	if found != 2 {
		return nil
	}
	return &sum
}

// calls are the system calls of processes while they delivered a number of messages.
type calls struct {
	SystemCalls uint64 `json:"system_calls"`
	Messages    uint64 `json:"messages"`
	// Uncounted is why the calls are unknown, or "".
	Uncounted string `json:"uncounted"`
}

func (c calls) plus(other calls) calls {
	sum := calls{c.SystemCalls + other.SystemCalls, c.Messages + other.Messages, c.Uncounted}
	if sum.Uncounted == "" {
		sum.Uncounted = other.Uncounted
	}
	return sum
}

// callCounting counts the system calls of this process. It slows them down, so it has a part of the
// run of its own.
type callCounting struct {
	counter   *callCounter // nil if err is set
	err       error
	delivered func() uint64 // the messages that were delivered so far
	before    calls
}

// beginCalls begins to count, beside the messages of the function. The caller must end or close it.
func beginCalls(delivered func() uint64) *callCounting {
	c := &callCounting{delivered: delivered}
	if c.counter, c.err = newCallCounter(); c.err == nil {
		c.before, c.err = c.look()
	}
	return c
}

// look returns both counts as they are. To make and to close the counter takes long.
func (c *callCounting) look() (calls, error) {
	count, err := c.counter.total()
	return calls{SystemCalls: count, Messages: c.delivered()}, err
}

// end returns the calls since the beginning, and closes c.
func (c *callCounting) end() calls {
	if c == nil {
		return calls{Uncounted: "nobody began to count"}
	}
	var counted calls
	if c.err == nil {
		counted, c.err = c.look()
		counted.SystemCalls -= c.before.SystemCalls
		counted.Messages -= c.before.Messages
	}
	if err := c.close(); c.err == nil {
		c.err = err
	}
	if c.err != nil {
		return calls{Uncounted: c.err.Error()}
	}
	return counted
}

// close releases what c holds. A nil c holds nothing.
func (c *callCounting) close() error {
	if c == nil || c.counter == nil {
		return nil
	}
	counter := c.counter
	c.counter = nil
	return counter.close()
}
