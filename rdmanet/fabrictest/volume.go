package fabrictest

import (
	"context"
	"time"
)

// Slow is implemented by a Fabric on which connecting and moving bytes is expensive, such as an
// emulated device. Cases that need volume use less of it, and deadlines are longer.
type Slow interface {
	// Less returns the divisor of the volume, at least 1.
	Less() int
	// Patience returns the factor for deadlines, at least 1. The mend timeouts of the fabric's
	// hosts may also be longer by up to this factor.
	Patience() int
}

// volume returns count, reduced on a slow fabric.
func volume(f Fabric, count int) int {
	if slow, ok := f.(Slow); ok {
		return count / slow.Less()
	}
	return count
}

// patienceKey is the context key of the fabric's patience.
type patienceKey struct{}

// withPatience returns a case's context.
func withPatience(f Fabric) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if slow, ok := f.(Slow); ok {
		ctx = context.WithValue(ctx, patienceKey{}, slow.Patience())
	}
	return context.WithTimeout(ctx, patience(ctx, caseTimeout))
}

// patience returns the limit, extended on a slow fabric.
func patience(ctx context.Context, limit time.Duration) time.Duration {
	if times, ok := ctx.Value(patienceKey{}).(int); ok {
		return limit * time.Duration(times)
	}
	return limit
}
