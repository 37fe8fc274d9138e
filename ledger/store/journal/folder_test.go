package journal

import (
	"errors"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A process may be killed after it made a segment and before it claimed it. The next one uses that
// segment, so it claims it first: otherwise nothing would tell that it is missing.
func TestLeftSegmentIsClaimed(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"segment folder", "segment claim"} {
		o := newOwner(t.TempDir(), 2*pageSize)
		options := o.options()
		var killed atomic.Pointer[files] // another goroutine sets it
		options.Before = func(step string) {
			if step == at && o.known.Segment == 1 && killed.Load() == nil {
				left := readFiles(t, o.dir)
				killed.Store(&left)
			}
		}
		j, err := Open(o.dir, Known{}, options)
		if err = errors.Join(err, j.Start()); err != nil {
			t.Fatal(err)
		}
		for killed.Load() == nil {
			if _, err := j.Append(make([]byte, pageSize)); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		again := newOwner(t.TempDir(), 2*pageSize)
		again.known.Segment = 1
		killed.Load().write(t, again.dir)
		if _, _, err := again.open(); err != nil {
			t.Fatal(err)
		}
		if again.known.Segment != 2 || again.j.Flushes() < 3 {
			t.Errorf("killed at %s: segment %d is claimed, segment 2 can be used; %d flushes", at,
				again.known.Segment, again.j.Flushes())
		}
		if err := again.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each change of the folder is durable before the next one. Otherwise a power cut could leave a
// gap in the row of segments.
func TestFolderChangesAreDurableOneByOne(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize)
	options := o.options()
	flushes, removed := uint64(0), 0
	options.Before = func(step string) {
		switch step {
		case "segment remove", "segment reuse":
			if now := o.j.Flushes(); now == flushes {
				t.Errorf("%s without a flush after the change before", step)
			} else {
				flushes = now
			}
			if step == "segment remove" {
				removed++
			}
		}
	}
	var err error
	if o.j, err = Open(o.dir, Known{}, options); err == nil {
		err = o.j.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var group uint64
	for range 12 {
		if group, err = o.j.Append(make([]byte, pageSize/2)); err != nil {
			t.Fatal(err)
		}
	}
	o.j.Release(group)
	for range 4 {
		if _, err = o.j.Append(make([]byte, pageSize/2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	if removed < 2 {
		t.Errorf("%d segments were removed", removed)
	}
}

// Start does not wait for space: opening a store must not hang.
func TestStartDoesNotWait(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize)
	options := o.options()
	options.Retry = func(attempt func() error) error {
		t.Error("Start retries")
		return attempt()
	}
	j, err := Open(o.dir, Known{}, options)
	if err = errors.Join(err, j.Start()); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

const fewDescriptors = "LEDGER_JOURNAL_DESCRIPTORS"

// A process without descriptors goes on with the segments that the journal has.
func TestReuseNeedsNoDescriptors(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDescriptorsChild$")
	child.Env = append(os.Environ(), fewDescriptors+"="+t.TempDir())
	if output, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

func TestDescriptorsChild(t *testing.T) {
	dir := os.Getenv(fewDescriptors)
	if dir == "" {
		t.Skip("runs as a child of TestReuseNeedsNoDescriptors only")
	}
	o := newOwner(dir, 2*pageSize)
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	appendAndRelease := func(count int) {
		t.Helper()
		for range count {
			group, err := o.j.Append(make([]byte, pageSize))
			if err != nil {
				t.Fatal(err)
			}
			o.j.Release(group)
		}
	}
	appendAndRelease(10)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			break
		}
	}
	appendAndRelease(10)
}
