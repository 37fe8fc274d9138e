package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func newTestSender(t *testing.T, c *Client, options SenderOptions) *Sender {
	t.Helper()
	s, err := c.NewSender(testContext(t), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ended) // a test that wants it to drain has closed it
	})
	return s
}

// gate is a proxy before a node that shows a test what passes.
type gate struct {
	URL string
	// before is called before a submission is passed on, with its transactions; it may block, and
	// its result says whether to pass it on. after is called before the answer is passed back, and
	// says whether to do that.
	before, after func(bundle *ledger.Bundle) bool

	mutex   sync.Mutex
	bundles []*ledger.Bundle // that were submitted, in the order of their arrival
	nonces  map[string]ledger.Nonce
}

// newGate stands before a node. It fails the test if a note, which a test uses once, comes with two
// nonces.
func newGate(t *testing.T, target string) *gate {
	t.Helper()
	address, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{nonces: make(map[string]ledger.Nonce)}
	through := httputil.NewSingleHostReverseProxy(address)
	through.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/Submit") {
			through.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		message := new(ledgerdv1.SubmitRequest)
		if err = errors.Join(err, proto.Unmarshal(body, message)); err != nil {
			panic(http.ErrAbortHandler) // the client hung up
		}
		bundle, err := api.BundleFromProto(message.GetBundle())
		if err != nil {
			t.Error(err)
			return
		}
		g.note(t, bundle)
		if g.before != nil && !g.before(bundle) {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		through.ServeHTTP(answer, r)
		if g.after != nil && !g.after(bundle) {
			panic(http.ErrAbortHandler)
		}
		for key, values := range answer.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	t.Cleanup(server.Close)
	g.URL = server.URL
	return g
}

func (g *gate) note(t *testing.T, bundle *ledger.Bundle) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.bundles = append(g.bundles, bundle)
	for i := range bundle.Len() {
		transaction := bundle.Transaction(i)
		if before, seen := g.nonces[string(transaction.Note)]; seen &&
			before != transaction.Nonce && len(transaction.Note) > 0 {
			t.Errorf("transaction %q was sent with nonce %v and with %v", transaction.Note, before,
				transaction.Nonce)
		}
		g.nonces[string(transaction.Note)] = transaction.Nonce
	}
}

// submitted returns the number of bundles and of the transactions in them.
func (g *gate) submitted() (bundles, transactions int) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for _, bundle := range g.bundles {
		transactions += bundle.Len()
	}
	return len(g.bundles), transactions
}

func noted(transaction ledger.Transaction, format string, arguments ...any) ledger.Transaction {
	transaction.Note = fmt.Appendf(nil, format, arguments...)
	return transaction
}

