package route_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// reader takes a subscription to a book.
type reader struct {
	*book
	stream *connect.ServerStreamForClient[ledgerdv1.SubscribeResponse]
	next   map[uint32]uint64 // by shard, the height that comes next
	silent []uint32
	began  map[uint32]uint64 // where chains began, as the messages said
}

// follow subscribes at a node of a shard.
func (b *book) follow(ctx context.Context, door int, begin map[uint32]uint64,
	withTransactions bool) *reader {
	b.Helper()
	request := &ledgerdv1.SubscribeRequest{Book: true, FromHeight: 1,
		WithTransactions: withTransactions}
	r := &reader{book: b, next: map[uint32]uint64{0: 1, 1: 1, 2: 1},
		began: make(map[uint32]uint64)}
	for shard, height := range begin {
		r.next[shard] = height
		request.Begin = append(request.Begin,
			&ledgerdv1.ShardHeight{Shard: shard, Height: height})
	}
	var err error
	if r.stream, err = b.clients[door].Subscribe(ctx, connect.NewRequest(request)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.stream.Close() })
	if block := r.take(); block != nil {
		b.Fatalf("the first message has a block: %v", block)
	}
	return r
}

// take takes the next message, and returns its block, or nil if it tells which shards are silent.
func (r *reader) take() *ledgerdv1.Block {
	r.Helper()
	if !r.stream.Receive() {
		r.Fatalf("the subscription ended: %v", r.stream.Err())
	}
	block, header := r.stream.Msg().GetBlock(), r.stream.Msg().GetBlock().GetHeader()
	if block == nil {
		r.silent = r.stream.Msg().GetSilentShards()
		for _, place := range r.stream.Msg().GetBegin() {
			if before, twice := r.began[place.GetShard()]; twice {
				r.Fatalf("shard %d began at %d, and begins at %d", place.GetShard(), before,
					place.GetHeight())
			}
			r.began[place.GetShard()] = place.GetHeight()
		}
		return nil
	}
	if header.GetHeight() != r.next[header.GetShard()] {
		r.Fatalf("shard %d: block %d, want %d", header.GetShard(), header.GetHeight(),
			r.next[header.GetShard()])
	}
	if r.stream.Msg().GetHeadHeight() < header.GetHeight() {
		r.Fatalf("shard %d: the head is %d at block %d", header.GetShard(),
			r.stream.Msg().GetHeadHeight(), header.GetHeight())
	}
	r.next[header.GetShard()]++
	return block
}

// height returns the height of a shard's chain.
func (b *book) height(shard ledger.ShardID) ledger.Height {
	return b.Shard(shard).Node(0).Store().Head().Height
}

// mint makes a block in a shard.
func (b *book) mint(shard int) {
	b.Helper()
	org := b.orgs[shard]
	b.settled(b.submit(shard, ledgerdv1.Level_LEVEL_DURABLE,
		b.signed(org.Transfer(org.Account("mint"), org.Account("a"), 1))), shard)
}

// takeAll takes all blocks that the shards have now, and returns the ids of their transactions by
// shard.
func (r *reader) takeAll(shards ...ledger.ShardID) map[uint32][]string {
	r.Helper()
	ids := make(map[uint32][]string)
	for slices.ContainsFunc(shards, func(shard ledger.ShardID) bool {
		return r.next[uint32(shard)] <= uint64(r.height(shard))
	}) {
		for _, item := range r.take().GetTransactions() {
			shard := item.GetStatus().GetShard()
			ids[shard] = append(ids[shard], item.GetStatus().GetIdHex())
		}
	}
	return ids
}

// One subscription has the blocks of all shards, whichever node is asked, and may continue at
// another one where it ended.
func TestSubscribeToTheBook(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	ctx, cancel := context.WithCancel(b.context())
	first, second := b.follow(ctx, 0, nil, true), b.follow(b.context(), 2, nil, true)
	for _, r := range []*reader{first, second} {
		r.takeAll(0, 1, 2)
	}
	pay := func() string {
		payment := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5))
		b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE, payment), 1)
		return payment.ID(0).String()
	}
	paid := pay()
	for i, r := range []*reader{first, second} {
		ids := r.takeAll(0, 1, 2)
		if !slices.Contains(ids[0], paid) || !slices.Contains(ids[1], paid) ||
			!slices.Contains(ids[2], paid) {
			t.Errorf("reader %d: %v, want %s in all shards", i, ids, paid)
		}
	}
	cancel()
	paid = pay()
	third := b.follow(b.context(), 1, first.next, true)
	if ids := third.takeAll(0, 1, 2); !slices.Contains(ids[1], paid) ||
		!slices.Contains(ids[2], paid) {
		t.Errorf("the third reader has %v, want %s", ids, paid)
	}
	// Headers alone, from now on.
	now := map[uint32]uint64{0: 0, 1: 0, 2: 0}
	fourth := b.follow(b.context(), 1, now, false)
	for shard := range fourth.next {
		fourth.next[shard] = uint64(b.height(ledger.ShardID(shard))) + 1
	}
	pay()
	fourth.takeAll(0, 1, 2)
}

