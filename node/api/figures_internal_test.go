package api

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// Blocks of one period add up, and only so many of the newest periods are kept.
func TestPeriodsAreBounded(t *testing.T) {
	t.Parallel()
	var hours []figure
	for i := range 10 {
		for range 3 {
			hours = inPeriod(hours, &figure{transactions: 2}, ledger.Milliseconds(i)*hour+7, hour,
				4)
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
