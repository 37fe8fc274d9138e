package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// freeSpace returns the number of bytes that an unprivileged process can still write to the file
// system of dir.
func freeSpace(dir string) (uint64, error) {
	var status unix.Statfs_t
	if err := unix.Statfs(dir, &status); err != nil {
		return 0, fmt.Errorf("store: free space of %s: %w", dir, err)
	}
	return status.Bavail * uint64(status.Bsize), nil
}

// requireSpace returns ErrDiskFull unless the reserve remains free after a write of size more
// bytes. Rows, index and compaction multiply the size of a block; factor allows for them.
func (s *Store) requireSpace(size int) error {
	const factor = 8
	free, err := s.options.FreeSpace(s.dir)
	if err != nil {
		return err
	}
	if need := uint64(s.options.ReserveBytes) + factor*uint64(size); free < need {
		return fmt.Errorf("%w: %d MiB free in %s, %d MiB needed: free some space",
			ErrDiskFull, free>>20, s.dir, need>>20+1)
	}
	return nil
}

// spareDescriptors is how many files the database may open for one write and its compactions.
const spareDescriptors = 16

// requireDescriptors returns ErrNoDescriptors unless the process can open some more files. The
// database cannot go on after it failed to open its next log, so the store asks before each write.
func (s *Store) requireDescriptors() (err error) {
	var spare []int
	defer func() {
		for _, descriptor := range spare {
			_ = unix.Close(descriptor)
		}
	}()
	raw, err := s.lock.SyscallConn()
	if err != nil {
		return nil // the store is being closed
	}
	_ = raw.Control(func(lock uintptr) {
		for range spareDescriptors {
			descriptor, failed := unix.FcntlInt(lock, unix.F_DUPFD_CLOEXEC, 0)
			if outOfDescriptors(failed) {
				err = fmt.Errorf("%w: %w: raise the limit of open files (ulimit -n) or end other "+
					"work on this machine", ErrNoDescriptors, failed)
				return
			}
			if failed != nil {
				return
			}
			spare = append(spare, descriptor)
		}
	})
	return err
}

func outOfDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// retryDescriptors repeats an attempt that opens files until the process can open them, or until
// Close begins: Apply may wait for the writer, and Close waits for Apply. The attempt must be safe
// to repeat.
func (s *Store) retryDescriptors(attempt func() error) error {
	const pause = 100 * time.Millisecond
	for {
		err := attempt()
		s.starved.Store(outOfDescriptors(err))
		if !outOfDescriptors(err) || s.closing.Load() {
			return err
		}
		time.Sleep(pause)
	}
}

// awaitDescriptors waits until the process can open some more files. It returns ErrClosed if Close
// begins meanwhile.
func (s *Store) awaitDescriptors() error {
	err := s.retryDescriptors(s.requireDescriptors)
	if outOfDescriptors(err) {
		return ErrClosed
	}
	return err
}

// retrySpace waits until the disk has space for size more bytes, or until Close begins.
func (s *Store) retrySpace(size int) error {
	const pause = 100 * time.Millisecond
	for {
		err := s.requireSpace(size)
		if !errors.Is(err, ErrDiskFull) {
			return err
		}
		if s.closing.Load() {
			return ErrClosed
		}
		time.Sleep(pause)
	}
}

// retryPassing repeats an attempt to create a file of the journal as long as the process can open
// no more files or the disk or the quota is full, or until Close begins.
func (s *Store) retryPassing(attempt func() error) error {
	const pause = 100 * time.Millisecond
	for {
		err := attempt()
		passes := outOfDescriptors(err) || errors.Is(err, unix.ENOSPC) ||
			errors.Is(err, unix.EDQUOT)
		if !passes || s.closing.Load() {
			return err
		}
		time.Sleep(pause)
	}
}

// isEnding reports whether Close has begun. It does not wait for a block that is being executed, as
// a look at what the mutex guards does.
func (s *Store) isEnding() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

func syncDirectory(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// unlockFolder releases the lock of a folder. Closing the file is not enough: a child process that
// was just forked holds a copy of the file until it executes its program, and the lock belongs to
// all copies.
func unlockFolder(lock *os.File) error {
	return errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_UN), lock.Close())
}

// lockFolder takes the lock of a folder. The process holds it until unlockFolder.
func lockFolder(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
		}
		return nil, fmt.Errorf("store: lock: %w", err)
	}
	return file, nil
}

// logSyncer makes the database's write-ahead logs durable. It remembers the logs that are complete
// and synced.
type logSyncer struct {
	dir string
	// names are the logs found by the last look, oldest first. done are the logs that are complete
	// and synced.
	names []string
	done  map[string]bool
	// flushes is the number of files and folders that were synced.
	flushes atomic.Uint64
}

// look lists the logs, oldest first, and reports whether there is a new one.
func (l *logSyncer) look() (isNew bool, err error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	before := l.names
	l.names = nil
	for _, entry := range entries {
		// The names are increasing numbers of at least five digits.
		if name := entry.Name(); strings.HasSuffix(name, ".mem") {
			at := len(l.names)
			for at > 0 && (len(l.names[at-1]) > len(name) || len(l.names[at-1]) == len(name) &&
				l.names[at-1] > name) {
				at--
			}
			l.names = append(l.names[:at], append([]string{name}, l.names[at:]...)...)
		}
	}
	return len(l.names) > 0 && (len(before) == 0 ||
		before[len(before)-1] != l.names[len(l.names)-1]), nil
}

// sync syncs the logs that it has not synced since they were full.
func (l *logSyncer) sync() error {
	isNew, err := l.look()
	if err != nil {
		return err
	}
	done := make(map[string]bool, len(l.names))
	for i, name := range l.names {
		isActive := i == len(l.names)-1
		if done[name] = l.done[name]; done[name] {
			continue
		}
		if err := syncFile(filepath.Join(l.dir, name)); err != nil {
			return err
		}
		l.flushes.Add(1)
		done[name] = !isActive
	}
	l.done = done
	if isNew {
		if err := syncDirectory(l.dir); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		l.flushes.Add(1)
	}
	return nil
}

// syncFile makes a file durable, including data written through memory maps. If a log no longer
// exists, the database has made it a durable table.
func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}
