//go:build linux

package torture

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Mounts.
//
// Tests mount small file systems. A run that is interrupted must not leave them behind. So the
// tests run in a mount namespace of their own, which the kernel removes with its last process. Loop
// devices are freed as soon as they are neither open nor mounted (autoclear).

// ownMountsVariable is set in the process that has the namespace.
const ownMountsVariable = "LEDGERD_TEST_OWN_MOUNTS"

// inOwnMounts runs this program again with mounts of its own, and returns its exit status. It
// returns false if this process should go on: it has the namespace, or may not make one.
func inOwnMounts() (status int, ran bool) {
	if os.Getenv(ownMountsVariable) != "" || os.Geteuid() != 0 {
		return 0, false
	}
	// The child is killed when the thread that started it ends.
	runtime.LockOSThread()
	child := exec.Command("/proc/self/exe", os.Args[1:]...)
	child.Env = append(os.Environ(), ownMountsVariable+"=1")
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		return 0, false
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	go func() {
		for received := range signals {
			_ = child.Process.Signal(received) // the child may have ended
		}
	}()
	if err := child.Wait(); err != nil && child.ProcessState.ExitCode() <= 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return child.ProcessState.ExitCode(), true
}

// attach makes a loop device from an image. The device is freed once its file is closed and it is
// not mounted.
func attach(image string) (device *os.File, err error) {
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, backing.Close()) }()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		err = errors.Join(fmt.Errorf("configure %s: %w", device.Name(), err), device.Close())
		if !errors.Is(err, unix.EBUSY) { // another process was quicker
			return nil, err
		}
	}
}

// backingFile returns the image of a loop device, or "" if it has none.
func backingFile(device string) string {
	path := filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file")
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// holdVolumeVariable names a folder in which TestHoldVolume makes a volume and waits to be killed.
const holdVolumeVariable = "LEDGERD_TEST_HOLD_VOLUME"

// TestHoldVolume is the run of the tests that TestKilledRunLeavesNoMounts starts and kills.
func TestHoldVolume(t *testing.T) {
	dir := os.Getenv(holdVolumeVariable)
	if dir == "" {
		t.Skip("it is for TestKilledRunLeavesNoMounts")
	}
	v := newVolume(t, dir)
	fmt.Printf("volume on %s\n", v.device.Name())
	select {}
}

// TestKilledRunLeavesNoMounts kills a run of the tests while it has a volume mounted.
func TestKilledRunLeavesNoMounts(t *testing.T) {
	t.Parallel()
	if os.Getenv(ownMountsVariable) == "" {
		t.Skip("it takes root, for a mount namespace")
	}
	newVolume(t, filepath.Join(t.TempDir(), "volume")) // or this test skips
	dir := filepath.Join(t.TempDir(), "volume")
	run := exec.Command("/proc/self/exe", "-test.run", "^TestHoldVolume$", "-test.v")
	run.Env = append(os.Environ(), holdVolumeVariable+"="+dir, ownMountsVariable+"=",
		programVariable+"="+program, "TMPDIR="+t.TempDir()) // it removes nothing itself
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	device := ""
	for lines := bufio.NewScanner(out); device == "" && lines.Scan(); {
		_, device, _ = strings.Cut(lines.Text(), "volume on ")
	}
	held := backingFile(device)
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err == nil || device == "" || held == "" {
		t.Fatalf("device %q holds %q, and the run ended with %v", device, held, err)
	}
	for begun := time.Now(); backingFile(device) == held; <-time.After(lookEvery) {
		if time.Since(begun) > patience {
			t.Fatalf("%s still holds %s", device, held)
		}
	}
}
