package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// In a book of several shards a node of the shard where a bundle enters the tree admits it. The
// node that took the call then waits for its transactions in the chains of their signers' homes,
// which decide them.

// Submit takes one bundle, admits it where it enters, and waits for the wanted level.
func (r *router) Submit(ctx context.Context, request *connect.Request[ledgerdv1.SubmitRequest]) (
	*connect.Response[ledgerdv1.SubmitResponse], error) {
	bundle, level, err := api.ReadSubmit(request.Msg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.Waiting(api.Queueing(ctx, request.Msg.GetQueue()))
	defer cancel()
	statuses, err := r.submit(ctx, bundle, level)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.SubmitResponse{Transactions: statuses}), nil
}

// SubmitStream takes bundle after bundle, each as Submit does.
func (r *router) SubmitStream(ctx context.Context, stream *api.Stream) error {
	return r.ServeStream(ctx, stream, func(ctx context.Context, bundle *ledger.Bundle,
		level report.Level) ([]*ledgerdv1.StatusRun, error) {
		statuses, err := r.submit(ctx, bundle, level)
		return api.RunsOf(statuses), err
	})
}

// SubmitMany takes many bundles, one by one in their order.
func (r *router) SubmitMany(ctx context.Context,
	request *connect.Request[ledgerdv1.SubmitManyRequest]) (
	*connect.Response[ledgerdv1.SubmitManyResponse], error) {
	level, after, err := r.ReadSubmitMany(request.Msg)
	if err != nil {
		return nil, err
	}
	if after != nil {
		if refusal, err := r.predecessor(ctx, *after); err != nil {
			return nil, err
		} else if refusal != nil {
			return connect.NewResponse(api.RefuseAll(len(request.Msg.GetBundles()), refusal)), nil
		}
	}
	ctx, cancel := r.Waiting(api.Queueing(ctx, request.Msg.GetQueue()))
	defer cancel()
	return connect.NewResponse(r.submitMany(ctx, request.Msg, level)), nil
}

// predecessor refuses bundles whose predecessor no shard knows.
func (r *router) predecessor(ctx context.Context, after ledger.Hash) (*report.Refusal, error) {
	refusal, err := r.Predecessor(ctx, after)
	if refusal == nil || err != nil {
		return nil, err
	}
	if before, err := r.transaction(ctx, after); err == nil &&
		before.Msg.GetTransaction().GetStatus().GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED {
		return nil, nil
	}
	return refusal, nil
}

// misuse returns why a bundle cannot be submitted to a book of several shards, or nil if it can.
func (r *router) misuse(bundle *ledger.Bundle) *report.Refusal {
	deadlines := ledger.TakesDeadlines(r.backend.Store().Charter().Version)
	for i := range bundle.Len() {
		t := bundle.Transaction(i)
		malformed := func(format string, arguments ...any) *report.Refusal {
			return &report.Refusal{Code: report.RefusedMalformed,
				Reason: fmt.Sprintf("transaction %d: ", i+1) +
					fmt.Sprintf(format, arguments...)}
		}
		switch {
		case t.Verdict != nil, t.Arrival != nil, t.Occurrence != nil:
			return malformed("the shards make verdicts, arrivals and occurrences themselves: it " +
				"cannot be submitted")
		case len(t.Registrations) > 0:
			if t.LastValid != 0 || t.Deadline != 0 ||
				len(t.Openings)+len(t.Postings)+len(t.Records) > 0 {
				return malformed("in a book of several shards a registration stands alone in " +
					"its transaction and does not expire: register first, and open accounts in " +
					"a transaction after it")
			}
		case len(t.Openings) > 0:
			destinations := r.shards.Tree().Destinations(t, r.backend.Store())
			if len(destinations) > 1 {
				return malformed("it opens %s and concerns shards %v: open accounts first, in a "+
					"transaction that concerns their own organisation only", t.Openings[0].Account,
					destinations)
			}
		case deadlines && t.Deadline == 0 && t.Change == nil && !t.BookWide():
			destinations := r.shards.Tree().Destinations(t, r.backend.Store())
			if len(destinations) > 1 {
				return malformed("it concerns shards %v and names no deadline: sign it again with "+
					"one, at most %s ahead, or use a program that knows version %d of the chain",
					destinations, time.Duration(ledger.MaxDeadline)*time.Millisecond,
					ledger.DeadlineVersion)
			}
		}
	}
	return nil
}

// entry returns the shard that a bundle enters.
func (r *router) entry(bundle *ledger.Bundle) ledger.ShardID {
	if bundle.Transaction(0).Change != nil {
		return r.shards.Own() // each shard's chain keeps its own members
	}
	return r.backend.Store().BundleEntry(bundle)
}

