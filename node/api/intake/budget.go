package intake

import (
	"sync"
	"sync/atomic"
)

// shareOf is the divisor of a budget that gives what one address may have of it.
const shareOf = 2

// Budget is the memory that all requests under way may take. One address may take half of it, so
// that others find room. It never waits.
type Budget struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Int64

	mu     sync.Mutex
	shares map[string]*share // of the addresses with reservations
}

// share is what one address has of a budget.
type share struct {
	used atomic.Int64
	open int // reservations; guarded by Budget.mu
}

// NewBudget returns a budget of so many bytes.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit, shares: make(map[string]*share)}
}

// Used returns the bytes that are reserved now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Refused returns how many reservations found the budget, or their share of it, spent.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// Open begins a call of an address. It returns nil if the budget or the address's share is spent.
func (b *Budget) Open(address string) *Reservation {
	b.mu.Lock()
	of := b.shares[address]
	if of == nil {
		of = new(share)
		b.shares[address] = of
	}
	of.open++
	b.mu.Unlock()
	r := &Reservation{budget: b, share: of, address: address}
	if !r.Grow(base) {
		r.Close()
		return nil
	}
	return r
}

// Reservation is what one call has of a budget. One goroutine at a time uses it.
type Reservation struct {
	budget  *Budget
	share   *share
	address string
	bytes   int64
}

// Grow reserves more. It reports whether the budget, and the share of the address, had that much.
func (r *Reservation) Grow(bytes int64) bool {
	switch b := r.budget; {
	case r.share.used.Add(bytes) > b.limit/shareOf:
	case b.used.Add(bytes) > b.limit:
		b.used.Add(-bytes)
	default:
		r.bytes += bytes
		return true
	}
	r.share.used.Add(-bytes)
	r.budget.refused.Add(1)
	return false
}

// Shrink gives some of it back.
func (r *Reservation) Shrink(bytes int64) {
	bytes = min(bytes, r.bytes)
	r.bytes -= bytes
	r.share.used.Add(-bytes)
	r.budget.used.Add(-bytes)
}

// Close gives all of it back. It is the last call.
func (r *Reservation) Close() {
	r.Shrink(r.bytes)
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	if r.share.open--; r.share.open == 0 {
		delete(r.budget.shares, r.address)
	}
}
