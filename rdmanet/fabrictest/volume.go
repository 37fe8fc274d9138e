package fabrictest

import (
	"context"
	"time"
)

// Slow is what a Fabric has beside its methods where connecting and moving bytes cost much, as on a
// device that is emulated: the cases that are about volume do with less of it, and what has to end
// in time is given more.
type Slow interface {
	// Less is what the volume is divided by, at least 1.
	Less() int
	// Patience is what deadlines are multiplied by, at least 1. The mend timeouts of its hosts may
	// be up to that much longer, too.
	Patience() int
}

// volume is count, or what a slow fabric does of it.
func volume(f Fabric, count int) int {
	if slow, ok := f.(Slow); ok {
		return count / slow.Less()
	}
	return count
}

// patienceKey is where a case's context has the patience of its fabric.
type patienceKey struct{}

// withPatience gives a case's context.
func withPatience(f Fabric) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if slow, ok := f.(Slow); ok {
		ctx = context.WithValue(ctx, patienceKey{}, slow.Patience())
	}
	return context.WithTimeout(ctx, patience(ctx, caseTimeout))
}

// patience is how long to wait for what may take that long.
func patience(ctx context.Context, limit time.Duration) time.Duration {
	if times, ok := ctx.Value(patienceKey{}).(int); ok {
		return limit * time.Duration(times)
	}
	return limit
}
