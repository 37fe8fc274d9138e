package intake

import "testing"

// A budget keeps nothing of addresses without calls, also if their last call was refused.
func TestBudgetForgetsAddresses(t *testing.T) {
	t.Parallel()
	budget := NewBudget(3 * base)
	one := budget.Open("a")
	if one == nil || budget.Open("a") != nil {
		t.Fatal("want room for one call of the address")
	}
	other := budget.Open("b")
	if other == nil || budget.Open("b") != nil || len(budget.shares) != 2 {
		t.Fatalf("%d addresses, want 2", len(budget.shares))
	}
	one.Shrink(1 << 30) // more than it has
	if budget.Used() != base {
		t.Errorf("%d bytes used, want those of the other address, %d", budget.Used(), base)
	}
	one.Close()
	other.Close()
	if len(budget.shares) != 0 || budget.Used() != 0 {
		t.Errorf("%d addresses and %d bytes are left", len(budget.shares), budget.Used())
	}
	spent := NewBudget(0)
	if spent.Open("c") != nil || len(spent.shares) != 0 {
		t.Errorf("%d addresses are left of a spent budget", len(spent.shares))
	}
}
