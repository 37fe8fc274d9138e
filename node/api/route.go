package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// In a book of several shards a node of the shard that owns a call's subject answers the call: this
// node, or another after one hop. A call from another shard's node is always answered here.

// askTime bounds a call to other shards whose answer is optional.
const askTime = 2 * time.Second

type client = ledgerdv1connect.LedgerServiceClient

// home returns the shard to ask for an organisation's accounts and records, and reports whether it
// is another shard than this node's.
func (s *service) home(ctx context.Context, name ledger.OrganisationName) (ledger.ShardID, bool) {
	others := s.others(ctx)
	if others == nil || name == ledger.Operator {
		return s.backend.Store().Shard(), false
	}
	shard := s.backend.Store().HomeShard(name)
	return shard, shard != others.Own()
}

// chain returns the shard whose chain a request names, and reports whether it is another shard than
// this node's.
func (s *service) chain(ctx context.Context, asked *uint32) (ledger.ShardID, bool, error) {
	opened := s.backend.Store()
	own := opened.Shard()
	if asked == nil || ledger.ShardID(*asked) == own {
		return own, false, nil
	}
	count := 1
	if tree := opened.ShardTree(); tree != nil {
		count = tree.Shards()
	}
	if uint64(*asked) >= uint64(count) {
		return own, false, invalid("there is no shard %d: the book has %d, from 0 to %d", *asked,
			count, count-1)
	}
	if s.others(ctx) == nil {
		return own, false, retryable(connect.CodeUnavailable,
			fmt.Errorf("this node is of shard %d: ask a node of shard %d", own, *asked), nil)
	}
	return ledger.ShardID(*asked), true, nil
}

// passOn lets another shard answer a call.
func passOn[Request, Answer any](ctx context.Context, s *service, shard ledger.ShardID,
	message *Request,
	method func(client, context.Context, *connect.Request[Request]) (*connect.Response[Answer],
		error),
) (*connect.Response[Answer], error) {
	bounded, cancel := context.WithTimeout(ctx, s.options.MaxReadTime)
	defer cancel()
	answer, err := method(s.backend.Shards().Client(shard), bounded, connect.NewRequest(message))
	if err != nil {
		return nil, forwardError(ctx, shard, err)
	}
	return connect.NewResponse(answer.Msg), nil
}

// forwardError converts the error of a call to another shard to this node's answer.
func forwardError(ctx context.Context, shard ledger.ShardID, err error) *connect.Error {
	if failed := contextError(ctx); failed != nil {
		return failed
	}
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) || unanswered(err) {
		return retryable(connect.CodeUnavailable,
			fmt.Errorf("shard %d does not answer now: try again; `ledgerd shards` shows which "+
				"of its nodes are up", shard), nil)
	}
	told := connect.NewError(coded.Code(), errors.New(coded.Message()))
	for _, name := range []string{HeaderRetry, HeaderWriters} {
		if value := coded.Meta().Get(name); value != "" {
			told.Meta().Set(name, value)
		}
	}
	return told
}

// unanswered reports whether an error means that no node of a shard answered. An error that a node
// of the shard returned as its answer does not count.
func unanswered(err error) bool {
	if err == nil {
		return false
	}
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) {
		return true
	}
	if connect.IsWireError(err) && coded.Meta().Get(HeaderRetry) == "true" {
		return false
	}
	switch coded.Code() {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled,
		connect.CodeUnknown:
		return true
	}
	return false
}

// callAll calls shards at the same time, bounded by limit, and returns when all have answered or
// failed. The answers are in the order of the shards.
func callAll[Answer any](ctx context.Context, limit time.Duration, shards []ledger.ShardID,
	ask func(ctx context.Context, shard ledger.ShardID) (Answer, error)) ([]Answer, []error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers, failures := make([]Answer, len(shards)), make([]error, len(shards))
	var asked sync.WaitGroup
	for i, shard := range shards {
		asked.Go(func() { answers[i], failures[i] = ask(bounded, shard) })
	}
	asked.Wait()
	return answers, failures
}

// otherShards returns all shards but this node's, ascending.
func otherShards(others Shards) []ledger.ShardID {
	list := make([]ledger.ShardID, 0, others.Tree().Shards()-1)
	for shard := range ledger.ShardID(others.Tree().Shards()) {
		if shard != others.Own() {
			list = append(list, shard)
		}
	}
	return list
}

// sentTo says where a transaction was sent: the shard that it enters, and the shard that decides
// it.
type sentTo struct{ entry, home ledger.ShardID }

// maxSent bounds how many transactions a generation of whereabouts holds.
const maxSent = 1 << 16

// whereabouts remembers where this node recently sent transactions, which avoids asking all shards
// for them. When the young generation is full, it replaces the aged one, which is dropped.
type whereabouts struct {
	mutex       sync.Mutex
	young, aged map[ledger.Hash]sentTo
}

func (w *whereabouts) note(ids []ledger.Hash, to sentTo) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, id := range ids {
		if w.young == nil || len(w.young) >= maxSent {
			w.young, w.aged = make(map[ledger.Hash]sentTo), w.young
		}
		w.young[id] = to
	}
}

func (w *whereabouts) of(id ledger.Hash) (sentTo, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if to, known := w.young[id]; known {
		return to, true
	}
	to, known := w.aged[id]
	return to, known
}
