package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// In a book of several shards a node of the shard where a bundle enters the tree admits it. The
// node that took the call then waits for its transactions in the chains of their signers' homes,
// which decide them.

// misuse returns why a bundle cannot be submitted to a book of several shards, or nil if it can.
func (s *service) misuse(bundle *ledger.Bundle, tree *ledger.ShardTree) *report.Refusal {
	for i := range bundle.Len() {
		t := bundle.Transaction(i)
		malformed := func(format string, arguments ...any) *report.Refusal {
			return &report.Refusal{Code: report.RefusedMalformed,
				Reason: fmt.Sprintf("transaction %d: ", i+1) +
					fmt.Sprintf(format, arguments...)}
		}
		switch {
		case t.Verdict != nil:
			return malformed("the shards make their verdicts themselves: it cannot be submitted")
		case len(t.Registrations) > 0:
			if t.LastValid != 0 || len(t.Openings)+len(t.Postings)+len(t.Records) > 0 {
				return malformed("in a book of several shards a registration stands alone in " +
					"its transaction and does not expire: register first, and open accounts in " +
					"a transaction after it")
			}
		case len(t.Openings) > 0:
			if destinations := tree.Destinations(t, s.backend.Store()); len(destinations) > 1 {
				return malformed("it opens %s and concerns shards %v: open accounts first, in a "+
					"transaction that concerns their own organisation only", t.Openings[0].Account,
					destinations)
			}
		}
	}
	return nil
}

// entry returns the shard that a bundle enters.
func (s *service) entry(bundle *ledger.Bundle, others Shards) ledger.ShardID {
	if bundle.Transaction(0).Change != nil {
		return others.Own() // each shard's chain keeps its own members
	}
	return s.backend.Store().BundleEntry(bundle)
}

// decides returns the shard whose chain gives the transaction's status, and further shards that
// must know a registration before other transactions can build on it.
func (s *service) decides(t *ledger.Transaction, others Shards) (ledger.ShardID, []ledger.ShardID) {
	opened := s.backend.Store()
	switch {
	case t.Change != nil:
		return others.Own(), nil
	case len(t.Registrations) == 0:
		return opened.HomeShard(t.Signer), nil
	}
	var also []ledger.ShardID
	for i := range t.Registrations {
		home := ledger.Rendezvous(t.Registrations[i].Name, others.Tree().Shards())
		if t.Registrations[i].Pinned {
			home = t.Registrations[i].Shard
		}
		if home != others.Own() && !slices.Contains(also, home) {
			also = append(also, home)
		}
	}
	return others.Own(), also
}

// waited collects the transactions to wait for, in their order.
type waited struct {
	ids    []ledger.Hash
	at     []ledger.ShardID
	learns []ledger.Hash // registrations; where has the shard that must learn each
	where  []ledger.ShardID
}

// add records a bundle that was admitted.
func (w *waited) add(s *service, others Shards, bundle *ledger.Bundle, entry ledger.ShardID) {
	for i := range bundle.Len() {
		id := bundle.ID(i)
		at, also := s.decides(bundle.Transaction(i), others)
		w.ids, w.at = append(w.ids, id), append(w.at, at)
		for _, shard := range also {
			w.learns, w.where = append(w.learns, id), append(w.where, shard)
		}
		if entry != others.Own() || at != others.Own() {
			s.sent.note(bundle.IDs()[i:i+1], sentTo{entry: entry, home: at})
		}
	}
}

// noteAdmitted records which shards decide a bundle that this node admitted.
func (s *service) noteAdmitted(bundle *ledger.Bundle) {
	if shards := s.backend.Shards(); shards != nil {
		new(waited).add(s, shards, bundle, shards.Own())
	}
}

