package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// found is what Open found in the segments.
type found struct {
	// claimed is Known.Segment.
	claimed uint64
	// groups are the whole groups after Known.Group, in order.
	groups []place
	// remains are the sectors after the last whole group that are not unwritten.
	remains []location
}

// location is a sector: the index of its segment, and its offset there.
type location struct {
	segment int
	offset  int64
}

func (l location) before(other location) bool {
	return l.segment < other.segment || l.segment == other.segment && l.offset < other.offset
}

// place is where a group lies: its first sector, and how many of its sectors lie in a row from
// there, of how many.
type place struct {
	group        uint64
	first        location
	inRow, count uint32
	end          location // after the last sector in the row
	misplaced    bool     // a sector is not where it should be
}

func (p *place) whole() bool { return !p.misplaced && p.inRow == p.count }

// Open opens the journal in dir, which it creates if Known.Segment is 0. It reads all sectors, and
// changes nothing until Start. It returns ErrDamaged if a group that was flushed, and not released,
// is not whole, or if a segment is missing.
func Open(dir string, known Known, options Options) (j *Journal, err error) {
	if options.SegmentBytes <= 0 {
		options.SegmentBytes = SegmentBytesDefault
	}
	options.SegmentBytes = align(options.SegmentBytes)
	if options.Retry == nil {
		options.Retry = func(attempt func() error) error { return attempt() }
	}
	if options.Before == nil {
		options.Before = func(string) {}
	}
	j = &Journal{dir: dir, options: options, last: known.Group, released: known.Group,
		found: &found{claimed: known.Segment}}
	j.changed = sync.NewCond(&j.mutex)
	if known.Segment == 0 {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		return j, nil
	}
	if err = j.openSegments(known.Segment); err == nil {
		err = j.look()
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (j *Journal) openSegments(claimed uint64) error {
	numbers, err := list(j.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(numbers) == 0 || numbers[len(numbers)-1] < claimed {
		return fmt.Errorf("%w: segment %d is missing", ErrDamaged, claimed)
	}
	for i, number := range numbers {
		if number != numbers[0]+uint64(i) {
			return fmt.Errorf("%w: segment %d is missing", ErrDamaged, numbers[0]+uint64(i))
		}
		path := filepath.Join(j.dir, segmentName(number))
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		j.segments = append(j.segments, &segment{number: number, path: path, file: file})
		status, err := file.Stat()
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		size := status.Size()
		if size == 0 || size%pageSize != 0 {
			return fmt.Errorf("%w: segment %d has %d bytes", ErrDamaged, number, size)
		}
		j.segments[i].size = size
	}
	return nil
}

// look reads all sectors and finds the groups, in one pass.
func (j *Journal) look() error {
	s := scan{released: j.last, places: make(map[uint64]*place), lasts: make(map[int]uint64)}
	for i, segment := range j.segments {
		if err := s.segment(i, segment); err != nil {
			return err
		}
	}
	// The groups in a row from the released ones on are whole, up to the last.
	end := s.after
	j.last = s.begin(j.last)
	for {
		next := s.places[j.last+1]
		if next == nil || !next.whole() {
			break
		}
		j.found.groups = append(j.found.groups, *next)
		j.last, end = next.group, next.end
	}
	if s.highest > j.last+1 {
		return fmt.Errorf("%w: group %d is not whole, though group %d follows it", ErrDamaged,
			j.last+1, s.highest)
	}
	for _, at := range s.written {
		if !at.before(end) {
			j.found.remains = append(j.found.remains, at)
		}
	}
	for _, at := range s.harmed {
		if !at.before(end) {
			j.found.remains = append(j.found.remains, at)
			if j.doubt == "" {
				j.doubt = fmt.Sprintf("sector %d of segment %d of the journal, which follows "+
					"the last whole group, holds neither zeros nor a whole sector",
					at.offset/sectorSize, j.segments[at.segment].number)
			}
		}
	}
	j.settle(s.lasts, end)
	return nil
}

// begin returns the group after which the groups that are here begin. More groups may have been
// released than the caller still knows of, if it lost its last record. The segments of those are
// used again or gone, and the first group that is here may have lost its beginning with them. The
// caller sees from the contents whether it misses a group.
func (s *scan) begin(released uint64) uint64 {
	if len(s.places) == 0 || s.places[released+1] != nil {
		return released
	}
	lowest := slices.Min(slices.Collect(maps.Keys(s.places)))
	if s.places[lowest].whole() {
		return lowest - 1
	}
	return lowest
}

// settle sets where the next group begins, and which groups each segment has parts of.
func (j *Journal) settle(lasts map[int]uint64, end location) {
	j.current, j.at = end.segment, align(end.offset)
	for i, segment := range j.segments {
		segment.last = max(segment.last, min(lasts[i], j.last))
	}
	if j.at == j.segments[j.current].size && j.current+1 < len(j.segments) {
		j.current, j.at = j.current+1, 0
	}
}

// scan is a pass over all sectors.
type scan struct {
	// released is the last released group. after is where its sectors end, or the beginning.
	released uint64
	after    location
	// places are the groups after released. highest is the highest of them.
	places  map[uint64]*place
	highest uint64
	// written are the sectors of these groups, harmed the harmed ones. lasts has the highest group
	// of each segment.
	written, harmed []location
	lasts           map[int]uint64
	size            int64 // that of the segment before
}

func (s *scan) segment(index int, segment *segment) error {
	buffer := make([]byte, min(segment.size, 1<<20))
	for start := int64(0); start < segment.size; start += int64(len(buffer)) {
		buffer = buffer[:min(int64(len(buffer)), segment.size-start)]
		if _, err := segment.file.ReadAt(buffer, start); err != nil {
			return fmt.Errorf("%w: segment %d: %w", ErrDamaged, segment.number, err)
		}
		for at := int64(0); at < int64(len(buffer)); at += sectorSize {
			here := location{segment: index, offset: start + at}
			switch condition, h := read(buffer[at:at+sectorSize], segment.number); condition {
			case harmed:
				s.harmed = append(s.harmed, here)
			case whole:
				s.lasts[index] = max(s.lasts[index], h.group)
				s.take(here, h)
			}
		}
	}
	s.size = segment.size
	return nil
}

// take counts a whole sector to its group.
func (s *scan) take(here location, h head) {
	next := location{here.segment, here.offset + sectorSize}
	if h.group <= s.released {
		s.after = next
		return
	}
	s.written = append(s.written, here)
	s.highest = max(s.highest, h.group)
	p := s.places[h.group]
	if p == nil {
		p = &place{group: h.group, first: here, count: h.count, end: here,
			misplaced: here.offset%pageSize != 0}
		s.places[h.group] = p
	}
	// The row goes on where it ended, or at the beginning of the next segment.
	follows := here == p.end || here == location{p.end.segment + 1, 0} && p.end.offset == s.size
	if h.place != p.inRow || h.count != p.count || !follows {
		p.misplaced = true
		return
	}
	p.inRow, p.end = p.inRow+1, next
}

// Groups passes the payloads of the whole groups after Known.Group to visit, in order. A payload is
// valid only during the call. It must be called before Start.
func (j *Journal) Groups(visit func(group uint64, payload []byte) error) error {
	if j.found == nil {
		return ErrClosed
	}
	var joined []byte
	sector := make([]byte, sectorSize)
	for i := range j.found.groups {
		p := &j.found.groups[i]
		joined = joined[:0]
		at := p.first
		for place := range p.count {
			if at.offset == j.segments[at.segment].size {
				at = location{at.segment + 1, 0}
			}
			file := j.segments[at.segment]
			if _, err := io.ReadFull(io.NewSectionReader(file.file, at.offset, sectorSize),
				sector); err != nil {
				return fmt.Errorf("%w: segment %d: %w", ErrDamaged, file.number, err)
			}
			if condition, h := read(sector, file.number); condition != whole ||
				h.group != p.group || h.place != place {
				return fmt.Errorf("%w: group %d changed while it was read", ErrDamaged, p.group)
			}
			joined = append(joined, sector[headSize:]...)
			at.offset += sectorSize
		}
		length := int64(binary.BigEndian.Uint32(joined))
		if length > int64(len(joined)-lengthSize) {
			return fmt.Errorf("%w: group %d has a wrong length", ErrDamaged, p.group)
		}
		if err := visit(p.group, joined[lengthSize:lengthSize+length]); err != nil {
			return err
		}
	}
	return nil
}

// Doubt says why the disk may have held one more group than Groups returns, one that was flushed.
// It is empty if the disk certainly held no more.
func (j *Journal) Doubt() string { return j.doubt }

// Start makes what Open found durable, erases what follows the last whole group, and lets the
// journal take groups. The caller must have recorded Doubt before, because Start erases what it
// rests on.
func (j *Journal) Start() error {
	if j.found == nil {
		return ErrClosed
	}
	if len(j.segments) == 0 {
		if err := j.begin(); err != nil {
			return err
		}
	} else if err := j.resume(); err != nil {
		return err
	}
	j.found = nil
	j.worker.Add(1)
	go j.prepare()
	return nil
}

// begin makes the folder and the first segment.
func (j *Journal) begin() (err error) {
	j.options.Before("journal folder")
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	parent, err := os.Open(filepath.Dir(j.dir))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := errors.Join(j.flushFolder(parent), parent.Close()); err != nil {
		return err
	}
	if j.folder, err = os.Open(j.dir); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	// Nothing waits for space here: the caller can try again.
	first, err := j.create(1, filepath.Join(j.dir, segmentName(1)))
	if err == nil {
		first, err = j.claim(first)
	}
	if err != nil {
		return err
	}
	j.segments = append(j.segments, first)
	return nil
}

// resume makes the segments that are there usable. An earlier process may have been killed before
// it had made the name of the last one durable, or before it had claimed it.
func (j *Journal) resume() (err error) {
	if err := j.erase(); err != nil {
		return err
	}
	if j.folder, err = os.Open(j.dir); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.options.Before("segment folder")
	if err := j.flushFolder(j.folder); err != nil {
		return err
	}
	if last := j.segments[len(j.segments)-1].number; last > j.found.claimed {
		j.options.Before("segment claim")
		return j.options.Claim(last)
	}
	return nil
}

// erase writes zeros over the remains. It flushes all segments that may have a part of an
// unreleased group: an earlier process may have been killed before its flush.
func (j *Journal) erase() error {
	for _, at := range j.found.remains {
		j.options.Before("journal erase")
		if _, err := j.segments[at.segment].file.WriteAt(zeros[:], at.offset); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	for _, segment := range j.segments {
		if err := j.flushFile(segment.file); err != nil {
			return err
		}
		segment.direct = bypassCache(segment.file, true)
	}
	return nil
}
