package state_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// foresights say, of transactions that a shard foresaw to fail, which one did and why.
type foresights map[ledger.Hash]string

// foresee notes, after a block, which transactions each shard foresees to fail that its chain does
// not have. It checks that those that were foreseen before took no effect. It returns the block.
func (n *network) foresee(after *ledger.Block) *ledger.Block {
	n.checkForeseen()
	for shard, c := range n.shards {
		for id, t := range n.transactions {
			if _, here := c.places[id]; here && n.plant != "foreseen although known" {
				continue
			}
			known := false
			if antecedent, has := t.Antecedent(); has {
				place, here := c.places[antecedent]
				known = here && state.KnownByNonce(c.entries[place].Result)
			}
			switch code := c.state.Foreseen(t, c.parent.Header.Time, known); {
			case code == ledger.Applied:
			case !code.Foreseeable():
				n.fail("shard %d: %s is foreseen to fail with %s", shard, id, code)
			default:
				n.foresights[id] = fmt.Sprintf("shard %d foresaw after block %d: %s", shard,
					c.parent.Header.Height, code)
			}
		}
	}
	return after
}

// checkForeseen checks that nothing that any shard foresaw to fail took effect in any shard.
func (n *network) checkForeseen() {
	for i, c := range n.shards {
		for _, entry := range c.entries {
			if why, foreseen := n.foresights[entry.ID]; foreseen && n.tookEffect(c, entry) {
				n.fail("transaction %s took effect in shard %d, and %s", entry.ID, i, why)
			}
		}
	}
}

// Within some seeds, the stories of books show failures that are foreseen, and each planted bug
// that makes them wrong. TestStories runs these stories without a bug.
func TestForeseenIsJudgedInStories(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plant string
		fault state.Fault
	}{{"foreseen although known", state.FaultNone}, {"", state.FaultForeseenEarly}} {
		t.Run(c.plant+c.fault.String(), func(t *testing.T) {
			t.Parallel()
			const seeds = 60
			for seed := range uint64(seeds) {
				if err := func() (broken error) {
					defer func() {
						if reason := recover(); reason != nil {
							broken = fmt.Errorf("%v", reason)
						}
					}()
					storyOf(func(format string, arguments ...any) {
						panic(fmt.Sprintf(format, arguments...))
					}, rand.New(rand.NewPCG(seed, 3)), []ledger.ShardID{0, 0, 0, 1}, 10, c.plant,
						c.fault)
					return nil
				}(); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("not found within %d seeds", seeds)
		})
	}
}

// TestForeseenFailuresHappen: whatever is foreseen to fail fails in the very next block, for the
// reason that was foreseen, and in any later block. Each reason is met, also where funds are short.
func TestForeseenFailuresHappen(t *testing.T) {
	t.Parallel()
	met := map[ledger.Code]int{}
	rapid.Check(t, func(random *rapid.T) {
		chain, acme, shop := holdsChain(t, ledger.HoldsVersion)
		now := func() ledger.Milliseconds { return chain.parent.Header.Time }
		var holds []ledger.Hash
		var kept []*ledger.Bundle // foreseen to fail, and in no block yet
		submit := func(bundle *ledger.Bundle) {
			foreseen := foreseenIn(chain, bundle)
			if foreseen != ledger.Applied && rapid.IntRange(0, 2).Draw(random, "later") == 0 {
				kept = append(kept, bundle)
				return
			}
			result := chain.block(bundle).Entry(0).Result
			if foreseen != ledger.Applied && result.Code != foreseen {
				random.Fatalf("%s, and %d was foreseen", result, foreseen)
			}
			met[foreseen]++
			if bundle.Transaction(0).Hold != nil && result.OK() {
				holds = append(holds, bundle.ID(0))
			}
		}
		for range 30 {
			amount := rapid.Int64Range(0, 30).Draw(random, "amount")
			hold := ledger.Hash{9}
			if len(holds) > 0 && rapid.IntRange(0, 5).Draw(random, "other") > 0 {
				hold = rapid.SampledFrom(holds).Draw(random, "hold")
			}
			by, transaction := acme, ledger.Transaction{}
			switch rapid.IntRange(0, 2).Draw(random, "kind") {
			case 0:
				transaction = acme.Transfer("acme:a", "acme:b", amount+1)
			case 1:
				transaction = acme.PlaceHold("acme:a", "shop:a", amount+1,
					now()+ledger.Milliseconds(amount%8))
			case 2:
				by, transaction = shop, shop.EndHold(hold, "acme:a", "shop:a", amount)
			}
			if rapid.IntRange(0, 4).Draw(random, "again") == 0 {
				transaction.Nonce.Sequence -= min(transaction.Nonce.Sequence-1, 2)
			}
			if rapid.IntRange(0, 3).Draw(random, "late") == 0 {
				transaction.Deadline = now() - 1 + ledger.Milliseconds(amount%3)
			}
			if bundle := by.Bundle(transaction); !chain.seen[bundle.ID(0)] {
				submit(bundle)
			}
		}
		for _, bundle := range kept {
			if chain.seen[bundle.ID(0)] {
				continue
			}
			if code := foreseenIn(chain, bundle); code == ledger.Applied {
				random.Fatal("a failure that was foreseen is not any more")
			}
			if result := chain.block(bundle).Entry(0).Result; result.OK() {
				random.Fatal("a failure that was foreseen did not happen")
			}
		}
	})
	for _, code := range []ledger.Code{ledger.Applied, ledger.DeadlinePassed, ledger.StaleNonce,
		ledger.HoldTime, ledger.UnknownHold, ledger.HoldDiffers} {
		if met[code] == 0 {
			t.Errorf("code %d was never foreseen", code)
		}
	}
}

