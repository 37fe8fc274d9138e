package api

import (
	"math/rand/v2"
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
	shown := newest(hours, 2, false)
	if len(shown) != 2 || shown[1].GetStartMs() != uint64(9*hour) {
		t.Errorf("the newest two: %v", shown)
	}
}

// Crossings add up by shard. Those of the newest periods are kept, as many as there is room for,
// and always those of the last one.
func TestCrossingsAreBounded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{0, 1, 20, 100, 10_000} {
		var periods []figure
		want := map[int]map[ledger.ShardID]crossing{}
		for i := range 20 {
			want[i] = map[ledger.ShardID]crossing{}
			for range 5 {
				counted := figure{}
				for range random.IntN(12) {
					shard := ledger.ShardID(random.IntN(30))
					counted.crossing(shard).transactions++
					counted.crossing(shard).verdicts += 2
					want[i][shard] = want[i][shard].plus(crossing{transactions: 1, verdicts: 2})
				}
				periods = inPeriod(periods, &counted, ledger.Milliseconds(i)*hour, 100)
				forgetCrossings(periods, most)
			}
		}
		kept, full := 0, false
		for i := len(periods) - 1; i >= 0; i-- {
			period := &periods[i]
			if period.forgotten {
				full = true
				if i == len(periods)-1 || len(period.crossings) > 0 {
					t.Errorf("room for %d: period %d: %+v", most, i, period)
				}
				continue
			}
			if kept += len(period.crossings); full || kept > most && i < len(periods)-1 ||
				len(period.crossings) != len(want[i]) {
				t.Errorf("room for %d: period %d has %d crossings, with newer ones %d", most, i,
					len(period.crossings), kept)
			}
			for j, each := range period.crossings {
				wanted := want[i][each.shard]
				if wanted.shard = each.shard; each != wanted ||
					j > 0 && period.crossings[j-1].shard >= each.shard {
					t.Errorf("period %d: %+v, wanted %+v", i, each, wanted)
				}
			}
		}
		if full != (most < 10_000) {
			t.Errorf("room for %d: forgotten: %v", most, full)
		}
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
