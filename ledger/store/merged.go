package store

import (
	"bytes"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger/state"
)

// cursor is a position in a run, in the rows of a state from before there were runs, which count as
// the oldest run, or in the changes of a block that the database does not have.
type cursor struct {
	run *run // nil: the rows of single entries
	// changes are what is left of those of a block, of a cursor that goes through these.
	changes []state.Change
	pending bool
	// ranged says that the cursor goes through a part of a run that has its guide: the entries from
	// a key on, and before another one unless that is nil. inRange is how many it has passed.
	ranged      bool
	inRange     uint64
	transaction *badger.Txn
	from, to    []byte
	// place is that of the next chunk in the run.
	place int
	// checks says that the run's guide must have each chunk and each entry. keys finds what its
	// filter takes for these.
	checks bool
	keys   filterKeys
	// age is the place of the run among the others of its kind, the oldest first.
	age  int
	rows *badger.Iterator
	// resumes is the key of the next row while the cursor is paused, and nil if there is none.
	resumes []byte
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
	c := &cursor{run: r, age: age}
	c.open(transaction)
	c.rows.Rewind()
	return c
}

// open lets the cursor read its rows in a transaction.
func (c *cursor) open(transaction *badger.Txn) {
	settings := badger.DefaultIteratorOptions
	settings.PrefetchSize = 8
	if settings.Prefix = []byte{rowState}; c.run != nil {
		settings.Prefix = c.run.prefix()
	}
	c.rows = transaction.NewIterator(settings)
}

// pause lets go of the transaction of a cursor in a run, until resume. The record that it is at
// stays.
func (c *cursor) pause() {
	if c.resumes = nil; c.rows != nil && c.rows.Valid() {
		c.resumes = c.rows.Item().KeyCopy(nil)
	}
	c.close()
}

// resume goes on in another transaction, in which the run's rows still are.
func (c *cursor) resume(transaction *badger.Txn) {
	if c.resumes != nil {
		c.open(transaction)
		c.rows.Seek(c.resumes)
	}
}

// newRangeCursor returns a cursor in a part of a run of entries.
func newRangeCursor(transaction *badger.Txn, r *run, age int, from, to []byte) *cursor {
	return &cursor{run: r, age: age, ranged: true, transaction: transaction,
		place: max(r.starts.upTo(from), 1) - 1, from: from, to: to}
}

// newChangesCursor returns a cursor in changes, which are in the order of their keys.
func newChangesCursor(changes []state.Change, age int) *cursor {
	return &cursor{pending: true, changes: changes, age: age}
}

func (c *cursor) close() {
	if c.rows != nil {
		c.rows.Close()
		c.rows = nil
	}
}

// advance goes to the next record. The key and the value are valid until the next call.
func (c *cursor) advance() (more bool, err error) {
	switch {
	case c.pending:
		return c.advanceChange(), nil
	case c.ranged:
		return c.advanceRanged()
	case c.run == nil:
		return c.advanceRow()
	}
	return c.advanceRun()
}

// advanceChange goes to the next change.
func (c *cursor) advanceChange() (more bool) {
	if len(c.changes) == 0 {
		return false
	}
	c.key, c.value, c.changes = c.changes[0].Key, c.changes[0].After, c.changes[1:]
	c.part = keyPart(c.key)
	return true
}

// advanceRanged goes to the next record of the run in the range.
func (c *cursor) advanceRanged() (more bool, err error) {
	for {
		if more, err = c.advanceRun(); err != nil || !more {
			return false, err
		}
		if c.to != nil && bytes.Compare(c.key, c.to) >= 0 {
			c.chunk, c.place = nil, c.run.starts.len()
			return false, nil
		}
		if c.from == nil || bytes.Compare(c.key, c.from) >= 0 {
			c.from = nil // all that follows is after it
			c.inRange++
			return true, nil
		}
	}
}

// advanceRun goes to the next record of a run.
func (c *cursor) advanceRun() (more bool, err error) {
	before, begins := c.key, len(c.chunk) == 0
	if begins {
		c.last = append(c.last[:0], before...)
		before = c.last
		if c.ranged {
			more, err = c.nextInRange()
		} else {
			more, err = c.nextRow()
		}
		if err != nil || !more {
			return false, err
		}
	}
	c.key, c.value, c.chunk, err = c.run.kind.cut(c.chunk)
	if err == nil && c.read > 0 && bytes.Compare(before, c.key) >= 0 {
		err = errRow
	}
	if err == nil && c.checks && !c.inGuide(begins) {
		err = errGuide
	}
	c.part = keyPart(c.key)
	c.read++
	return err == nil, err
}

// inGuide reports whether the run's guide finds the record, which may begin a chunk.
func (c *cursor) inGuide(begins bool) bool {
	starts := &c.run.starts
	id := c.keys.id(c.key)
	return c.run.filter.mayHave(id[:]) && (!begins || c.place <= starts.len() &&
		bytes.Equal(starts.at(c.place-1), c.key))
}

// nextInRange reads the next chunk of the range, if there is one.
func (c *cursor) nextInRange() (more bool, err error) {
	starts := &c.run.starts
	if c.place >= starts.len() || c.to != nil && bytes.Compare(starts.at(c.place), c.to) >= 0 {
		return false, nil
	}
	c.chunk, err = c.run.readChunk(c.transaction, c.place, &c.unpacked)
	c.place++
	return err == nil, err
}

// nextRow reads the next chunk of the run, if there is one.
func (c *cursor) nextRow() (more bool, err error) {
	if c.rows == nil || !c.rows.Valid() {
		if c.read != c.run.records {
			return false, errMissing
		}
		if c.checks && c.place != c.run.starts.len() {
			return false, errGuide
		}
		return false, nil
	}
	err = c.nextChunk()
	c.place++
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
	return err == nil && (c.to == nil || bytes.Compare(c.key, c.to) < 0), err
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

// newMergedRange begins to merge the entries of the state from a key on, and before another one
// unless that is nil: its runs among these, the rows of single entries if there are any, and what
// blocks changed that the database does not have.
func newMergedRange(transaction *badger.Txn, runs []*run, legacy bool, pending []*pendingBlock,
	from, to []byte) *merged {
	m := &merged{}
	for age, r := range of(rowEntries, runs) {
		m.all = append(m.all, newRangeCursor(transaction, r, age, from, to))
	}
	if legacy {
		rows := newCursor(transaction, nil, -1)
		rows.rows.Seek(append([]byte{rowState}, from...))
		rows.to = to
		m.all = append(m.all, rows)
	}
	for i, block := range pending {
		if changes := block.listedIn(from, to); len(changes) > 0 {
			m.all = append(m.all, newChangesCursor(changes, len(runs)+i))
		}
	}
	return m
}

func (m *merged) close() {
	for _, c := range m.all {
		c.close()
	}
}

// pause lets go of the transaction of cursors in runs, and resume goes on in another one. The
// database keeps what is removed for as long as a transaction may read it.
func (m *merged) pause() {
	for _, c := range m.all {
		c.pause()
	}
}

func (m *merged) resume(transaction *badger.Txn) {
	for _, c := range m.all {
		c.resume(transaction)
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
