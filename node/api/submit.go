package api

import (
	"context"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// Submit takes one bundle and waits for the wanted level.
func (s *Service) Submit(ctx context.Context, request *connect.Request[ledgerdv1.SubmitRequest]) (
	*connect.Response[ledgerdv1.SubmitResponse], error) {
	bundle, level, err := ReadSubmit(request.Msg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.Waiting(Queueing(ctx, request.Msg.GetQueue()))
	defer cancel()
	statuses, err := s.submit(ctx, bundle, level)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.SubmitResponse{Transactions: s.bundleStatuses(bundle,
		statuses)}), nil
}

// submit admits a bundle and waits for the level.
func (s *Service) submit(ctx context.Context, bundle *ledger.Bundle,
	level report.Level) ([]report.Status, error) {
	if err := s.admit(ctx, bundle); err != nil {
		return nil, err
	}
	return s.waitAdmitted(ctx, bundle.IDs(), level)
}

// admit admits a bundle, or returns the error of its refusal.
func (s *Service) admit(ctx context.Context, bundle *ledger.Bundle) error {
	if refusal := s.backend.Admit(ctx, []*ledger.Bundle{bundle}, false)[0]; refusal != nil {
		return RefusalError(refusal)
	}
	return nil
}

func (s *Service) bundleStatuses(bundle *ledger.Bundle,
	statuses []report.Status) []*ledgerdv1.TransactionStatus {
	return statusesToProto(bundle, statuses, uint32(s.backend.Store().Shard()), s.decimalsOf)
}

// statusesToProto converts the statuses of a bundle's transactions, in a chain of this shard. The
// messages share the memory of the statuses.
func statusesToProto(bundle *ledger.Bundle, statuses []report.Status, shard uint32,
	decimals decimalsFunc) []*ledgerdv1.TransactionStatus {
	shown := make([]*ledgerdv1.TransactionStatus, len(statuses))
	slab := make([]ledgerdv1.TransactionStatus, len(statuses))
	var ids strings.Builder // the text of all ids
	ids.Grow(2 * ledger.HashSize * len(statuses))
	var digits [2 * ledger.HashSize]byte
	for i := range statuses {
		hex.Encode(digits[:], statuses[i].ID[:])
		ids.Write(digits[:])
	}
	for i := range statuses {
		shown[i] = &slab[i]
		shown[i].Id = statuses[i].ID[:]
		shown[i].IdHex = ids.String()[i*len(digits):][:len(digits)]
		describe(shown[i], &statuses[i], bundle.Transaction(i), decimals)
		if statuses[i].InBlock() {
			shown[i].Shard = shard
		}
	}
	return shown
}

// SubmitMany takes many bundles, one by one in their order.
func (s *Service) SubmitMany(ctx context.Context,
	request *connect.Request[ledgerdv1.SubmitManyRequest]) (
	*connect.Response[ledgerdv1.SubmitManyResponse], error) {
	level, after, err := s.ReadSubmitMany(request.Msg)
	if err != nil {
		return nil, err
	}
	messages := request.Msg.GetBundles()
	if after != nil {
		if refusal, err := s.Predecessor(ctx, *after); err != nil {
			return nil, err
		} else if refusal != nil {
			return connect.NewResponse(RefuseAll(len(messages), refusal)), nil
		}
	}
	ctx, cancel := s.Waiting(Queueing(ctx, request.Msg.GetQueue()))
	defer cancel()
	bundles, refusals := s.admitMany(ctx, messages, request.Msg.GetInOrder())
	var ids []ledger.Hash
	for i, bundle := range bundles {
		if refusals[i] == nil {
			ids = append(ids, bundle.IDs()...)
		}
	}
	statuses, err := s.waitAdmitted(ctx, ids, level)
	if err != nil {
		return nil, err
	}
	outcomes := make([]*ledgerdv1.BundleOutcome, len(messages))
	for i, bundle := range bundles {
		if refusals[i] != nil {
			outcomes[i] = RefusedOutcome(refusals[i])
			continue
		}
		outcomes[i] = &ledgerdv1.BundleOutcome{Transactions: s.bundleStatuses(bundle,
			statuses[:bundle.Len()])}
		statuses = statuses[bundle.Len():]
	}
	return connect.NewResponse(&ledgerdv1.SubmitManyResponse{Outcomes: outcomes}), nil
}

// admitMany decodes and admits bundles. With inOrder, the first bundle that cannot be decoded ends
// the prefix that may be admitted.
func (s *Service) admitMany(ctx context.Context, messages []*ledgerdv1.Bundle,
	inOrder bool) ([]*ledger.Bundle, []*report.Refusal) {
	bundles := make([]*ledger.Bundle, len(messages))
	refusals := make([]*report.Refusal, len(messages))
	var decoded []*ledger.Bundle
	var places []int
	broken := false
	for i, message := range messages {
		if broken && inOrder {
			refusals[i] = AfterRefusal()
			continue
		}
		bundle, err := BundleFromProto(message)
		if err != nil {
			refusals[i] = &report.Refusal{Code: report.RefusedMalformed, Reason: err.Error()}
			broken = true
			continue
		}
		bundles[i] = bundle
		decoded = append(decoded, bundle)
		places = append(places, i)
	}
	if len(decoded) == 0 {
		return bundles, refusals
	}
	for i, refusal := range s.backend.Admit(ctx, decoded, inOrder) {
		refusals[places[i]] = refusal
		if refusal != nil && inOrder {
			for later := places[i] + 1; later < len(refusals); later++ {
				if refusals[later] == nil {
					refusals[later] = AfterRefusal()
				}
			}
			break
		}
	}
	return bundles, refusals
}

// AfterRefusal returns the refusal of a bundle that follows a refused one, in order.
func AfterRefusal() *report.Refusal {
	return &report.Refusal{Code: report.RefusedPredecessor,
		Reason: "a bundle before it was refused: send it again once that one is admitted"}
}

// Predecessor refuses bundles whose predecessor this node does not know.
func (s *Service) Predecessor(ctx context.Context, after ledger.Hash) (*report.Refusal, error) {
	status, err := s.backend.Status(after)
	if err != nil {
		return nil, s.failure(ctx, "looking for the transaction before", err)
	}
	if status.Outcome == report.OutcomePending || status.InBlock() {
		return nil, nil
	}
	return &report.Refusal{
		Code: report.RefusedPredecessor,
		Reason: "this node does not know transaction " + after.String() +
			", which must come first: begin again with the first bundle that was not acknowledged",
	}, nil
}

// RefusedOutcome returns the outcome of a refused bundle.
func RefusedOutcome(refusal *report.Refusal) *ledgerdv1.BundleOutcome {
	return &ledgerdv1.BundleOutcome{Refused: refusal.Error(), Retry: refusal.Retry(),
		ReasonCode: refusal.Word(), Unsure: refusal.Unsure}
}

// RefuseAll returns the answer that refuses all bundles of a request.
func RefuseAll(count int, refusal *report.Refusal) *ledgerdv1.SubmitManyResponse {
	answer := &ledgerdv1.SubmitManyResponse{Outcomes: make([]*ledgerdv1.BundleOutcome, count)}
	for i := range answer.Outcomes {
		answer.Outcomes[i] = RefusedOutcome(refusal)
	}
	return answer
}

// answerTime bounds the part of a wait that is reserved for its answer. Slow links and busy
// machines take much of it, and callers who get no answer do not know what became of their
// transactions.
const answerTime = time.Second

// Waiting returns the context of a call that waits for a level. It ends a little before the
// caller's own deadline, so the answer with the statuses of that moment still reaches the caller.
// It also ends when the server stops.
func (s *Service) Waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	left := time.Duration(math.MaxInt64)
	if deadline, set := ctx.Deadline(); set {
		left = time.Until(deadline)
	}
	return s.waitingFor(ctx, left)
}