// wait waits at the homes. A transaction that is not in the chain of its home by then is reported
// as pending, since it was admitted.
func (w *waited) wait(ctx context.Context, s *service,
	level report.Level) []*ledgerdv1.TransactionStatus {
	statuses := s.waitAt(ctx, w.ids, w.at, level)
	for i, status := range statuses {
		if status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED {
			status.State = ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING
			status.WaitsFor = []uint32{uint32(w.at[i])}
		}
	}
	if len(w.learns) > 0 {
		bounded, cancel := context.WithTimeout(ctx, learnTime)
		defer cancel()
		s.waitAt(bounded, w.learns, w.where, min(level, report.LevelOrdered))
	}
	return statuses
}

// submitSharded submits one bundle to the shard where it enters.
func (s *service) submitSharded(ctx context.Context, others Shards, bundle *ledger.Bundle,
	message *ledgerdv1.Bundle, level report.Level) ([]*ledgerdv1.TransactionStatus, error) {
	if refusal := unregistered(bundle, s.learn(ctx, others,
		[]*ledger.Bundle{bundle})); refusal != nil {
		return nil, refusalError(refusal)
	}
	if refusal := s.misuse(bundle, others.Tree()); refusal != nil {
		return nil, refusalError(refusal)
	}
	entry := s.entry(bundle, others)
	var admitted []*ledgerdv1.TransactionStatus
	if entry == others.Own() {
		if refusal := s.backend.Admit(ctx, []*ledger.Bundle{bundle}, false)[0]; refusal != nil {
			return nil, refusalError(refusal)
		}
	} else {
		answer, err := others.Client(entry).Submit(ctx,
			connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: message,
				Wait: ledgerdv1.Level_LEVEL_ADMITTED}))
		if err != nil {
			return nil, submissionError(ctx, entry, err)
		}
		admitted = answer.Msg.GetTransactions()
	}
	waits := new(waited)
	waits.add(s, others, bundle, entry)
	if level <= report.LevelAdmitted && entry != others.Own() {
		return admitted, nil
	}
	if level <= report.LevelAdmitted {
		statuses, err := s.wait(ctx, bundle.IDs(), level)
		if err != nil {
			return nil, err
		}
		return s.bundleStatuses(bundle, statuses), nil
	}
	return waits.wait(ctx, s, level), nil
}

// submissionError converts the error of a submission to another shard to this node's answer. If no
// node answered in time, the shard may have admitted the bundle, and the caller may submit the same
// again.
func submissionError(ctx context.Context, entry ledger.ShardID, err error) *connect.Error {
	if ctx.Err() == nil && !unanswered(err) {
		return forwardError(ctx, entry, err)
	}
	failure := retryable(connect.CodeUnavailable,
		fmt.Errorf("shard %d, where the bundle enters, does not answer: submit it again", entry),
		nil)
	failure.Meta().Set(HeaderUnsure, "true")
	return failure
}

// run is a group of bundles that go to one shard in one call.
type run struct {
	entry  ledger.ShardID
	places []int // indexes in the request
}

