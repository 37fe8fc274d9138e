package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

// newSplitBook makes a book of three shards with an organisation in each, org0 to org2, whose key
// it returns. Shard 2 is down, as the others see it.
func newSplitBook(t *testing.T) (*apitest.Book, []Key) {
	t.Helper()
	book := apitest.NewBook(t, ledgertest.ShardedGenesis(1, 0, 0, 0), api.Options{})
	c := newTestClient(t, book.Door(0).URL)
	var keys []Key
	for shard := range ledger.ShardID(3) {
		key := testKey(t, ledger.OrganisationName(fmt.Sprintf("org%d", shard)))
		keys = append(keys, key)
		opening := ledger.Transaction{}
		for _, name := range []string{"mint", "a"} {
			opening.Openings = append(opening.Openings, ledger.Opening{Issuer: name == "mint",
				Account: ledger.AccountPath(string(key.Organisation) + ":" + name)})
		}
		for _, transaction := range []ledger.Transaction{{Registrations: []ledger.Registration{{
			Name: key.Organisation, Keys: []ledger.PublicKey{key.Public()}, Pinned: true,
			Shard: shard}}}, opening} {
			status, err := c.Post(testContext(t), []Key{key}, transaction, durable)
			if err != nil || status.GetState() !=
				ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
				t.Fatalf("%v, %v", status, err)
			}
		}
	}
	book.Obstruct(report.Obstacle{Shard: 2, Since: time.Unix(1_700_000_000, 0)})
	return book, keys
}

// counted serves what another address serves, and counts the calls of a method.
func counted(t *testing.T, target, method string) (address string, calls *atomic.Int64) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	calls = new(atomic.Int64)
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/"+method) {
			calls.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, calls
}

func isDown(err error) bool {
	failure := (*Failure)(nil)
	return errors.As(err, &failure) && failure.Reason == report.ReasonShardDown &&
		failure.Code == connect.CodeUnavailable && !errors.Is(err, ErrOutcomeUnknown)
}

