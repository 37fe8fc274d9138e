package main

import (
	"testing"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// A day begins where the one before it ends, also where clocks go forward at midnight.
func TestPeriodsOfDaysMeet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, day, next, begins, ends string }{
		{"Africa/Cairo", "2026-04-23", "2026-04-24", "2026-04-23T00:00:00+02:00",
			"2026-04-24T01:00:00+03:00"},
		{"Africa/Cairo", "2026-04-24", "2026-04-25", "2026-04-24T01:00:00+03:00",
			"2026-04-25T00:00:00+03:00"},
		{"America/Havana", "2026-03-07", "2026-03-08", "2026-03-07T00:00:00-05:00",
			"2026-03-08T01:00:00-04:00"},
		{"America/Havana", "2026-03-08", "2026-03-09", "2026-03-08T01:00:00-04:00",
			"2026-03-09T00:00:00-04:00"},
		{"Europe/Berlin", "2026-10-25", "2026-10-26", "2026-10-25T00:00:00+02:00",
			"2026-10-26T00:00:00+01:00"},
		{"UTC", "2026-12-31", "2027-01-01", "2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z"},
	} {
		read := func(from, to string) *ledgerdv1.ListHistoryRequest {
			request := &ledgerdv1.ListHistoryRequest{}
			flags := &periodFlags{from: from, to: to, zone: c.zone}
			if err := flags.fill(request); err != nil {
				t.Fatal(err)
			}
			return request
		}
		day, next, exact := read(c.day, c.day), read(c.next, ""), read(c.begins, c.ends)
		if day.GetFromTimeMs() != exact.GetFromTimeMs() ||
			day.GetToTimeMs() != exact.GetToTimeMs() || day.GetToTimeMs() != next.GetFromTimeMs() {
			t.Errorf("%s %s is from %d to %d, want %d to %d; the next day begins at %d", c.zone,
				c.day, day.GetFromTimeMs(), day.GetToTimeMs(), exact.GetFromTimeMs(),
				exact.GetToTimeMs(), next.GetFromTimeMs())
		}
	}
}
