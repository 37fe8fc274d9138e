package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/doors"
)

// wire carries the connections to a node until a test cuts them.
type wire struct {
	URL string

	mutex sync.Mutex
	open  map[net.Conn]bool
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	listener := listenLoopback(t)
	w := &wire{URL: "http://" + listener.Addr().String(), open: make(map[net.Conn]bool)}
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(target, "http://"))
			if err != nil {
				_ = from.Close()
				continue
			}
			w.mutex.Lock()
			w.open[from], w.open[to] = true, true
			w.mutex.Unlock()
			carry := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				w.drop(from, to)
			}
			carrying.Go(func() { carry(to, from) })
			carrying.Go(func() { carry(from, to) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.cut()
		carrying.Wait()
	})
	return w
}

func (w *wire) drop(connections ...net.Conn) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, connection := range connections {
		_ = connection.Close()
		delete(w.open, connection)
	}
}

// cut cuts all connections. What is on its way is lost.
func (w *wire) cut() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for connection := range w.open {
		_ = connection.Close()
	}
	clear(w.open)
}

// streams returns how many of a Sender's nodes have a stream.
func streams(s *Sender) (open int) {
	for i := range s.at {
		s.at[i].mutex.Lock()
		if s.at[i].stream != nil {
			open++
		}
		s.at[i].mutex.Unlock()
	}
	return open
}

func mustPost(t *testing.T, s *Sender) {
	t.Helper()
	if answer, err := s.Post(testContext(t), transfer("acme:mint", "acme:a", 1)); err != nil ||
		!answer.Applied() || answer.Height == 0 {
		t.Fatalf("%v, %v", answer, err)
	}
}

// All bundles go over one stream, which ends with the Sender.
func TestSenderStream(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
	const callers, each = 50, 10
	var working sync.WaitGroup
	for caller := range callers {
		working.Go(func() {
			for i := range each {
				what := noted(transfer("acme:mint", "acme:a", 1), "%d of %d", i, caller)
				answer, err := s.Post(testContext(t), what)
				if err != nil || !answer.Applied() {
					t.Errorf("%v, %v", answer, err)
					return
				}
				found, err := c.Transaction(testContext(t), answer.ID)
				if err != nil || found.GetBody().GetNote() != string(what.Note) ||
					!proto.Equal(found.GetStatus(), answer.Status) {
					t.Errorf("the answer of %s is %v: %v, %v", what.Note, answer.Status, found,
						err)
				}
			}
		})
	}
	working.Wait()
	if streams(s) != 1 {
		t.Errorf("%d streams are open", streams(s))
	}
	// An outcome that differs from the others of its bundle.
	answer, err := s.Post(testContext(t), transfer("acme:b", "acme:a", 1_000))
	if err != nil || answer.Applied() || answer.Status.GetReasonCode() != "insufficient_funds" {
		t.Errorf("%v, %v", answer, err)
	}
	if got := balanceOf(t, cluster, "acme:a"); got != ledger.NewAmount(callers*each) {
		t.Errorf("balance %v after %d transfers", got, callers*each)
	}
	if err := s.Close(testContext(t)); err != nil || streams(s) != 0 {
		t.Errorf("%d streams are open at the end: %v", streams(s), err)
	}
}

// If a bundle is refused because of one transaction, the others go on without it.
func TestSenderStreamRefused(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 1})
	mustPost(t, s)
	cluster.Node(0).Overload(3)
	var working sync.WaitGroup
	for i := range 20 {
		working.Go(func() {
			what := transfer("acme:mint", "acme:a", 1)
			if i == 7 {
				what.LastValid = 1
			}
			if answer, err := s.Post(testContext(t), what); (err != nil) != (i == 7) {
				t.Errorf("%d: %v, %v", i, answer, err)
			}
		})
	}
	working.Wait()
	if streams(s) != 1 {
		t.Errorf("%d streams are open", streams(s))
	}
}

// The answers that a broken stream loses are looked up, and nothing takes effect twice.
func TestSenderStreamLost(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	w := newWire(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	c := newTestClient(t, w.URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	const callers = 20
	// However small the bundles are, all may be under way.
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, MaxBundle: 5, InFlight: callers})
	mustPost(t, s)
	cluster.Node(0).Hold()
	var working sync.WaitGroup
	for range callers {
		working.Go(func() { mustPost(t, s) })
	}
	until(t, "the node has them", func() bool {
		return cluster.Node(0).NodeState().PoolTransactions == callers
	})
	w.cut()
	cluster.Node(0).Release()
	working.Wait()
	mustPost(t, s)
	if got := balanceOf(t, cluster, "acme:a"); got != ledger.NewAmount(callers+2) {
		t.Errorf("balance %v after %d transfers", got, callers+2)
	}
}