// submitManySharded submits many bundles, each to the shard where it enters.
func (s *service) submitManySharded(ctx context.Context, others Shards,
	request *ledgerdv1.SubmitManyRequest, level report.Level) *ledgerdv1.SubmitManyResponse {
	messages, inOrder := request.GetBundles(), request.GetInOrder()
	outcomes := make([]*ledgerdv1.BundleOutcome, len(messages))
	bundles := make([]*ledger.Bundle, len(messages))
	failures := make([]error, len(messages))
	for i, message := range messages {
		bundles[i], failures[i] = bundleFromProto(message)
	}
	nobody := s.learn(ctx, others, bundles)
	// Group the valid bundles into runs by entry shard, and refuse the others.
	var runs []*run
	for i, bundle := range bundles {
		var refusal *report.Refusal
		if failures[i] != nil {
			refusal = &report.Refusal{Code: report.RefusedMalformed, Reason: failures[i].Error()}
		} else if refusal = unregistered(bundle, nobody); refusal == nil {
			refusal = s.misuse(bundle, others.Tree())
		}
		if refusal != nil {
			outcomes[i] = refusedOutcome(refusal)
			if inOrder {
				refuseRest(outcomes[i+1:])
				break
			}
			continue
		}
		runs = addRun(runs, s.entry(bundle, others), i, inOrder)
	}
	if inOrder {
		s.runInOrder(ctx, others, request, runs, outcomes)
	} else {
		var sending sync.WaitGroup
		for _, each := range runs {
			sending.Go(func() { s.run(ctx, others, request, each, outcomes) })
		}
		sending.Wait()
	}
	// Wait for the admitted bundles in the order of the runs, which is also the order of the
	// statuses.
	waits := new(waited)
	for _, each := range runs {
		for _, place := range each.places {
			if outcomes[place].GetRefused() == "" {
				waits.add(s, others, bundles[place], each.entry)
			}
		}
	}
	if level > report.LevelAdmitted {
		statuses := waits.wait(ctx, s, level)
		for _, each := range runs {
			for _, place := range each.places {
				if outcomes[place].GetRefused() == "" {
					count := bundles[place].Len()
					outcomes[place].Transactions, statuses = statuses[:count], statuses[count:]
				}
			}
		}
	}
	return &ledgerdv1.SubmitManyResponse{Outcomes: outcomes}
}

// addRun adds a bundle to the run of its shard. In order, only the last run may grow: a bundle that
// follows one for another shard has to wait for it.
func addRun(runs []*run, entry ledger.ShardID, place int, inOrder bool) []*run {
	for i, each := range runs {
		if each.entry == entry && (!inOrder || i == len(runs)-1) {
			each.places = append(each.places, place)
			return runs
		}
	}
	return append(runs, &run{entry: entry, places: []int{place}})
}

// runInOrder sends one run after the other, up to the first bundle refused.
func (s *service) runInOrder(ctx context.Context, others Shards,
	request *ledgerdv1.SubmitManyRequest, runs []*run, outcomes []*ledgerdv1.BundleOutcome) {
	for _, each := range runs {
		s.run(ctx, others, request, each, outcomes)
		for _, place := range each.places {
			if outcomes[place].GetRefused() != "" {
				refuseRest(outcomes[place+1:])
				return
			}
		}
	}
}

func refuseRest(outcomes []*ledgerdv1.BundleOutcome) {
	for i := range outcomes {
		outcomes[i] = refusedOutcome(afterRefusal())
	}
}

// run lets a shard admit bundles, and writes its outcomes to their places.
func (s *service) run(ctx context.Context, others Shards, request *ledgerdv1.SubmitManyRequest,
	each *run, outcomes []*ledgerdv1.BundleOutcome) {
	messages := pick(request.GetBundles(), each.places)
	var told []*ledgerdv1.BundleOutcome
	var err error
	if each.entry == others.Own() {
		told, err = s.submitManyHere(ctx, messages, request.GetInOrder(), report.LevelAdmitted)
	} else {
		var answer *connect.Response[ledgerdv1.SubmitManyResponse]
		answer, err = others.Client(each.entry).SubmitMany(ctx,
			connect.NewRequest(&ledgerdv1.SubmitManyRequest{
				Bundles: messages, Wait: ledgerdv1.Level_LEVEL_ADMITTED,
				InOrder: request.GetInOrder(),
			}))
		if err == nil {
			told = answer.Msg.GetOutcomes()
		}
	}
	if err == nil && len(told) != len(messages) {
		err = errors.New("it answered for other bundles than it was given")
	}
	for i, place := range each.places {
		if err != nil {
			failure := submissionError(ctx, each.entry, err)
			outcomes[place] = &ledgerdv1.BundleOutcome{Refused: failure.Message(),
				Retry: failure.Meta().Get(HeaderRetry) == "true"}
			continue
		}
		outcomes[place] = told[i]
	}
}