// newGuardedBank returns a node with an organisation, acme, whose accounts are open, behind a gate,
// and a client of the gate with the organisation's key.
func newGuardedBank(t *testing.T) (*apitest.Cluster, *gate, *Client, Key) {
	t.Helper()
	cluster := apitest.NewCluster(t, apitest.Options{})
	g := newGate(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	c := newTestClient(t, g.URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	return cluster, g, c, key
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func balanceOf(t *testing.T, cluster *apitest.Cluster, path ledger.AccountPath) ledger.Amount {
	t.Helper()
	account, err := cluster.Node(0).Store().Account(path)
	if err != nil {
		t.Fatalf("account %s: %v", path, err)
	}
	return account.Balance(ledger.DefaultAsset)
}

// Many callers share bundles, and each gets the answer for its own transaction.
func TestSenderBatches(t *testing.T) {
	t.Parallel()
	cluster, g, c, key := newGuardedBank(t)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 2})
	const callers, each = 100, 5
	failures := make(chan error, callers)
	for caller := range callers {
		go func() {
			failures <- func() error {
				for i := range each {
					what := noted(transfer("acme:mint", "acme:a", 1), "%d of %d", i, caller)
					answer, err := s.Post(testContext(t), what)
					if err != nil || !answer.Applied() || answer.Height == 0 ||
						!bytes.Equal(answer.Status.GetId(), answer.ID[:]) {
						return fmt.Errorf("%+v, %w", answer, err)
					}
					found, err := c.Transaction(testContext(t), answer.ID)
					if err != nil || found.GetBody().GetNote() != string(what.Note) {
						return fmt.Errorf("the answer of %s is for %s: %w", what.Note,
							found.GetBody().GetNote(), err)
					}
				}
				return nil
			}()
		}()
	}
	for range callers {
		if err := <-failures; err != nil {
			t.Fatal(err)
		}
	}
	if got := balanceOf(t, cluster, "acme:a"); got != ledger.NewAmount(callers*each) {
		t.Errorf("balance %v after %d transfers", got, callers*each)
	}
	if bundles, _ := g.submitted(); bundles > callers*each/2 {
		t.Errorf("%d bundles for %d transactions", bundles, callers*each)
	}
}

// While one bundle is under way, all that come in the meantime go into the next one.
func TestSenderGrowsWithLoad(t *testing.T) {
	t.Parallel()
	cluster, g, c, key := newGuardedBank(t)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 1})
	cluster.Node(0).Hold()
	const callers = 50
	var working sync.WaitGroup
	working.Go(func() { _, _ = s.Post(testContext(t), transfer("acme:mint", "acme:a", 1)) })
	until(t, "the first is under way", func() bool { n, _ := g.submitted(); return n == 2 })
	for range callers {
		working.Go(func() {
			answer, err := s.Post(testContext(t), transfer("acme:mint", "acme:a", 1))
			if err != nil || !answer.Applied() {
				t.Errorf("%v, %v", answer, err)
			}
		})
	}
	until(t, "all wait", func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return s.queues[0].waiting.length == callers
	})
	cluster.Node(0).Release()
	working.Wait()
	if bundles, transactions := g.submitted(); bundles != 3 || transactions != callers+2 {
		t.Errorf("%d bundles with %d transactions, want 3 with %d", bundles, transactions,
			callers+2)
	}
}

// A bundle that takes long does not keep a lone caller from sending.
func TestSenderBesideASlowBundle(t *testing.T) {
	t.Parallel()
	cluster, g, c, key := newGuardedBank(t)
	c.options.WaitTime = 300 * time.Millisecond
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 3})
	cluster.Node(0).Hold()
	var working sync.WaitGroup
	defer working.Wait()
	before, _ := g.submitted()
	gathering := func(on bool) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.queues[0].gathering = on // as if more came all the time
		s.queues[0].signal()
	}
	for sent, count := range []int{1, 50, 1} {
		gathering(true)
		for range count {
			working.Go(func() {
				what := transfer("acme:mint", "acme:a", 1)
				if answer, err := s.Post(testContext(t), what); err != nil || !answer.Applied() {
					t.Errorf("%v, %v", answer, err)
				}
			})
		}
		until(t, "all wait", func() bool {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			return s.queues[0].waiting.length == count
		})
		gathering(false)
		until(t, fmt.Sprintf("bundle %d is sent", sent), func() bool {
			bundles, _ := g.submitted()
			return bundles > before+sent
		})
	}
	cluster.Node(0).Release()
	working.Wait()
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if q := s.queues[0]; s.held != 0 || q.flying != 0 || q.flights != 0 || q.slow != 0 {
		t.Errorf("at the end %d bytes, %d transactions, %d bundles, %d slow ones are held", s.held,
			q.flying, q.flights, q.slow)
	}
}

