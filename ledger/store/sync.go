package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store/journal"
)

// journalFolder is the name of the journal's folder in the store's folder.
const journalFolder = "journal"

// A group of the journal holds blocks: the version of the group, the height up to which a majority
// of the disks were known to hold the chain, the height of the first block, and each block after
// its length. A group of version 2 has a record before the blocks, of which there may be none: the
// record's last round, its length, and its bytes (record.go).
const (
	groupVersion        = 1
	groupVersionRecords = 2
	groupHeadSize       = 1 + 8 + 8
)

// Sync makes all blocks durable that were appended before the call, and the record that was put
// before it. After it has returned, neither kill -9 nor a power cut can lose them. One sync serves
// all calls that wait at the same time. It costs one flush of the journal, and does not wait for
// the database.
func (s *Store) Sync() error {
	s.mutex.RLock()
	target := s.head.Header.Height
	s.mutex.RUnlock()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	blocks, next, known, err := s.unsynced()
	switch {
	case err != nil:
		return err
	case s.durable < target || next != nil:
		return s.makeDurable(blocks, next, known)
	case known > s.told:
		s.told = known
		return s.mark(nil)
	}
	return s.markDoubt()
}

// unsynced returns the blocks that the journal does not have yet, the record that it is to get, and
// the height that is known to be durable.
func (s *Store) unsynced() (blocks []*pendingBlock, next *keptRecord, known ledger.Height,
	err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case s.failure != nil:
		return nil, nil, 0, s.failure
	case s.closed:
		return nil, nil, 0, ErrClosed
	}
	blocks = s.unwritten.blocks
	if len(blocks) > 0 {
		first := blocks[0].block.Header.Height
		blocks = blocks[max(s.durable+1, first)-first:]
	}
	next, s.next = s.next, nil
	return blocks, next, s.KnownDurable(), nil
}

// makeDurable appends blocks and a record to the journal as one group. There may be no blocks, or
// no record. The caller must hold syncing.
func (s *Store) makeDurable(blocks []*pendingBlock, next *keptRecord, known ledger.Height) error {
	if next != nil {
		if err := s.markRecords(); err != nil {
			return err
		}
	}
	last, round := s.durable, ledger.Round(0)
	if len(blocks) > 0 {
		header := &blocks[len(blocks)-1].block.Header
		last, round = header.Height, header.Round
	}
	s.options.onWrite("journal")
	group, err := s.journal.Append(groupParts(s.durable+1, blocks, next, known)...)
	if err != nil {
		return s.fail(err)
	}
	s.options.onWrite("durable")
	s.mutex.Lock()
	s.durable = last
	s.noteGroup(group, round, next)
	for _, pending := range blocks {
		pending.group = group
	}
	s.watchJournal()
	s.mutex.Unlock()
	s.told = known
	return s.markDoubt()
}

// markDoubt writes a marker if the doubt of Perhaps has changed since the last one.
func (s *Store) markDoubt() error {
	s.mutex.RLock()
	doubt := s.perhaps
	s.mutex.RUnlock()
	s.marking.Lock()
	marked := s.marker.last.perhaps
	s.marking.Unlock()
	if doubt == marked {
		return nil
	}
	return s.mark(nil)
}

// groupParts returns the parts of a group's payload. First is the height of the first block.
func groupParts(first ledger.Height, blocks []*pendingBlock, next *keptRecord,
	known ledger.Height) [][]byte {
	head := make([]byte, 0, groupHeadSize+recordHeadSize+4*len(blocks))
	head = append(head, groupVersion)
	head = binary.BigEndian.AppendUint64(head, uint64(known))
	head = binary.BigEndian.AppendUint64(head, uint64(first))
	parts := [][]byte{head}
	if next != nil {
		head[0] = groupVersionRecords
		head = next.appendTo(head)
		parts = [][]byte{head, next.bytes}
	}
	for _, pending := range blocks {
		lengths := len(head)
		head = binary.BigEndian.AppendUint32(head, uint32(len(pending.encoded)))
		parts = append(parts, head[lengths:], pending.encoded)
	}
	return parts
}

// eachInGroup passes the encoded blocks of a group to visit, and returns the height that was known
// to be durable, and the group's record, nil for none.
func eachInGroup(payload []byte, visit func(height ledger.Height, encoded []byte) error) (
	known ledger.Height, found *keptRecord, err error) {
	if len(payload) < groupHeadSize {
		return 0, nil, errRow
	}
	version := payload[0]
	if version > groupVersionRecords {
		return 0, nil, fmt.Errorf("%w: the journal has a group of version %d", ErrNewer, version)
	}
	known = ledger.Height(binary.BigEndian.Uint64(payload[1:]))
	height := ledger.Height(binary.BigEndian.Uint64(payload[1+8:]))
	payload = payload[groupHeadSize:]
	switch version {
	case groupVersion:
	case groupVersionRecords:
		if found, payload, err = decodeKept(payload); err != nil {
			return 0, nil, err
		}
	default:
		return 0, nil, errRow
	}
	for ; len(payload) > 0; height++ {
		if len(payload) < 4 || uint64(binary.BigEndian.Uint32(payload)) > uint64(len(payload)-4) {
			return 0, nil, errRow
		}
		length := binary.BigEndian.Uint32(payload)
		if err := visit(height, payload[4:4+length]); err != nil {
			return 0, nil, err
		}
		payload = payload[4+length:]
	}
	return known, found, nil
}

