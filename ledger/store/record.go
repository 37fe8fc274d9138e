package store

import (
	"encoding/binary"
	"errors"

	"github.com/ledgerd/ledgerd/ledger"
)

// A record is bytes of the caller about rounds that are not in the chain yet: a node keeps the
// contents of complete rounds in one (docs/design/rounds.md). It goes into the journal with the
// next Sync, in a group of a version of its own, after all blocks that were appended before. The
// journal keeps the last record until a block of its last round, or of a later one, is in the
// journal too. Markers then say that there may be such groups, so that a program that does not know
// them refuses the store.
//
// Rounds with records need not make blocks, so records alone let the journal grow. Once it has
// Options.releaseBytes in segments that nothing would need if the database had all blocks, the
// writer makes that so and releases them. While it has twice as much in segments that were not
// released, it takes no further record: the writer does not keep up, or blocks fill the journal.

// keptRecord is a record and its place.
type keptRecord struct {
	bytes []byte
	// last is the last round that the record is about, group its group in the journal.
	last  ledger.Round
	group uint64
}

// recordHeadSize is what a group with a record has besides: the record's last round and its length.
const recordHeadSize = 8 + 4

// ErrNewer reports that a newer version of the program wrote a part of the store. It is no damage.
var ErrNewer = errors.New("store: written by a newer version of ledgerd; use that one")

// ErrNoRoom reports that a record found no room in the journal. Its blocks need none.
var ErrNoRoom = errors.New("store: the journal has no room for a record until the database has " +
	"more of its blocks")

// PutRecord makes the next Sync write a record whose last round is given. It replaces one that was
// not written yet. It returns ErrDiskFull or ErrNoDescriptors, and keeps nothing, if the disk takes
// no writes, and ErrNoRoom if the journal holds too much. The bytes must not change any more.
func (s *Store) PutRecord(bytes []byte, last ledger.Round) error {
	if err := s.requireSpace(len(bytes)); err != nil {
		return err
	}
	if s.JournalBytes()+int64(len(bytes)) > 2*s.options.releaseBytes {
		return ErrNoRoom
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.next = &keptRecord{bytes: bytes, last: last}
	return nil
}

// AdoptRecord makes the next Sync or Close write another store's last record, if there is one. This
// store will replace the other one, and has the blocks that the record follows.
func (s *Store) AdoptRecord(from *Store) {
	from.mutex.RLock()
	last := from.recorded
	from.mutex.RUnlock()
	if last == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.next = &keptRecord{bytes: last.bytes, last: last.last}
}

// LastRecord returns the last record on the disk, or nil if there is none or the chain has gone
// past its rounds. It must not be changed.
func (s *Store) LastRecord() []byte {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.recorded == nil {
		return nil
	}
	return s.recorded.bytes
}

// noteGroup records that the journal has a group, the last of whose blocks has the given round, and
// whose record is given; nil for none. The caller must hold the mutex.
func (s *Store) noteGroup(group uint64, round ledger.Round, r *keptRecord) {
	s.noted = group
	if r != nil {
		r.group = group
		s.recorded, s.recordGroup = r, group
	}
	if s.recorded != nil && round >= s.recorded.last {
		s.recorded = nil
	}
}

// unneeded returns the last group that the journal may release if the database has the blocks up to
// a height: the last record and all later blocks are in later groups. It is never the last group.
// The caller must hold the mutex.
func (s *Store) unneeded(height ledger.Height) uint64 {
	group := max(s.noted, 1) - 1
	if next := s.unwritten.at(height + 1); next != nil && next.group != 0 {
		group = min(group, next.group-1)
	}
	if s.recorded != nil {
		group = min(group, s.recorded.group-1)
	}
	return group
}

// watchJournal makes the writer release groups if the journal has too much that nothing needs. The
// caller must hold the mutex.
func (s *Store) watchJournal() {
	if _, free := s.journal.Use(s.unneeded(s.durable)); free >= s.options.releaseBytes {
		s.crowded = true
		s.changed.Broadcast()
	}
}

// releaseGroups releases what the journal need not keep, though the database got nothing new.
func (s *Store) releaseGroups() error {
	s.mutex.RLock()
	group := s.unneeded(s.written)
	s.mutex.RUnlock()
	if err := s.mark(func(next *tip) { next.group = max(next.group, group) }); err != nil {
		return err
	}
	s.journal.Release(group)
	return nil
}

// markRecords makes the markers say that there may be groups with records.
func (s *Store) markRecords() error {
	s.marking.Lock()
	marked := s.marker.last.records
	s.marking.Unlock()
	if marked {
		return nil
	}
	return s.mark(func(next *tip) { next.records = true })
}

// unmarkRecords makes the markers say again that no group has a record, if none has. Close does so,
// so that an older program can go on once no node logs rounds.
func (s *Store) unmarkRecords() error {
	s.mutex.RLock()
	last := s.recordGroup
	s.mutex.RUnlock()
	return s.mark(func(next *tip) { next.records = next.records && last > next.group })
}

// appendTo appends the head of a record in a group.
func (r *keptRecord) appendTo(head []byte) []byte {
	head = binary.BigEndian.AppendUint64(head, uint64(r.last))
	return binary.BigEndian.AppendUint32(head, uint32(len(r.bytes)))
}

// decodeKept takes the record from the front of a group's payload behind its head.
func decodeKept(payload []byte) (r *keptRecord, rest []byte, err error) {
	if len(payload) < recordHeadSize {
		return nil, nil, errRow
	}
	last, length := binary.BigEndian.Uint64(payload), binary.BigEndian.Uint32(payload[8:])
	if payload = payload[recordHeadSize:]; uint64(length) > uint64(len(payload)) {
		return nil, nil, errRow
	}
	return &keptRecord{bytes: append([]byte(nil), payload[:length]...), last: ledger.Round(last)},
		payload[length:], nil
}
