package route_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/api/route"
	"github.com/ledgerd/ledgerd/node/report"
)

// liar is a book where the member of shard 2 that answers a node's calls lies.
type liar struct {
	route.Shards
	options api.Options
	list    func(*ledgerdv1.ListBlocksRequest, *ledgerdv1.ListBlocksResponse) // changes an answer
	block   func(*ledgerdv1.GetBlockResponse)
	states  func([]report.ShardState)
	pages   func(*ledgerdv1.ListAccountsResponse)
}

type lyingClient struct {
	ledgerdv1connect.LedgerServiceClient
	*liar
}

func (l *liar) Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient {
	if shard == 2 {
		return &lyingClient{l.Shards.Client(shard), l}
	}
	return l.Shards.Client(shard)
}

func (l *liar) States() []report.ShardState {
	states := l.Shards.States()
	if l.states != nil {
		l.states(states)
	}
	return states
}

func (l *lyingClient) ListBlocks(ctx context.Context,
	request *connect.Request[ledgerdv1.ListBlocksRequest]) (
	*connect.Response[ledgerdv1.ListBlocksResponse], error) {
	answer, err := l.LedgerServiceClient.ListBlocks(ctx, request)
	if err == nil && l.list != nil {
		l.list(request.Msg, answer.Msg)
	}
	return answer, err
}

func (l *lyingClient) GetBlock(ctx context.Context,
	request *connect.Request[ledgerdv1.GetBlockRequest]) (
	*connect.Response[ledgerdv1.GetBlockResponse], error) {
	answer, err := l.LedgerServiceClient.GetBlock(ctx, request)
	if err == nil && l.block != nil {
		l.block(answer.Msg)
	}
	return answer, err
}

func (l *lyingClient) ListAccounts(ctx context.Context,
	request *connect.Request[ledgerdv1.ListAccountsRequest]) (
	*connect.Response[ledgerdv1.ListAccountsResponse], error) {
	answer, err := l.LedgerServiceClient.ListAccounts(ctx, request)
	if err == nil && l.pages != nil {
		l.pages(answer.Msg)
	}
	return answer, err
}

// deceive serves the book at another door of shard 0, whose calls to shard 2 the liar answers.
func (b *book) deceive(l *liar) ledgerdv1connect.LedgerServiceClient {
	b.Helper()
	l.Shards = b.Shards(0)
	l.options.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	server, err := route.New(b.Shard(0).Node(0), l, l.options)
	if err != nil {
		b.Fatal(err)
	}
	listener, err := api.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	b.Cleanup(func() {
		// Shutdown waits for the calls: a subscription that does not end fails the test here.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			b.Errorf("a call does not end: %v", err)
		}
		if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	})
	return ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient,
		"http://"+listener.Addr().String())
}

// followAt is follow at a door of its own.
func (b *book) followAt(ctx context.Context, door ledgerdv1connect.LedgerServiceClient,
	begin map[uint32]uint64, withTransactions bool) *reader {
	b.Helper()
	b.clients[0] = door
	return b.follow(ctx, 0, begin, withTransactions)
}

// A member that names a height that no chain has neither crashes the node nor keeps a goroutine of
// it. Its shard counts as silent, and the blocks of the others come.
func TestSubscriptionsEndureAnImpossibleHeight(t *testing.T) {
	t.Parallel()
	for _, head := range []uint64{math.MaxUint64, math.MaxUint64 - 1, 1<<63 + 100, 1<<62 + 1} {
		for _, from := range []uint64{0, 1} {
			t.Run(fmt.Sprintf("%d from %d", head, from), func(t *testing.T) {
				t.Parallel()
				b := newBook(t)
				door := b.deceive(&liar{list: func(_ *ledgerdv1.ListBlocksRequest,
					answer *ledgerdv1.ListBlocksResponse) {
					answer.Blocks = []*ledgerdv1.BlockHeader{{Shard: 2, Height: head}}
				}})
				ctx, cancel := context.WithCancel(b.context())
				defer cancel()
				r := b.followAt(ctx, door, map[uint32]uint64{2: from}, true)
				r.takeAll(0, 1)
				for !slices.Equal(r.silent, []uint32{2}) {
					r.take()
				}
			})
		}
	}
}

// A panic in a goroutine of a subscription ends that subscription, not the node.
func TestPanicEndsASubscription(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	door := b.deceive(&liar{block: func(*ledgerdv1.GetBlockResponse) { panic("planted") }})
	r := b.followAt(b.context(), door, nil, true)
	for r.stream.Receive() {
		if r.stream.Msg().GetBlock().GetHeader().GetShard() == 2 {
			t.Fatal("a block came that nobody could read")
		}
	}
	if code := connect.CodeOf(r.stream.Err()); code != connect.CodeInternal {
		t.Errorf("it ended with %v", r.stream.Err())
	}
	b.followAt(b.context(), door, nil, false).takeAll(0, 1, 2)
}