// decides returns the shard whose chain gives the transaction's status, and further shards that
// must know a registration before other transactions can build on it.
func (r *router) decides(t *ledger.Transaction) (ledger.ShardID, []ledger.ShardID) {
	opened := r.backend.Store()
	switch {
	case t.Change != nil:
		return r.shards.Own(), nil
	case t.Charter != nil, t.Book != nil:
		return r.shards.Own(), nil
	case len(t.Registrations) == 0:
		return opened.DecidedAt(t), nil
	}
	var also []ledger.ShardID
	for i := range t.Registrations {
		home := r.shards.Tree().Rendezvous(t.Registrations[i].Name)
		if t.Registrations[i].Pinned {
			home = t.Registrations[i].Shard
		}
		if home != r.shards.Own() && !slices.Contains(also, home) && !opened.Lost(home) {
			also = append(also, home)
		}
	}
	return r.shards.Own(), also
}

// waited collects the transactions to wait for, in their order.
type waited struct {
	ids    []ledger.Hash
	at     []ledger.ShardID
	learns []ledger.Hash // registrations; where has the shard that must learn each
	where  []ledger.ShardID
}

// add records a bundle that was admitted.
func (w *waited) add(r *router, bundle *ledger.Bundle, entry ledger.ShardID) {
	w.note(r, bundle, entry, false)
}

// note records a bundle that was admitted, or may have been if unsure.
func (w *waited) note(r *router, bundle *ledger.Bundle, entry ledger.ShardID, unsure bool) {
	for i := range bundle.Len() {
		id := bundle.ID(i)
		at, also := r.decides(bundle.Transaction(i))
		w.ids, w.at = append(w.ids, id), append(w.at, at)
		for _, shard := range also {
			w.learns, w.where = append(w.learns, id), append(w.where, shard)
		}
		if entry != r.shards.Own() || at != r.shards.Own() {
			r.sent.note(bundle.IDs()[i:i+1], sentTo{entry: entry, home: at, unsure: unsure})
		}
	}
}

// noteAdmitted records which shards decide a bundle that this node admitted.
func (r *router) noteAdmitted(bundle *ledger.Bundle) {
	new(waited).add(r, bundle, r.shards.Own())
}

// wait waits at the homes. A transaction that is not in the chain of its home by then is reported
// as pending, since it was admitted.
func (w *waited) wait(ctx context.Context, r *router,
	level report.Level) []*ledgerdv1.TransactionStatus {
	statuses := r.waitAt(ctx, w.ids, w.at, min(level, report.LevelDurable))
	for i, status := range statuses {
		if status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED {
			status.State = ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING
			status.WaitsFor = []uint32{uint32(w.at[i])}
		}
	}
	if len(w.learns) > 0 {
		bounded, cancel := context.WithTimeout(ctx, learnTime)
		defer cancel()
		r.waitAt(bounded, w.learns, w.where, min(level, report.LevelOrdered))
	}
	if level == report.LevelDurableEverywhere {
		r.waitEverywhere(ctx, statuses)
	}
	return statuses
}

// told returns what the homes know now of transactions that were admitted.
func (w *waited) told(ctx context.Context, r *router) []*ledgerdv1.TransactionStatus {
	bounded, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return w.wait(bounded, r, report.LevelAdmitted)
}

// submit submits one bundle to the shard where it enters.
func (r *router) submit(ctx context.Context, bundle *ledger.Bundle,
	level report.Level) ([]*ledgerdv1.TransactionStatus, error) {
	nobody := r.learn(ctx, []*ledger.Bundle{bundle})
	if refusal := unregistered(bundle, nobody); refusal != nil {
		return nil, api.RefusalError(refusal)
	}
	if refusal := r.misuse(bundle); refusal != nil {
		return nil, api.RefusalError(refusal)
	}
	entry := r.entry(bundle)
	refusal, taken := r.entryDown(ctx, bundle, entry)
	if refusal == nil && entry == r.shards.Own() {
		refusal = r.admitHere(ctx, []*ledger.Bundle{bundle}, false)[0]
	}
	if refusal != nil {
		return nil, api.RefusalError(refusal)
	}
	var admitted []*ledgerdv1.TransactionStatus
	if entry != r.shards.Own() && !taken {
		answer, err := r.shards.Client(entry).Submit(ctx,
			connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle),
				Wait: ledgerdv1.Level_LEVEL_ADMITTED, Queue: api.Queues(ctx)}))
		if err != nil {
			failure := r.submissionError(ctx, entry, err)
			if failure.Meta().Get(api.HeaderUnsure) == "true" {
				new(waited).note(r, bundle, entry, true)
			}
			return nil, failure
		}
		admitted = answer.Msg.GetTransactions()
	}
	waits := new(waited)
	waits.add(r, bundle, entry)
	switch {
	case level > report.LevelAdmitted:
		return waits.wait(ctx, r, level), nil
	case taken:
		return waits.told(ctx, r), nil
	}
	if entry == r.shards.Own() {
		var err error
		if admitted, err = r.Statuses(ctx, bundle.IDs(), level); err != nil {
			return nil, api.Unsure(err)
		}
	}
	r.askEarlierHomes(ctx, admitted, signersOf(bundle))
	return admitted, nil
}

