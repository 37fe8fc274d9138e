package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// slackVariable makes the test binary relax its timers and print the slack of its threads.
const slackVariable = "LEDGERD_TEST_SLACK"

func TestMain(m *testing.M) {
	if usual := os.Getenv(slackVariable); usual != "" {
		relaxTimers()
		slack := make(chan time.Duration)
		go func() {
			runtime.LockOSThread() // its end ends the thread
			slack <- slackOfThread()
		}()
		fmt.Print(os.Getpid(), slackOfThread(), <-slack)
		return
	}
	os.Exit(m.Run())
}

// TestRelaxTimers checks that a node's threads get the slack in the same process, and that a slack
// that was chosen before stays.
func TestRelaxTimers(t *testing.T) {
	t.Parallel()
	if slack := slackOfThread(); slack != timerSlackUsual {
		t.Skipf("the tests run with a timer slack of %v", slack)
	}
	for chosen, want := range map[time.Duration]time.Duration{
		timerSlackUsual: timerSlack, 3 * time.Millisecond: 3 * time.Millisecond,
	} {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), slackVariable+"=1")
		var said []byte
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // the child inherits the slack of this thread, which then ends
			setSlackOfThread(chosen)
			var err error
			said, err = command.Output()
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if wanted := fmt.Sprint(command.Process.Pid, want, want); string(said) != wanted {
			t.Errorf("with a slack of %v: %q, want %q", chosen, said, wanted)
		}
	}
}
