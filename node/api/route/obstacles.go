package route

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// While a shard is down, transactions that cross to it wait, with what they set aside, and fill the
// other shards. While a shard is full, it refuses them once they are ordered, stored and streamed.
// So a node admits none while it knows of such an obstacle, unless the caller queues. The node of
// the shard where the bundle enters judges, since it knows which transactions are in its chain
// already: their outcome is their answer, whatever is in the way now. Only if that shard is down
// itself, the node that took the call judges.

// admitHere lets this node's shard admit bundles, except those with an obstacle in the way.
func (r *router) admitHere(ctx context.Context, bundles []*ledger.Bundle,
	inOrder bool) []*report.Refusal {
	obstacles := r.shards.Obstacles()
	if len(obstacles) == 0 || api.Queues(ctx) {
		return r.backend.Admit(ctx, bundles, inOrder)
	}
	refusals := make([]*report.Refusal, len(bundles))
	var free []*ledger.Bundle
	var places []int
	for i, bundle := range bundles {
		if refusals[i] = r.obstructed(bundle, obstacles); refusals[i] == nil {
			free, places = append(free, bundle), append(places, i)
		} else if inOrder {
			for later := i + 1; later < len(bundles); later++ {
				refusals[later] = api.AfterRefusal()
			}
			break
		}
	}
	if len(free) == 0 {
		return refusals
	}
	for i, refusal := range r.backend.Admit(ctx, free, inOrder) {
		refusals[places[i]] = refusal
	}
	return refusals
}

// obstructed returns the refusal of a bundle that enters here and has a transaction with an
// obstacle in the way, or nil. A transaction that this shard has already does not count.
func (r *router) obstructed(bundle *ledger.Bundle, obstacles []report.Obstacle) *report.Refusal {
	for i := range bundle.Len() {
		at := r.firstInTheWay(bundle.Transaction(i), r.shards.Own(), obstacles)
		if at >= 0 && !r.has(bundle.ID(i)) {
			return r.refuse(&obstacles[at])
		}
	}
	return nil
}

// refuse counts and returns a refusal.
func (r *router) refuse(obstacle *report.Obstacle) *report.Refusal {
	refusal := obstacle.Refusal()
	r.refused.count(obstacle.Shard, refusal.Word())
	return refusal
}

// has reports whether this shard has a transaction in its pool or in a block.
func (r *router) has(id ledger.Hash) bool {
	status, err := r.backend.Status(id)
	return err != nil || // the backend's Admit says so
		status.Outcome == report.OutcomePending || status.InBlock()
}

// firstInTheWay returns the index of the first obstacle in the way of a transaction that enters at
// a shard, or -1. Nothing is in the way of what all shards keep, and of a transaction that concerns
// no other shard.
func (r *router) firstInTheWay(t *ledger.Transaction, entry ledger.ShardID,
	obstacles []report.Obstacle) int {
	if t.Change != nil || t.BookWide() {
		return -1
	}
	tree := r.shards.Tree()
	destinations := tree.Destinations(t, r.backend.Store())
	if len(destinations) == 1 && destinations[0] == entry {
		return -1
	}
	return slices.IndexFunc(obstacles, func(o report.Obstacle) bool {
		if o.Full {
			return slices.Contains(destinations, o.Shard) &&
				slices.Contains(destinations, o.Awaited)
		}
		// It is at an end of the way, or between.
		return tree.Reaches(entry, o.Shard) && tree.Concerns(o.Shard, destinations)
	})
}

// entryDown judges a bundle that enters another shard: if that shard is down, nobody else can. It
// returns the refusal of a bundle that crosses, or that the bundle was taken before, as far as this
// shard or the home of a signer knows. Its outcome will then come from there.
func (r *router) entryDown(ctx context.Context, bundle *ledger.Bundle,
	entry ledger.ShardID) (refusal *report.Refusal, taken bool) {
	if entry == r.shards.Own() || api.Queues(ctx) {
		return nil, false
	}
	obstacles := r.shards.Obstacles()
	at := slices.IndexFunc(obstacles, func(o report.Obstacle) bool {
		return !o.Full && o.Shard == entry
	})
	if at < 0 {
		return nil, false
	}
	for i := range bundle.Len() {
		if r.firstInTheWay(bundle.Transaction(i), entry, obstacles[at:at+1]) < 0 {
			continue
		}
		if r.taken(ctx, bundle, i, entry) {
			return nil, true
		}
		return r.refuse(&obstacles[at]), false
	}
	return nil, false
}

// taken reports whether this shard has a transaction of a bundle, or the shard that decides it,
// unless that is a shard that is down.
func (r *router) taken(ctx context.Context, bundle *ledger.Bundle, i int,
	down ledger.ShardID) bool {
	id := bundle.ID(i)
	if r.has(id) {
		return true
	}
	home := r.backend.Store().DecidedAt(bundle.Transaction(i))
	if home == r.shards.Own() || home == down {
		return false
	}
	bounded, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := r.shards.Client(home).GetTransaction(bounded,
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id[:]}))
	return err == nil
}
