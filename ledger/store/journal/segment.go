package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// segment is a file of the journal.
type segment struct {
	number uint64
	path   string // file keeps the name that it was opened by
	file   *os.File
	size   int64
	// last is the last group of which the segment has a part.
	last uint64
	// direct says that writes bypass the system's cache.
	direct bool
}

// write writes whole pages. Where that is possible, they go to the disk without the system's cache:
// nothing reads them before the next Open, and a write through the cache and its flush take longer
// and more of the processor.
func (s *segment) write(pages []byte, at int64) error {
	_, err := s.file.WriteAt(pages, at)
	if err != nil && s.direct && isMisaligned(err) {
		s.direct = false
		bypassCache(s.file, false)
		_, err = s.file.WriteAt(pages, at)
	}
	return err
}

const (
	segmentSuffix = ".log"
	// draft is the name of a file that is to become a segment.
	draft = "draft"
	// keepFree is how many free segments are kept for later.
	keepFree = 2
)

func segmentName(number uint64) string { return fmt.Sprintf("%016d%s", number, segmentSuffix) }

// list returns the numbers of the segments in a folder, in order.
func list(dir string) (numbers []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	for _, entry := range entries {
		name, isSegment := strings.CutSuffix(entry.Name(), segmentSuffix)
		number, err := strconv.ParseUint(name, 10, 64)
		if isSegment && err == nil && segmentName(number) == entry.Name() {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// Lowest returns the lowest segment in a folder; 0 if there is none, or no folder.
func Lowest(dir string) (uint64, error) {
	numbers, err := list(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(numbers) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return numbers[0], nil
}

// prepare runs the goroutine that prepares one segment beyond the one in use, when that one is half
// full.
func (j *Journal) prepare() {
	defer j.worker.Done()
	for {
		j.mutex.Lock()
		for !j.closed && j.failure == nil && (!j.wanted || j.current+1 < len(j.segments)) {
			j.changed.Wait()
		}
		if j.closed || j.failure != nil {
			j.mutex.Unlock()
			return
		}
		number := j.segments[len(j.segments)-1].number + 1
		free, surplus := j.takeFree()
		j.mutex.Unlock()

		err := j.discard(surplus)
		var next *segment
		if err == nil {
			next, err = j.provide(number, free)
		}
		j.mutex.Lock()
		if err != nil && j.failure == nil {
			j.failure = err
		}
		if next != nil {
			j.segments = append(j.segments, next)
		}
		j.changed.Broadcast()
		j.mutex.Unlock()
	}
}

// takeFree takes the segments out of the row that no group needs any more: one to be used again,
// and those beyond keepFree, to be removed. The caller must hold the mutex.
func (j *Journal) takeFree() (free *segment, surplus []*segment) {
	count := 0
	for count < j.current && j.segments[count].last <= j.released {
		count++
	}
	if count == 0 {
		return nil, nil
	}
	taken := 1 + max(0, count-keepFree)
	free = j.segments[taken-1]
	surplus = slices.Clone(j.segments[:taken-1])
	j.segments = slices.Delete(j.segments, 0, taken)
	j.current -= taken
	return free, surplus
}

// discard removes segments, the lowest first, each durably, so that those that are left stay a row.
func (j *Journal) discard(surplus []*segment) error {
	for _, s := range surplus {
		j.options.Before("segment remove")
		if err := errors.Join(s.file.Close(), os.Remove(s.path)); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		if err := j.flushFolder(j.folder); err != nil {
			return err
		}
	}
	return nil
}

// provide makes the segment with this number out of a free one, or anew, and claims it.
func (j *Journal) provide(number uint64, free *segment) (next *segment, err error) {
	path := filepath.Join(j.dir, segmentName(number))
	if free == nil {
		err = j.options.Retry(func() error {
			next, err = j.create(number, path)
			return err
		})
		if err != nil {
			return nil, err
		}
	} else {
		next = &segment{number: number, path: path, file: free.file, size: free.size,
			direct: free.direct}
		j.options.Before("segment reuse")
		if err := os.Rename(free.path, path); err != nil {
			return nil, errors.Join(fmt.Errorf("journal: %w", err), free.file.Close())
		}
	}
	return j.claim(next)
}

// claim claims a segment that has its name, and closes it after a failure.
func (j *Journal) claim(next *segment) (*segment, error) {
	j.options.Before("segment folder")
	err := j.flushFolder(j.folder)
	if err == nil {
		j.options.Before("segment claim")
		err = j.options.Claim(next.number)
	}
	if err != nil {
		return nil, errors.Join(err, next.file.Close())
	}
	return next, nil
}

// create writes a new file with zeros, and gives it the name of a segment once it is on the disk.
func (j *Journal) create(number uint64, path string) (*segment, error) {
	temporary := filepath.Join(j.dir, draft)
	file, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j.options.Before("segment zeros")
	piece := make([]byte, min(j.options.SegmentBytes, 1<<20))
	for at := int64(0); at < j.options.SegmentBytes && err == nil; at += int64(len(piece)) {
		piece = piece[:min(int64(len(piece)), j.options.SegmentBytes-at)]
		_, err = file.WriteAt(piece, at)
	}
	if err == nil {
		err = j.flushFile(file)
	}
	if err == nil {
		j.options.Before("segment name")
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), file.Close())
	}
	return &segment{number: number, path: path, file: file, size: j.options.SegmentBytes,
		direct: bypassCache(file, true)}, nil
}

func (j *Journal) flushFolder(folder *os.File) error {
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.flush.Add(1)
	return nil
}

// advance goes on to the next segment once it is prepared. The group that is being written has a
// part in the segment that it leaves, or begins in the next one.
func (j *Journal) advance(group uint64, begun bool) (*segment, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.wanted = true
	j.changed.Broadcast()
	for j.current+1 >= len(j.segments) && j.failure == nil && !j.closed {
		j.changed.Wait()
	}
	switch {
	case j.failure != nil:
		return nil, j.failure
	case j.closed:
		return nil, ErrClosed
	}
	if begun {
		j.segments[j.current].last = group
	}
	j.current++
	j.at, j.wanted = 0, false
	return j.segments[j.current], nil
}
