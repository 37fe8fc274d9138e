package node_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// A hold in one shard is seen from all nodes, outlives a restart, and is posted in part and voided
// from another shard. What nobody posts expires.
func TestHoldsAcrossNodes(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.open()
	hold := func(amount int64, lasts time.Duration) ledger.Hash {
		bundle := b.signed(b.clients[1].PlaceHold("org1:a", "org2:a", amount, soon(lasts)))
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		statuses, err := b.via(0).Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil {
			t.Fatal(err)
		}
		b.executed(statuses)
		return bundle.ID(0)
	}
	list := func(k int, query *ledgerdv1.ListHoldsRequest) (ids []string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for open, err := range b.via(k).Holds(ctx, query) {
			if err != nil {
				t.Fatalf("node %d: %v", k, err)
			}
			ids = append(ids, open.GetHoldHex())
		}
		return ids
	}
	// end has org2 end a hold of org1, at a node.
	end := func(k int, id ledger.Hash, amount int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		open, err := b.via(k).Hold(ctx, id)
		if err != nil {
			t.Fatalf("node %d: %v", k, err)
		}
		terms, err := client.TermsOfHold(open)
		if err != nil {
			t.Fatal(err)
		}
		ends := client.VoidHold(id, terms)
		if amount > 0 {
			if ends, err = client.PostHold(id, terms, ledger.Posting{Account: "org2:a",
				Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(amount)}); err != nil {
				t.Fatal(err)
			}
		}
		next := b.clients[2].Next()
		ends.Ledger, ends.Signer, ends.Nonce = next.Ledger, next.Signer, next.Nonce
		ends.Deadline = soon(time.Hour)
		statuses, err := b.via(k).Submit(ctx, b.clients[2].Bundle(ends),
			ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil {
			t.Fatal(err)
		}
		b.executed(statuses)
	}
	part, void, kept := hold(100, time.Hour), hold(200, time.Hour), hold(50, time.Hour)
	want := []string{part.String(), void.String(), kept.String()}
	slices.Sort(want)
	for _, k := range b.all() {
		for _, query := range []*ledgerdv1.ListHoldsRequest{{}, {Organisation: "org1"},
			{Poster: "org2"}, {Account: "org1:a"}, {Organisation: "org1", Poster: "org2"}} {
			b.eventually("the holds are listed", func() bool {
				return slices.Equal(list(k, query), want)
			})
		}
		if got := list(k, &ledgerdv1.ListHoldsRequest{Poster: "org1"}); got != nil {
			t.Errorf("node %d: %v", k, got)
		}
	}
	b.stop(1)
	b.start(1)
	b.eventually("the holds outlive a restart", func() bool {
		return slices.Equal(list(1, &ledgerdv1.ListHoldsRequest{Organisation: "org1"}), want)
	})
	end(0, part, 60)
	end(2, void, 0)
	b.holds(1, 1000-60-50)
	b.holds(2, 1000+60)
	if got := list(2, &ledgerdv1.ListHoldsRequest{}); !slices.Equal(got, []string{kept.String()}) {
		t.Errorf("%v are left", got)
	}
	over := hold(10, 2*time.Second)
	b.eventually("a hold expires", func() bool {
		b.executed(b.submitAt(1, b.clients[1].Transfer("org1:a", "org1:b", 1)))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := b.via(0).Hold(ctx, over)
		if err != nil && client.CodeOf(err) != connect.CodeNotFound {
			t.Fatal(err)
		}
		return err != nil && strings.Contains(err.Error(), "no hold "+over.String()+" is open")
	})
}