// A member that names a greater height than its shard announces, once or always, hides no block.
func TestSubscriptionsEndureAForgedHead(t *testing.T) {
	t.Parallel()
	const forged = 1 << 60
	for name, made := range map[string]func() *liar{
		"always": func() *liar {
			return &liar{list: func(request *ledgerdv1.ListBlocksRequest,
				answer *ledgerdv1.ListBlocksResponse) {
				if !request.GetAscending() {
					answer.Blocks[0].Height = forged
				}
			}}
		},
		"once, before anything is announced": func() *liar {
			told := false
			return &liar{list: func(request *ledgerdv1.ListBlocksRequest,
				answer *ledgerdv1.ListBlocksResponse) {
				if !request.GetAscending() && !told {
					told, answer.Blocks[0].Height = true, forged
				}
			}, states: func(states []report.ShardState) { states[2].Height = 0 }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(t)
			door := b.deceive(made())
			if name == "always" {
				r := b.followAt(b.context(), door, map[uint32]uint64{2: 0}, false)
				r.next[2] = uint64(b.height(2)) + 1
				b.mint(2)
				r.takeAll(0, 1, 2)
			}
			// The place is named, so the watch alone hears the forged head. It asks for the head
			// again once the shard has no block after it.
			r := b.followAt(b.context(), door, nil, true)
			r.takeAll(0, 1, 2)
			for honest := false; !honest; {
				b.mint(2)
				for r.next[2] <= uint64(b.height(2)) {
					if r.take().GetHeader().GetShard() == 2 {
						honest = r.stream.Msg().GetHeadHeight() < forged
					}
				}
			}
		})
	}
}

// A member that answers with blocks of another shard, other blocks, or none, puts nothing under a
// wrong name, and no block is left out: the subscription goes on with the shard as it is, or ends.
func TestSubscriptionsEndureWrongBlocks(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*liar{
		"headers of another shard": {list: func(_ *ledgerdv1.ListBlocksRequest,
			answer *ledgerdv1.ListBlocksResponse) {
			for _, header := range answer.GetBlocks() {
				header.Shard = 1
			}
		}},
		"headers out of order": {list: func(request *ledgerdv1.ListBlocksRequest,
			answer *ledgerdv1.ListBlocksResponse) {
			if request.GetAscending() {
				slices.Reverse(answer.Blocks)
			}
		}},
		"no block": {block: func(answer *ledgerdv1.GetBlockResponse) { answer.Block = nil }},
		"a block without a header": {block: func(answer *ledgerdv1.GetBlockResponse) {
			answer.Block.Header = nil
		}},
		"a block of another shard": {block: func(answer *ledgerdv1.GetBlockResponse) {
			answer.Block.Header.Shard = 1
		}},
		"another height": {block: func(answer *ledgerdv1.GetBlockResponse) {
			answer.Block.Header.Height++
		}},
		"another hash": {block: func(answer *ledgerdv1.GetBlockResponse) {
			answer.Block.Header.Hash = make([]byte, 32)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(t)
			r := b.followAt(b.context(), b.deceive(l), nil, true)
			for !slices.Contains(r.silent, 2) {
				if !r.stream.Receive() {
					if code := connect.CodeOf(r.stream.Err()); code != connect.CodeDataLoss {
						t.Errorf("it ended with %v", r.stream.Err())
					}
					return
				}
				header := r.stream.Msg().GetBlock().GetHeader()
				if r.silent = r.stream.Msg().GetSilentShards(); header.GetShard() == 2 {
					t.Errorf("%v came", header)
				} else if header != nil && header.GetHeight() != r.next[header.GetShard()] {
					t.Errorf("%v came, want block %d", header, r.next[header.GetShard()])
				} else if header != nil {
					r.next[header.GetShard()]++
				}
			}
		})
	}
}

// A subscription that is one too many of its address makes no call to other shards.
func TestSubscriptionsCountBeforeTheyCall(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	var calls atomic.Int32
	door := b.deceive(&liar{options: api.Options{MaxStreamsPerAddress: 1},
		list: func(*ledgerdv1.ListBlocksRequest, *ledgerdv1.ListBlocksResponse) { calls.Add(1) }})
	ctx, cancel := context.WithCancel(b.context())
	defer cancel()
	b.followAt(ctx, door, nil, false).takeAll(0, 1, 2)
	cancel()
	var held *connect.ServerStreamForClient[ledgerdv1.SubscribeResponse]
	for held == nil || !held.Receive() { // until the first one has ended there
		if b.Context().Err() != nil {
			t.Fatal("the first subscription does not end")
		}
		var err error
		if held, err = door.Subscribe(b.context(), connect.NewRequest(
			&ledgerdv1.SubscribeRequest{FromHeight: 1})); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = held.Close() })
	before := calls.Load()
	stream, err := door.Subscribe(b.context(),
		connect.NewRequest(&ledgerdv1.SubscribeRequest{Book: true}))
	if err == nil {
		if stream.Receive() {
			t.Errorf("%v came", stream.Msg())
		}
		err = stream.Err()
		_ = stream.Close()
	}
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	if made := calls.Load() - before; made > 0 {
		t.Errorf("it made %d calls", made)
	}
}

// A member of one shard cannot cut the pages of others short, nor send a reader back: a page that
// says that it ended before its own accounts counts as no answer.
func TestPagesEndureAForgedToken(t *testing.T) {
	t.Parallel()
	for _, forged := range []string{"a", "org1:a"} {
		b := newBook(t)
		door := b.deceive(&liar{pages: func(answer *ledgerdv1.ListAccountsResponse) {
			answer.NextPageToken = forged
		}})
		answer, err := door.ListAccounts(b.context(), connect.NewRequest(
			&ledgerdv1.ListAccountsRequest{PageToken: "org1:a"}))
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, account := range answer.Msg.GetAccounts() {
			paths = append(paths, account.GetAccount())
		}
		if fmt.Sprint(paths, answer.Msg.GetUnansweredShards()) != "[org1:mint] [2]" ||
			answer.Msg.GetNextPageToken() != "" {
			t.Errorf("%s: %v", forged, answer.Msg)
		}
	}
}