// A subscription tells that a shard does not answer, goes on with the others, and has all blocks of
// the shard once it answers again.
func TestSubscribeToASilentShard(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.Silence(2, true)
	r := b.follow(b.context(), 0, nil, true)
	for !slices.Equal(r.silent, []uint32{2}) {
		r.take()
	}
	b.mint(1)
	r.takeAll(0, 1)
	for range 3 {
		b.mint(2)
	}
	b.Silence(2, false)
	r.takeAll(0, 1, 2)
	for len(r.silent) > 0 {
		r.take()
	}
	b.Silence(2, true)
	b.mint(1)
	b.mint(2)
	for !slices.Equal(r.silent, []uint32{2}) {
		r.take()
	}
	b.Silence(2, false)
	r.takeAll(0, 1, 2)
}

// Requests that cannot be meant are refused.
func TestMisuseOfSubscriptions(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	place := func(shard uint32) *ledgerdv1.ShardHeight {
		return &ledgerdv1.ShardHeight{Shard: shard, Height: 1}
	}
	for name, request := range map[string]*ledgerdv1.SubscribeRequest{
		"places without the book": {Begin: []*ledgerdv1.ShardHeight{place(0)}},
		"a shard twice": {Book: true,
			Begin: []*ledgerdv1.ShardHeight{place(1), place(1)}},
		"a shard that is none": {Book: true, Begin: []*ledgerdv1.ShardHeight{place(3)}},
	} {
		stream, err := b.clients[0].Subscribe(b.context(), connect.NewRequest(request))
		if err == nil {
			if stream.Receive() {
				t.Errorf("%s: %v", name, stream.Msg())
			}
			err = stream.Err()
			_ = stream.Close()
		}
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The first message names the places where the chains begin, and the shards that are silent. The
// place of a shard that nobody has heard of comes once it answers, before its first block.
func TestPlacesWhereASubscriptionBegins(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	here, there := uint64(b.height(0))+1, uint64(b.height(2))+1
	b.Silence(2, true)
	r := b.follow(b.context(), 0, map[uint32]uint64{0: 0, 1: 1, 2: 0}, false)
	r.next[0] = here
	if !maps.Equal(r.began, map[uint32]uint64{0: here, 1: 1}) ||
		!slices.Equal(r.silent, []uint32{2}) {
		t.Fatalf("it begins at %v, and %v are silent", r.began, r.silent)
	}
	b.Silence(2, false)
	for r.began[2] == 0 || len(r.silent) > 0 {
		r.take()
	}
	if r.began[2] != there {
		t.Errorf("shard 2 begins at %d, want %d", r.began[2], there)
	}
	r.next[2] = there
	b.mint(2)
	r.takeAll(0, 1, 2)
	again := b.follow(b.context(), 1, r.next, false)
	if !maps.Equal(again.began, r.next) || len(again.silent) > 0 {
		t.Errorf("it continues at %v, and %v are silent", again.began, again.silent)
	}
}

// A subscription waits for shards that this node does not know, but not for each of them in turn.
func TestSubscriptionToUnknownShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	request := &ledgerdv1.SubscribeRequest{Book: true}
	for shard := range uint32(20) {
		request.Begin = append(request.Begin, &ledgerdv1.ShardHeight{Shard: 900 + shard, Height: 1})
	}
	began := time.Now()
	stream, err := b.clients[0].Subscribe(b.context(), connect.NewRequest(request))
	if err != nil {
		t.Fatal(err)
	}
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeInvalidArgument ||
		!strings.Contains(stream.Err().Error(), "the book has 3 shards") {
		t.Errorf("%v", stream.Err())
	}
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("it took %v", took)
	}
}