// Each transfer of a caller spends what the one before brought. Bundles are small and several are
// in flight, and a node is lost in the middle.
func TestSenderKeepsOrder(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
	first := apitest.Serve(t, cluster.Node(0), api.Options{})
	second := apitest.Serve(t, cluster.Node(1), api.Options{})
	c := newTestClient(t, first.URL, second.URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 8, MaxBundle: 7})
	const callers, each = 10, 40
	for i := range callers {
		if _, err := s.Post(testContext(t), ledger.Transaction{Openings: []ledger.Opening{
			{Account: account(i, "x")}, {Account: account(i, "y")}}}); err != nil {
			t.Fatal(err)
		}
	}
	var answered atomic.Int32
	var working sync.WaitGroup
	for i := range callers {
		working.Go(func() {
			caller := s.Caller()
			from, to := ledger.AccountPath("acme:mint"), account(i, "x")
			var taken []*Submission
			for range each {
				submission, err := caller.Begin(testContext(t), transfer(from, to, 1))
				if err != nil {
					t.Error(err)
					return
				}
				taken = append(taken, submission)
				switch to {
				case account(i, "x"):
					from, to = to, account(i, "y")
				case account(i, "y"):
					from, to = to, "acme:b"
				default:
					from, to = "acme:mint", account(i, "x")
				}
			}
			for n, submission := range taken {
				answer, err := submission.Wait(testContext(t))
				if err != nil || !answer.Applied() {
					t.Errorf("transfer %d of caller %d: %v, %v", n, i, answer.Status, err)
				}
				answered.Add(1)
			}
		})
	}
	until(t, "some are answered", func() bool { return answered.Load() >= callers })
	first.Close()
	working.Wait()
	if c.Current() != second.URL {
		t.Errorf("the client is still at %s", c.Current())
	}
	if got := balanceOf(t, cluster, "acme:b"); got != ledger.NewAmount(callers*(each/3)) {
		t.Errorf("balance %v, want %d", got, callers*(each/3))
	}
}

func account(number int, name string) ledger.AccountPath {
	return ledger.AccountPath(fmt.Sprintf("acme:%d:%s", number, name))
}

// If answers and requests are lost, each transaction still takes effect once, and is never sent
// with another nonce. (The gate checks that.)
func TestSenderLostAnswers(t *testing.T) {
	t.Parallel()
	cluster, g, c, key := newGuardedBank(t)
	var count atomic.Int32
	lost := func(of int32) func(*ledger.Bundle) bool {
		return func(*ledger.Bundle) bool { return count.Add(1)%of != 0 }
	}
	g.before, g.after = lost(3), lost(4)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, MaxBundle: 10})
	const callers, each = 20, 5
	var working sync.WaitGroup
	for caller := range callers {
		working.Go(func() {
			for i := range each {
				answer, err := s.Post(testContext(t), noted(transfer("acme:mint", "acme:a", 1),
					"%d of %d", i, caller))
				if err != nil || !answer.Applied() {
					t.Errorf("%v, %v", answer, err)
				}
			}
		})
	}
	working.Wait()
	if got := balanceOf(t, cluster, "acme:a"); got != ledger.NewAmount(callers*each) {
		t.Errorf("balance %v after %d transfers", got, callers*each)
	}
}

// A lost answer is looked up before anything is sent again.
func TestSenderLooksUp(t *testing.T) {
	t.Parallel()
	_, g, c, key := newGuardedBank(t)
	before, _ := g.submitted()
	var once sync.Once
	g.after = func(*ledger.Bundle) bool {
		kept := true
		once.Do(func() { kept = false })
		return kept
	}
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
	if answer, err := s.Post(testContext(t), transfer("acme:mint", "acme:a", 1)); err != nil ||
		!answer.Applied() {
		t.Fatalf("%v, %v", answer, err)
	}
	if after, _ := g.submitted(); after != before+1 {
		t.Errorf("it was sent %d times", after-before)
	}
}

// A pool that is lost with its node gets the same bytes again.
func TestSenderRestartedNode(t *testing.T) {
	t.Parallel()
	cluster, g, c, key := newGuardedBank(t)
	c.options.WaitTime = 300 * time.Millisecond
	before, _ := g.submitted()
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
	cluster.Node(0).Hold()
	answered := make(chan error, 1)
	go func() {
		answer, err := s.Post(testContext(t), noted(transfer("acme:mint", "acme:a", 1), "mine"))
		if err == nil && !answer.Applied() {
			err = errors.New(answer.Status.GetReason())
		}
		answered <- err
	}()
	until(t, "it is in the pool", func() bool {
		g.mutex.Lock()
		defer g.mutex.Unlock()
		if len(g.bundles) == before {
			return false
		}
		status, err := cluster.Node(0).Status(g.bundles[before].ID(0))
		return err == nil && status.Level > 0
	})
	cluster.Node(0).Crash()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if after, _ := g.submitted(); after < before+2 {
		t.Errorf("it was sent %d times", after-before)
	}
}

