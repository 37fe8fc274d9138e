package ledger_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// What Minus takes back in any order comes out as it was.
func TestMinusTakesBackInAnyOrder(t *testing.T) {
	most, _ := ledger.ParseAmount("170141183460469231731687303715884105727")
	for _, parts := range [][3]ledger.Amount{
		{most, ledger.NewAmount(5), ledger.NewAmount(-5)},
		{ledger.NewAmount(-1), ledger.NewAmount(7), ledger.NewAmount(9)},
	} {
		whole := parts[0]
		for _, part := range parts[1:] {
			whole = whole.Minus(ledger.NewAmount(0).Minus(part))
		}
		if got := whole.Minus(parts[1]).Minus(parts[2]); got != parts[0] {
			t.Errorf("%v: %s", parts, got)
		}
		if got := whole.Minus(parts[2]).Minus(parts[1]); got != parts[0] {
			t.Errorf("%v: %s", parts, got)
		}
	}
}
