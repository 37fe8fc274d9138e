package client

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
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
		if message.Block == nil { // shard 1 is silent
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
