package route

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

const (
	// retryPause is the pause before asking a shard again that did not answer.
	retryPause = 200 * time.Millisecond
	// findPause bounds each attempt to find, at all shards, transactions that no shard knows yet.
	findPause = time.Second
	// learnTime bounds how long an answer waits until this node's own shard, and an organisation's
	// home, know a registration.
	learnTime = 3 * time.Second
)

// WaitTransaction returns a transaction once it has reached a level, failed or expired.
func (r *router) WaitTransaction(ctx context.Context,
	request *connect.Request[ledgerdv1.WaitTransactionRequest]) (
	*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	id, level, err := api.ReadWaitTransaction(request.Msg)
	if err != nil {
		return nil, err
	}
	waiting, cancel := r.Waiting(ctx)
	defer cancel()
	status := r.waitWherever(waiting, []ledger.Hash{id}, level)[0]
	answer, err := r.transaction(ctx, id)
	if err == nil && level == report.LevelDurableEverywhere {
		shown := answer.Msg.GetTransaction().GetStatus()
		shown.Everywhere, shown.WaitsFor = status.GetEverywhere(), status.GetWaitsFor()
	}
	return answer, err
}

// WaitTransactions waits for many transactions at once.
func (r *router) WaitTransactions(ctx context.Context,
	request *connect.Request[ledgerdv1.WaitTransactionsRequest]) (
	*connect.Response[ledgerdv1.WaitTransactionsResponse], error) {
	ids, level, err := api.ReadWaitTransactions(request.Msg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.Waiting(ctx)
	defer cancel()
	return connect.NewResponse(&ledgerdv1.WaitTransactionsResponse{
		Transactions: r.waitWherever(ctx, ids, level)}), nil
}

// unknown returns the status of a transaction of which nothing is known.
func unknown(id ledger.Hash) *ledgerdv1.TransactionStatus {
	return &ledgerdv1.TransactionStatus{Id: id[:], IdHex: id.String()}
}

// hasReached reports whether there is nothing more to wait for at a level.
func hasReached(status *ledgerdv1.TransactionStatus, level report.Level) bool {
	switch state := status.GetState(); state {
	case ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED:
		return false
	case ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED,
		ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED:
		return true
	default:
		// The states up to durable have the levels' numbers.
		return report.Level(state) >= min(level, report.LevelDurable)
	}
}

// waitAt waits for each transaction in the chain of the shard at the same index in at, until it
// reaches the level there or the context ends. If a shard does not know a transaction by then, or
// no node of the shard answers, the status has no state.
func (r *router) waitAt(ctx context.Context, ids []ledger.Hash, at []ledger.ShardID,
	level report.Level) []*ledgerdv1.TransactionStatus {
	statuses := make([]*ledgerdv1.TransactionStatus, len(ids))
	places := make(map[ledger.ShardID][]int)
	for i, shard := range at {
		places[shard] = append(places[shard], i)
	}
	own := r.shards.Own()
	var waits sync.WaitGroup
	for shard, indexes := range places {
		group := make([]ledger.Hash, len(indexes))
		for i, index := range indexes {
			group[i] = ids[index]
		}
		// Each group writes its own places.
		waits.Go(func() {
			var told []*ledgerdv1.TransactionStatus
			if shard == own {
				told = r.waitHere(ctx, group, level)
			} else {
				told = r.waitThere(ctx, shard, group, level)
			}
			for i, index := range indexes {
				if statuses[index] = told[i]; told[i] == nil {
					statuses[index] = unknown(group[i])
				}
			}
		})
	}
	waits.Wait()
	r.askFailed(ctx, statuses, at)
	return statuses
}

func (r *router) waitHere(ctx context.Context, ids []ledger.Hash,
	level report.Level) []*ledgerdv1.TransactionStatus {
	told, err := r.Statuses(ctx, ids, level)
	if err != nil {
		return make([]*ledgerdv1.TransactionStatus, len(ids))
	}
	return told
}

// waitThere waits at another shard. If a node of that shard does not answer, it asks again.
func (r *router) waitThere(ctx context.Context, shard ledger.ShardID, ids []ledger.Hash,
	level report.Level) []*ledgerdv1.TransactionStatus {
	told := make([]*ledgerdv1.TransactionStatus, len(ids))
	level = min(level, report.LevelDurable) // a chain knows no other shard's
	request := &ledgerdv1.WaitTransactionsRequest{Wait: ledgerdv1.Level(level)}
	for i := range ids {
		request.Ids = append(request.Ids, ids[i][:])
	}
	for {
		answer, err := r.shards.Client(shard).WaitTransactions(ctx,
			connect.NewRequest(request))
		if err == nil && len(answer.Msg.GetTransactions()) == len(ids) {
			told = answer.Msg.GetTransactions()
			if all(told, level) {
				return told
			}
		}
		// A busy member has room later, too.
		if code := connect.CodeOf(err); err != nil && !unanswered(err) &&
			code != connect.CodeResourceExhausted && code != connect.CodeUnavailable {
			r.Options().Logger.Warn("another shard refused a wait call", "shard", shard, "error",
				err)
			return told
		}
		if !sleep(ctx, retryPause) {
			return told
		}
	}
}

func all(statuses []*ledgerdv1.TransactionStatus, level report.Level) bool {
	for _, status := range statuses {
		if !hasReached(status, level) {
			return false
		}
	}
	return true
}

// sleep pauses. It returns false if the context ends first.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitWherever waits for transactions known by their ids only: first until some shard knows them,
// then at a shard that decides them.
func (r *router) waitWherever(ctx context.Context, ids []ledger.Hash,
	level report.Level) []*ledgerdv1.TransactionStatus {
	at, known := make([]ledger.ShardID, len(ids)), make([]bool, len(ids))
	for i, id := range ids {
		at[i], known[i] = r.whereDecided(id)
	}
	statuses := make([]*ledgerdv1.TransactionStatus, len(ids))
	finding, found := beforeEnd(ctx)
	defer found()
	for {
		var wanted, missing []int
		for i := range ids {
			if known[i] {
				wanted = append(wanted, i)
			} else {
				missing = append(missing, i)
			}
		}
		if len(missing) > 0 {
			r.find(finding, ids, missing, level, at, known)
			if finding.Err() == nil {
				continue
			}
		}
		told := r.waitAt(ctx, pick(ids, wanted), pick(at, wanted), level)
		for i, index := range wanted {
			statuses[index] = told[i]
		}
		for _, index := range missing {
			statuses[index] = unknown(ids[index])
		}
		if level == report.LevelDurableEverywhere {
			r.waitEverywhere(ctx, statuses)
		}
		return statuses
	}
}

// waitEverywhere waits until each transaction that is durable where it is decided is durable in the
// chains of all shards that it concerns, or until the context ends. It notes in the statuses which
// are, and which shards the others wait for.
func (r *router) waitEverywhere(ctx context.Context, statuses []*ledgerdv1.TransactionStatus) {
	var ids []ledger.Hash
	var at []ledger.ShardID
	var of []*ledgerdv1.TransactionStatus
	for _, status := range statuses {
		if status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE ||
			len(status.GetDestinations()) < 2 {
			continue
		}
		status.Everywhere = true
		for _, shard := range status.GetDestinations() {
			if shard != status.GetShard() {
				ids, at = append(ids, ledger.Hash(status.GetId())), append(at,
					ledger.ShardID(shard))
				of = append(of, status)
			}
		}
	}
	for i, told := range r.waitAt(ctx, ids, at, report.LevelDurable) {
		if told.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
			of[i].Everywhere = false
			of[i].WaitsFor = append(of[i].WaitsFor, uint32(at[i]))
		}
	}
}