// openJournal opens the journal and appends its blocks after the database's head. It records the
// doubt, and which segments there are, before any other marker or Start erases what that rests on.
func (s *Store) openJournal() (err error) {
	must, dir := s.marker.last, filepath.Join(s.dir, journalFolder)
	exists := must.segment
	if s.marker.hides && exists == 0 {
		// The marker that claimed the first segment may be the one that is lost.
		if exists, err = journal.Lowest(dir); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	s.journal, err = journal.Open(dir, journal.Known{Segment: exists, Group: must.group},
		journal.Options{SegmentBytes: s.options.SegmentBytes, Claim: s.claim,
			Retry: s.retryPassing, Before: s.options.onWrite})
	if errors.Is(err, journal.ErrDamaged) {
		return damaged(s.head.Header.Height+1, "%v; the database ends at block %d", err,
			s.head.Header.Height)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	known, records := must.known, false
	err = s.journal.Groups(func(group uint64, payload []byte) error {
		told, found, err := eachInGroup(payload, func(height ledger.Height, encoded []byte) error {
			return s.replay(group, height, encoded)
		})
		known, records = max(known, told), records || found != nil
		if err == nil {
			s.noteGroup(group, s.head.Header.Round, found)
		}
		if errors.Is(err, errRow) {
			return damaged(s.head.Header.Height+1, "group %d of the journal is malformed", group)
		}
		return err
	})
	if errors.Is(err, journal.ErrDamaged) {
		return damaged(s.head.Header.Height+1, "%v", err)
	}
	if err != nil {
		return err
	}
	s.known.Store(uint64(min(known, s.head.Header.Height)))
	s.doubt(must)
	if s.perhaps == must.perhaps && exists == must.segment && records == must.records {
		return nil
	}
	return s.mark(func(next *tip) {
		next.segment, next.records = max(next.segment, exists), records
	})
}

// startJournal lets the journal take groups. When it returns, all blocks are on the disk.
func (s *Store) startJournal() error {
	if err := s.journal.Start(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.durable, s.told, s.noted = s.head.Header.Height, s.KnownDurable(), s.journal.Last()
	s.showHead()
	return nil
}

// doubt sets what Perhaps returns.
func (s *Store) doubt(must tip) {
	if s.perhaps = must.perhaps; s.perhaps != 0 {
		return
	}
	if s.marker.hides || s.journal.Doubt() != "" {
		s.perhaps = s.head.Header.Height + 1
	}
}

// replay appends a block of the journal, unless the database has it.
func (s *Store) replay(group uint64, height ledger.Height, encoded []byte) error {
	switch head := s.head.Header.Height; {
	case height <= head:
		return nil
	case height > head+1:
		return damaged(head+1, "the journal goes on with block %d", height)
	}
	block, err := ledger.DecodeBlock(append([]byte(nil), encoded...))
	if err != nil {
		return damaged(height, "in the journal: %v", err)
	}
	if block.Header.Height != height || block.Header.Previous != s.head.Hash ||
		block.Header.Time < s.head.Header.Time {
		return damaged(height, "in the journal: it does not follow block %d", height-1)
	}
	draft := state.Redraft(block)
	if err := s.admit(height, draft); err != nil {
		return err
	}
	executed, changes := s.state.Execute(draft)
	if err := ledger.CheckVersion(s.state.Version()); err != nil {
		return fmt.Errorf("store: block %d: %w", height, err)
	}
	if executed.Hash != block.Hash || changes.OutOfPlace > 0 {
		return damaged(height, "executing it again gives another result: %s",
			difference(block, executed))
	}
	s.publish(executed, changes)
	s.unwritten.at(height).group = group
	return nil
}

// claim records that a segment of the journal exists.
func (s *Store) claim(segment uint64) error {
	return s.mark(func(next *tip) { next.segment = max(next.segment, segment) })
}

// mark writes a marker with a change, and with the store's knowledge of durability, unless it would
// be the same as the last one.
func (s *Store) mark(change func(next *tip)) error {
	s.marking.Lock()
	defer s.marking.Unlock()
	last := s.marker.last
	next := last
	if change != nil {
		change(&next)
	}
	s.mutex.RLock()
	next.known, next.perhaps = max(s.KnownDurable(), next.known), s.perhaps
	s.mutex.RUnlock()
	if next == last {
		return nil
	}
	s.options.onWrite("marker")
	if err := s.marker.write(next); err != nil {
		return s.fail(err)
	}
	s.flushes.Add(1)
	return nil
}

// Unwritten returns how many blocks the database does not have yet, and the bytes of their
// encodings. The journal has those of them that are durable. Both are bounded.
func (s *Store) Unwritten() (blocks, bytes int) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return len(s.unwritten.blocks), s.unwritten.bytes
}

// JournalBytes returns the size of the journal's segments that hold groups which were not released.
// It is bounded (record.go).
func (s *Store) JournalBytes() int64 {
	held, _ := s.journal.Use(0)
	return held
}

// Flushes returns how often the store has flushed a file or a folder to the disk since it was
// opened. What the database flushes by itself does not count.
func (s *Store) Flushes() uint64 {
	return s.flushes.Load() + s.logs.flushes.Load() + s.journal.Flushes()
}

// fail stops all writing. After a failed fsync the content of the disk is unknown.
func (s *Store) fail(err error) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.failure == nil {
		s.failure = errors.Join(ErrFailed, err)
	}
	s.changed.Broadcast()
	return s.failure
}
