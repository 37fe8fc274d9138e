package store

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// descriptorsFolder is in the environment of a child that runs TestDescriptorsChild.
const descriptorsFolder = "LEDGER_DESCRIPTORS_FOLDER"

// A process without descriptors keeps its store: appends are refused, what was appended waits, and
// all goes on when there are descriptors again. A child process has few.
func TestNoDescriptorsLeft(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDescriptorsChild$",
		"-test.v")
	child.Env = append(os.Environ(), descriptorsFolder+"="+t.TempDir())
	if output, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

func TestDescriptorsChild(t *testing.T) {
	dir := os.Getenv(descriptorsFolder)
	if dir == "" {
		t.Skip("runs as a child of TestNoDescriptorsLeft only")
	}
	s := open(t, dir, small())
	b := newBook(20)
	b.apply(t, s, 0)
	b.apply(t, s, 200)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: 128}); err != nil {
		t.Fatal(err)
	}
	var taken []int
	var payload []byte
	for refused := false; !refused; {
		descriptor, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			taken = append(taken, descriptor)
			continue
		case !errors.Is(err, unix.EMFILE):
			t.Fatal(err)
		}
		// The database may close a file in the background after the last one was taken.
		payload = b.next(200)
		_, err = s.Apply(1, b.round, [][]byte{payload})
		refused = errors.Is(err, ErrNoDescriptors)
		if !refused && err != nil {
			t.Fatalf("apply without descriptors: %v", err)
		}
	}
	synced := make(chan error)
	go func() { synced <- s.Sync() }()
	// It may need another file for the journal.
	select {
	case err := <-synced:
		if err != nil {
			t.Fatalf("sync without descriptors: %v", err)
		}
		close(synced)
	case <-time.After(300 * time.Millisecond):
	}
	for _, descriptor := range taken {
		_ = unix.Close(descriptor)
	}
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(1, b.round, [][]byte{payload}); err != nil {
		t.Fatalf("apply with descriptors again: %v", err)
	}
	for range 50 { // through several logs of the database
		b.apply(t, s, 200)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}
