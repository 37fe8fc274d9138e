package client

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

func newTestClient(t *testing.T, urls ...string) *Client {
	t.Helper()
	c, err := New(urls, Options{Backoff: time.Millisecond, Tries: 5, WaitTime: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func testKey(t testing.TB, name ledger.OrganisationName) Key {
	t.Helper()
	ring, err := OpenKeyring(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	key, err := ring.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// beginBank registers the key's organisation and opens NAME:mint, NAME:a and NAME:b.
func beginBank(t *testing.T, c *Client, key Key) {
	t.Helper()
	path := func(name string) ledger.AccountPath {
		return ledger.AccountPath(string(key.Organisation) + ":" + name)
	}
	status, err := c.Post(testContext(t), []Key{key}, ledger.Transaction{
		Registrations: []ledger.Registration{{Name: key.Organisation,
			Keys: []ledger.PublicKey{key.Public()}}},
		Openings: []ledger.Opening{{Account: path("mint"), Issuer: true}, {Account: path("a")},
			{Account: path("b")}},
	}, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil || status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
		t.Fatalf("%v, %v", status, err)
	}
}

func transfer(from, to ledger.AccountPath, amount int64) ledger.Transaction {
	return ledger.Transaction{Postings: []ledger.Posting{
		{Account: from, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-amount)},
		{Account: to, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(amount)},
	}}
}

// A level is reached in all shards only once the node says so, unless one shard decides alone.
func TestReached(t *testing.T) {
	t.Parallel()
	const everywhere = ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE
	status := func(state ledgerdv1.TransactionState, everywhere bool,
		destinations ...uint32) *ledgerdv1.TransactionStatus {
		return &ledgerdv1.TransactionStatus{State: state, Everywhere: everywhere,
			Destinations: destinations}
	}
	durable := ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE
	for i, each := range []struct {
		status  *ledgerdv1.TransactionStatus
		level   ledgerdv1.Level
		reached bool
	}{
		{status(durable, false), everywhere, true},
		{status(durable, false, 1, 2), everywhere, false},
		{status(durable, true, 1, 2), everywhere, true},
		{status(durable, false, 1, 2), ledgerdv1.Level_LEVEL_UNSPECIFIED, true},
		{status(ledgerdv1.TransactionState_TRANSACTION_STATE_STORED, false), everywhere, false},
		{status(ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED, false, 1, 2), everywhere,
			true},
		{status(ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED, false), everywhere,
			false},
	} {
		if got := Reached(each.status, each.level); got != each.reached {
			t.Errorf("%d: %v at %v: %v", i, each.status, each.level, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080", "http://node/": "http://node",
		"https://node:1/base/": "https://node:1/base", "localhost": "http://localhost",
	}
	for address, want := range good {
		c, err := New([]string{address}, Options{})
		if err != nil || c.Current() != want {
			t.Errorf("%s: %v, %v", address, c, err)
		}
	}
	for _, address := range []string{"", "ftp://x", "http://", "http://x?y", "http://x:y:z",
		"http://a b"} {
		if _, err := New([]string{address}, Options{}); err == nil {
			t.Errorf("%q was taken for a node's address", address)
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, "127.0.0.1:1", "127.0.0.1:2")
	_, err := c.Node(testContext(t))
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(),
		"cannot reach http://127.0.0.1:") || !strings.Contains(err.Error(),
		"ledgerd start --home") {
		t.Fatal(err)
	}
	_, err = c.Post(testContext(t), []Key{testKey(t, "acme")}, transfer("acme:a", "acme:b", 1),
		ledgerdv1.Level_LEVEL_DURABLE)
	if !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	if err := c.Subscribe(testContext(t), 1, false, nil); !errors.Is(err, ErrUnreachable) {
		t.Fatal(err)
	}
}

// A node that dies during a call resets its connections, which is no answer.
func TestNodeDiesWhileAsked(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := connection.Read(make([]byte, 1)); err == nil {
				// Close sends a reset, as the end of a process does.
				connection.(*net.TCPConn).SetLinger(0)
			}
			connection.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	c := newTestClient(t, listener.Addr().String())
	if _, err := c.Node(testContext(t)); !errors.Is(err, ErrUnreachable) {
		t.Errorf("reading: %v (%d), want ErrUnreachable", err, CodeOf(err))
	}
	post := []Key{testKey(t, "acme")}
	_, err = c.Post(testContext(t), post, transfer("acme:a", "acme:b", 1),
		ledgerdv1.Level_LEVEL_DURABLE)
	if !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("posting what was never sent: %v, want ErrUnreachable, and a known outcome", err)
	}
	transaction := transfer("acme:a", "acme:b", 1)
	transaction.Signer = "acme"
	bundle, err := Sign(testContext(t), post, transaction)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(testContext(t), bundle, ledgerdv1.Level_LEVEL_DURABLE); !errors.Is(err,
		ErrOutcomeUnknown) {
		t.Errorf("submitting: %v, want ErrOutcomeUnknown", err)
	}
	if err := c.Subscribe(testContext(t), 1, false, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("subscribing: %v, want ErrUnreachable", err)
	}
}

// A submission gets through despite a node that is gone, one that takes no writes and one that is
// overloaded for a while.
func TestSubmitFindsANode(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
	following := apitest.Serve(t, cluster.Node(0), api.Options{})
	ordering := apitest.Serve(t, cluster.Node(1), api.Options{})
	cluster.Node(0).SetMode(report.ModeFollowing, "left out")
	cluster.Node(1).Overload(2)
	c := newTestClient(t, "127.0.0.1:1", following.URL, ordering.URL)
	beginBank(t, c, testKey(t, "acme"))
	if c.Current() != ordering.URL {
		t.Errorf("the client goes on with %s", c.Current())
	}
	// If no node takes writes, the refusal is returned with its reason.
	cluster.Node(1).SetMode(report.ModeHalted, "no majority")
	_, err := c.Post(testContext(t), []Key{testKey(t, "acme")}, transfer("acme:a", "acme:b", 1),
		ledgerdv1.Level_LEVEL_DURABLE)
	if err == nil || !strings.Contains(err.Error(), "takes no writes") &&
		!errors.Is(err, ErrUnreachable) {
		t.Fatal(err)
	}
}

// Permanent refusals are returned at once, as sentences.
func TestFailures(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	_, err := c.Post(testContext(t), []Key{testKey(t, "acme")}, transfer("acme:a", "acme:b", 1),
		ledgerdv1.Level_LEVEL_DURABLE)
	if CodeOf(err) != connect.CodeFailedPrecondition ||
		!strings.Contains(err.Error(), "register it first") ||
		strings.Contains(err.Error(), "failed_precondition") {
		t.Fatal(err)
	}
	if _, err := c.Account(testContext(t), "acme:a"); CodeOf(err) != connect.CodeNotFound {
		t.Fatal(err)
	}
	if _, err := c.Post(testContext(t), []Key{testKey(t, "acme")}, ledger.Transaction{},
		ledgerdv1.Level_LEVEL_DURABLE); !errors.Is(err, ledger.ErrInvalidTransaction) {
		t.Fatal(err)
	}
}

// Several clients of one organisation submit equal transactions at the same time, on their own
// streams and on a common one, where stale nonces are signed anew. Each transfer happens once.
func TestConcurrentPosts(t *testing.T) {
	t.Parallel()
	for _, common := range []bool{false, true} {
		t.Run(fmt.Sprintf("common stream %v", common), func(t *testing.T) {
			t.Parallel()
			cluster := apitest.NewCluster(t, apitest.Options{})
			door := apitest.Serve(t, cluster.Node(0), api.Options{})
			key := testKey(t, "acme")
			beginBank(t, newTestClient(t, door.URL), key)
			const clients, each = 3, 10
			failures := make(chan error, clients)
			for number := range clients {
				c := newTestClient(t, door.URL)
				go func() {
					for i := range uint64(each) {
						what := transfer("acme:mint", "acme:a", 1)
						// All take the same numbers, so their transactions must differ.
						if common {
							what.Nonce.Stream = 7
							what.Note = []byte{byte(number)}
							c.mutex.Lock()
							c.nonces[nonceStream{"acme", 7}] = i + 1
							c.mutex.Unlock()
						}
						status, err := c.Post(testContext(t), []Key{key}, what,
							ledgerdv1.Level_LEVEL_ORDERED)
						if err == nil && status.GetReason() != "" {
							err = errors.New(status.GetReason())
						}
						if err != nil {
							failures <- err
							return
						}
					}
					failures <- nil
				}()
			}
			for range clients {
				if err := <-failures; err != nil {
					t.Fatal(err)
				}
			}
			account, err := newTestClient(t, door.URL).Account(testContext(t), "acme:a")
			if err != nil || account.GetBalances()[0].GetAmount() != fmt.Sprint(clients*each) {
				t.Fatalf("%v, %v", account, err)
			}
		})
	}
}

// Another client on the same stream always takes the next nonce a moment earlier. A post still gets
// through.
func TestPostAgainstAFasterOne(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	door := apitest.Serve(t, cluster.Node(0), api.Options{})
	key := testKey(t, "acme")
	faster := newTestClient(t, door.URL)
	beginBank(t, faster, key)
	target, err := url.Parse(door.URL)
	if err != nil {
		t.Fatal(err)
	}
	const stream = 7
	through := httputil.NewSingleHostReverseProxy(target)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Submit") {
			what := transfer("acme:mint", "acme:b", 1)
			what.Ledger, what.Signer = cluster.Genesis().Hash(), key.Organisation
			what.Nonce = ledger.Nonce{Stream: stream,
				Sequence: cluster.Node(0).Store().NextSequence(key.Organisation, stream)}
			bundle, err := Sign(testContext(t), []Key{key}, what)
			if err == nil {
				_, err = faster.Submit(testContext(t), bundle, ledgerdv1.Level_LEVEL_ORDERED)
			}
			if err != nil {
				t.Error(err)
			}
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	slower := newTestClient(t, between.URL)
	slower.nonces[nonceStream{key.Organisation, stream}] = 1 // its start is not random
	what := transfer("acme:mint", "acme:a", 1)
	what.Nonce.Stream = stream
	status, err := slower.Post(testContext(t), []Key{key}, what, ledgerdv1.Level_LEVEL_ORDERED)
	if err != nil || status.GetReason() != "" {
		t.Fatalf("%v, %v", status, err)
	}
}

// One client that does not wait takes nonce after nonce.
func TestNoncesWithoutWaiting(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 1})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	cluster.Node(0).Hold()
	var last *ledgerdv1.TransactionStatus
	for range 5 {
		var err error
		if last, err = c.Post(testContext(t), []Key{key}, transfer("acme:mint", "acme:a", 1),
			ledgerdv1.Level_LEVEL_ADMITTED); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Node(0).Release()
	id, err := ledger.ParseHash(last.GetIdHex())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(testContext(t), id, ledgerdv1.Level_LEVEL_DURABLE); err != nil {
		t.Fatal(err)
	}
	if account, _ := cluster.Node(0).Store().Account("acme:a"); account.Balance(
		ledger.DefaultAsset) != ledger.NewAmount(5) {
		t.Fatalf("%+v", account)
	}
}

// proxy passes calls on. It cuts the connection after the node has answered, for the given number
// of calls: the client cannot know the outcome.
func proxy(t *testing.T, target string, cut *atomic.Int32) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			request, err := http.NewRequestWithContext(r.Context(), r.Method, target+r.URL.Path,
				r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header = r.Header
			answer, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			defer answer.Body.Close()
			if strings.HasSuffix(r.URL.Path, "/Submit") && cut.Add(-1) >= 0 {
				panic(http.ErrAbortHandler)
			}
			for key, values := range answer.Header {
				w.Header()[key] = values
			}
			w.WriteHeader(answer.StatusCode)
			buffer := make([]byte, 4096)
			for {
				n, err := answer.Body.Read(buffer)
				if n > 0 {
					_, _ = w.Write(buffer[:n])
					_ = http.NewResponseController(w).Flush()
				}
				if err != nil {
					return
				}
			}
		})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return "http://" + listener.Addr().String()
}

// If an answer is lost, the client submits the same bytes again, and the transfer happens once. If
// all answers are lost, the client reports an unknown outcome.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	door := apitest.Serve(t, cluster.Node(0), api.Options{})
	key := testKey(t, "acme")
	beginBank(t, newTestClient(t, door.URL), key)
	var cut atomic.Int32
	c := newTestClient(t, proxy(t, door.URL, &cut))
	cut.Store(3)
	status, err := c.Post(testContext(t), []Key{key}, transfer("acme:mint", "acme:a", 1),
		ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil || status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
		t.Fatalf("%v, %v", status, err)
	}
	cut.Store(1_000)
	_, err = c.Post(testContext(t), []Key{key}, transfer("acme:mint", "acme:a", 1),
		ledgerdv1.Level_LEVEL_DURABLE)
	if !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "ledgerd tx status") {
		t.Fatal(err)
	}
	if account, _ := cluster.Node(0).Store().Account("acme:a"); account.Balance(
		ledger.DefaultAsset) != ledger.NewAmount(2) {
		t.Fatalf("%+v", account)
	}
	if total := cluster.Node(0).Store().Head().Total; total != 3 {
		t.Fatalf("%d transactions in the chain, want 3", total)
	}
}

