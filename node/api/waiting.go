package api

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
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

// hasReached reports whether there is nothing more to wait for at a level.
func hasReached(status *ledgerdv1.TransactionStatus, level report.Level) bool {
	switch state := status.GetState(); state {
	case ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED:
		return false
	case ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED,
		ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED:
		return true
	default:
		return report.Level(state) >= level // the states up to durable have the levels' numbers
	}
}

// waitAt waits for each transaction in the chain of the shard at the same index in at, until it
// reaches the level there or the context ends. If a shard does not know a transaction by then, or
// no node of the shard answers, the status has no state.
func (s *service) waitAt(ctx context.Context, ids []ledger.Hash, at []ledger.ShardID,
	level report.Level) []*ledgerdv1.TransactionStatus {
	statuses := make([]*ledgerdv1.TransactionStatus, len(ids))
	places := make(map[ledger.ShardID][]int)
	for i, shard := range at {
		places[shard] = append(places[shard], i)
	}
	own := s.backend.Store().Shard()
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
				told = s.waitHere(ctx, group, level)
			} else {
				told = s.waitThere(ctx, shard, group, level)
			}
			for i, index := range indexes {
				if statuses[index] = told[i]; told[i] == nil {
					statuses[index] = statusToProto(report.Status{ID: group[i]}, nil)
				}
			}
		})
	}
	waits.Wait()
	return statuses
}

func (s *service) waitHere(ctx context.Context, ids []ledger.Hash,
	level report.Level) []*ledgerdv1.TransactionStatus {
	told := make([]*ledgerdv1.TransactionStatus, len(ids))
	statuses, err := s.wait(ctx, ids, level)
	if err != nil {
		return told
	}
	for i := range statuses {
		told[i] = s.shownStatus(statuses[i])
	}
	return told
}

// waitThere waits at another shard. If a node of that shard does not answer, it asks again.
func (s *service) waitThere(ctx context.Context, shard ledger.ShardID, ids []ledger.Hash,
	level report.Level) []*ledgerdv1.TransactionStatus {
	told := make([]*ledgerdv1.TransactionStatus, len(ids))
	request := &ledgerdv1.WaitTransactionsRequest{Wait: ledgerdv1.Level(level)}
	for i := range ids {
		request.Ids = append(request.Ids, ids[i][:])
	}
	for {
		answer, err := s.backend.Shards().Client(shard).WaitTransactions(ctx,
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
			s.options.Logger.Warn("another shard refused a wait call", "shard", shard, "error",
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
func (s *service) waitWherever(ctx context.Context, others Shards, ids []ledger.Hash,
	level report.Level) []*ledgerdv1.TransactionStatus {
	at, known := make([]ledger.ShardID, len(ids)), make([]bool, len(ids))
	for i, id := range ids {
		at[i], known[i] = s.whereDecided(others, id)
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
			s.find(finding, others, ids, missing, level, at, known)
			if finding.Err() == nil {
				continue
			}
		}
		told := s.waitAt(ctx, pick(ids, wanted), pick(at, wanted), level)
		for i, index := range wanted {
			statuses[index] = told[i]
		}
		for _, index := range missing {
			statuses[index] = statusToProto(report.Status{ID: ids[index]}, nil)
		}
		return statuses
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
func (s *service) whereDecided(others Shards, id ledger.Hash) (ledger.ShardID, bool) {
	if to, sent := s.sent.of(id); sent {
		return to.home, true
	}
	status, err := s.backend.Status(id)
	switch {
	case err != nil || status.Outcome == report.OutcomeUnknown ||
		status.Outcome == report.OutcomeExpired:
		return 0, false
	case !status.InBlock():
		return others.Own(), true
	}
	found, err := s.backend.Store().Transaction(id)
	if err != nil || found.Entry.Transaction.Signer == ledger.Operator ||
		len(found.Entry.Transaction.Registrations) > 0 {
		return others.Own(), true
	}
	return s.backend.Store().HomeShard(found.Entry.Transaction.Signer), true
}

// find asks all shards for transactions, and waits a little for them. The shard that decides a
// transaction is known once it is in a block. Before that a shard that only has it in its mempool
// counts if the caller waits for admission only.
func (s *service) find(ctx context.Context, others Shards, ids []ledger.Hash, missing []int,
	level report.Level, at []ledger.ShardID, known []bool) {
	wanted := pick(ids, missing)
	shards := append([]ledger.ShardID{others.Own()}, otherShards(others)...)
	answers, _ := callAll(ctx, findPause, shards, func(ctx context.Context,
		shard ledger.ShardID) ([]*ledgerdv1.TransactionStatus, error) {
		if shard == others.Own() {
			return s.waitHere(ctx, wanted, report.LevelAdmitted), nil
		}
		request := &ledgerdv1.WaitTransactionsRequest{Wait: ledgerdv1.Level_LEVEL_ADMITTED}
		for i := range wanted {
			request.Ids = append(request.Ids, wanted[i][:])
		}
		answer, err := others.Client(shard).WaitTransactions(ctx, connect.NewRequest(request))
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
			case pending && status.GetReasonCode() == ReasonCode(ledger.Relayed) &&
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