// signersOf returns the first signers of a bundle's transactions.
func signersOf(bundle *ledger.Bundle) func(i int) ledger.OrganisationName {
	return func(i int) ledger.OrganisationName { return bundle.Transaction(i).Signer }
}

// submissionError converts the error of a submission to another shard to this node's answer. Unless
// a node of the shard refused the bundle, and no other one may have admitted it, the error has
// api.HeaderUnsure.
func (r *router) submissionError(ctx context.Context, entry ledger.ShardID,
	err error) *connect.Error {
	switch {
	case r.backend.Store().Lost(entry):
		return api.Unsure(api.LostShard(entry, ""))
	case ctx.Err() != nil || unanswered(err):
		return api.Unsure(api.Retryable(connect.CodeUnavailable, fmt.Errorf("shard %d, where the "+
			"bundle enters, does not answer: submit it again", entry), nil))
	case !refuses(err):
		return api.Unsure(r.forwardError(ctx, entry, err))
	}
	return r.forwardError(ctx, entry, err)
}

// refuses reports whether an error of a submission means that no node of the shard admitted it.
func refuses(err error) bool {
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) || !connect.IsWireError(err) ||
		coded.Meta().Get(api.HeaderUnsure) == "true" {
		return false
	}
	switch coded.Code() {
	case connect.CodeInvalidArgument, connect.CodePermissionDenied,
		connect.CodeFailedPrecondition, connect.CodeUnauthenticated, connect.CodeUnimplemented,
		connect.CodeResourceExhausted, connect.CodeUnavailable:
		return true
	}
	return false
}

// run is a group of bundles that go to one shard in one call.
type run struct {
	entry  ledger.ShardID
	places []int // indexes in the request
	// taken says that the shard is down, and that it took the bundle before.
	taken bool
}

// submitMany submits many bundles, each to the shard where it enters.
func (r *router) submitMany(ctx context.Context, request *ledgerdv1.SubmitManyRequest,
	level report.Level) *ledgerdv1.SubmitManyResponse {
	messages, inOrder := request.GetBundles(), request.GetInOrder()
	outcomes := make([]*ledgerdv1.BundleOutcome, len(messages))
	bundles := make([]*ledger.Bundle, len(messages))
	failures := make([]error, len(messages))
	for i, message := range messages {
		bundles[i], failures[i] = api.BundleFromProto(message)
	}
	nobody := r.learn(ctx, bundles)
	// Group the valid bundles into runs by entry shard, and refuse the others.
	var runs []*run
	for i, bundle := range bundles {
		var refusal *report.Refusal
		if failures[i] != nil {
			refusal = &report.Refusal{Code: report.RefusedMalformed, Reason: failures[i].Error()}
		} else if refusal = unregistered(bundle, nobody); refusal == nil {
			refusal = r.misuse(bundle)
		}
		var entry ledger.ShardID
		taken := false
		if refusal == nil {
			entry = r.entry(bundle)
			refusal, taken = r.entryDown(ctx, bundle, entry)
		}
		if refusal != nil {
			outcomes[i] = api.RefusedOutcome(refusal)
			if inOrder {
				refuseRest(outcomes[i+1:])
				break
			}
			continue
		}
		if taken {
			runs = append(runs, &run{entry: entry, places: []int{i}, taken: true})
			continue
		}
		runs = addRun(runs, entry, i, inOrder)
	}
	if inOrder {
		r.runInOrder(ctx, request, bundles, runs, outcomes)
	} else {
		var sending sync.WaitGroup
		for _, each := range runs {
			sending.Go(func() { r.run(ctx, request, bundles, each, outcomes) })
		}
		sending.Wait()
	}
	// Wait for the admitted bundles in the order of the runs, which is also the order of the
	// statuses.
	waits := new(waited)
	for _, each := range runs {
		for _, place := range each.places {
			if outcomes[place].GetRefused() == "" {
				waits.add(r, bundles[place], each.entry)
			}
		}
	}
	if level > report.LevelAdmitted {
		statuses := waits.wait(ctx, r, level)
		for _, each := range runs {
			for _, place := range each.places {
				if outcomes[place].GetRefused() == "" {
					count := bundles[place].Len()
					outcomes[place].Transactions, statuses = statuses[:count], statuses[count:]
				}
			}
		}
	}
	for _, each := range runs {
		for _, place := range each.places {
			r.askEarlierHomes(ctx, outcomes[place].GetTransactions(), signersOf(bundles[place]))
		}
	}
	return &ledgerdv1.SubmitManyResponse{Outcomes: outcomes}
}