func TestIterators(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	const more = 3*iteratorPage + 7
	for begin := 0; begin < more; begin += ledger.MaxOpenings {
		var transaction ledger.Transaction
		for i := begin; i < min(more, begin+ledger.MaxOpenings); i++ {
			transaction.Openings = append(transaction.Openings,
				ledger.Opening{Account: ledger.AccountPath(fmt.Sprintf("acme:x%05d", i))})
		}
		if _, err := c.Post(testContext(t), []Key{key}, transaction,
			ledgerdv1.Level_LEVEL_ORDERED); err != nil {
			t.Fatal(err)
		}
	}
	count, last := 0, ""
	for account, err := range c.Accounts(testContext(t), "acme:x") {
		if err != nil || account.GetAccount() <= last {
			t.Fatalf("%v after %s, %v", account, last, err)
		}
		last = account.GetAccount()
		count++
	}
	if count != more {
		t.Fatalf("%d accounts, want %d", count, more)
	}
	height := uint64(1)
	for block, err := range c.Blocks(testContext(t), 0, true) {
		if err != nil || block.GetHeight() != height {
			t.Fatalf("%v, %v, want height %d", block, err, height)
		}
		height++
	}
	for range c.Accounts(testContext(t), "") {
		break // leaving an iterator early ends it
	}
	for _, err := range newTestClient(t, "127.0.0.1:1").Organisations(testContext(t)) {
		if !errors.Is(err, ErrUnreachable) {
			t.Fatal(err)
		}
	}
}

