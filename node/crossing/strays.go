package crossing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

const (
	// straysMax and strayBytesMax bound the bundles that wait to be handed over to their new shard,
	// or are on their way: all that a mempool's rounds may leave when a change of the book closes a
	// draft. A bundle beyond that is lost, as when a node ends: its client sends it again.
	straysMax, strayBytesMax = 1 << 14, 64 << 20
	// strayBatch and strayBatchBytes bound those that are handed over with one call, unless it has
	// only one.
	strayBatch, strayBatchBytes = 256, 4 << 20
	// strayPatience bounds such a call.
	strayPatience = 10 * time.Second
	// strayPause is the time between a call that failed and the next one to the shard.
	strayPause = 500 * time.Millisecond
	// strayLifetime is for how long calls to a shard may fail or be refused for now, one after
	// another, until what it does not take is given up. Each further batch is then tried once.
	strayLifetime = time.Minute
)

// strays are bundles that a round carried and no block took, because they enter at another shard by
// now. They are handed over in batches, to several shards at a time and in order to each. What a
// shard refuses for now is tried again for a while, and so is a batch whose call fails: the shard
// may be starting, full, unreachable for a moment, or wait for what an organisation takes along.
// It may have taken some of them, and knows those again by their ids.
type strays struct {
	// entry returns the shard where a bundle enters.
	entry  func(*ledger.Bundle) ledger.ShardID
	send   strayCall
	logger *slog.Logger
	// pause and lifetime are strayPause and strayLifetime.
	pause, lifetime time.Duration
	more            chan struct{} // some wait

	mutex   sync.Mutex
	waiting []*ledger.Bundle
	// count and bytes are of all that were added and not handed over. dropped counts those that
	// were not added since the log last said so.
	count, bytes, dropped int
}

// strayCall hands bundles over to a shard. It returns those that it may take later: all if the call
// failed. It also returns how many it refused for good, and why one of them all was not taken.
type strayCall func(ctx context.Context, to ledger.ShardID, batch []*ledger.Bundle) (
	again []*ledger.Bundle, refused int, err error)

// strayBatchSent is a batch that a shard was called for.
type strayBatchSent struct {
	to ledger.ShardID
	// over are those of the batch that are done with, and again those to be handed over again.
	// failing is since when the shard has not taken all, or zero.
	over, again []*ledger.Bundle
	failing     time.Time
}

func newStrays(logger *slog.Logger, entry func(*ledger.Bundle) ledger.ShardID,
	send strayCall) *strays {
	return &strays{entry: entry, send: send, logger: logger, more: make(chan struct{}, 1),
		pause: strayPause, lifetime: strayLifetime}
}

// add adds a stray. It is quick.
func (s *strays) add(bundle *ledger.Bundle) {
	size := len(bundle.Encode())
	s.mutex.Lock()
	if s.count == straysMax || s.bytes+size > strayBytesMax {
		s.dropped++
	} else {
		s.waiting = append(s.waiting, bundle)
		s.count, s.bytes = s.count+1, s.bytes+size
	}
	s.mutex.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// take returns the strays that wait, and how many were dropped since.
func (s *strays) take() (waiting []*ledger.Bundle, dropped int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	waiting, dropped, s.waiting, s.dropped = s.waiting, s.dropped, nil, 0
	return waiting, dropped
}

// release forgets strays that were handed over.
func (s *strays) release(batch []*ledger.Bundle) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.count -= len(batch)
	for _, bundle := range batch {
		s.bytes -= len(bundle.Encode())
	}
}

// run hands strays over until ctx is done.
func (s *strays) run(ctx context.Context) {
	queues, busy := make(map[ledger.ShardID][]*ledger.Bundle), make(map[ledger.ShardID]bool)
	failing := make(map[ledger.ShardID]time.Time)
	sent := make(chan strayBatchSent)
	for {
		select {
		case <-ctx.Done():
			for range busy {
				<-sent
			}
			return
		case <-s.more:
			waiting, dropped := s.take()
			for _, bundle := range waiting {
				entry := s.entry(bundle)
				queues[entry] = append(queues[entry], bundle)
			}
			if dropped > 0 {
				s.logger.Warn("dropped bundles that now enter at another shard, as too many wait: "+
					"their clients send them again", "bundles", dropped)
			}
		case done := <-sent:
			delete(busy, done.to)
			s.release(done.over)
			if queue := append(done.again, queues[done.to]...); len(queue) > 0 {
				queues[done.to], failing[done.to] = queue, done.failing
			} else {
				delete(failing, done.to)
			}
		}
		for to, some := idle(queues, busy); some; to, some = idle(queues, busy) {
			if batch := s.next(queues, to); len(batch) > 0 {
				busy[to] = true
				since := failing[to]
				go func() { sent <- s.sendBatch(ctx, to, batch, since) }()
			}
		}
	}
}

// idle returns a shard with a queue that no call is under way to.
func idle(queues map[ledger.ShardID][]*ledger.Bundle, busy map[ledger.ShardID]bool) (
	to ledger.ShardID, some bool) {
	for to := range queues {
		if !busy[to] {
			return to, true
		}
	}
	return 0, false
}