func foreseenIn(chain *one, bundle *ledger.Bundle) ledger.Code {
	t := bundle.Transaction(0)
	antecedent, has := t.Antecedent()
	return chain.state.Foreseen(t, chain.parent.Header.Time, has && chain.seen[antecedent])
}

// What can never be refunded is foreseen: an entry whose time would be over at once, and a refund
// of an entry whose time is over, that was refunded, that never could be, or that another
// organisation signed. Before that, and of an entry that nobody has seen, nothing is.
func TestRefundsThatCannotBeAreForeseen(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.DetailsVersion)
	pay := func(until ledger.Milliseconds) *ledger.Bundle {
		entry := acme.Transfer("acme:a", "shop:a", 10)
		if until > 0 {
			entry = refundableUntil(entry, until)
		}
		return acme.Bundle(entry)
	}
	refund := func(entry ledger.Hash, of ledger.OrganisationName, amount int64) *ledger.Bundle {
		return shop.Bundle(refundOf(shop.Transfer("shop:a", "acme:a", amount), entry, of))
	}
	expect := func(what string, bundle *ledger.Bundle, want ledger.Code) ledger.Hash {
		t.Helper()
		if code := foreseenIn(chain, bundle); code != want {
			t.Errorf("%s: %s is foreseen, want %s", what, code, want)
		}
		result := chain.block(bundle).Entry(0).Result
		if want != ledger.Applied && result.Code != want {
			t.Errorf("%s: %s, want %s", what, result, want)
		}
		return bundle.ID(0)
	}
	now := func() ledger.Milliseconds { return chain.parent.Header.Time }
	plain := expect("an entry", pay(0), ledger.Applied)
	expect("an entry that is over at once", pay(now()), ledger.RefundTime)
	until := now() + 1000
	sale := expect("an entry that can be refunded", pay(until), ledger.Applied)
	other := expect("another one", pay(until), ledger.Applied)
	expect("a refund of an entry that nobody has seen", refund(ledger.Hash{7}, "acme", 1),
		ledger.Applied)
	expect("a refund of another one's entry", refund(sale, "shop", 1), ledger.UnknownRefundable)
	expect("a refund of an entry that never could be", refund(plain, "acme", 1),
		ledger.UnknownRefundable)
	expect("a refund of more than there is", refund(sale, "acme", 11), ledger.Applied)
	expect("a refund of all", refund(sale, "acme", 10), ledger.Applied)
	expect("a refund after that", refund(sale, "acme", 1), ledger.UnknownRefundable)
	late := refund(other, "acme", 1)
	if code := foreseenIn(chain, late); code != ledger.Applied {
		t.Errorf("%s is foreseen of a refund in time", code)
	}
	chain.clock = until
	expect("an entry in the block in which time is over", pay(0), ledger.Applied)
	if code := foreseenIn(chain, late); !code.Foreseeable() {
		t.Error("a refund that is too late is not foreseen")
	}
	if code := chain.result(late).Code; code != ledger.RefundOver &&
		code != ledger.UnknownRefundable {
		t.Errorf("a refund that is too late: %s", code)
	}
}

// What transactions on their way may mend is not foreseen.
func TestWhatMayStillBeMendedIsNotForeseen(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.HoldsVersion)
	stranger := ledgertest.NewClient(ledgertestGenesis(ledger.HoldsVersion), "stranger")
	with := func(by *ledgertest.Client, change func(*ledger.Transaction)) *ledger.Bundle {
		transaction := by.Transfer(by.Account("a"), by.Account("b"), 1)
		change(&transaction)
		return by.Bundle(transaction)
	}
	for what, bundle := range map[string]*ledger.Bundle{
		"an amount that is missing":   acme.Bundle(acme.Transfer("acme:a", "acme:b", 1000)),
		"an account that is not open": acme.Bundle(acme.Transfer("acme:a", "acme:none", 1)),
		"a signer that is not known": stranger.Bundle(stranger.Transfer("stranger:a", "acme:a",
			1)),
		"a hold that nobody has seen": shop.Bundle(shop.EndHold(ledger.Hash{7}, "acme:a", "shop:a",
			1)),
		"a number far above the last": with(acme, func(t *ledger.Transaction) {
			t.Nonce.Sequence += 900
		}),
		"a deadline that is far ahead": with(acme, func(t *ledger.Transaction) {
			t.Deadline = 1 << 50
		}),
		"a height that is over": with(acme, func(t *ledger.Transaction) { t.LastValid = 1 }),
	} {
		if code := foreseenIn(chain, bundle); code != ledger.Applied {
			t.Errorf("%s: %s is foreseen", what, code)
		}
	}
}

// A shard that a transaction concerns only as long as an organisation is not registered foresees
// nothing: once that is registered elsewhere, another shard's time counts.
func TestStrangersOfAShardForeseeNothing(t *testing.T) {
	t.Parallel()
	genesis, err := ledgertest.ShardedGenesis(1, 0, 0).ForShard(1)
	if err != nil {
		t.Fatal(err)
	}
	s := state.New(genesis)
	for i := range 64 {
		signer := ledgertest.NewClient(genesis,
			ledger.OrganisationName(fmt.Sprint("org", i)))
		transaction := signer.Transfer(signer.Account("a"), signer.Account("b"), 1)
		transaction.Deadline = genesis.Time
		if code := s.Foreseen(&transaction, genesis.Time+1, false); code != ledger.Applied {
			t.Fatalf("%s of a signer that may come to live in any shard", code)
		}
	}
}
