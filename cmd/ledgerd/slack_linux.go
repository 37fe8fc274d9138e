package main

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// timerSlack is how late the kernel may wake a thread of a node for a timer. While any thread works
// or waits for the disk, Go's runtime checks on it from a thread of its own, which sleeps for 20 us
// at a time. With the usual slack this thread wakes every 70 us, which was half of all context
// switches of a lone transaction. A thread that waits for the disk holds a processor up to that
// much longer, so much more slack would slow down a loaded node.
const timerSlack = 200 * time.Microsecond

// timerSlackUsual is the slack of a process for which none was chosen.
const timerSlackUsual = 50 * time.Microsecond

// The operations of prctl(2).
const (
	prSetTimerSlack = 29
	prGetTimerSlack = 30
)

// relaxTimers sets the timer slack of a process that will be a node. Threads inherit it, and the
// runtime's thread already runs, so relaxTimers executes the program again, in the same process. It
// returns if another slack was chosen, by itself before or by an operator, or if that is
// impossible. Call it before anything else.
func relaxTimers() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if slackOfThread() != timerSlackUsual {
		return
	}
	program, err := os.Executable()
	if err != nil || !setSlackOfThread(timerSlack) {
		return
	}
	// It returns only if it fails.
	_ = syscall.Exec(program, os.Args, os.Environ())
	setSlackOfThread(timerSlackUsual)
}

// slackOfThread returns the calling thread's timer slack.
func slackOfThread() time.Duration {
	slack, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, prGetTimerSlack, 0, 0)
	return time.Duration(slack)
}

func setSlackOfThread(slack time.Duration) bool {
	_, _, failure := syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, uintptr(slack), 0)
	return failure == 0
}