// The connection breaks again and again, with requests and answers on their way, and the client has
// two nodes.
func TestSenderStreamBreaks(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
	var wires []*wire
	var urls []string
	for i := range 2 {
		w := newWire(t, apitest.Serve(t, cluster.Node(i), api.Options{}).URL)
		wires, urls = append(wires, w), append(urls, w.URL)
	}
	c := newTestClient(t, urls...)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, MaxBundle: 10})
	const callers, each, everyCut = 20, 20, 23
	var answered atomic.Int64
	var working sync.WaitGroup
	for caller := range callers {
		working.Go(func() {
			ordered := s.Caller()
			for i := range each {
				answer, err := ordered.Post(testContext(t), noted(
					transfer("acme:mint", "acme:a", 1), "%d of %d", i, caller))
				if err != nil || !answer.Applied() {
					t.Errorf("%v, %v", answer, err)
				}
				if count := answered.Add(1); count%everyCut == 0 {
					wires[count/everyCut%2].cut()
				}
			}
		})
	}
	working.Wait()
	if got := balanceOf(t, cluster, "acme:a"); got != ledger.NewAmount(callers*each) {
		t.Errorf("balance %v after %d transfers", got, callers*each)
	}
}

// A node without streams, or one that has no more of them, gets unary calls, as over HTTP/1.
func TestSenderWithoutStreams(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, backend api.Backend) string{
		"an older node": func(t *testing.T, backend api.Backend) string {
			return proxyOf(t, backend, true)
		},
		"HTTP/1": func(t *testing.T, backend api.Backend) string {
			return proxyOf(t, backend, false)
		},
		"too many streams": func(t *testing.T, backend api.Backend) string {
			door := apitest.Serve(t, backend, api.Options{MaxStreamsPerAddress: 1})
			c := newTestClient(t, door.URL)
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(cancel)
			taken, err := c.services[0].Subscribe(ctx,
				connect.NewRequest(&ledgerdv1.SubscribeRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = taken.Close() })
			return door.URL
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := apitest.NewCluster(t, apitest.Options{})
			c := newTestClient(t, before(t, cluster.Node(0)))
			key := testKey(t, "acme")
			beginBank(t, c, key)
			s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
			for range 3 {
				mustPost(t, s)
			}
			if streams(s) != 0 || s.at[0].avoid.IsZero() {
				t.Errorf("%d streams are open", streams(s))
			}
		})
	}
}

// proxyOf stands before a node. It speaks HTTP/2 and does not know SubmitStream, or HTTP/1 only.
func proxyOf(t *testing.T, backend api.Backend, overHTTP2 bool) string {
	t.Helper()
	address, err := url.Parse(apitest.Serve(t, backend, api.Options{}).URL)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(address)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/SubmitStream") {
			http.NotFound(w, r)
			return
		}
		through.ServeHTTP(w, r)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(overHTTP2)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// A stream that the node ended for idleness is opened again, at the same node.
func TestSenderIdleStream(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
	// The next transfer has so long until the connection is idle, too, and ends under it.
	options := api.Options{MaxIdleTime: 2 * time.Second}
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), options).URL,
		apitest.Serve(t, cluster.Node(1), options).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
	for range 3 {
		mustPost(t, s)
		until(t, "the stream ends", func() bool { return streams(s) == 0 })
		if !s.at[0].avoid.IsZero() || c.Current() != c.URLs()[0] {
			t.Error("the client avoids the node")
		}
	}
}

// ending is a node that ends its first stream once a bundle has come, which it does not take.
type ending struct {
	*api.Service
	how   error
	ended atomic.Bool
	unary atomic.Int32 // calls that submit or look for transactions
}

func (e *ending) SubmitStream(ctx context.Context, stream *api.Stream) error {
	if e.ended.Swap(true) {
		return e.Service.SubmitStream(ctx, stream)
	}
	if err := stream.Send(new(ledgerdv1.SubmitStreamResponse)); err != nil {
		return err
	}
	if _, err := stream.Receive(); err != nil {
		return err
	}
	return e.how
}

func (e *ending) Submit(ctx context.Context, request *connect.Request[ledgerdv1.SubmitRequest]) (
	*connect.Response[ledgerdv1.SubmitResponse], error) {
	e.unary.Add(1)
	return e.Service.Submit(ctx, request)
}

func (e *ending) GetTransaction(ctx context.Context,
	request *connect.Request[ledgerdv1.GetTransactionRequest]) (
	*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	e.unary.Add(1)
	return e.Service.GetTransaction(ctx, request)
}

// A stream that the node ends has not taken the bundles without an answer. They are sent again: to
// the same node if it ended the stream without an error, or else to another.
func TestSenderStreamThatEnds(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]error{"idle": nil, "stopping": api.Retryable(
		connect.CodeUnavailable, errors.New("this node is stopping"), nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
			service := api.NewService(cluster.Node(0), api.Options{})
			front := &ending{Service: service, how: how}
			server, err := api.NewServer(service, front)
			if err != nil {
				t.Fatal(err)
			}
			listener := listenLoopback(t)
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Shutdown(testContext(t)) })
			second := apitest.Serve(t, cluster.Node(1), api.Options{}).URL
			c := newTestClient(t, "http://"+listener.Addr().String(), second)
			key := testKey(t, "acme")
			beginBank(t, c, key)
			s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
			before := front.unary.Load()
			mustPost(t, s)
			if front.unary.Load() != before {
				t.Error("the node was asked by unary calls")
			}
			if moved := c.Current() == second; moved != (how != nil) {
				t.Errorf("the client is at %s", c.Current())
			}
		})
	}
}

