package crossing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// strayLifetime is for how long calls to a shard may fail, one after another, until a batch
	// whose call fails is given up. Each further batch is then tried once.
	strayLifetime = time.Minute
)

// strays are bundles that a round carried and no block took, because they enter at another shard by
// now. They are handed over in batches, to several shards at a time and in order to each. A batch
// whose call fails is tried again for a while: the shard may be starting, or unreachable for a
// moment. It may have taken some of them, and knows those again by their ids.
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

// strayCall hands bundles over to a shard. It returns errUnheard if the call failed, and else how
// many of them were refused, and why one of them was.
type strayCall func(ctx context.Context, to ledger.ShardID, batch []*ledger.Bundle) (refused int,
	err error)

// errUnheard reports that a call to a shard failed, so that nobody knows what it took.
var errUnheard = errors.New("the shard does not answer")

// strayBatchSent is a batch that a shard was called for.
type strayBatchSent struct {
	to    ledger.ShardID
	batch []*ledger.Bundle
	// again says that the call failed and is to be made again. failing is since when calls to the
	// shard have failed, or zero.
	again   bool
	failing time.Time
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
			failing[done.to] = done.failing
			if !done.again {
				s.release(done.batch)
				break
			}
			s.back(queues, done)
		}
		for to, queue := range queues {
			if busy[to] {
				continue
			}
			count := firstStrays(queue)
			batch := queue[:count:count]
			if queues[to] = queue[count:]; count == len(queue) {
				delete(queues, to)
			}
			busy[to] = true
			since := failing[to]
			go func() { sent <- s.sendBatch(ctx, to, batch, since) }()
		}
	}
}

// back puts the bundles of a batch whose call failed before those that wait for the shard. Some may
// enter at another one by now.
func (s *strays) back(queues map[ledger.ShardID][]*ledger.Bundle, done strayBatchSent) {
	var first []*ledger.Bundle
	for _, bundle := range done.batch {
		if entry := s.entry(bundle); entry != done.to {
			queues[entry] = append(queues[entry], bundle)
		} else {
			first = append(first, bundle)
		}
	}
	if len(first) > 0 {
		queues[done.to] = append(first, queues[done.to]...)
	}
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

// sendBatch hands a batch over to a shard to which calls have failed since a time, or not. If the
// call fails it waits for the next one.
func (s *strays) sendBatch(ctx context.Context, to ledger.ShardID, batch []*ledger.Bundle,
	failing time.Time) strayBatchSent {
	within, cancel := context.WithTimeout(ctx, strayPatience)
	defer cancel()
	done := strayBatchSent{to: to, batch: batch}
	refused, err := s.send(within, to, batch)
	if errors.Is(err, errUnheard) {
		if done.failing = failing; failing.IsZero() {
			done.failing = time.Now()
		}
		if done.again = time.Since(done.failing) < s.lifetime; done.again {
			select {
			case <-time.After(s.pause):
			case <-ctx.Done():
			}
			return done
		}
	}
	if err != nil && ctx.Err() == nil {
		s.logger.Warn("bundles that now enter at another shard were refused there: their clients "+
			"send them again", "bundles", refused, "of", len(batch), "shard", to, "error", err)
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
	batch []*ledger.Bundle) (refused int, err error) {
	if entry == b.directory.Own() {
		for _, refusal := range b.config.Node.Admit(ctx, batch, false) {
			if refusal != nil {
				refused, err = refused+1, refusal
			}
		}
		return refused, err
	}
	request := &ledgerdv1.SubmitManyRequest{Wait: ledgerdv1.Level_LEVEL_ADMITTED,
		Queue: true} // they were admitted before
	for _, bundle := range batch {
		request.Bundles = append(request.Bundles, api.BundleToProto(bundle))
	}
	answer, err := b.Client(entry).SubmitMany(ctx, connect.NewRequest(request))
	if err != nil {
		return len(batch), fmt.Errorf("%w: %w", errUnheard, err)
	}
	for _, outcome := range answer.Msg.GetOutcomes() {
		if reason := outcome.GetRefused(); reason != "" {
			refused, err = refused+1, errors.New(reason)
		}
	}
	return refused, err
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
