package route

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// DryRun asks all shards that decide on the transactions of a bundle what they would say.
func (r *router) DryRun(ctx context.Context, request *connect.Request[ledgerdv1.DryRunRequest]) (
	*connect.Response[ledgerdv1.DryRunResponse], error) {
	if request.Msg.Shard != nil {
		return inChain(ctx, r, request, r.Service.DryRun, client.DryRun)
	}
	bundle, err := api.ReadDryRun(request.Msg)
	if err != nil {
		return nil, err
	}
	if misuse := r.misuse(bundle); misuse != nil {
		return nil, api.RefusalError(misuse)
	}
	shards := r.deciding(bundle)
	answers, failures := callAll(ctx, askTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*ledgerdv1.DryRunResponse, error) {
		number := uint32(shard)
		asked := connect.NewRequest(&ledgerdv1.DryRunRequest{Bundle: request.Msg.GetBundle(),
			Shard: &number})
		answer, err := inChain(ctx, r, asked, r.Service.DryRun, client.DryRun)
		if err != nil {
			return nil, err
		}
		return answer.Msg, nil
	})
	merged := &ledgerdv1.DryRunResponse{}
	for i := range bundle.Len() {
		outcome := &ledgerdv1.DryRunOutcome{IdHex: bundle.ID(i).String()}
		decide := r.decidesOn(bundle.Transaction(i))
		if len(decide) > 1 && !bundle.Transaction(i).BookWide() {
			for _, shard := range decide {
				outcome.Destinations = append(outcome.Destinations, uint32(shard))
			}
		}
		for at, shard := range shards {
			switch {
			case !slices.Contains(decide, shard):
			case failures[at] != nil && final(failures[at]):
				return nil, failures[at]
			case failures[at] != nil || len(answers[at].GetTransactions()) != bundle.Len():
				outcome.UnansweredShards = append(outcome.UnansweredShards, uint32(shard))
			default:
				part := answers[at].GetTransactions()[i]
				outcome.Ordered = outcome.Ordered || part.GetOrdered()
				outcome.Verdicts = append(outcome.Verdicts, part.GetVerdicts()...)
				outcome.Balances = append(outcome.Balances, part.GetBalances()...)
			}
		}
		api.ConcludeDryRun(outcome)
		merged.Transactions = append(merged.Transactions, outcome)
	}
	return connect.NewResponse(merged), nil
}

// final reports whether a shard refuses the bundle, rather than being silent.
func final(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled,
		connect.CodeResourceExhausted, connect.CodeUnimplemented:
		return false
	}
	return true
}

// deciding returns the shards that decide on transactions of a bundle, in ascending order.
func (r *router) deciding(bundle *ledger.Bundle) (shards []ledger.ShardID) {
	for i := range bundle.Len() {
		for _, shard := range r.decidesOn(bundle.Transaction(i)) {
			if !slices.Contains(shards, shard) {
				shards = append(shards, shard)
			}
		}
	}
	slices.Sort(shards)
	return shards
}

// decidesOn returns the shards that decide on a transaction. This one decides on what all shards
// execute alike.
func (r *router) decidesOn(t *ledger.Transaction) []ledger.ShardID {
	if t.Change != nil || t.BookWide() {
		return []ledger.ShardID{r.shards.Own()}
	}
	return r.shards.Tree().Destinations(t, r.backend.Store())
}