// addRun adds a bundle to the run of its shard. In order, only the last run may grow: a bundle that
// follows one for another shard has to wait for it.
func addRun(runs []*run, entry ledger.ShardID, place int, inOrder bool) []*run {
	for i, each := range runs {
		if each.entry == entry && !each.taken && (!inOrder || i == len(runs)-1) {
			each.places = append(each.places, place)
			return runs
		}
	}
	return append(runs, &run{entry: entry, places: []int{place}})
}

// runInOrder sends one run after the other, up to the first bundle refused.
func (r *router) runInOrder(ctx context.Context, request *ledgerdv1.SubmitManyRequest,
	bundles []*ledger.Bundle, runs []*run, outcomes []*ledgerdv1.BundleOutcome) {
	for _, each := range runs {
		r.run(ctx, request, bundles, each, outcomes)
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
		outcomes[i] = api.RefusedOutcome(api.AfterRefusal())
	}
}

// run lets a shard admit bundles, and writes its outcomes to their places.
func (r *router) run(ctx context.Context, request *ledgerdv1.SubmitManyRequest,
	bundles []*ledger.Bundle, each *run, outcomes []*ledgerdv1.BundleOutcome) {
	if each.taken {
		waits := new(waited)
		waits.add(r, bundles[each.places[0]], each.entry)
		outcomes[each.places[0]] = &ledgerdv1.BundleOutcome{
			Transactions: waits.told(ctx, r)}
		return
	}
	messages := pick(request.GetBundles(), each.places)
	var told []*ledgerdv1.BundleOutcome
	var err error
	unsure := false // another node of the shard may have admitted what this one refuses
	if each.entry == r.shards.Own() {
		told, err = r.admit(ctx, pick(bundles, each.places), request.GetInOrder())
	} else {
		var answer *connect.Response[ledgerdv1.SubmitManyResponse]
		answer, err = r.shards.Client(each.entry).SubmitMany(ctx,
			connect.NewRequest(&ledgerdv1.SubmitManyRequest{
				Bundles: messages, Wait: ledgerdv1.Level_LEVEL_ADMITTED,
				InOrder: request.GetInOrder(), Queue: request.GetQueue(),
			}))
		if err == nil {
			told = answer.Msg.GetOutcomes()
			unsure = answer.Header().Get(api.HeaderUnsure) == "true"
		}
	}
	if err == nil && len(told) != len(messages) {
		err = errors.New("it answered for other bundles than it was given")
	}
	for i, place := range each.places {
		if err != nil {
			failure := r.submissionError(ctx, each.entry, err)
			outcomes[place] = &ledgerdv1.BundleOutcome{Refused: failure.Message(),
				Retry:      failure.Meta().Get(api.HeaderRetry) == "true",
				ReasonCode: failure.Meta().Get(api.HeaderReason),
				Unsure:     failure.Meta().Get(api.HeaderUnsure) == "true"}
		} else {
			outcomes[place] = told[i]
			outcomes[place].Unsure = told[i].GetRefused() != "" && (unsure || told[i].GetUnsure())
		}
		if outcomes[place].GetUnsure() {
			new(waited).note(r, bundles[place], each.entry, true)
		}
	}
}

// admit admits bundles at this node.
func (r *router) admit(ctx context.Context, bundles []*ledger.Bundle,
	inOrder bool) ([]*ledgerdv1.BundleOutcome, error) {
	refusals := r.admitHere(ctx, bundles, inOrder)
	var ids []ledger.Hash
	for i, bundle := range bundles {
		if refusals[i] == nil {
			ids = append(ids, bundle.IDs()...)
			r.noteAdmitted(bundle)
		}
	}
	statuses, err := r.Statuses(ctx, ids, report.LevelAdmitted)
	if err != nil {
		return nil, err
	}
	outcomes := make([]*ledgerdv1.BundleOutcome, len(bundles))
	for i, bundle := range bundles {
		if refusals[i] != nil {
			outcomes[i] = api.RefusedOutcome(refusals[i])
			continue
		}
		outcomes[i] = &ledgerdv1.BundleOutcome{Transactions: statuses[:bundle.Len()]}
		statuses = statuses[bundle.Len():]
	}
	return outcomes, nil
}
