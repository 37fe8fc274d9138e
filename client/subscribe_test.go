package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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
)

// A subscription to a book continues at a node of another shard after the last block of each shard.
func TestSubscribeBookResumes(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, ledgertest.ShardedGenesis(1, 0, 0, 0), api.Options{})
	c := newTestClient(t, book.Door(1).URL, book.Door(2).URL)
	key := testKey(t, "acme")
	for _, part := range []ledger.Transaction{
		{Registrations: []ledger.Registration{{Name: "acme", Shard: 2, Pinned: true,
			Keys: []ledger.PublicKey{key.Public()}}}},
		{Openings: []ledger.Opening{{Account: "acme:mint", Issuer: true}, {Account: "acme:a"}}},
	} {
		if _, err := c.Post(testContext(t), []Key{key}, part,
			ledgerdv1.Level_LEVEL_DURABLE); err != nil {
			t.Fatal(err)
		}
	}
	other := newTestClient(t, book.Door(2).URL)
	post := func() {
		if _, err := other.Post(testContext(t), []Key{key}, transfer("acme:mint", "acme:a", 1),
			ledgerdv1.Level_LEVEL_DURABLE); err != nil {
			t.Error(err)
		}
	}
	seen := map[ledger.ShardID]ledger.Height{}
	enough := errors.New("enough")
	count := func(message *ledgerdv1.SubscribeResponse) {
		if header := message.GetBlock().GetHeader(); header != nil {
			shard := ledger.ShardID(header.GetShard())
			if seen[shard]++; ledger.Height(header.GetHeight()) != seen[shard] {
				t.Errorf("shard %d: block %d, want %d", shard, header.GetHeight(), seen[shard])
			}
		}
	}
	whole := func() bool {
		for shard := range ledger.ShardID(3) {
			if seen[shard] < book.Shard(shard).Node(0).Store().Head().Height {
				return false
			}
		}
		return true
	}
	closed := false
	err := c.SubscribeBook(testContext(t), map[ledger.ShardID]ledger.Height{0: 1, 1: 1, 2: 1}, true,
		func(message *ledgerdv1.SubscribeResponse) error {
			count(message)
			switch {
			case !whole():
			case closed:
				return enough
			default:
				closed = true
				book.Door(1).Close()
				post()
			}
			return nil
		})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	// From now on: there is traffic until a block comes.
	ctx, cancel := context.WithCancel(testContext(t))
	var posts sync.WaitGroup
	posts.Go(func() {
		for ctx.Err() == nil {
			post()
		}
	})
	err = other.SubscribeBook(ctx, nil, false, func(message *ledgerdv1.SubscribeResponse) error {
		if message.Block == nil { // where it begins
			return nil
		}
		if header := message.GetBlock().GetHeader(); ledger.Height(header.GetHeight()) <=
			seen[ledger.ShardID(header.GetShard())] {
			t.Errorf("%v has come before", header)
		}
		cancel()
		return nil
	})
	posts.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A shard was silent, the subscription moves to another node, and the shard answers there.
func TestSubscribeBookForgetsWhatWasSilent(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, ledgertest.ShardedGenesis(1, 0, 0, 0), api.Options{})
	c := newTestClient(t, book.Door(1).URL, book.Door(2).URL)
	book.Silence(0, true)
	enough := errors.New("enough")
	closed := false
	err := c.SubscribeBook(testContext(t), nil, false,
		func(message *ledgerdv1.SubscribeResponse) error {
			switch silent := len(message.GetSilentShards()) > 0; {
			case silent && !closed:
				closed = true
				book.Silence(0, false)
				book.Door(1).Close()
			case !silent && closed:
				return enough
			}
			return nil
		})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}

// olderNode streams the blocks of its own shard only, or nothing, to a subscription to the book.
type olderNode struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
	blocks int
	asked  atomic.Int32
}

func (o *olderNode) Subscribe(ctx context.Context, _ *connect.Request[ledgerdv1.SubscribeRequest],
	stream *connect.ServerStream[ledgerdv1.SubscribeResponse]) error {
	o.asked.Add(1)
	for i := range o.blocks {
		if err := stream.Send(&ledgerdv1.SubscribeResponse{Block: &ledgerdv1.Block{
			Header: &ledgerdv1.BlockHeader{Height: uint64(i + 1)}}}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// A node of a version without subscriptions to the book is not taken for one whose book is quiet.
func TestSubscribeBookAtAnOlderNode(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, ledgertest.ShardedGenesis(1, 0, 0, 0), api.Options{})
	for _, blocks := range []int{0, 2} {
		older := &olderNode{blocks: blocks}
		mux := http.NewServeMux()
		mux.Handle(ledgerdv1connect.NewLedgerServiceHandler(older))
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		options := Options{Backoff: time.Millisecond, CallTime: 300 * time.Millisecond}
		alone, err := New([]string{server.URL}, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(alone.Close)
		never := func(message *ledgerdv1.SubscribeResponse) error {
			t.Errorf("%d blocks: %v came", blocks, message)
			return nil
		}
		if err := alone.SubscribeBook(testContext(t), nil, false, never); err == nil ||
			!strings.Contains(err.Error(), "older program") {
			t.Errorf("%d blocks: %v", blocks, err)
		}
		options.CallTime = 30 * time.Second
		both, err := New([]string{server.URL, book.Door(1).URL}, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(both.Close)
		enough := errors.New("enough")
		if err := both.SubscribeBook(testContext(t), nil, false,
			func(message *ledgerdv1.SubscribeResponse) error {
				if message.Block != nil || len(message.GetBegin()) != 3 {
					t.Errorf("%d blocks: %v came", blocks, message)
				}
				return enough
			}); !errors.Is(err, enough) {
			t.Errorf("%d blocks: %v", blocks, err)
		}
		if asked := older.asked.Load(); asked < 2 {
			t.Errorf("%d blocks: the older node was asked %d times", blocks, asked)
		}
	}
}