// Streams go over TLS, too.
func TestSenderStreamOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key, err := doors.SelfSigned([]string{"127.0.0.1"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	config := doors.Config{Certificate: filepath.Join(dir, "tls.crt"),
		Key: filepath.Join(dir, "tls.key")}
	for path, content := range map[string][]byte{config.Certificate: certificate,
		config.Key: key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gates, err := doors.New(config)
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := ReadTLS(config.Certificate, "", "")
	if err != nil {
		t.Fatal(err)
	}
	cluster := apitest.NewCluster(t, apitest.Options{})
	c, err := New([]string{apitest.Serve(t, cluster.Node(0), api.Options{Doors: gates}).URL},
		Options{TLS: trusting})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	signs := testKey(t, "acme")
	beginBank(t, c, signs)
	s := newTestSender(t, c, SenderOptions{Keys: []Key{signs}})
	mustPost(t, s)
	if streams(s) != 1 {
		t.Errorf("%d streams are open", streams(s))
	}
}

// Statuses pass through runs unchanged, whatever they are.
func TestStatusesPassThroughRuns(t *testing.T) {
	t.Parallel()
	bundle := bundleOf(t, 40)
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.Uint32Range(0, 2)
		shards := rapid.SliceOfN(few, 0, 2)
		words := rapid.SampledFrom([]string{"", "a", "b"})
		statuses := make([]*ledgerdv1.TransactionStatus, bundle.Len())
		for i, id := range bundle.IDs() {
			status := new(ledgerdv1.TransactionStatus)
			if i > 0 {
				status = proto.Clone(statuses[i-1]).(*ledgerdv1.TransactionStatus)
				status.Index++
			}
			switch rapid.IntRange(0, 15).Draw(t, "what differs from the one before") {
			case 0:
				status.State = ledgerdv1.TransactionState(few.Draw(t, "state"))
			case 1:
				status.Height = uint64(few.Draw(t, "height"))
			case 2:
				status.Index = few.Draw(t, "index")
			case 3:
				status.ReasonCode = words.Draw(t, "code")
			case 4:
				status.Reason = words.Draw(t, "reason")
			case 5:
				status.Destinations = shards.Draw(t, "destinations")
			case 6:
				status.WaitsFor = shards.Draw(t, "waits for")
			case 7:
				status.Shard = few.Draw(t, "shard")
			case 8:
				status.SettledHeight = uint64(few.Draw(t, "settled"))
			case 9:
				status.Everywhere = !status.Everywhere
			}
			if status.Height == 0 {
				status.Index = 0
			}
			statuses[i] = status
			statuses[i].Id, statuses[i].IdHex = id[:], id.String()
		}
		sent := make([]*ledgerdv1.TransactionStatus, len(statuses))
		for i := range statuses {
			sent[i] = proto.Clone(statuses[i]).(*ledgerdv1.TransactionStatus)
		}
		got, err := statusesOf(&ledgerdv1.BundleAnswer{Runs: api.RunsOf(sent)}, bundle)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if !proto.Equal(got[i], statuses[i]) {
				t.Fatalf("status %d is %v, was %v", i, got[i], statuses[i])
			}
		}
	})
	// Every field that a status has passes.
	full := &ledgerdv1.TransactionStatus{State: 1, Height: 2, Index: 3, ReasonCode: "r",
		Reason: "s", Destinations: []uint32{4}, WaitsFor: []uint32{5}, Shard: 6, SettledHeight: 7,
		Everywhere: true}
	one := bundleOf(t, 1)
	got, err := statusesOf(&ledgerdv1.BundleAnswer{Runs: []*ledgerdv1.StatusRun{
		{Count: 1, Status: full}}}, one)
	if err != nil {
		t.Fatal(err)
	}
	fields := got[0].ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !got[0].ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("%s is lost", fields.Get(i).Name())
		}
	}
	for _, counts := range [][]uint32{{}, {39}, {41}, {40, 1}, {1 << 31, 1 << 31}, {0}} {
		answer := new(ledgerdv1.BundleAnswer)
		for _, count := range counts {
			answer.Runs = append(answer.Runs, &ledgerdv1.StatusRun{Count: count, Status: full})
		}
		if got, err := statusesOf(answer, bundle); err == nil {
			t.Errorf("runs of %v give %d statuses", counts, len(got))
		}
	}
}

// bundleOf returns a bundle of transfers.
func bundleOf(t *testing.T, count int) *ledger.Bundle {
	t.Helper()
	transactions := make([]ledger.Transaction, count)
	for i := range transactions {
		transactions[i] = noted(transfer("acme:mint", "acme:a", 1), "%d", i)
		transactions[i].Signer = "acme"
	}
	bundle, err := ledger.NewBundle(transactions...)
	if err != nil {
		t.Fatal(fmt.Errorf("a bundle: %w", err))
	}
	return bundle
}
