package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"
)

var (
	// ErrDamaged reports that a group that was flushed is not whole, or that a segment is missing.
	ErrDamaged = errors.New("journal: damaged")
	// ErrClosed reports that the journal was closed.
	ErrClosed = errors.New("journal: closed")
)

// MaxGroupBytes is the maximum size of a group.
const MaxGroupBytes = math.MaxInt32 - lengthSize

// SegmentBytesDefault is the default of Options.SegmentBytes.
const SegmentBytesDefault = 4 << 20

// Options configure a journal.
type Options struct {
	// SegmentBytes is the size of new segments, rounded up to 4 KiB. Default 4 MiB.
	SegmentBytes int64
	// Claim is called before the first use of a segment, once its file is on the disk. It records,
	// durably, that the segments up to this one exist. It may be called by a goroutine of the
	// journal while Append waits, and never twice at a time.
	Claim func(segment uint64) error
	// Retry calls an attempt to create a file, again and again as long as its failure is one that
	// passes, such as a full disk. It returns the last error. Default: one attempt. Start makes
	// one attempt.
	Retry func(attempt func() error) error
	// Before is called before each step of writing. Only tests set it.
	Before func(step string)
}

// Known is what the caller has recorded of the journal.
type Known struct {
	// Segment is the highest claimed segment. 0 says that there is no journal yet: Open removes
	// what a crash left of its creation.
	Segment uint64
	// Group is a group up to which everything was released. It may be lower than the last such one.
	Group uint64
}

// Journal is an open journal. Append is for one goroutine at a time; the other methods may be
// called from any.
type Journal struct {
	dir     string
	options Options

	// found is what Open found. It is nil after Start. doubt is what Doubt returns.
	found *found
	doubt string
	// last is the last group. at is the offset in the segment in use at which the next one begins.
	last   uint64
	at     int64
	buffer []byte
	flush  atomic.Uint64
	// folder is the journal's folder. It stays open, so that a process without descriptors can
	// go on with the segments that it has. Start opens it.
	folder *os.File

	// mutex guards the fields below. changed is signalled when they change.
	mutex   sync.Mutex
	changed *sync.Cond
	// segments are the segments in order: those in use, of which current is the last, and then the
	// prepared ones. wanted says that one should be prepared.
	segments []*segment
	current  int
	wanted   bool
	released uint64
	failure  error
	closed   bool
	worker   sync.WaitGroup
}

// Last returns the number of the last group, or 0.
func (j *Journal) Last() uint64 { return j.last }

// Flushes returns how often the journal has flushed a file or a folder since it was opened.
func (j *Journal) Flushes() uint64 { return j.flush.Load() }

// Append writes a group whose payload is the concatenation of parts, and flushes it. When it
// returns, the group is on the disk. After an error other than ErrClosed, what is on the disk is
// unknown, and the journal takes no more groups. Append does not keep the parts.
func (j *Journal) Append(parts ...[]byte) (group uint64, err error) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size > MaxGroupBytes {
		return 0, fmt.Errorf("journal: a group of %d bytes; at most %d fit", size, MaxGroupBytes)
	}
	current, err := j.ready()
	if err != nil {
		return 0, err
	}
	group = j.last + 1
	count := sectorsOf(size)
	body := newBody(size, parts)
	for place := 0; place < count; {
		if j.at == current.size {
			if current, err = j.advance(group, place > 0); err != nil {
				return 0, j.fail(err)
			}
		}
		here := min(count-place, int(current.size-j.at)/sectorSize)
		j.buffer = sized(j.buffer, int(align(int64(here)*sectorSize)))
		clear(j.buffer[here*sectorSize:])
		for k := range here {
			sector := j.buffer[k*sectorSize:][:sectorSize]
			body.take(sector[headSize:])
			head{segment: current.number, group: group, place: uint32(place + k),
				count: uint32(count)}.put(sector)
		}
		j.options.Before("journal write")
		if err := current.write(j.buffer, j.at); err != nil {
			return 0, j.fail(fmt.Errorf("journal: %w", err))
		}
		place, j.at = place+here, j.at+int64(len(j.buffer))
		if place == count || j.at == current.size {
			j.options.Before("journal flush")
			if err := j.flushFile(current.file); err != nil {
				return 0, j.fail(err)
			}
		}
	}
	j.finish(current, group)
	if cap(j.buffer) > maxBuffer {
		j.buffer = nil
	}
	return group, nil
}

// maxBuffer bounds the memory that stays allocated between groups.
const maxBuffer = 8 << 20

func align(offset int64) int64 { return (offset + pageSize - 1) / pageSize * pageSize }

// sized returns a buffer of a size that begins at a multiple of pageSize, which writes that bypass
// the system's cache need.
func sized(buffer []byte, size int) []byte {
	if cap(buffer) >= size {
		return buffer[:size]
	}
	buffer = make([]byte, size+pageSize)
	begin := -uintptr(unsafe.Pointer(unsafe.SliceData(buffer))) % pageSize
	return buffer[begin:][:size]
}

// ready returns the segment in use.
func (j *Journal) ready() (*segment, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	switch {
	case j.closed || j.found != nil:
		return nil, ErrClosed
	case j.failure != nil:
		return nil, j.failure
	}
	return j.segments[j.current], nil
}

// finish records that a group is on the disk.
func (j *Journal) finish(current *segment, group uint64) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.last, current.last = group, group
	if !j.wanted && j.at > current.size/2 {
		j.wanted = true
		j.changed.Broadcast()
	}
}

// fail keeps the first error of writing. The journal then takes no more groups.
func (j *Journal) fail(err error) error {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if j.failure == nil {
		j.failure = err
	}
	return err
}

func (j *Journal) flushFile(file *os.File) error {
	if err := SyncData(file); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.flush.Add(1)
	return nil
}

// Release says that the caller needs the groups up to this one no more. Their segments are used
// again.
func (j *Journal) Release(group uint64) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.released = max(j.released, group)
	j.changed.Broadcast()
}

// Use returns the size of the segments that hold groups which were not released, with the one in
// use, and how much of it a Release up to a group would free.
func (j *Journal) Use(group uint64) (held, free int64) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	for i, s := range j.segments {
		switch {
		case i > j.current || i < j.current && s.last <= j.released:
			continue // prepared, or free already
		case i < j.current && s.last <= group:
			free += s.size
		}
		held += s.size
	}
	return held, free
}

// Close ends the goroutine and closes the files. It writes nothing.
func (j *Journal) Close() error {
	j.mutex.Lock()
	j.closed = true
	j.changed.Broadcast()
	j.mutex.Unlock()
	j.worker.Wait()
	var err error
	for _, s := range j.segments {
		err = errors.Join(err, s.file.Close())
	}
	j.segments = nil
	if j.folder != nil {
		err = errors.Join(err, j.folder.Close())
		j.folder = nil
	}
	return err
}

// body hands out a group's length and payload in pieces.
type body struct {
	length [lengthSize]byte
	parts  [][]byte
}

func newBody(size int, parts [][]byte) *body {
	b := &body{}
	binary.BigEndian.PutUint32(b.length[:], uint32(size))
	b.parts = append([][]byte{b.length[:]}, parts...)
	return b
}

// take fills to with the next bytes, and with zeros once there are no more.
func (b *body) take(to []byte) {
	for len(to) > 0 && len(b.parts) > 0 {
		taken := copy(to, b.parts[0])
		to, b.parts[0] = to[taken:], b.parts[0][taken:]
		if len(b.parts[0]) == 0 {
			b.parts = b.parts[1:]
		}
	}
	clear(to)
}