// askingTime bounds the part of a wait that is reserved for asking after the transactions that were
// found, when others were not.
const askingTime = time.Second

// beforeEnd returns a context that ends a little before another.
func beforeEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(askingTime, time.Until(end)/5)))
}

func pick[Item any](items []Item, indexes []int) []Item {
	picked := make([]Item, len(indexes))
	for i, index := range indexes {
		picked[i] = items[index]
	}
	return picked
}

// whereDecided returns the shard that decides a transaction, if this node knows it. This shard
// alone decides a transaction that is in the mempool here and was not recorded at its admission.
func (r *router) whereDecided(id ledger.Hash) (ledger.ShardID, bool) {
	if to, sent := r.sent.of(id); sent {
		return to.home, true
	}
	status, err := r.backend.Status(id)
	switch {
	case err != nil || status.Outcome == report.OutcomeUnknown ||
		status.Outcome == report.OutcomeExpired:
		return 0, false
	case !status.InBlock():
		return r.shards.Own(), true
	}
	found, err := r.backend.Store().Transaction(id)
	if err != nil || found.Entry.Transaction().Signer == ledger.Operator ||
		len(found.Entry.Transaction().Registrations) > 0 {
		return r.shards.Own(), true
	}
	return r.backend.Store().DecidedAt(found.Entry.Transaction()), true
}

// find asks all shards for transactions, and waits a little for them. The shard that decides a
// transaction is known once it is in a block. Before that a shard that only has it in its mempool
// counts if the caller waits for admission only.
func (r *router) find(ctx context.Context, ids []ledger.Hash, missing []int,
	level report.Level, at []ledger.ShardID, known []bool) {
	wanted := pick(ids, missing)
	shards := append([]ledger.ShardID{r.shards.Own()}, r.otherShards()...)
	answers, _ := callAll(ctx, findPause, shards, func(ctx context.Context,
		shard ledger.ShardID) ([]*ledgerdv1.TransactionStatus, error) {
		if shard == r.shards.Own() {
			return r.waitHere(ctx, wanted, report.LevelAdmitted), nil
		}
		request := &ledgerdv1.WaitTransactionsRequest{Wait: ledgerdv1.Level_LEVEL_ADMITTED}
		for i := range wanted {
			request.Ids = append(request.Ids, wanted[i][:])
		}
		answer, err := r.shards.Client(shard).WaitTransactions(ctx, connect.NewRequest(request))
		if err != nil || len(answer.Msg.GetTransactions()) != len(wanted) {
			return nil, err
		}
		return answer.Msg.GetTransactions(), nil
	})
	for i, index := range missing {
		for j, shard := range shards {
			if answers[j] == nil {
				continue
			}
			status := answers[j][i]
			pending := status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING
			switch {
			case status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED:
			case pending && status.GetHeight() == 0 && level > report.LevelAdmitted:
			case known[index] && pending:
			case pending && status.GetReasonCode() == api.ReasonCode(ledger.Relayed) &&
				len(status.GetDestinations()) > 0:
				known[index], at[index] = true, ledger.ShardID(status.GetDestinations()[0])
			default:
				known[index], at[index] = true, shard
			}
		}
	}
	if ctx.Err() == nil && !known[missing[0]] {
		sleep(ctx, retryPause)
	}
}
