package route

import (
	"context"
	"fmt"
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
	obstacles := r.inTheWay(ctx)
	if len(obstacles) == 0 {
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

// inTheWay returns the obstacles that count for a caller: for one that queues, only shards that are
// lost.
func (r *router) inTheWay(ctx context.Context) []report.Obstacle {
	obstacles := r.shards.Obstacles()
	if !api.Queues(ctx) {
		return obstacles
	}
	var lost []report.Obstacle
	for i := range obstacles {
		if obstacles[i].Lost {
			lost = append(lost, obstacles[i])
		}
	}
	return lost
}

// obstructed returns the refusal of a bundle that enters here and has a transaction with an
// obstacle in the way, or nil. A transaction that this shard has already does not count; if there
// are others beside it, the refusal says that a part was taken.
func (r *router) obstructed(bundle *ledger.Bundle, obstacles []report.Obstacle) *report.Refusal {
	for i := range bundle.Len() {
		at := r.firstInTheWay(bundle.Transaction(i), r.shards.Own(), obstacles)
		if at >= 0 && !r.has(bundle.ID(i)) {
			refusal := r.refuse(&obstacles[at])
			refusal.Unsure = slices.ContainsFunc(bundle.IDs(), r.has)
			return refusal
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
	alone := len(destinations) == 1 && destinations[0] == entry
	return slices.IndexFunc(obstacles, func(o report.Obstacle) bool {
		if o.Lost {
			return slices.Contains(destinations, o.Shard)
		}
		if alone {
			return false
		}
		if o.Full {
			return slices.Contains(destinations, o.Shard) &&
				slices.Contains(destinations, o.Awaited)
		}
		// It is at an end of the way, or between.
		return tree.Reaches(entry, o.Shard) && tree.Concerns(o.Shard, destinations)
	})
}

// entryDown judges a bundle that enters another shard: if that shard is down, nobody else can. It
// returns the refusal of a bundle that crosses, or that the whole bundle was taken before, as far
// as is known here and in the shards on its way below. Its outcome will then come from there. If a
// part of the bundle was taken, or may have been, the refusal says so.
func (r *router) entryDown(ctx context.Context, bundle *ledger.Bundle,
	entry ledger.ShardID) (refusal *report.Refusal, taken bool) {
	if entry == r.shards.Own() {
		return nil, false
	}
	obstacles := r.inTheWay(ctx)
	at := slices.IndexFunc(obstacles, func(o report.Obstacle) bool {
		return !o.Full && o.Shard == entry
	})
	if at < 0 {
		return nil, false
	}
	if obstacles[at].Lost {
		return r.refuse(&obstacles[at]), false
	}
	crosses := false
	for i := range bundle.Len() {
		crosses = crosses ||
			r.firstInTheWay(bundle.Transaction(i), entry, obstacles[at:at+1]) >= 0
	}
	if !crosses {
		return nil, false
	}
	known, unsure := r.taken(ctx, bundle, entry, obstacles)
	if known == bundle.Len() {
		return nil, true
	}
	refusal = r.refuse(&obstacles[at])
	refusal.Reason += "; if the same was submitted before, it may still take effect"
	refusal.Unsure = known > 0 || unsure
	return refusal, false
}

// taken counts the transactions of a bundle that the shard where it enters has taken, as far as is
// known here or in the shards on their way below that are not down. It reports whether it may have
// taken others: this node sent them there without an answer, or a shard on the way does not answer.
func (r *router) taken(ctx context.Context, bundle *ledger.Bundle, entry ledger.ShardID,
	obstacles []report.Obstacle) (known int, unsure bool) {
	tree := r.shards.Tree()
	var ids []ledger.Hash
	var ask []ledger.ShardID
	for i := range bundle.Len() {
		id := bundle.ID(i)
		to, sent := r.sent.of(id)
		if sent && !to.unsure || r.has(id) {
			known++
			continue
		}
		unsure = unsure || sent
		ids = append(ids, id)
		for _, shard := range wayTo(tree, tree.Destinations(bundle.Transaction(i),
			r.backend.Store())) {
			if shard != r.shards.Own() && tree.Reaches(entry, shard) &&
				!slices.Contains(ask, shard) &&
				!slices.ContainsFunc(obstacles, func(o report.Obstacle) bool {
					return !o.Full && o.Shard == shard
				}) {
				ask = append(ask, shard)
			}
		}
	}
	told, failures := callAll(ctx, askTime, ask, func(ctx context.Context,
		shard ledger.ShardID) ([]bool, error) {
		return r.knownAt(ctx, shard, ids)
	})
	for i := range ids {
		if slices.ContainsFunc(told, func(there []bool) bool { return there != nil && there[i] }) {
			known++
		}
	}
	silent := slices.ContainsFunc(failures, func(err error) bool { return err != nil })
	return known, unsure || silent
}

// knownAt reports which transactions another shard knows.
func (r *router) knownAt(ctx context.Context, shard ledger.ShardID,
	ids []ledger.Hash) ([]bool, error) {
	known := make([]bool, len(ids))
	if len(ids) == 1 { // this call does not wait for one that is not known
		_, err := r.shards.Client(shard).GetTransaction(ctx,
			connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: ids[0][:]}))
		if known[0] = err == nil; connect.CodeOf(err) == connect.CodeNotFound {
			err = nil
		}
		return known, err
	}
	bounded, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	request := &ledgerdv1.WaitTransactionsRequest{Wait: ledgerdv1.Level_LEVEL_ADMITTED}
	for i := range ids {
		request.Ids = append(request.Ids, ids[i][:])
	}
	answer, err := r.shards.Client(shard).WaitTransactions(bounded, connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	if len(answer.Msg.GetTransactions()) != len(ids) {
		return nil, fmt.Errorf("shard %d answered for %d transactions, asked for %d", shard,
			len(answer.Msg.GetTransactions()), len(ids))
	}
	for i, status := range answer.Msg.GetTransactions() {
		known[i] = status.GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED
	}
	return known, nil
}
