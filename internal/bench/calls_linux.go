package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// callCounter counts the system calls of this process by the kernel's tracepoint for them. It has a
// counter for each thread. Threads that start later are counted with the thread that starts them.
type callCounter struct{ counters []int }

// threadAttempts bounds the attempts to find all threads while others start and end.
const threadAttempts = 100

func newCallCounter() (*callCounter, error) {
	tracepoint, err := callTracepoint()
	if err != nil {
		return nil, err
	}
	for range threadAttempts {
		c, complete, err := watchThreads(tracepoint)
		if err == nil && complete {
			return c, nil
		}
		if err = errors.Join(err, c.close()); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("threads start too often to be counted")
}

// callTracepoint returns the number of the tracepoint that every system call passes.
func callTracepoint() (uint64, error) {
	var err error
	for _, folder := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		var text []byte
		if text, err = os.ReadFile(folder + "/events/raw_syscalls/sys_enter/id"); err == nil {
			return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		} else if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return 0, err
}

// watchThreads counts for all threads that there are. It is complete if it found the same threads
// afterwards: then all later ones start from threads that are counted.
func watchThreads(tracepoint uint64) (c *callCounter, complete bool, err error) {
	c = &callCounter{}
	threads, err := threadIDs()
	if err != nil {
		return c, false, err
	}
	attributes := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: tracepoint,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bits: unix.PerfBitInherit}
	for _, thread := range threads {
		counter, err := unix.PerfEventOpen(&attributes, thread, -1, -1,
			unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ESRCH) {
			return c, false, nil // the thread has ended
		}
		if err != nil {
			return c, false, os.NewSyscallError("perf_event_open", err)
		}
		c.counters = append(c.counters, counter)
	}
	again, err := threadIDs()
	return c, slices.Equal(threads, again), err
}

// threadIDs lists the threads of this process.
func threadIDs() ([]int, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var threads []int
	for _, entry := range entries {
		thread, err := strconv.Atoi(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("/proc/self/task: %w", err)
		}
		threads = append(threads, thread)
	}
	return threads, nil
}

// total returns the system calls since the counter was made.
func (c *callCounter) total() (sum uint64, err error) {
	for _, counter := range c.counters {
		var count [8]byte
		if n, err := unix.Read(counter, count[:]); err != nil || n != len(count) {
			return 0, errors.Join(fmt.Errorf("a counter of system calls gave %d bytes", n), err)
		}
		sum += binary.NativeEndian.Uint64(count[:])
	}
	return sum, nil
}

func (c *callCounter) close() (err error) {
	for _, counter := range c.counters {
		err = errors.Join(err, unix.Close(counter))
	}
	c.counters = nil
	return err
}
