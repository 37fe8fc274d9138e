package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/report"
)

// final waits until all nodes know that their chain is durable up to a block.
func (s *shard) final(height ledger.Height) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("block %d is durable", height), func() bool {
		for _, n := range s.nodes {
			if heights, _ := n.Heights(); heights.Durable < height {
				return false
			}
		}
		return true
	})
}

// A bundle that must fail is refused by every node and costs no block. What is forged is refused as
// such, what a block has keeps its outcome, and what may in part be applied is ordered.
func TestWhatMustFailCostsNoBlock(t *testing.T) {
	t.Parallel()
	s := quickShard(t, 3, time.Minute)
	first := s.client.Bundle(s.transfer())
	admit := func(ctx context.Context, i int, bundle *ledger.Bundle, inOrder bool) *report.Refusal {
		return s.nodes[i].Admit(ctx, []*ledger.Bundle{bundle}, inOrder)[0]
	}
	if refusal := admit(t.Context(), 0, first, false); refusal != nil {
		t.Fatal(refusal)
	}
	s.submitted(first, 0)
	again := func(amount int64) ledger.Transaction {
		taken := s.client.Transfer(s.client.Account("a"), s.client.Account("b"), amount)
		taken.Nonce = first.Transaction(0).Nonce
		return taken
	}
	height := s.same()
	s.final(height)
	for i := range s.nodes {
		refusal := admit(t.Context(), i, s.client.Bundle(again(2)), false)
		if refusal == nil || refusal.Code != report.RefusedForeseen || refusal.Retry() ||
			refusal.Word() != api.ReasonCode(ledger.StaleNonce) {
			t.Fatalf("node %d: %+v", i, refusal)
		}
		forged := again(3)
		stranger := ledgertest.Signed("acme", []string{"stranger"}, forged)
		if refusal := admit(t.Context(), i, stranger, false); refusal == nil ||
			refusal.Code != report.RefusedSignature {
			t.Errorf("node %d: forged: %+v", i, refusal)
		}
		if refusal := admit(t.Context(), i, first, false); refusal != nil {
			t.Errorf("node %d: what a block has: %v", i, refusal)
		}
		if status := s.submitted(first, i); status.Outcome != report.OutcomeExecuted {
			t.Errorf("node %d: %+v", i, status)
		}
	}
	if now := s.same(); now != height {
		t.Errorf("%d blocks of refused bundles", now-height)
	}
	mixed := s.client.Bundle(again(4), s.transfer())
	for _, bundle := range []*ledger.Bundle{mixed, s.client.Bundle(again(5)),
		s.client.Bundle(again(6))} {
		ctx, inOrder := t.Context(), bundle.Transaction(0).Postings[1].Amount == ledger.NewAmount(5)
		if bundle.Transaction(0).Postings[1].Amount == ledger.NewAmount(6) {
			ctx = api.Queueing(ctx, true)
		}
		if refusal := admit(ctx, 1, bundle, inOrder); refusal != nil {
			t.Fatalf("in part good, in order or queued: %v", refusal)
		}
		if status := s.submitted(bundle, 1); status.Result.Code != ledger.StaleNonce {
			t.Errorf("%+v", status)
		}
	}
	if status, err := s.nodes[1].Status(mixed.ID(1)); err != nil ||
		status.Outcome != report.OutcomeExecuted {
		t.Errorf("the good one beside: %+v, %v", status, err)
	}
}

// Clients submit the same bundle again and again at all nodes, while it is ordered and executed. No
// node refuses one that is applied.
func TestResubmissionsAreNotRefused(t *testing.T) {
	t.Parallel()
	s := quickShard(t, 3, time.Minute)
	s.same() // a node that lags does not know the client yet, and says so
	for range 15 {
		first := s.client.Bundle(s.transfer())
		encoded := first.Encode()
		var group sync.WaitGroup
		for i := range s.nodes {
			// A node owns a bundle that it admits.
			bundle, err := ledger.DecodeBundle(encoded)
			if err != nil {
				t.Fatal(err)
			}
			group.Go(func() {
				for after := 0; after < 3; {
					refusal := s.nodes[i].Admit(t.Context(), []*ledger.Bundle{bundle}, false)[0]
					if refusal != nil && !refusal.Retry() {
						t.Errorf("node %d: %v", i, refusal)
						return
					}
					status, err := s.nodes[i].Status(bundle.ID(0))
					if err != nil || t.Context().Err() != nil {
						t.Error(err)
						return
					}
					if status.InBlock() {
						after++
					}
				}
			})
		}
		group.Wait()
		if status := s.submitted(first, 0); status.Outcome != report.OutcomeExecuted {
			t.Fatalf("%+v", status)
		}
	}
}
