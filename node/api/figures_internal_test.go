package api

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Blocks of one period add up, and only so many of the newest periods are kept.
func TestPeriodsAreBounded(t *testing.T) {
	t.Parallel()
	var hours []figure
	for i := range 10 {
		for range 3 {
			hours = inPeriod(hours, &figure{transactions: 2}, ledger.Milliseconds(i)*hour, 4)
		}
	}
	if len(hours) != 4 || cap(hours) > 16 {
		t.Fatalf("%d hours, room for %d", len(hours), cap(hours))
	}
	for i, each := range hours {
		if each.start != ledger.Milliseconds(6+i)*hour || each.transactions != 6 {
			t.Errorf("hour %d: %+v", i, each)
		}
	}
	if shown := newest(hours, 2); len(shown) != 2 || shown[1].GetStartMs() != uint64(9*hour) {
		t.Errorf("the newest two: %v", shown)
	}
}

// Months are those of the calendar, also in a leap year and at their first and last moments.
func TestMonthsAreOfTheCalendar(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"1970-01-01T00:00:00Z":     "1970-01-01T00:00:00Z",
		"2024-02-29T23:59:59.999Z": "2024-02-01T00:00:00Z",
		"2024-03-01T00:00:00Z":     "2024-03-01T00:00:00Z",
		"2026-12-31T23:59:59.999Z": "2026-12-01T00:00:00Z",
		"2027-01-01T00:00:00Z":     "2027-01-01T00:00:00Z",
	} {
		moment, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			t.Fatal(err)
		}
		got := time.UnixMilli(int64(monthOf(ledger.Milliseconds(moment.UnixMilli())))).UTC()
		if got.Format(time.RFC3339) != want {
			t.Errorf("%s is in the month of %v", at, got)
		}
	}
}
