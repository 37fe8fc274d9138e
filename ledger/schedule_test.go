package ledger

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTimesOfOccurrences compares the times of schedules with those of the package time.
func TestTimesOfOccurrences(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Int64Range(1, 1<<48).Draw(t, "first")
		every := rapid.Uint64Range(1, MaxScheduleStep).Draw(t, "every")
		number := rapid.Uint64Range(1, MaxOccurrences).Draw(t, "number")
		at, steps := time.UnixMilli(first).UTC(), int(number-1)*int(every)
		// The first day of the month, so that no month is skipped.
		month := time.Date(at.Year(), at.Month()+time.Month(steps), 1, at.Hour(), at.Minute(),
			at.Second(), at.Nanosecond(), time.UTC)
		last := month.AddDate(0, 1, -1).Day()
		for period, want := range map[Period]time.Time{
			Minutes: at.Add(time.Duration(steps) * time.Minute), Days: at.AddDate(0, 0, steps),
			Weeks: at.AddDate(0, 0, 7*steps), Months: month.AddDate(0, 0, min(at.Day(), last)-1)} {
			s := Schedule{First: Milliseconds(first), Period: period, Every: every}
			if got := s.TimeOf(number); int64(got) != want.UnixMilli() {
				t.Fatalf("every %d %s, occurrence %d: %s, want %s", every, period, number,
					time.UnixMilli(int64(got)).UTC(), want)
			}
			s.Until = s.TimeOf(number)
			if got := s.Occurrences(); got != number {
				t.Fatalf("%d occurrences until the time of number %d", got, number)
			}
		}
	})
}
