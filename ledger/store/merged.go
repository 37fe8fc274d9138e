package store

import (
	"bytes"
	"container/heap"
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
	last       []byte // the key before
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
	c.last = append(c.last[:0], c.key...)
	if len(c.chunk) == 0 {
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
	if err == nil && c.read > 0 && bytes.Compare(c.last, c.key) >= 0 {
		err = errRow
	}
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
	c.rows.Next()
	return err == nil, err
}

// merged yields the records of several runs of one kind in the order of their keys, and of several
// records with one key the newest one.
type merged struct {
	sources cursors
	all     []*cursor
	started bool
	last    []byte // the key of the last call
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
		m.started = true
		for _, c := range m.all {
			more, err := c.advance()
			if err != nil {
				return nil, nil, false, err
			}
			if more {
				m.sources = append(m.sources, c)
			}
		}
		heap.Init(&m.sources)
	} else if len(m.sources) > 0 {
		// Pass the record of the last call, and the older ones with its key.
		m.last = append(m.last[:0], m.sources[0].key...)
		for len(m.sources) > 0 && bytes.Equal(m.sources[0].key, m.last) {
			more, err := m.sources[0].advance()
			if err != nil {
				return nil, nil, false, err
			}
			if more {
				heap.Fix(&m.sources, 0)
			} else {
				heap.Pop(&m.sources)
			}
		}
	}
	if len(m.sources) == 0 {
		return nil, nil, false, nil
	}
	return m.sources[0].key, m.sources[0].value, true, nil
}

// cursors are ordered by the keys that they are at, and then by age, the newest first.
type cursors []*cursor

func (c cursors) Len() int { return len(c) }
func (c cursors) Less(i, j int) bool {
	order := bytes.Compare(c[i].key, c[j].key)
	return order < 0 || order == 0 && c[i].age > c[j].age
}
func (c cursors) Swap(i, j int) { c[i], c[j] = c[j], c[i] }

// Push adds a cursor.
func (c *cursors) Push(x any) { *c = append(*c, x.(*cursor)) }

// Pop removes the last cursor.
func (c *cursors) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}
