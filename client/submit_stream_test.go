package client

import (
	"context"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

const durable = ledgerdv1.Level_LEVEL_DURABLE

// transfersOf returns a bundle of so many transfers of 1 to acme:a. Bundles with other streams of
// nonces are others.
func transfersOf(t *testing.T, c *Client, key Key, nonces uint64, transfers int) *ledger.Bundle {
	t.Helper()
	genesis, err := c.Genesis(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	transactions := make([]ledger.Transaction, transfers)
	for i := range transactions {
		transactions[i] = transfer("acme:mint", "acme:a", 1)
		transactions[i].Ledger, transactions[i].Signer = genesis, key.Organisation
		transactions[i].Nonce = ledger.Nonce{Stream: nonces, Sequence: uint64(i)}
	}
	bundle, err := Sign(testContext(t), []Key{key}, transactions...)
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// bundlesOf returns how many bundles a client has under way on streams to its first node, and
// whether one is open.
func bundlesOf(c *Client) (bundles int, open bool) {
	c.nodes[0].mutex.Lock()
	defer c.nodes[0].mutex.Unlock()
	return c.nodes[0].bundles, c.nodes[0].stream != nil
}

func mustSubmit(t *testing.T, c *Client, bundle *ledger.Bundle) {
	t.Helper()
	statuses, err := c.Submit(testContext(t), bundle, durable)
	if err != nil || len(statuses) != bundle.Len() {
		t.Errorf("%d statuses of %d, %v", len(statuses), bundle.Len(), err)
		return
	}
	for i, status := range statuses {
		id := bundle.ID(i)
		found, err := c.Transaction(testContext(t), id)
		if err != nil || !proto.Equal(found.GetStatus(), status) ||
			status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
			t.Errorf("transaction %d is %v: %v, %v", i, status, found.GetStatus(), err)
		}
	}
}

// A large bundle goes over a stream, which ends when the client is closed. Its answers are those of
// a unary call.
func TestSubmitOnAStream(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	mustSubmit(t, c, transfersOf(t, c, key, 1, streamFrom-1))
	if _, open := bundlesOf(c); open {
		t.Error("a small bundle opened a stream")
	}
	for stream := uint64(2); stream < 5; stream++ {
		mustSubmit(t, c, transfersOf(t, c, key, stream, streamFrom))
	}
	if bundles, open := bundlesOf(c); bundles != 0 || !open {
		t.Errorf("%d bundles are under way, a stream is open: %v", bundles, open)
	}
	for stream := uint64(5); stream < 7; stream++ { // the second is submitted by a closed client
		c.Close()
		c.reading.Wait()
		mustSubmit(t, c, transfersOf(t, c, key, stream, streamFrom))
	}
	c.reading.Wait()
	if _, open := bundlesOf(c); open {
		t.Error("a closed client has a stream")
	}
	if got := balanceOf(t, cluster, "acme:a"); got != ledger.NewAmount(6*streamFrom-1) {
		t.Errorf("balance %v", got)
	}
}

// What a node refuses on a stream is refused with the error of a unary call.
func TestSubmitOnAStreamRefused(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	beginBank(t, c, testKey(t, "acme"))
	stranger := testKey(t, "acme") // the node knows another key of acme
	var failures []string
	for _, size := range []int{1, streamFrom} {
		_, err := c.Submit(testContext(t), transfersOf(t, c, stranger, 1, size), durable)
		if code := CodeOf(err); code != connect.CodePermissionDenied &&
			code != connect.CodeUnauthenticated && code != connect.CodeInvalidArgument {
			t.Errorf("%d transactions: %v (%v)", size, err, code)
		}
		failures = append(failures, err.Error())
	}
	if failures[0] != failures[1] {
		t.Errorf("on a stream: %s\notherwise:   %s", failures[1], failures[0])
	}
}

// What a broken stream loses is submitted again, and nothing takes effect twice.
func TestSubmitOnAStreamLost(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	w := newWire(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	c := newTestClient(t, w.URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	mustSubmit(t, c, transfersOf(t, c, key, 1, streamFrom))
	cluster.Node(0).Hold()
	var working sync.WaitGroup
	for stream := uint64(2); stream < 5; stream++ {
		bundle := transfersOf(t, c, key, stream, streamFrom)
		working.Go(func() { mustSubmit(t, c, bundle) })
	}
	until(t, "the node has them", func() bool {
		return cluster.Node(0).NodeState().PoolTransactions == 3*streamFrom
	})
	w.cut()
	cluster.Node(0).Release()
	working.Wait()
	if got := balanceOf(t, cluster, "acme:a"); got != ledger.NewAmount(4*streamFrom) {
		t.Errorf("balance %v", got)
	}
}

// A bundle for which the stream has no room, and a bundle for a node without streams, goes by a
// unary call. The same bundle may be submitted several times at once.
func TestSubmitBesideAStream(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	old := newTestClient(t, proxyOf(t, cluster.Node(0), true))
	key := testKey(t, "acme")
	beginBank(t, c, key)
	mustSubmit(t, c, transfersOf(t, c, key, 1, streamFrom))
	cluster.Node(0).Hold()
	const more = 5
	var working sync.WaitGroup
	for i := range uint64(streamBundles + more) {
		bundle := transfersOf(t, c, key, 2+i, streamFrom)
		working.Go(func() { mustSubmit(t, c, bundle) })
		if i == 0 {
			working.Go(func() { mustSubmit(t, old, bundle) })
		}
	}
	until(t, "the node has them", func() bool {
		return cluster.Node(0).NodeState().PoolTransactions == (streamBundles+more)*streamFrom
	})
	if bundles, _ := bundlesOf(c); bundles != streamBundles {
		t.Errorf("%d bundles are on the stream", bundles)
	}
	c.Close() // which does not end the stream yet
	cluster.Node(0).Release()
	working.Wait()
	c.reading.Wait()
	if bundles, open := bundlesOf(c); bundles != 0 || open {
		t.Errorf("%d bundles are under way, a stream is open: %v", bundles, open)
	}
	if _, open := bundlesOf(old); open {
		t.Error("there is a stream to a node without streams")
	}
	want := ledger.NewAmount((1 + streamBundles + more) * streamFrom)
	if got := balanceOf(t, cluster, "acme:a"); got != want {
		t.Errorf("balance %v", got)
	}
}

// A caller that leaves does not disturb the others on the stream.
func TestSubmitOnAStreamGivenUp(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	cluster.Node(0).Hold()
	ctx, cancel := context.WithCancel(testContext(t))
	leaving, staying := transfersOf(t, c, key, 1, streamFrom), transfersOf(t, c, key, 2, streamFrom)
	var working sync.WaitGroup
	working.Go(func() { mustSubmit(t, c, staying) })
	working.Go(func() {
		if _, err := c.Submit(ctx, leaving, durable); CodeOf(err) != 0 || err == nil {
			t.Errorf("the caller that left got %v", err)
		}
	})
	until(t, "the node has them", func() bool {
		return cluster.Node(0).NodeState().PoolTransactions == 2*streamFrom
	})
	cancel()
	until(t, "it has left", func() bool { bundles, _ := bundlesOf(c); return bundles < 2 })
	cluster.Node(0).Release()
	working.Wait()
}
