package intake

import (
	"sync/atomic"
)

// Budget is the memory that all requests under way may take. It never waits.
type Budget struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used returns the bytes that are reserved now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Refused returns how many reservations found the budget spent.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// Open begins a call. It returns nil if the budget is spent.
func (b *Budget) Open() *Reservation {
	r := &Reservation{budget: b}
	if !r.Grow(base) {
		return nil
	}
	return r
}

// Reservation is what one call has of a budget. One goroutine at a time uses it.
type Reservation struct {
	budget *Budget
	bytes  int64
}

// Grow reserves more. It reports whether the budget had that much.
func (r *Reservation) Grow(bytes int64) bool {
	if r.budget.used.Add(bytes) > r.budget.limit {
		r.budget.used.Add(-bytes)
		r.budget.refused.Add(1)
		return false
	}
	r.bytes += bytes
	return true
}

// Shrink gives some of it back.
func (r *Reservation) Shrink(bytes int64) {
	bytes = min(bytes, r.bytes)
	r.bytes -= bytes
	r.budget.used.Add(-bytes)
}

// Close gives all of it back.
func (r *Reservation) Close() { r.Shrink(r.bytes) }
