package api_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

// A subscription sends the blocks in the store, then new ones, over each of the protocols.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	carriers := []struct {
		name    string
		client  *http.Client
		options []connect.ClientOption
	}{
		{"connect", http.DefaultClient, nil},
		{"connect with JSON", http.DefaultClient, []connect.ClientOption{connect.WithProtoJSON()}},
		{"grpc-web", http.DefaultClient, []connect.ClientOption{connect.WithGRPCWeb()}},
		{"grpc without TLS", overHTTP2(t), []connect.ClientOption{connect.WithGRPC()}},
	}
	for _, carrier := range carriers {
		t.Run(carrier.name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, apitest.Options{}, api.Options{})
			for range 3 {
				b.done(transfer("bank:mint", "bank:a", 1))
			}
			client := ledgerdv1connect.NewLedgerServiceClient(carrier.client, b.door.URL,
				carrier.options...)
			stream, err := client.Subscribe(b.context(),
				connect.NewRequest(&ledgerdv1.SubscribeRequest{FromHeight: 2,
					WithTransactions: true}))
			must(t, err)
			for height := uint64(2); height <= 8; height++ {
				if height > 4 {
					b.done(transfer("bank:mint", "bank:a", 1))
				}
				if !stream.Receive() {
					t.Fatal(stream.Err())
				}
				block := stream.Msg().Block
				if block.Header.Height != height || len(block.Transactions) != 1 ||
					block.Transactions[0].Postings[1].Account != "bank:a" ||
					stream.Msg().HeadHeight < height {
					t.Fatalf("%v, want height %d", stream.Msg(), height)
				}
			}
			must(t, stream.Close())
		})
	}
}

// A list of blocks waits for the first of them if the request asks for that. If it does not come,
// the list is empty.
func TestListBlocksWaits(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	list := func(from uint64, wait uint32) *ledgerdv1.ListBlocksResponse {
		answer, err := b.client.ListBlocks(b.context(),
			connect.NewRequest(&ledgerdv1.ListBlocksRequest{FromHeight: from, Ascending: true,
				WaitMs: wait}))
		must(t, err)
		return answer.Msg
	}
	if answer := list(1, 30_000); len(answer.Blocks) != 1 || answer.HeadHeight != 1 {
		t.Errorf("%v", answer)
	}
	if answer := list(2, 1); len(answer.Blocks) != 0 || answer.HeadHeight != 1 {
		t.Errorf("%v", answer)
	}
	came := make(chan *ledgerdv1.ListBlocksResponse)
	go func() { came <- list(2, 30_000) }()
	b.done(transfer("bank:mint", "bank:a", 1))
	if answer := <-came; len(answer.Blocks) != 1 || answer.Blocks[0].Height != 2 ||
		answer.HeadHeight != 2 {
		t.Errorf("%v", answer)
	}
	for name, request := range map[string]*ledgerdv1.ListBlocksRequest{
		"descending":     {FromHeight: 9, WaitMs: 1},
		"from the start": {Ascending: true, WaitMs: 1},
		"for too long":   {FromHeight: 9, Ascending: true, WaitMs: 30_001},
	} {
		if _, err := b.client.ListBlocks(b.context(),
			connect.NewRequest(request)); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// In a book of one shard, a subscription to the book is one to its chain.
func TestSubscribeToOneShard(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	b.done(transfer("bank:mint", "bank:a", 1))
	stream, err := b.client.Subscribe(b.context(), connect.NewRequest(
		&ledgerdv1.SubscribeRequest{Book: true, FromHeight: 1,
			Begin: []*ledgerdv1.ShardHeight{{Height: 2}}}))
	must(t, err)
	if !stream.Receive() || stream.Msg().Block.Header.Height != 2 {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
	none, err := b.client.Subscribe(b.context(), connect.NewRequest(
		&ledgerdv1.SubscribeRequest{Book: true, Begin: []*ledgerdv1.ShardHeight{{Shard: 1}}}))
	if err == nil {
		none.Receive()
		err = none.Err()
	}
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("another shard: %v", err)
	}
}

// Height 0 means after the head. The subscription is active when its headers arrive.
func TestSubscribeFromNow(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	stream, err := b.client.Subscribe(b.context(),
		connect.NewRequest(&ledgerdv1.SubscribeRequest{}))
	must(t, err)
	b.done(transfer("bank:mint", "bank:a", 1))
	if !stream.Receive() || stream.Msg().Block.Header.Height != 2 ||
		len(stream.Msg().Block.Transactions) != 0 {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
}

// A reader that takes nothing blocks no other, and gets every block when it reads again.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	slow, err := b.client.Subscribe(b.context(),
		connect.NewRequest(&ledgerdv1.SubscribeRequest{FromHeight: 1, WithTransactions: true}))
	must(t, err)
	const blocks = 300
	for range blocks {
		b.done(transfer("bank:mint", "bank:a", 1), transfer("bank:mint", "bank:a", 1),
			transfer("bank:mint", "bank:b", 1))
	}
	for height := uint64(1); height <= blocks+1; height++ {
		if !slow.Receive() || slow.Msg().Block.Header.Height != height {
			t.Fatalf("%v, %v, want height %d", slow.Msg().GetBlock().GetHeader(), slow.Err(),
				height)
		}
	}
}

// The number of streams is limited. A stream that ends frees its place.
func TestStreamLimits(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxStreamsPerAddress: 2})
	open := func(ctx context.Context) *connect.ServerStreamForClient[ledgerdv1.
		WatchClusterResponse] {
		stream, err := b.client.WatchCluster(ctx,
			connect.NewRequest(&ledgerdv1.WatchClusterRequest{}))
		must(t, err)
		return stream
	}
	ctx, cancel := context.WithCancel(b.context())
	for range 2 {
		if stream := open(ctx); !stream.Receive() {
			t.Fatal(stream.Err())
		}
	}
	refused := open(b.context())
	if refused.Receive() || connect.CodeOf(refused.Err()) != connect.CodeResourceExhausted {
		t.Fatalf("a third stream: %v", refused.Err())
	}
	cancel()
	deadline := time.Now().Add(patience)
	for {
		stream := open(b.context())
		if stream.Receive() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the places of ended streams are not free again: %v", stream.Err())
		}
	}
}

