package api

import "context"

// The wish of a caller to let transactions wait for shards that are down or full goes with the
// context of the call: it says how the call is made, and only the front of a book of several shards
// looks at it (package route).

type queueKey struct{}

// Queueing returns the context of a call whose caller lets its transactions wait for other shards,
// if queue is set.
func Queueing(ctx context.Context, queue bool) context.Context {
	if !queue {
		return ctx
	}
	return context.WithValue(ctx, queueKey{}, true)
}

// Queues reports whether the caller lets its transactions wait for shards that are down or full.
func Queues(ctx context.Context) bool { return ctx.Value(queueKey{}) != nil }
