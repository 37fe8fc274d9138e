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

// In a book of several shards a call is answered by a node of the shard where its subject lives:
// here, or there after one hop. What came from another shard's node is answered here in every case.

// askTime bounds a question to other shards whose answer can be done without.
const askTime = 2 * time.Second

type client = ledgerdv1connect.LedgerServiceClient

// home is the shard where an organisation's accounts and records are asked for, and whether that is
// another one than this node's.
func (s *service) home(ctx context.Context, name ledger.OrganisationName) (ledger.ShardID, bool) {
	others := s.others(ctx)
	if others == nil || name == ledger.Operator {
		return s.backend.Store().Shard(), false
	}
	shard := s.backend.Store().HomeShard(name)
	return shard, shard != others.Own()
}

// chain is the shard whose chain a request names, and whether that is another one than this node's.
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

// passOn has another shard answer a call.
func passOn[Request, Answer any](ctx context.Context, s *service, shard ledger.ShardID,
	message *Request,
	method func(client, context.Context, *connect.Request[Request]) (*connect.Response[Answer],
		error),
) (*connect.Response[Answer], error) {
	bounded, cancel := context.WithTimeout(ctx, s.options.MaxReadTime)
	defer cancel()
	answer, err := method(s.backend.Shards().Client(shard), bounded, connect.NewRequest(message))
	if err != nil {
		return nil, elsewhereError(ctx, shard, err)
	}
	return connect.NewResponse(answer.Msg), nil
}

// elsewhereError is the error of a call that another shard was to answer, as this node's answer.
func elsewhereError(ctx context.Context, shard ledger.ShardID, err error) *connect.Error {
	if failed := contextError(ctx); failed != nil {
		return failed
	}
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) || unanswered(err) {
		return retryable(connect.CodeUnavailable,
			fmt.Errorf("shard %d does not answer now: try again; `ledgerd shards` shows which "+
				"of its nodes are there", shard), nil)
	}
	told := connect.NewError(coded.Code(), errors.New(coded.Message()))
	for _, name := range []string{HeaderRetry, HeaderWriters} {
		if value := coded.Meta().Get(name); value != "" {
			told.Meta().Set(name, value)
		}
	}
	return told
}

// unanswered tells whether an error says that no node of a shard answered, and not what one
// answered.
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

// sideBySide asks shards at the same time, for so long, and returns when all have answered or
// failed. What they said is in the order of the shards.
func sideBySide[Answer any](ctx context.Context, limit time.Duration, shards []ledger.ShardID,
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

// otherShards are all shards but the own one, ascending.
func otherShards(others Shards) []ledger.ShardID {
	list := make([]ledger.ShardID, 0, others.Tree().Shards()-1)
	for shard := range ledger.ShardID(others.Tree().Shards()) {
		if shard != others.Own() {
			list = append(list, shard)
		}
	}
	return list
}

// sentTo is where a transaction was sent: the shard that it enters, and the one that decides it.
type sentTo struct{ entry, home ledger.ShardID }

// maxSent bounds how many transactions a generation of whereabouts remembers.
const maxSent = 1 << 16

// whereabouts remembers where this node sent transactions lately, so that not all shards have to be
// asked for them. A generation that is full makes the one before it forgotten.
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