func TestWatchCluster(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Nodes: 3}, api.Options{ClusterInterval: time.Millisecond})
	stream, err := b.client.WatchCluster(b.context(),
		connect.NewRequest(&ledgerdv1.WatchClusterRequest{}))
	must(t, err)
	watch := func(good func(*ledgerdv1.ClusterState) bool) {
		t.Helper()
		for stream.Receive() {
			if good(stream.Msg().Cluster) {
				return
			}
		}
		t.Fatal(stream.Err())
	}
	watch(func(c *ledgerdv1.ClusterState) bool {
		return c.Chain == "test" && len(c.Members) == 3 && len(c.Edges) == 6
	})
	b.done(transfer("bank:mint", "bank:a", 1))
	watch(func(c *ledgerdv1.ClusterState) bool {
		return c.Node.DurableHeight == 2 && c.TransactionsTotal == 2
	})
	b.cluster.Node(0).SetMode(report.ModeHalted, "no majority")
	watch(func(c *ledgerdv1.ClusterState) bool {
		return c.Node.Mode == ledgerdv1.NodeMode_NODE_MODE_HALTED && c.Node.Reason == "no majority"
	})
}

// signalling signals each call of Wait.
type signalling struct {
	api.Backend
	waits chan struct{}
}

func (s signalling) Wait(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	s.waits <- struct{}{}
	return s.Backend.Wait(ctx, ids, level)
}

// A server that stops ends its streams at once, with an error that names other nodes, returns the
// current statuses to waiting callers, and serves no more calls.
func TestShutdown(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Manual: true}, api.Options{})
	backend := signalling{b.cluster.Node(0), make(chan struct{}, 1)}
	door := apitest.Serve(t, backend, api.Options{})
	client := ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, door.URL)
	stream, err := client.Subscribe(b.context(), connect.NewRequest(&ledgerdv1.SubscribeRequest{}))
	must(t, err)
	waited := make(chan ledgerdv1.TransactionState, 1)
	go func() {
		bundle := b.sign(transfer("bank:mint", "bank:a", 1))
		answer, err := client.Submit(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle)}))
		if err != nil {
			t.Errorf("who waited heard %v", err)
			close(waited)
			return
		}
		waited <- answer.Msg.Transactions[0].State
	}()
	<-backend.waits
	ctx, cancel := context.WithTimeout(b.context(), patience)
	defer cancel()
	must(t, door.Server.Shutdown(ctx))
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Fatalf("the stream's end: %v", stream.Err())
	}
	if state := <-waited; state != ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING {
		t.Fatalf("who waited heard %v", state)
	}
	if _, err := client.GetNode(b.context(),
		connect.NewRequest(&ledgerdv1.GetNodeRequest{})); err == nil {
		t.Fatal("a stopped server answers")
	}
}

// Browsers connect ahead of need. A server that stops does not wait for connections that never
// carried a call; by default that takes five seconds.
func TestShutdownClosesUnusedConnections(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	door := apitest.Serve(t, b.cluster.Node(0), api.Options{})
	var dialer net.Dialer
	connection, err := dialer.DialContext(b.context(),
		"tcp", strings.TrimPrefix(door.URL, "http://"))
	must(t, err)
	defer connection.Close()
	// The server has accepted the connection once it answers on a later one.
	if _, err := ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient,
		door.URL).GetNode(b.context(), connect.NewRequest(&ledgerdv1.GetNodeRequest{})); err !=
		nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.context(), 4*time.Second)
	defer cancel()
	must(t, door.Server.Shutdown(ctx))
}
