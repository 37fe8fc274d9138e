package stream

import (
	"fmt"
	"testing"
)

// The durable position is that of the last durable block executed here, in whatever order the
// reports arrive.
func TestPositions(t *testing.T) {
	t.Parallel()
	var h Positions
	check := func(ordered, durable uint64, known bool) {
		t.Helper()
		if got := h.Position(); got != (Position{ordered, durable, known}) {
			t.Fatalf("got %+v, want %d, %d, %t", got, ordered, durable, known)
		}
	}
	check(0, 0, false)
	h.DurableTo(4)
	check(0, 0, false)
	h.Base(0, 5, 7)
	check(7, 0, false)
	h.Applied(6, 7)
	h.Applied(7, 9)
	h.DurableTo(5)
	check(9, 7, true)
	h.DurableTo(6)
	check(9, 7, true)
	h.Applied(7, 9) // again
	h.Base(0, 3, 1) // too late
	h.DurableTo(100)
	check(9, 9, true)
	h.Applied(8, 9)
	h.Applied(9, 12)
	check(12, 12, true)
	h.Reset()
	check(0, 0, false)
	h.Base(0, 5, 7) // of the life before
	check(0, 0, false)
	for height := uint64(1); height < 3*HeightsMax; height++ {
		h.Applied(height, height)
	}
	h.DurableTo(10)
	check(3*HeightsMax-1, 10, true)
	h.DurableTo(2 * HeightsMax)
	if got := h.Position(); got.Durable > 2*HeightsMax {
		t.Fatalf("durable is %d of %d", got.Durable, 2*HeightsMax)
	}
	h.DurableTo(3 * HeightsMax)
	check(3*HeightsMax-1, 3*HeightsMax-1, true)
}

// A log that goes back takes its positions along: what replaced the blocks says what is durable,
// also if it takes less, or nothing.
func TestLogGoesBack(t *testing.T) {
	t.Parallel()
	if wrongs := goBack(FaultNone); len(wrongs) > 0 {
		t.Error(wrongs)
	}
	if len(goBack(FaultHeightsKept)) == 0 {
		t.Error("the planted bug is not found")
	}
}

// goBack makes chains go back, and says which positions are wrong.
func goBack(fault Fault) (wrongs []string) {
	for name, test := range map[string]struct {
		again   []rise // the blocks that replace 7, 8 and 9
		durable []Position
	}{
		"nothing carried": {[]rise{{7, 7}, {8, 7}, {9, 7}},
			[]Position{{7, 7, true}, {7, 7, true}, {7, 7, true}}},
		"less carried": {[]rise{{7, 8}, {8, 8}, {9, 9}},
			[]Position{{9, 8, true}, {9, 8, true}, {9, 9, true}}},
		"later carried": {[]rise{{7, 7}, {8, 9}, {9, 12}},
			[]Position{{12, 7, true}, {12, 9, true}, {12, 12, true}}},
		"in the middle": {[]rise{{8, 9}, {9, 9}},
			[]Position{{9, 9, true}, {9, 9, true}, {9, 9, true}}},
		"the last only": {[]rise{{9, 10}},
			[]Position{{10, 9, true}, {10, 10, true}, {10, 10, true}}},
	} {
		h := Positions{fault: fault}
		h.Applied(6, 7)
		h.DurableTo(6)
		h.Applied(7, 9)
		h.Applied(8, 10)
		h.Applied(9, 15)
		for _, each := range test.again {
			h.Applied(each.height, each.position)
		}
		for i, want := range test.durable {
			h.DurableTo(uint64(7 + i))
			if got := h.Position(); got != want {
				wrongs = append(wrongs, fmt.Sprintf("%s: durable to %d is %+v, want %+v", name, 7+i,
					got, want))
			}
		}
	}
	return wrongs
}
