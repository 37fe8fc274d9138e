package sweep_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

// TestShrinkerKeepsWhatFailsAlike: a run that passes, breaks another property or cannot be made is
// not kept, and no run is made once none is left.
func TestShrinkerKeepsWhatFailsAlike(t *testing.T) {
	t.Parallel()
	broken := map[int]order.Property{100: order.Validity, 50: order.Validity, 30: order.Integrity,
		20: "", 10: order.Validity, 5: order.Validity}
	runs := 0
	x := sweep.NewShrinker(100, order.Validity, func(size int) (order.Property, error) {
		runs++
		if property, is := broken[size]; is {
			return property, nil
		}
		return order.Validity, errors.New("no such run")
	}, func(result order.Property) order.Property { return result })
	x.Left = 5
	for _, try := range []struct {
		size int
		kept bool
	}{{50, true}, {30, false}, {20, false}, {11, false}, {10, true}, {5, false}} {
		before := x.Options
		if kept := x.Try(try.size); kept != try.kept {
			t.Errorf("the run of %d is kept: %v, want %v", try.size, kept, try.kept)
		}
		if want := map[bool]int{true: try.size, false: before}[try.kept]; x.Options != want {
			t.Errorf("the smallest run after %d is that of %d, want %d", try.size, x.Options, want)
		}
	}
	if runs != 5 || x.Left != 0 || x.Result != order.Validity {
		t.Errorf("%d runs, %d left, the smallest breaks %q", runs, x.Left, x.Result)
	}
}
