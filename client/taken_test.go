package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

// script is a node that answers submissions one by one as its story says, and the last step for
// ever.
type script struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
	mutex sync.Mutex
	steps []error // nil: it has the bundle, and it waits
}

// errShort makes the node answer without the status of any transaction.
var errShort = errors.New("an answer without statuses")

func (s *script) next() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	step := s.steps[0]
	if len(s.steps) > 1 {
		s.steps = s.steps[1:]
	}
	return step
}

// Submit implements LedgerServiceHandler.
func (s *script) Submit(_ context.Context, request *connect.Request[ledgerdv1.SubmitRequest]) (
	*connect.Response[ledgerdv1.SubmitResponse], error) {
	switch step := s.next(); {
	case step == nil:
		bundle, err := api.BundleFromProto(request.Msg.GetBundle())
		if err != nil {
			return nil, err
		}
		answer := new(ledgerdv1.SubmitResponse)
		for _, id := range bundle.IDs() {
			answer.Transactions = append(answer.Transactions, &ledgerdv1.TransactionStatus{
				Id: id[:], State: ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING})
		}
		return connect.NewResponse(answer), nil
	case errors.Is(step, errShort):
		return connect.NewResponse(new(ledgerdv1.SubmitResponse)), nil
	default:
		return nil, step
	}
}

// SubmitMany implements LedgerServiceHandler.
func (s *script) SubmitMany(context.Context, *connect.Request[ledgerdv1.SubmitManyRequest]) (
	*connect.Response[ledgerdv1.SubmitManyResponse], error) {
	return nil, s.next()
}

// shardDown is the refusal because of a shard that is down.
func shardDown() *connect.Error {
	obstacle := report.Obstacle{Shard: 2, Since: time.Unix(1_700_000_000, 0)}
	return api.RefusalError(obstacle.Refusal())
}

// unsure is the error of a node whose call to another shard was not answered.
func unsure() *connect.Error {
	refused := api.Retryable(connect.CodeUnavailable, errors.New("no answer"), nil)
	refused.Meta().Set(api.HeaderUnsure, "true")
	return refused
}

func coded(code connect.Code) error { return connect.NewError(code, errors.New(code.String())) }

// Once a node may have a bundle, no later answer makes the client report it as refused.
func TestNoRefusalOnceTaken(t *testing.T) {
	t.Parallel()
	malformed, damaged := coded(connect.CodeInvalidArgument), coded(connect.CodeDataLoss)
	late := coded(connect.CodeDeadlineExceeded)
	broken, over := coded(connect.CodeInternal), coded(connect.CodeCanceled)
	stranger := coded(connect.CodeUnauthenticated)
	denied, away := coded(connect.CodePermissionDenied), coded(connect.CodeUnavailable)
	for name, c := range map[string]struct {
		steps    []error
		statuses int  // that Submit returns
		refused  bool // no node can have it
	}{
		"admitted, then a shard is down":        {[]error{nil, shardDown()}, 1, false},
		"admitted, then refused for good":       {[]error{nil, malformed}, 1, false},
		"admitted, then the node is damaged":    {[]error{nil, damaged}, 1, false},
		"admitted, then no statuses":            {[]error{nil, errShort}, 1, false},
		"no statuses":                           {[]error{errShort}, 0, false},
		"the node panics":                       {[]error{broken}, 0, false},
		"the node's time ends":                  {[]error{late}, 0, false},
		"the node gives up":                     {[]error{over}, 0, false},
		"the node is damaged, then refuses":     {[]error{damaged, shardDown()}, 0, false},
		"no answer of a shard, then it is down": {[]error{unsure(), shardDown()}, 0, false},
		"no answer of a shard, then for good":   {[]error{unsure(), denied}, 0, false},
		"a shard is down":                       {[]error{shardDown()}, 0, true},
		"refused for good":                      {[]error{malformed}, 0, true},
		"one cannot now, then for good":         {[]error{away, malformed}, 0, true},
		"no call is let in":                     {[]error{stranger}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &script{steps: c.steps}
			mux := http.NewServeMux()
			mux.Handle(ledgerdv1connect.NewLedgerServiceHandler(node))
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			nodes := newTestClient(t, server.URL)
			key := testKey(t, "acme")
			payment := transfer("acme:mint", "acme:a", 1)
			payment.Ledger, payment.Signer = ledger.Hash{1}, "acme"
			bundle, err := Sign(testContext(t), []Key{key}, payment)
			if err != nil {
				t.Fatal(err)
			}
			statuses, err := nodes.Submit(testContext(t), bundle, durable)
			if err == nil || errors.Is(err, ErrOutcomeUnknown) == c.refused ||
				len(statuses) != c.statuses {
				t.Errorf("%v, %v", statuses, err)
			}
			if c.statuses > 0 || errors.Is(c.steps[0], errShort) {
				return // SubmitMany has no such steps
			}
			node.steps = c.steps
			_, err = nodes.SubmitInOrder(testContext(t), []*ledger.Bundle{bundle}, ledger.Hash{})
			if err == nil || errors.Is(err, ErrOutcomeUnknown) == c.refused {
				t.Errorf("in order: %v", err)
			}
		})
	}
}