// If the outcome cannot be found out, the caller learns the id, and its later transactions are not
// sent. Others go on.
func TestSenderUnknownOutcome(t *testing.T) {
	t.Parallel()
	_, g, c, key := newGuardedBank(t)
	g.before = func(bundle *ledger.Bundle) bool {
		return !strings.HasPrefix(string(bundle.Transaction(0).Note), "lost")
	}
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, MaxBundle: 1,
		Patience: 3 * time.Second})
	caller := s.Caller()
	var taken [2]*Submission
	for i, note := range []string{"lost", "behind it"} {
		var err error
		if taken[i], err = caller.Begin(testContext(t), noted(transfer("acme:mint", "acme:a", 1),
			"%s", note)); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := s.Post(testContext(t), noted(transfer("acme:mint", "acme:b", 1),
		"beside it")); err != nil || !answer.Applied() {
		t.Errorf("%v, %v", answer, err)
	}
	answer, err := taken[0].Wait(testContext(t))
	if !errors.Is(err, ErrOutcomeUnknown) || answer.ID.IsZero() {
		t.Errorf("%v, %v, want ErrOutcomeUnknown", answer, err)
	}
	if answer, err := taken[1].Wait(testContext(t)); !errors.Is(err, ErrNotSent) {
		t.Errorf("%v, %v, want ErrNotSent", answer, err)
	}
	if answer, err := caller.Post(testContext(t), noted(transfer("acme:mint", "acme:b", 1),
		"after it")); err != nil || !answer.Applied() {
		t.Errorf("%v, %v", answer, err)
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if _, sent := g.nonces["behind it"]; sent {
		t.Error("a transaction was sent although it is not known what became of the one before")
	}
}

// A transaction that the node refuses does not take the others of its bundle with it.
func TestSenderRefused(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	g := newGate(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	c := newTestClient(t, g.URL)
	key, other := testKey(t, "acme"), testKey(t, "zeta")
	beginBank(t, c, key)
	beginBank(t, c, other)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 1})
	caller := s.Caller()
	var taken []*Submission
	for i := range 20 {
		from := ledger.AccountPath("acme:mint")
		if i%7 == 3 {
			from = "zeta:mint" // which acme cannot sign for
		}
		submission, err := caller.Begin(testContext(t), transfer(from, "acme:a", 1))
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, submission)
	}
	for i, submission := range taken {
		answer, err := submission.Wait(testContext(t))
		if refused := i%7 == 3; refused != (err != nil) || refused == answer.Applied() ||
			errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("transaction %d: %v, %v", i, answer, err)
		}
	}
	if _, err := s.Post(testContext(t), ledger.Transaction{}); !errors.Is(err,
		ledger.ErrInvalidTransaction) {
		t.Errorf("an empty transaction: %v", err)
	}
	if answer, err := s.Post(testContext(t), transfer("acme:b", "acme:a", 1)); err != nil ||
		answer.Status.GetReasonCode() != api.ReasonCode(ledger.InsufficientFunds) {
		t.Errorf("an overdraft: %v, %v", answer, err)
	}
}

