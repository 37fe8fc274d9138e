package api

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// MaxDryRun is the most transactions of a dry run. No block is executed meanwhile.
const MaxDryRun = 16

// ReadDryRun reads the bundle of a DryRun.
func ReadDryRun(request *ledgerdv1.DryRunRequest) (*ledger.Bundle, error) {
	bundle, err := BundleFromProto(request.GetBundle())
	if err != nil {
		return nil, invalid("bundle: %w", err)
	}
	if bundle.Len() > MaxDryRun {
		return nil, invalid("%d transactions: a dry run takes at most %d", bundle.Len(), MaxDryRun)
	}
	return bundle, nil
}

// DryRun says what the transactions of a bundle would do in this chain, and orders nothing. A
// bundle that Submit would refuse for its form or its signatures gets the same error.
func (s *Service) DryRun(ctx context.Context, request *connect.Request[ledgerdv1.DryRunRequest]) (
	*connect.Response[ledgerdv1.DryRunResponse], error) {
	bundle, err := ReadDryRun(request.Msg)
	if err != nil {
		return nil, err
	}
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	outcomes, err := s.dryRun(ctx, bundle)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.DryRunResponse{Transactions: outcomes}), nil
}

func (s *Service) dryRun(ctx context.Context, bundle *ledger.Bundle) ([]*ledgerdv1.DryRunOutcome,
	error) {
	opened := s.backend.Store()
	if err := ledger.VerifyBundle(bundle, opened.Genesis(), opened.Book(), opened); err != nil {
		return nil, RefusalError(report.RefusalOf(err))
	}
	trials, head, err := opened.Try(bundle, ledger.Milliseconds(time.Now().UnixMilli()))
	if err != nil {
		return nil, s.failure(ctx, "trying the bundle", err)
	}
	outcomes := make([]*ledgerdv1.DryRunOutcome, len(trials))
	for i := range trials {
		outcomes[i] = s.outcomeOf(&trials[i], bundle.Transaction(i), head)
	}
	return outcomes, nil
}

func (s *Service) outcomeOf(trial *store.Trial, t *ledger.Transaction,
	head ledger.Height) *ledgerdv1.DryRunOutcome {
	outcome := &ledgerdv1.DryRunOutcome{IdHex: trial.ID.String(), Ordered: trial.Known}
	if len(trial.Destinations) > 1 && !t.BookWide() {
		outcome.Destinations = shardNumbers(trial.Destinations)
	}
	if trial.Known || trial.Result.Code == ledger.Relayed {
		return outcome
	}
	verdict := &ledgerdv1.DryRunVerdict{Shard: uint32(s.backend.Store().Shard()),
		Height: uint64(head), Agrees: trial.Result.OK() || trial.Result.Code == ledger.SetAside}
	if !verdict.Agrees {
		verdict.ReasonCode = ReasonCode(trial.Result.Code)
		verdict.Reason = reasonOf(trial.Result, t, s.decimalsOf)
	}
	outcome.Verdicts = []*ledgerdv1.DryRunVerdict{verdict}
	for i := range trial.Balances {
		b := &trial.Balances[i]
		outcome.Balances = append(outcome.Balances, &ledgerdv1.DryRunBalance{
			Account: string(b.Account), Asset: string(b.Asset), Before: b.Before.String(),
			After: b.After.String(), Decimals: s.decimalsOf(b.Asset)})
	}
	ConcludeDryRun(outcome)
	return outcome
}

// ConcludeDryRun says whether a transaction would take effect, from the verdicts of the shards that
// answered.
func ConcludeDryRun(outcome *ledgerdv1.DryRunOutcome) {
	outcome.Applies = !outcome.GetOrdered() && len(outcome.GetVerdicts()) > 0 &&
		len(outcome.GetUnansweredShards()) == 0
	for _, verdict := range outcome.GetVerdicts() {
		if !verdict.GetAgrees() {
			outcome.Applies = false
			outcome.ReasonCode, outcome.Reason = verdict.GetReasonCode(), verdict.GetReason()
			return
		}
	}
}

// readableOutcome leaves the balances that an organisation may read.
func readableOutcome(organisation string, outcome *ledgerdv1.DryRunOutcome) {
	outcome.Balances = slices.DeleteFunc(outcome.GetBalances(),
		func(b *ledgerdv1.DryRunBalance) bool { return owns(organisation, b.GetAccount()) != nil })
}