// waitingFor is Waiting for a caller that waits for so long.
func (s *Service) waitingFor(ctx context.Context, left time.Duration) (context.Context,
	context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, min(s.options.MaxWaitTime,
		left-min(left/5, answerTime)))
	release := context.AfterFunc(s.stopping, cancel)
	return ctx, func() { release(); cancel() }
}

// wait waits for a level in this chain, which knows none above durable. The end of the context is
// no failure: the caller gets the statuses of that moment.
func (s *Service) wait(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	statuses, err := s.backend.Wait(ctx, ids, min(level, report.LevelDurable))
	switch {
	case err == nil:
		return statuses, nil
	case (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) &&
		len(statuses) == len(ids):
		return statuses, nil
	}
	return nil, s.failure(ctx, "waiting for transactions", err)
}

// waitAdmitted is wait for transactions that this call has admitted. Its error says so.
func (s *Service) waitAdmitted(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	statuses, err := s.wait(ctx, ids, level)
	if err != nil {
		return nil, Unsure(err)
	}
	return statuses, nil
}

// Prepare builds canonical bytes from parts.
func (s *Service) Prepare(_ context.Context, request *connect.Request[ledgerdv1.PrepareRequest]) (
	*connect.Response[ledgerdv1.PrepareResponse], error) {
	parts := request.Msg.GetTransactions()
	if len(parts) == 0 || len(parts) > ledger.MaxBundleTransactions {
		return nil, invalid("%d transactions: a bundle holds 1 to %d", len(parts),
			ledger.MaxBundleTransactions)
	}
	opened := s.backend.Store()
	transactions := make([]ledger.Transaction, len(parts))
	for i, part := range parts {
		var err error
		named := opened.Book()
		if part.GetMembershipChange() != nil {
			named = opened.GenesisHash() // a change of the members is for one shard's chain
		}
		if transactions[i], err = BodyFromProto(part, named); err != nil {
			return nil, invalid("transaction %d: %w", i+1, err)
		}
	}
	bundle, err := ledger.NewBundle(transactions...)
	if err != nil {
		return nil, invalid("bundle: %w", err)
	}
	answer := &ledgerdv1.PrepareResponse{ToSign: bundle.SigningMessage()}
	for i := range bundle.Len() {
		id := bundle.ID(i)
		answer.Transactions = append(answer.Transactions, bundle.Body(i))
		answer.Ids = append(answer.Ids, id[:])
	}
	return connect.NewResponse(answer), nil
}