// A subscription continues at another node with the block after the last one.
func TestSubscribeResumes(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
	doors := []*apitest.TestServer{apitest.Serve(t, cluster.Node(0), api.Options{}),
		apitest.Serve(t, cluster.Node(1), api.Options{})}
	c := newTestClient(t, doors[0].URL, doors[1].URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	post := func() error {
		_, err := newTestClient(t, doors[1].URL).Post(testContext(t), []Key{key},
			transfer("acme:mint", "acme:a", 1), ledgerdv1.Level_LEVEL_ORDERED)
		return err
	}
	enough := errors.New("enough")
	next := uint64(1)
	err := c.Subscribe(testContext(t), 1, true, func(message *ledgerdv1.SubscribeResponse) error {
		if height := message.GetBlock().GetHeader().GetHeight(); height != next {
			t.Errorf("block %d, want %d", height, next)
		}
		if next == 3 {
			doors[0].Close()
		}
		if next++; next > 6 {
			return enough
		}
		return post()
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	err = c.Subscribe(ctx, 1, false, func(*ledgerdv1.SubscribeResponse) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestPlainAnswers: the client asks for no compression, in its calls and streams.
func TestPlainAnswers(t *testing.T) {
	t.Parallel()
	asked := make(chan http.Header, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	nodes := newTestClient(t, server.URL)
	_, _ = nodes.Node(t.Context())
	_ = nodes.Subscribe(t.Context(), 1, false, func(*ledgerdv1.SubscribeResponse) error {
		return nil
	})
	for range 2 {
		header := <-asked
		for _, name := range []string{"Accept-Encoding", "Connect-Accept-Encoding",
			"Grpc-Accept-Encoding"} {
			if value := header.Get(name); value != "" && value != "identity" {
				t.Errorf("%s: %s", name, value)
			}
		}
	}
}

// A node that does not answer in time is named, in words, and the error matches the context's.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	}))
	defer server.Close()
	defer close(gone)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := newTestClient(t, server.URL).Node(ctx)
	if !errors.Is(err, context.DeadlineExceeded) ||
		err.Error() != server.URL+" did not answer in time" {
		t.Error(err)
	}
}