// testSenderStaleNonces is TestSenderStaleNonces.
func testSenderStaleNonces(t *testing.T, foresees bool) {
	cluster := apitest.NewCluster(t, apitest.Options{})
	if foresees {
		cluster.Node(0).Foresee()
	}
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	const stream = 7
	for _, sequence := range []uint64{100, 101} {
		what := transfer("acme:mint", "acme:b", 1)
		what.Ledger, what.Signer = cluster.Genesis().Hash(), key.Organisation
		what.Nonce = ledger.Nonce{Stream: stream, Sequence: sequence}
		bundle, err := Sign(testContext(t), []Key{key}, what)
		if err == nil {
			_, err = c.Submit(testContext(t), bundle, ledgerdv1.Level_LEVEL_ORDERED)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
	caller := s.Caller()
	var flight []*Submission
	for _, by := range []*Caller{nil, caller, caller} {
		t := &Submission{sender: s, caller: by, transaction: transfer("acme:mint", "acme:a", 1)}
		t.transaction.Ledger, t.transaction.Signer = s.genesis, key.Organisation
		flight = append(flight, t)
	}
	its := &lane{sender: s, queue: s.queues[0], stream: stream, next: 100}
	its.carry(flight)
	if flight[0].err != nil || !flight[0].answer.Applied() {
		t.Errorf("alone: %v, %v", flight[0].answer, flight[0].err)
	}
	if flight[1].err != nil ||
		flight[1].answer.Status.GetReasonCode() != api.ReasonCode(ledger.StaleNonce) {
		t.Errorf("before one that is through: %v, %v", flight[1].answer, flight[1].err)
	}
	if flight[2].err != nil || !flight[2].answer.Applied() {
		t.Errorf("with a fresh nonce: %v, %v", flight[2].answer, flight[2].err)
	}
}

// What the Sender holds is bounded: callers wait for room, or are refused.
func TestSenderBackpressure(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprintf("refuse %v", refuse), func(t *testing.T) {
			t.Parallel()
			cluster := apitest.NewCluster(t, apitest.Options{})
			c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
			key := testKey(t, "acme")
			beginBank(t, c, key)
			s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, MaxBytes: leastMaxBytes,
				RefuseWhenFull: refuse})
			cluster.Node(0).Hold()
			large := transfer("acme:mint", "acme:a", 1)
			large.Note = make([]byte, ledger.MaxNote)
			caller := s.Caller()
			var taken []*Submission
			var waiting sync.WaitGroup
			defer waiting.Wait()
			short, cancel := context.WithCancel(testContext(t))
			defer cancel()
			blocked := func() bool {
				s.mutex.Lock()
				defer s.mutex.Unlock()
				return s.blocked.length == 1
			}
			if !refuse {
				waiting.Go(func() { // the caller gives up once it waits for room
					for !blocked() && short.Err() == nil {
						time.Sleep(time.Millisecond)
					}
					cancel()
				})
			}
			var full error
			for full == nil {
				var submission *Submission
				if submission, full = caller.Begin(short, large); full == nil {
					taken = append(taken, submission)
				}
			}
			want := ErrNotSent
			if refuse {
				want = ErrFull
			}
			if most := leastMaxBytes / ledger.MaxNote; !errors.Is(full, want) ||
				len(taken) < most/2 || len(taken) > most {
				t.Errorf("%v after %d transactions", full, len(taken))
			}
			if !refuse {
				waiting.Go(func() {
					if answer, err := s.Post(testContext(t), large); err != nil ||
						!answer.Applied() {
						t.Errorf("one that waited for room: %v, %v", answer, err)
					}
				})
				until(t, "one waits for room", blocked)
			}
			cluster.Node(0).Release()
			for _, submission := range taken {
				if answer, err := submission.Wait(testContext(t)); err != nil || !answer.Applied() {
					t.Fatalf("%v, %v", answer, err)
				}
			}
		})
	}
}

// A caller whose context ends takes its transaction back if it was not sent, and else learns that
// it is under way.
func TestSenderDeadlines(t *testing.T) {
	t.Parallel()
	cluster, g, c, key := newGuardedBank(t)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 1})
	cluster.Node(0).Hold()
	before, _ := g.submitted()
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 2)
	post := func(note string) {
		_, err := s.Post(ctx, noted(transfer("acme:mint", "acme:a", 1), "%s", note))
		ended <- err
	}
	go post("under way")
	until(t, "it is under way", func() bool { n, _ := g.submitted(); return n > before })
	go post("waiting")
	until(t, "one waits", func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return s.queues[0].waiting.length == 1
	})
	cancel()
	unknown, unsent := <-ended, <-ended
	if errors.Is(unknown, ErrNotSent) {
		unknown, unsent = unsent, unknown
	}
	if !errors.Is(unknown, ErrOutcomeUnknown) || !errors.Is(unsent, ErrNotSent) {
		t.Errorf("%v, %v", unknown, unsent)
	}
	cluster.Node(0).Release()
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := balanceOf(t, cluster, "acme:a"); got != ledger.NewAmount(1) {
		t.Errorf("balance %v, want 1", got)
	}
	if q := s.queues[0]; s.held != 0 || q.flying != 0 || q.flights != 0 {
		t.Errorf("at the end %d bytes, %d transactions, %d bundles are held", s.held, q.flying,
			q.flights)
	}
}

