package state_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// TestForeseenFailuresHappen: whatever is foreseen to fail fails in the very next block, for the
// reason that was foreseen, and each reason is met. A state that ignores deadlines is caught.
func TestForeseenFailuresHappen(t *testing.T) {
	t.Parallel()
	met := map[ledger.Code]int{}
	rapid.Check(t, func(random *rapid.T) {
		chain, acme, shop := holdsChain(t, ledger.HoldsVersion)
		now := func() ledger.Milliseconds { return chain.parent.Header.Time }
		var holds []ledger.Hash
		hold := func() ledger.Hash {
			if len(holds) == 0 || rapid.IntRange(0, 5).Draw(random, "other") == 0 {
				return ledger.Hash{9}
			}
			return rapid.SampledFrom(holds).Draw(random, "hold")
		}
		for range 30 {
			amount := rapid.Int64Range(0, 30).Draw(random, "amount")
			by, transaction := acme, ledger.Transaction{}
			switch rapid.IntRange(0, 2).Draw(random, "kind") {
			case 0:
				transaction = acme.Transfer("acme:a", "acme:b", amount+1)
			case 1:
				transaction = acme.PlaceHold("acme:a", "shop:a", amount+1, now()+3)
			case 2:
				by, transaction = shop, shop.EndHold(hold(), "acme:a", "shop:a", amount)
			}
			if rapid.IntRange(0, 4).Draw(random, "again") == 0 {
				transaction.Nonce.Sequence -= min(transaction.Nonce.Sequence-1, 2)
			}
			if rapid.IntRange(0, 3).Draw(random, "late") == 0 {
				transaction.Deadline = now() - 1 + ledger.Milliseconds(amount%3)
			}
			bundle := by.Bundle(transaction)
			if chain.seen[bundle.ID(0)] {
				continue
			}
			foreseen := chain.state.Foreseen(bundle.Transaction(0),
				func(id ledger.Hash) bool { return chain.seen[id] })
			result := chain.block(bundle).Entry(0).Result
			if foreseen != ledger.Applied && result.Code != foreseen {
				random.Fatalf("%s, and %d was foreseen", result, foreseen)
			}
			met[foreseen]++
			if transaction.Hold != nil && result.OK() {
				holds = append(holds, bundle.ID(0))
			}
		}
	})
	for _, code := range []ledger.Code{ledger.Applied, ledger.DeadlinePassed, ledger.StaleNonce,
		ledger.UnknownHold, ledger.HoldDiffers} {
		if met[code] == 0 {
			t.Errorf("code %d was never foreseen", code)
		}
	}
}

// TestForeseenIsJudged: a state that foresees what its chain does not do is caught.
func TestForeseenIsJudged(t *testing.T) {
	t.Parallel()
	chain, acme, _ := holdsChain(t, ledger.HoldsVersion)
	transaction := acme.Transfer("acme:a", "acme:b", 1)
	transaction.Deadline = chain.parent.Header.Time
	bundle := acme.Bundle(transaction)
	foreseen := chain.state.Foreseen(bundle.Transaction(0), nil)
	chain.state.Plant(state.FaultDeadlineIgnored)
	if got := chain.block(bundle).Entry(0).Result.Code; foreseen != ledger.DeadlinePassed ||
		got == foreseen {
		t.Errorf("%d was foreseen, and the chain gave %d", foreseen, got)
	}
}
