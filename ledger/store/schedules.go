package store

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// IsDue reports whether a block of a time would have an occurrence of a schedule; see
// state.State.IsDue.
func (s *Store) IsDue(at ledger.Milliseconds) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.IsDue(at)
}

// Schedule returns a schedule that is open.
func (s *Store) Schedule(id ledger.Hash) (state.Scheduled, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Schedule(id)
}

// OpenSchedule is a schedule with occurrences to come.
type OpenSchedule = state.Scheduled

// OpenSchedules returns at most limit schedules that match, in the order of their ids, as of the
// head; see OpenHolds.
func (s *Store) OpenSchedules(after *ledger.Hash, limit int, matches func(*OpenSchedule) bool) (
	page []OpenSchedule, next ledger.Hash, more bool, err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	err = s.rowsAfter(state.AppendScheduleKey, after, limit, &next, &more,
		func() { page = nil }, func(key, value []byte) (bool, error) {
			found, open, err := state.DecodeScheduled(key, value)
			if err != nil || !open || !matches(&found) {
				return false, err
			}
			page = append(page, found)
			return true, nil
		})
	if err != nil {
		return nil, next, false, damagedUnless(ErrClosed, err, height, "the schedules")
	}
	return page, next, more, nil
}
