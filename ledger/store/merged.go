package store

import (
	"bytes"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// cursor is a position in a run, or in the rows of a state from before there were runs, which count
// as the oldest run.
type cursor struct {
	run *run // nil: the rows of single entries
	// age is the place of the run among the others of its kind, the oldest first.
	age  int
	rows *badger.Iterator
	// undo is called with each row of a single entry, before it is used.
	undo func(key []byte, row *stateRow) error

	chunk      []byte // what is left of buffer, which has the last chunk that was read
	buffer     []byte
	unpacked   []byte // the last chunk, if it was packed
	read       uint64
	key, value []byte
	part       uint64 // the first bytes of the key
	last       []byte // the last key of the chunk before
}

func newCursor(transaction *badger.Txn, r *run, age int) *cursor {
	settings := badger.DefaultIteratorOptions
	settings.PrefetchSize = 8
	if settings.Prefix = []byte{rowState}; r != nil {
		settings.Prefix = r.prefix()
	}
	c := &cursor{run: r, age: age, rows: transaction.NewIterator(settings)}
	c.rows.Rewind()
	return c
}

// advance goes to the next record. The key and the value are valid until the next call.
func (c *cursor) advance() (more bool, err error) {
	if c.run == nil {
		return c.advanceRow()
	}
	before := c.key
	if len(c.chunk) == 0 {
		c.last = append(c.last[:0], before...)
		before = c.last
		if !c.rows.Valid() {
			if c.read != c.run.records {
				return false, errMissing
			}
			return false, nil
		}
		if err := c.nextChunk(); err != nil {
			return false, err
		}
	}
	c.key, c.value, c.chunk, err = c.run.kind.cut(c.chunk)
	if err == nil && c.read > 0 && bytes.Compare(before, c.key) >= 0 {
		err = errRow
	}
	c.part = keyPart(c.key)
	c.read++
	return err == nil, err
}

func (c *cursor) nextChunk() (err error) {
	item := c.rows.Item()
	if c.buffer, err = item.ValueCopy(c.buffer); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if c.chunk, err = unseal(item.Key(), c.buffer); err != nil {
		return err
	}
	if c.chunk, err = c.run.kind.unpack(&c.unpacked, c.chunk); err != nil {
		return err
	}
	if len(c.chunk) == 0 {
		return errRow
	}
	c.rows.Next()
	return nil
}

// advanceRow goes to the next row of a single entry.
func (c *cursor) advanceRow() (more bool, err error) {
	if !c.rows.Valid() {
		return false, nil
	}
	item := c.rows.Item()
	key := item.KeyCopy(nil)
	if c.buffer, err = item.ValueCopy(c.buffer); err != nil {
		return false, fmt.Errorf("database: %w", err)
	}
	value, err := unseal(key, c.buffer)
	if err != nil {
		return false, err
	}
	row, err := decodeStateRow(value)
	if err == nil && c.undo != nil {
		err = c.undo(key, &row)
	}
	c.key, c.value = key[1:], row.after
	c.part = keyPart(c.key)
	c.rows.Next()
	return err == nil, err
}

// merged yields the records of several runs of one kind in the order of their keys, and of several
// records with one key the newest one.
type merged struct {
	sources cursors
	all     []*cursor
	started bool
}

// newMerged begins to merge runs, the oldest first. The caller must close it.
func newMerged(transaction *badger.Txn, runs []*run) *merged {
	m := &merged{}
	for age, r := range runs {
		m.all = append(m.all, newCursor(transaction, r, age))
	}
	return m
}

// newMergedState begins to merge the state: its runs among these, and the rows of single entries,
// each of which is passed to undo.
func newMergedState(transaction *badger.Txn, runs []*run,
	undo func(key []byte, row *stateRow) error) *merged {
	m := newMerged(transaction, of(rowEntries, runs))
	rows := newCursor(transaction, nil, -1)
	rows.undo = undo
	m.all = append(m.all, rows)
	return m
}

func (m *merged) close() {
	for _, c := range m.all {
		c.rows.Close()
	}
}

// next goes to the next record. It is valid until the next call.
func (m *merged) next() (key, value []byte, more bool, err error) {
	if !m.started {
		err = m.start()
	} else if len(m.sources) > 0 {
		err = m.pass()
	}
	if err != nil || len(m.sources) == 0 {
		return nil, nil, false, err
	}
	return m.sources[0].key, m.sources[0].value, true, nil
}

func (m *merged) start() error {
	m.started = true
	for _, c := range m.all {
		more, err := c.advance()
		if err != nil {
			return err
		}
		if more {
			m.sources = append(m.sources, c)
		}
	}
	for at := len(m.sources)/2 - 1; at >= 0; at-- {
		m.sources.down(at)
	}
	return nil
}

// pass passes the record of the last call, and before it the older ones with its key, because its
// cursor keeps the key only until it advances.
func (m *merged) pass() error {
	for at := m.sources.older(); at > 0; at = m.sources.older() {
		if err := m.advance(at); err != nil {
			return err
		}
	}
	return m.advance(0)
}

// advance advances a cursor that is first, or comes next to the first one.
func (m *merged) advance(at int) error {
	more, err := m.sources[at].advance()
	if err != nil {
		return err
	}
	if !more {
		last := len(m.sources) - 1
		m.sources[at] = m.sources[last]
		m.sources = m.sources[:last]
	}
	m.sources.down(at)
	return nil
}

// cursors are a heap, in the order of the keys that they are at, and then by age, the newest first.
type cursors []*cursor

// older returns the place of a cursor with the key of the first one, or 0.
func (c cursors) older() int {
	for at := 1; at < min(3, len(c)); at++ {
		if c[at].part == c[0].part && bytes.Equal(c[at].key, c[0].key) {
			return at
		}
	}
	return 0
}

// down restores the order after a cursor advanced.
func (c cursors) down(at int) {
	for {
		first := at
		for below := 2*at + 1; below <= 2*at+2 && below < len(c); below++ {
			if c[below].before(c[first]) {
				first = below
			}
		}
		if first == at {
			return
		}
		c[at], c[first] = c[first], c[at]
		at = first
	}
}

func (c *cursor) before(other *cursor) bool {
	if c.part != other.part {
		return c.part < other.part
	}
	order := bytes.Compare(c.key, other.key)
	return order < 0 || order == 0 && c.age > other.age
}