// The client asks each node once about a shard that is down. With Queue the transaction waits.
func TestPostToAShardThatIsDown(t *testing.T) {
	t.Parallel()
	book, keys := newSplitBook(t)
	first, calls := counted(t, book.Door(0).URL, "Submit")
	second, others := counted(t, book.Door(1).URL, "Submit")
	c := newTestClient(t, first, second)
	_, err := c.Post(testContext(t), keys[1:2], transfer("org1:mint", "org2:a", 1), durable)
	if !isDown(err) || !strings.Contains(err.Error(), "shard 2 is down since 2023-11-14") {
		t.Errorf("%v", err)
	}
	if calls.Load() != 1 || others.Load() != 1 {
		t.Errorf("the nodes were asked %d and %d times", calls.Load(), others.Load())
	}
	queueing, err := New([]string{first}, Options{Queue: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(queueing.Close)
	for _, size := range []int{1, streamFrom} { // by a call, and on a stream
		bundle := crossings(t, c, keys[1], uint64(size), size)
		if _, err := c.Submit(testContext(t), bundle, durable); !isDown(err) {
			t.Errorf("%d transactions: %v", size, err)
		}
		statuses, err := queueing.Submit(testContext(t), bundle, durable)
		if err != nil || statuses[0].GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
			t.Errorf("%d transactions with Queue: %v, %v", size, statuses, err)
		}
	}
	ordered := []*ledger.Bundle{crossings(t, c, keys[1], 99, 1)}
	outcomes, err := c.SubmitInOrder(testContext(t), ordered, ledger.Hash{})
	if err != nil || outcomes[0].GetReasonCode() != report.ReasonShardDown {
		t.Errorf("in order: %v, %v", outcomes, err)
	}
	outcomes, err = queueing.SubmitInOrder(testContext(t), ordered, ledger.Hash{})
	if err != nil || outcomes[0].GetRefused() != "" {
		t.Errorf("in order with Queue: %v, %v", outcomes, err)
	}
}

// crossings makes a bundle of payments from org1 to org2.
func crossings(t *testing.T, c *Client, key Key, stream uint64, count int) *ledger.Bundle {
	t.Helper()
	genesis, err := c.Genesis(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	transactions := make([]ledger.Transaction, count)
	for i := range transactions {
		transactions[i] = transfer("org1:mint", "org2:a", 1)
		transactions[i].Ledger, transactions[i].Signer = genesis, key.Organisation
		transactions[i].Nonce = ledger.Nonce{Stream: stream, Sequence: uint64(i)}
	}
	bundle, err := Sign(testContext(t), []Key{key}, transactions...)
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// A Sender goes on with what does not cross to the shard, and gives up the rest at once.
func TestSenderAndAShardThatIsDown(t *testing.T) {
	t.Parallel()
	h := newHeldSender(t, func(book *apitest.Book) string { return book.Door(0).URL })
	for range 5 {
		h.post("org1:a", wasApplied)
		h.post("org0:a", wasApplied)
		h.post("org2:a", wasDown)
	}
	until(t, "those of the same shard wait", func() bool {
		h.sender.mutex.Lock()
		defer h.sender.mutex.Unlock()
		waiting := 0
		for _, each := range h.sender.queues {
			waiting += each.waiting.length
		}
		return waiting >= 5
	})
	h.release()
}

// heldSender is a Sender of org1 whose first transaction is under way until release is called, so
// that the next ones gather behind it. Shard 2 is down.
type heldSender struct {
	t       *testing.T
	book    *apitest.Book
	sender  *Sender
	posting sync.WaitGroup
}

// newHeldSender makes one that knows the node of shard 1, and another one.
func newHeldSender(t *testing.T, other func(*apitest.Book) string) *heldSender {
	t.Helper()
	book, keys := newSplitBook(t)
	c := newTestClient(t, book.Door(1).URL, other(book))
	sender, err := c.NewSender(testContext(t), SenderOptions{Keys: keys[1:2],
		InFlight: 1, Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	h := &heldSender{t: t, book: book, sender: sender}
	book.Shard(1).Node(0).Hold()
	h.post("org1:a", wasApplied)
	until(t, "the first is under way", func() bool {
		return book.Shard(1).Node(0).NodeState().PoolTransactions == 1
	})
	return h
}

// post posts a transfer to an account beside the others, and checks its answer.
func (h *heldSender) post(to ledger.AccountPath, check func(Answer, error) bool) {
	h.posting.Go(func() {
		answer, err := h.sender.Post(testContext(h.t), transfer("org1:mint", to, 1))
		if !check(answer, err) {
			h.t.Errorf("to %s: %+v, %v", to, answer, err)
		}
	})
}

// release lets all go, waits for their answers and closes the Sender.
func (h *heldSender) release() {
	h.t.Helper()
	h.book.Shard(1).Node(0).Release()
	h.posting.Wait()
	if err := h.sender.Close(testContext(h.t)); err != nil {
		h.t.Error(err)
	}
}

func wasApplied(answer Answer, err error) bool { return err == nil && answer.Applied() }

func wasDown(_ Answer, err error) bool { return isDown(err) }

// A shard took a payment, and goes down before the signer's home has it. Post does not say that it
// was refused.
func TestShardDownOnceItTookAPayment(t *testing.T) {
	t.Parallel()
	book, keys := newSplitBook(t)
	book.Obstruct()
	other, calls := counted(t, book.Door(2).URL, "Submit")
	c, err := New([]string{book.Door(1).URL, other}, Options{Backoff: time.Millisecond,
		WaitTime: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	book.Stand(1, true)
	book.Stand(2, true)
	before := book.Shard(0).Node(0).Store().Head().Height
	type outcome struct {
		status *ledgerdv1.TransactionStatus
		err    error
	}
	posted := make(chan outcome, 1)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	go func() {
		status, err := c.Post(ctx, keys[1:2], transfer("org1:mint", "org2:a", 1), durable)
		posted <- outcome{status, err}
	}()
	until(t, "shard 0 has ordered it", func() bool {
		return book.Shard(0).Node(0).Store().Head().Height > before
	})
	book.Silence(0, true)
	book.Obstruct(report.Obstacle{Shard: 0, Since: time.Unix(1_700_000_000, 0)})
	// The node that passed it on knows that, and says that it waits. Another one does not.
	c.Rotate()
	got := <-posted
	if !errors.Is(got.err, ErrOutcomeUnknown) || calls.Load() == 0 ||
		got.status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING {
		t.Errorf("%v, %v, and the other node was asked %d times", got.status, got.err,
			calls.Load())
	}
	book.Obstruct()
	book.Silence(0, false)
	book.Stand(1, false)
	book.Stand(2, false)
	until(t, "the payment took effect", func() bool {
		return balanceOf(t, book.Shard(2), "org2:a") == ledger.NewAmount(1)
	})
}

// While a shard is down, a Sender also goes on with what does not cross to it if one of its nodes
// is away, or takes nothing now.
func TestSenderAndAShardThatIsDownWithANodeAway(t *testing.T) {
	t.Parallel()
	busy := &script{steps: []error{coded(connect.CodeUnavailable)}}
	mux := http.NewServeMux()
	mux.Handle(ledgerdv1connect.NewLedgerServiceHandler(busy))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for name, other := range map[string]string{"away": "http://127.0.0.1:1",
		"takes nothing": server.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHeldSender(t, func(*apitest.Book) string { return other })
			h.post("org0:a", wasApplied) // nobody knows yet where that and the next one enter
			h.post("org2:a", wasDown)
			until(t, "the others wait", func() bool {
				h.sender.mutex.Lock()
				defer h.sender.mutex.Unlock()
				return h.sender.queues[0].waiting.length == 2
			})
			h.release()
		})
	}
}