// WaitTransactions waits for many transactions at once.
func (s *Service) WaitTransactions(ctx context.Context,
	request *connect.Request[ledgerdv1.WaitTransactionsRequest]) (
	*connect.Response[ledgerdv1.WaitTransactionsResponse], error) {
	ids, level, err := ReadWaitTransactions(request.Msg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.Waiting(ctx)
	defer cancel()
	statuses, err := s.Statuses(ctx, ids, level)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.WaitTransactionsResponse{Transactions: statuses}), nil
}

// Statuses waits in this chain until the transactions reach a level, or until the context ends. It
// returns their statuses at that moment.
func (s *Service) Statuses(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]*ledgerdv1.TransactionStatus, error) {
	statuses, err := s.wait(ctx, ids, level)
	if err != nil {
		return nil, err
	}
	shown := make([]*ledgerdv1.TransactionStatus, len(ids))
	for i := range statuses {
		shown[i] = s.shownStatus(statuses[i])
	}
	return shown, nil
}

// shownStatus converts a status. For a failed transaction the reason has details if the store has
// the transaction.
func (s *Service) shownStatus(status report.Status) *ledgerdv1.TransactionStatus {
	shown := statusToProto(status, nil, s.decimalsOf)
	if status.Outcome == report.OutcomeFailed {
		if found, err := s.backend.Store().Transaction(status.ID); err == nil {
			shown = statusToProto(status, found.Entry.Transaction(), s.decimalsOf)
		}
	}
	if status.InBlock() {
		shown.Shard = uint32(s.backend.Store().Shard())
	}
	return shown
}
