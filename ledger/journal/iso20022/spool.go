package iso20022

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// spoolBytes bounds what a spool holds in memory.
const spoolBytes = 32 << 20

// record is a value with the key by which records are sorted. Equal keys stay in their order.
type record struct {
	key, value []byte
	number     uint64
}

// spool sorts records of any number, in runs on the disk.
type spool struct {
	dir    string
	most   int // bytes in memory
	held   []record
	bytes  int
	number uint64
	runs   []string
}

// newSpool makes a spool with a temporary folder. The caller closes it.
func newSpool(most int) (*spool, error) {
	dir, err := os.MkdirTemp("", "ledgerd-statement-")
	return &spool{dir: dir, most: most}, err
}

func (s *spool) Close() error { return os.RemoveAll(s.dir) }

// add adds a record, which must not change any more.
func (s *spool) add(key, value []byte) error {
	s.held = append(s.held, record{key, value, s.number})
	s.number++
	if s.bytes += len(key) + len(value) + 64; s.bytes < s.most {
		return nil
	}
	return s.flush()
}

// flush writes what is in memory as a run.
func (s *spool) flush() error {
	if len(s.held) == 0 {
		return nil
	}
	slices.SortFunc(s.held, compare)
	file, err := os.CreateTemp(s.dir, "run-")
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(file, 1<<18)
	for i := range s.held {
		r := &s.held[i]
		head := binary.AppendUvarint(nil, uint64(len(r.key)))
		head = binary.AppendUvarint(head, uint64(len(r.value)))
		head = binary.AppendUvarint(head, r.number)
		_, _ = out.Write(head) // Flush returns the error
		_, _ = out.Write(r.key)
		_, _ = out.Write(r.value)
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		return err
	}
	s.runs, s.held, s.bytes = append(s.runs, file.Name()), nil, 0
	return nil
}

func compare(a, b record) int {
	return cmp.Or(slices.Compare(a.key, b.key), cmp.Compare(a.number, b.number))
}

// sorted returns a reader of all records, from the first one on. There may be several at once.
func (s *spool) sorted() (*merge, error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	m := &merge{}
	for _, name := range s.runs {
		file, err := os.Open(name)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		r := &run{file: file, in: bufio.NewReaderSize(file, 1<<16)}
		m.files = append(m.files, file)
		switch err := r.next(); {
		case err == nil:
			m.runs = append(m.runs, r)
		case !errors.Is(err, io.EOF):
			return nil, errors.Join(err, m.Close())
		}
	}
	heap.Init(m)
	return m, nil
}

// run is a sorted file.
type run struct {
	file *os.File
	in   *bufio.Reader
	record
}

// next reads the next record, or returns io.EOF.
func (r *run) next() error {
	keys, err := binary.ReadUvarint(r.in)
	if err != nil {
		return err
	}
	values, err := binary.ReadUvarint(r.in)
	if err == nil {
		r.number, err = binary.ReadUvarint(r.in)
	}
	if err != nil || keys > 1<<20 || values > 1<<24 {
		return fmt.Errorf("iso20022: a temporary file is damaged: %w", err)
	}
	r.key, r.value = make([]byte, keys), make([]byte, values)
	if _, err := io.ReadFull(r.in, r.key); err != nil {
		return err
	}
	_, err = io.ReadFull(r.in, r.value)
	return err
}

// merge reads all runs as one. It is a heap of runs by their next records.
type merge struct {
	runs  []*run
	files []*os.File
}

func (m *merge) Len() int           { return len(m.runs) }
func (m *merge) Less(i, j int) bool { return compare(m.runs[i].record, m.runs[j].record) < 0 }
func (m *merge) Swap(i, j int)      { m.runs[i], m.runs[j] = m.runs[j], m.runs[i] }
func (m *merge) Push(any)           {} // runs are never added

// Pop removes the last run.
func (m *merge) Pop() any {
	last := m.runs[len(m.runs)-1]
	m.runs = m.runs[:len(m.runs)-1]
	return last
}

// peek returns the next record, or false at the end.
func (m *merge) peek() (record, bool) {
	if len(m.runs) == 0 {
		return record{}, false
	}
	return m.runs[0].record, true
}

// advance passes over the next record.
func (m *merge) advance() error {
	err := m.runs[0].next()
	if errors.Is(err, io.EOF) {
		heap.Pop(m)
		return nil
	}
	heap.Fix(m, 0)
	return err
}

func (m *merge) Close() error {
	var failures []error
	for _, file := range m.files {
		failures = append(failures, file.Close())
	}
	return errors.Join(failures...)
}