// next takes the first batch for a shard from its queue. Bundles that enter at another shard by now
// wait for that one.
func (s *strays) next(queues map[ledger.ShardID][]*ledger.Bundle,
	to ledger.ShardID) (batch []*ledger.Bundle) {
	queue := queues[to]
	count := firstStrays(queue)
	if queues[to] = queue[count:]; count == len(queue) {
		delete(queues, to)
	}
	for _, bundle := range queue[:count] {
		if entry := s.entry(bundle); entry != to {
			queues[entry] = append(queues[entry], bundle)
		} else {
			batch = append(batch, bundle)
		}
	}
	return batch
}

// firstStrays returns how many of the first bundles make a batch.
func firstStrays(queue []*ledger.Bundle) int {
	bytes := 0
	for i, bundle := range queue {
		if bytes += len(bundle.Encode()); i == strayBatch || i > 0 && bytes > strayBatchBytes {
			return i
		}
	}
	return len(queue)
}

// sendBatch hands a batch over to a shard that has not taken all since a time, or has. If it does
// not take all of this one, sendBatch waits for the next call.
func (s *strays) sendBatch(ctx context.Context, to ledger.ShardID, batch []*ledger.Bundle,
	failing time.Time) strayBatchSent {
	within, cancel := context.WithTimeout(ctx, strayPatience)
	defer cancel()
	done := strayBatchSent{to: to, over: batch}
	again, refused, err := s.send(within, to, batch)
	if len(again) > 0 {
		if done.failing = failing; failing.IsZero() {
			done.failing = time.Now()
		}
		if time.Since(done.failing) < s.lifetime {
			done.again = again
			done.over = slices.DeleteFunc(slices.Clone(batch), func(b *ledger.Bundle) bool {
				return slices.Contains(again, b)
			})
			select {
			case <-time.After(s.pause):
			case <-ctx.Done():
			}
		} else {
			refused += len(again)
		}
	}
	if refused > 0 && ctx.Err() == nil {
		s.logger.Warn("the shard where bundles enter by now did not take them: their clients send "+
			"them again", "bundles", refused, "of", len(batch), "shard", to, "error", err)
	}
	return done
}

// misplaced queues a bundle that enters at another shard by now.
func (b *book) misplaced(bundle *ledger.Bundle) {
	if arrival := bundle.Transaction(0).Arrival; arrival != nil {
		b.fetcher.admitted.forget(arrival.Move) // fetched again if the chain still waits for it
		b.comesMore()
		return
	}
	b.strays.add(bundle)
}

// handOver sends strays to the shards where they enter.
func (b *book) handOver() { b.strays.run(b.context) }

// handOverTo sends some of them to one shard, or to this node.
func (b *book) handOverTo(ctx context.Context, entry ledger.ShardID,
	batch []*ledger.Bundle) (again []*ledger.Bundle, refused int, err error) {
	take := func(bundle *ledger.Bundle, retry bool, reason error) {
		if err = reason; retry {
			again = append(again, bundle)
		} else {
			refused++
		}
	}
	if entry == b.directory.Own() {
		ctx := api.Queueing(ctx, true) // they were admitted before
		for i, refusal := range b.config.Node.Admit(ctx, batch, false) {
			if refusal != nil {
				take(batch[i], refusal.Retry(), refusal)
			}
		}
		return again, refused, err
	}
	request := &ledgerdv1.SubmitManyRequest{Wait: ledgerdv1.Level_LEVEL_ADMITTED,
		Queue: true} // they were admitted before
	for _, bundle := range batch {
		request.Bundles = append(request.Bundles, api.BundleToProto(bundle))
	}
	answer, err := b.Client(entry).SubmitMany(ctx, connect.NewRequest(request))
	if err != nil {
		return batch, 0, fmt.Errorf("the shard does not answer: %w", err)
	}
	for i, outcome := range answer.Msg.GetOutcomes()[:min(len(batch),
		len(answer.Msg.GetOutcomes()))] {
		if reason := outcome.GetRefused(); reason != "" {
			take(batch[i], outcome.GetRetry(), errors.New(reason))
		}
	}
	return again, refused, err
}

// Misrouted implements Crossing. Most bundles were routed before; it catches those from other
// shards' nodes, and those routed before the directory changed.
func (b *book) Misrouted(bundle *ledger.Bundle) *report.Refusal {
	if t := bundle.Transaction(0); t.Change != nil || t.Arrival != nil {
		return nil
	}
	if entry := b.config.Node.Store().BundleEntry(bundle); entry != b.Own() {
		// A copy of it may have been taken before an organisation moved.
		return &report.Refusal{Code: report.RefusedNotWriting,
			Unsure: b.config.Node.Store().HasMoves(),
			Reason: fmt.Sprintf("it enters at shard %d, and this node is of shard %d: submit it "+
				"again", entry, b.Own())}
	}
	return nil
}

// Expires implements Crossing. This chain's blocks count if this is the shard of the signer's home,
// or if the transaction changes this shard's members.
func (b *book) Expires(transaction *ledger.Transaction) bool {
	return transaction.Change != nil ||
		b.config.Node.Store().HomeShard(transaction.Signer) == b.Own()
}