// Close drains; and if that takes too long it gives up, and everyone learns where they stand.
func TestSenderClose(t *testing.T) {
	t.Parallel()
	for _, drain := range []bool{true, false} {
		t.Run(fmt.Sprintf("drain %v", drain), func(t *testing.T) {
			t.Parallel()
			cluster := apitest.NewCluster(t, apitest.Options{})
			g := newGate(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
			c := newTestClient(t, g.URL)
			key := testKey(t, "acme")
			beginBank(t, c, key)
			before, _ := g.submitted()
			s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, MaxBundle: 3})
			if !drain {
				cluster.Node(0).Hold()
			}
			caller := s.Caller()
			var taken []*Submission
			for range 20 {
				submission, err := caller.Begin(testContext(t), transfer("acme:mint", "acme:a", 1))
				if err != nil {
					t.Fatal(err)
				}
				taken = append(taken, submission)
			}
			ctx, cancel := context.WithTimeout(testContext(t), 30*time.Second)
			if !drain {
				until(t, "some are under way", func() bool {
					bundles, _ := g.submitted()
					return bundles > before
				})
				cancel()
			}
			defer cancel()
			if err := s.Close(ctx); (err == nil) != drain {
				t.Fatal(err)
			}
			for i, submission := range taken {
				answer, err := submission.Wait(testContext(t))
				switch {
				case drain && (err != nil || !answer.Applied()),
					!drain && i == 0 && !errors.Is(err, ErrOutcomeUnknown),
					!drain && i > 3 && !errors.Is(err, ErrSenderClosed) &&
						!errors.Is(err, ErrNotSent):
					t.Errorf("transaction %d: %v, %v", i, answer, err)
				}
			}
			_, err := caller.Post(testContext(t), transfer("acme:mint", "acme:a", 1))
			if !errors.Is(err, ErrSenderClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestSenderOptions(t *testing.T) {
	t.Parallel()
	keys := []Key{testKey(t, "acme")}
	for _, options := range []SenderOptions{{}, {Keys: keys, InFlight: 65},
		{Keys: keys, InFlight: -1}, {Keys: keys, MaxBundle: ledger.MaxBundleTransactions + 1},
		{Keys: keys, MaxBytes: 1}, {Keys: keys, Patience: -1},
		{Keys: keys, Level: ledgerdv1.Level_LEVEL_ADMITTED}} {
		if err := options.check(); err == nil {
			t.Errorf("%+v was taken", options)
		}
	}
	if err := (&SenderOptions{Keys: keys}).check(); err != nil {
		t.Error(err)
	}
}

func TestSenderProof(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
	answer, proof, err := s.PostProven(testContext(t), transfer("acme:mint", "acme:a", 1))
	if err != nil || proof == nil || proof.ID != answer.ID {
		t.Errorf("%v, %v, %v", answer, proof, err)
	}
}

// The bound of a transaction's encoding holds, and is not far above it.
func TestEncodedBound(t *testing.T) {
	t.Parallel()
	large := ledger.Transaction{Signer: "a", Postings: make([]ledger.Posting, ledger.MaxPostings)}
	for i := range large.Postings {
		large.Postings[i] = ledger.Posting{Account: "a:b", Asset: "c", Amount: ledger.MaxAmount}
	}
	if body, err := large.EncodeBody(); err != nil || encodedBound(&large) < len(body) {
		t.Errorf("bound %d of %d bytes, %v", encodedBound(&large), len(body), err)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := func() string { return rapid.StringMatching(`[a-z]{1,20}`).Draw(t, "name") }
		number := func() uint64 { return rapid.Uint64().Draw(t, "number") }
		path := func() ledger.AccountPath { return ledger.AccountPath(name() + ":" + name()) }
		transaction := ledger.Transaction{Signer: ledger.OrganisationName(name()),
			Nonce:     ledger.Nonce{Stream: number(), Sequence: number()},
			LastValid: ledger.Height(number()), Note: []byte(name())}
		amounts := []ledger.Amount{ledger.MaxAmount, ledger.NewAmount(1),
			ledger.NewAmount(-1 << 63)}
		for i := range rapid.IntRange(0, 5).Draw(t, "items") {
			transaction.Registrations = append(transaction.Registrations, ledger.Registration{
				Name: ledger.OrganisationName(name()), Keys: make([]ledger.PublicKey, i+1)})
			transaction.Openings = append(transaction.Openings,
				ledger.Opening{Account: path(), Alias: name(), Issuer: true})
			transaction.Postings = append(transaction.Postings, ledger.Posting{Account: path(),
				Asset: ledger.AssetName(name()), Amount: amounts[i%len(amounts)]})
			transaction.Records = append(transaction.Records, ledger.Record{
				Key: ledger.RecordKey(path()), Value: []byte(name())})
		}
		body, err := transaction.EncodeBody()
		if err != nil {
			t.Skip(err)
		}
		items := len(transaction.Postings)
		if bound := encodedBound(&transaction); bound < len(body) || bound > len(body)+80+90*items {
			t.Errorf("bound %d of %d bytes, %d items of each kind", bound, len(body), items)
		}
	})
}

// instantLedger is a node that finds every transaction durable at once.
type instantLedger struct{ service }

func (instantLedger) GetNonce(context.Context, *connect.Request[ledgerdv1.GetNonceRequest]) (
	*connect.Response[ledgerdv1.GetNonceResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetNonceResponse{NextSequence: 1}), nil
}

func (instantLedger) Submit(_ context.Context, request *connect.Request[ledgerdv1.SubmitRequest]) (
	*connect.Response[ledgerdv1.SubmitResponse], error) {
	bodies := request.Msg.GetBundle().GetTransactions()
	answer := &ledgerdv1.SubmitResponse{
		Transactions: make([]*ledgerdv1.TransactionStatus, len(bodies))}
	statuses := make([]ledgerdv1.TransactionStatus, len(bodies))
	ids := make([]ledger.Hash, len(bodies))
	for i, body := range bodies {
		ids[i] = ledger.TransactionID(body)
		statuses[i].Id, statuses[i].Height = ids[i][:], 1
		statuses[i].State = ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE
		answer.Transactions[i] = &statuses[i]
	}
	return connect.NewResponse(answer), nil
}

// BenchmarkSender is what a Sender costs a transaction, without the calls.
func BenchmarkSender(b *testing.B) {
	for _, callers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			c, err := New(nil, Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			c.services[0], c.genesis = instantLedger{}, ledger.Hash{1}
			_, private, err := ed25519.GenerateKey(nil)
			if err != nil {
				b.Fatal(err)
			}
			s, err := c.NewSender(b.Context(), SenderOptions{
				Keys: []Key{NewKey("acme", private)}})
			if err != nil {
				b.Fatal(err)
			}
			what := transfer("acme:a", "acme:b", 1)
			b.ReportAllocs()
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var working sync.WaitGroup
			for range callers {
				working.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := s.Post(b.Context(), what); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			working.Wait()
			if err := s.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// A Sender is closed while a lane gathers, and all that it would have taken leaves, as does what
// had no room: the lanes of the other queues end, too.
func TestSenderCloseOnceTheLastHasLeft(t *testing.T) {
	t.Parallel()
	_, _, c, key := newGuardedBank(t) // the client knows the genesis: it calls no node any more
	synctest.Test(t, func(t *testing.T) {
		s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 1})
		s.mutex.Lock()
		q := s.addQueue(1)
		waits := &Submission{sender: s, queue: q, done: make(chan struct{}, 1)}
		blocked := &Submission{sender: s, queue: q, done: make(chan struct{}, 1),
			room: make(chan struct{})}
		q.gathering = true // the lane let go of the mutex
		s.hold(waits)
		s.held += s.options.MaxBytes
		s.blocked.push(blocked)
		s.mutex.Unlock()
		closed := make(chan error, 1)
		go func() { closed <- s.Close(testContext(t)) }()
		synctest.Wait() // the Sender is closed, and all lanes have looked once more and sleep
		for _, each := range []*Submission{blocked, waits} {
			if err := each.leave(context.Canceled); !errors.Is(err, ErrNotSent) {
				t.Error(err)
			}
		}
		s.mutex.Lock()
		q.gathering = false
		q.wake.Broadcast() // as the lane goes on: it takes nothing, finds nothing to do, and ends
		s.mutex.Unlock()
		if err := <-closed; err != nil {
			t.Errorf("Close hangs until its time is over: %v", err)
		}
	})
}
