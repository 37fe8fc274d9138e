package state_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// policyChain is a chain on which acme is registered with the key "acme".
func policyChain(t *testing.T) (*one, *ledgertest.Client) {
	genesis := ledgertest.Genesis()
	chain, acme := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	chain.block(acme.Bundle(acme.Register("issuer", "a", "b")))
	return chain, acme
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	chain, acme := policyChain(t)
	expect := func(code ledger.Code, transaction ledger.Transaction, names ...string) {
		t.Helper()
		if got := chain.result(ledgertest.Signed("acme", names, transaction)); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
	}
	pay := func(amount int64) ledger.Transaction {
		return acme.Transfer("acme:issuer", "acme:a", amount)
	}
	policy := ledgertest.Policy(1, "x", "y", "z", "clerk", "opener", "reader")
	policy.Keys[3].Role, policy.Keys[4].Role, policy.Keys[5].Role = ledger.RolePost,
		ledger.RoleOpen, ledger.RoleRead
	policy.Limits = []ledger.Limit{{Asset: ledger.DefaultAsset, Above: ledger.NewAmount(100),
		Signatures: 2}}
	expect(ledger.Unauthorised, acme.ChangePolicy(policy), "x")
	wrong := policy
	wrong.Number = 2
	expect(ledger.PolicyOutdated, acme.ChangePolicy(wrong), "acme")
	expect(ledger.Applied, acme.ChangePolicy(policy), "acme")
	expect(ledger.PolicyOutdated, acme.ChangePolicy(policy), "x", "y")

	expect(ledger.Unauthorised, pay(1), "acme") // revoked
	expect(ledger.Applied, pay(100), "clerk")
	expect(ledger.TooFewSignatures, pay(101), "clerk")
	expect(ledger.TooFewSignatures, pay(101), "clerk", "clerk") // a key counts once
	expect(ledger.TooFewSignatures, pay(101), "clerk", "opener", "reader")
	expect(ledger.Applied, pay(101), "clerk", "z")
	expect(ledger.Unauthorised, pay(1), "opener")
	expect(ledger.Unauthorised, pay(1), "reader")
	split := pay(60)
	split.Postings = append(split.Postings, pay(60).Postings...)
	expect(ledger.TooFewSignatures, split, "clerk")
	opening := func() ledger.Transaction {
		transaction := acme.Next()
		transaction.Openings = []ledger.Opening{{Account: "acme:c"}}
		return transaction
	}
	expect(ledger.Unauthorised, opening(), "clerk")
	expect(ledger.Applied, opening(), "opener")
	record := func() ledger.Transaction {
		transaction := acme.Next()
		transaction.Records = []ledger.Record{{Key: "acme:r", Value: []byte("v")}}
		return transaction
	}
	expect(ledger.Unauthorised, record(), "opener")
	expect(ledger.Applied, record(), "clerk")

	// A change needs as many keys as the strictest limit, all with the role all.
	next := ledgertest.Policy(1, "x")
	next.Number = 2
	expect(ledger.TooFewSignatures, acme.ChangePolicy(next), "x", "clerk")
	forged := ledgertest.Signed("acme", []string{"x"}, acme.ChangePolicy(next))
	_ = forged.AddSignature(ledger.Signature{Organisation: "acme", Key: ledgertest.PublicKey("y")})
	chain.careless = true // execution does not rely on sealing here
	if got := chain.result(forged); got.Code != ledger.TooFewSignatures {
		t.Errorf("a change with a forged signature: %s", got)
	}
	chain.careless = false
	expect(ledger.Applied, acme.ChangePolicy(next), "x", "y")
	expect(ledger.Applied, pay(1000), "x")
	expect(ledger.Unauthorised, pay(1), "y")
}

// A change takes effect for the transactions after it, within a block and even within a bundle.
func TestPolicyTakesEffectAtItsPlace(t *testing.T) {
	t.Parallel()
	chain, acme := policyChain(t)
	pay := func() ledger.Transaction { return acme.Transfer("acme:issuer", "acme:a", 1) }
	block := chain.block(
		ledgertest.Signed("acme", []string{"acme", "x"}, pay(), acme.ChangePolicy(
			ledgertest.Policy(1, "x")), pay()),
		ledgertest.Signed("acme", []string{"acme"}, pay()),
		ledgertest.Signed("acme", []string{"x"}, pay()))
	want := []ledger.Code{ledger.Applied, ledger.Applied, ledger.Applied, ledger.Unauthorised,
		ledger.Applied}
	for i, code := range want {
		if got := block.Entry(i).Result; got.Code != code {
			t.Errorf("transaction %d: %s, want %s", i, got, code)
		}
	}
}

func TestAssetsRefused(t *testing.T) {
	t.Parallel()
	chain, acme := policyChain(t)
	other := ledgertest.NewClient(ledgertest.Genesis(), "other")
	chain.block(other.Bundle(other.Register("issuer")))
	policy := ledgertest.Policy(1, "acme")
	policy.RefuseAssets, policy.Assets = true, []ledger.AssetName{"EUR"}
	chain.block(acme.Bundle(acme.ChangePolicy(policy)))
	gift := func(asset ledger.AssetName) ledger.Transaction {
		transaction := other.Transfer("other:issuer", "acme:a", 1)
		transaction.Postings[0].Asset, transaction.Postings[1].Asset = asset, asset
		return transaction
	}
	if got := chain.result(other.Bundle(gift("EUR"))); !got.OK() {
		t.Error(got)
	}
	if got := chain.result(other.Bundle(gift("worthless"))); got.Code != ledger.AssetRefused ||
		got.Item != 1 {
		t.Error(got)
	}
	wanted := other.Bundle(gift("wanted"))
	if err := wanted.Sign("acme", ledgertest.Key("acme")); err != nil {
		t.Fatal(err)
	}
	if got := chain.result(wanted); !got.OK() {
		t.Error(got)
	}
}

// policyJudge judges blocks of transactions of acme: it has its own account of the policy.
type policyJudge struct{ policy ledger.Policy }

// wrong returns what is wrong with a block, or "".
func (j *policyJudge) wrong(block *ledger.Block) string {
	for i := range block.Len() {
		entry := block.Entry(i)
		if !entry.Result.OK() {
			continue
		}
		signers := map[ledger.PublicKey]bool{}
		for _, each := range block.Bundles[entry.Bundle].Signatures {
			signers[each.Key] = true
		}
		signed, needed := 0, j.policy.Threshold
		for _, key := range j.policy.Keys {
			if signers[key.Key] {
				signed++
			}
		}
		for _, limit := range j.policy.Limits {
			if entry.Transaction().Policy != nil ||
				entry.Transaction().Postings[1].Amount.Compare(limit.Above) > 0 {
				needed = max(needed, limit.Signatures)
			}
		}
		if signed < needed {
			return fmt.Sprintf("transaction %d took effect with %d of %d signatures", i, signed,
				needed)
		}
		if change := entry.Transaction().Policy; change != nil {
			j.policy = change.Policy
		}
	}
	return ""
}

// runPolicies makes random policies and transactions, until the judge finds something wrong. plant
// is called after each change of the policy, with the policy before.
func runPolicies(t *testing.T, seed uint64, plant func(*state.State, ledger.Policy)) string {
	random := rand.New(rand.NewPCG(seed, 0))
	chain, acme := policyChain(t)
	judge := &policyJudge{policy: ledgertest.Policy(1, "acme")}
	judge.policy.Number = 0
	names := []string{"acme", "a", "b", "c"}
	some := func() []string {
		var chosen []string
		for len(chosen) == 0 {
			for _, name := range names {
				if random.IntN(2) == 0 {
					chosen = append(chosen, name)
				}
			}
		}
		return append(chosen, chosen[random.IntN(len(chosen))])
	}
	number := uint64(1)
	for range 150 {
		before := judge.policy
		transaction := acme.Transfer("acme:issuer", "acme:a", random.Int64N(200))
		if random.IntN(3) == 0 {
			keys := some()
			keys = keys[:len(keys)-1]
			policy := ledgertest.Policy(1+random.IntN(len(keys)), keys...)
			policy.Number = number
			policy.Limits = []ledger.Limit{{Asset: ledger.DefaultAsset,
				Above: ledger.NewAmount(100), Signatures: 1 + random.IntN(len(keys))}}
			transaction = acme.ChangePolicy(policy)
		}
		block := chain.block(ledgertest.Signed("acme", some(), transaction))
		if wrong := judge.wrong(block); wrong != "" {
			return wrong
		}
		if judge.policy.Number == number {
			number++
			if plant != nil {
				plant(chain.state, before)
			}
		}
	}
	return ""
}

func TestPoliciesAreJudged(t *testing.T) {
	t.Parallel()
	if wrong := runPolicies(t, 1, nil); wrong != "" {
		t.Error(wrong)
	}
	plants := map[string]func(*state.State, ledger.Policy){
		"a revoked key still counts": func(s *state.State, before ledger.Policy) {
			s.PlantRevokedKeys("acme", before.Keys)
		},
		"the threshold of the old set": func(s *state.State, before ledger.Policy) {
			s.PlantThreshold("acme", before.Threshold)
		},
		"the limits of the old set": func(s *state.State, before ledger.Policy) {
			s.PlantLimits("acme", before.Limits)
		},
	}
	for name, plant := range plants {
		caught := ""
		for seed := uint64(1); seed < 20 && caught == ""; seed++ {
			caught = runPolicies(t, seed, plant)
		}
		if caught == "" {
			t.Errorf("nobody noticed: %s", name)
		}
	}
}

// A state restored from its entries has the same policies.
func TestPolicyIsRestored(t *testing.T) {
	t.Parallel()
	chain, acme := policyChain(t)
	policy := ledgertest.Policy(2, "x", "y")
	policy.Limits = []ledger.Limit{{Asset: "EUR", Above: ledger.NewAmount(5), Signatures: 1},
		{Asset: "EUR", Above: ledger.NewAmount(9), Signatures: 2}}
	policy.RefuseAssets, policy.Assets = true, []ledger.AssetName{"EUR", "USD"}
	chain.block(acme.Bundle(acme.ChangePolicy(policy)))
	restored := restoredFrom(t, ledgertest.Genesis(), chain.state)
	one, _ := chain.state.Organisation("acme")
	two, _ := restored.Organisation("acme")
	if fmt.Sprint(*one.Policy) != fmt.Sprint(*two.Policy) || fmt.Sprint(one.Keys) !=
		fmt.Sprint(two.Keys) {
		t.Errorf("%v, was %v", *two.Policy, *one.Policy)
	}
}

// In a book of two shards, both know the policy, and both refuse alike what it does not allow.
func TestPolicyOfSeveralShards(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	n := newNetwork(t.Fatalf, genesis.Tree)
	waiting(n)
	n.flush()
	client := ledgertest.NewClient(genesis, "org0")
	client.Sequence = 20
	n.submit(0, client.Bundle(client.ChangePolicy(ledgertest.Policy(2, "x", "y"))))
	n.flush()
	old := client.Bundle(client.Transfer("org0:issuer", "org1:a", 3))
	n.submit(0, old)
	few := ledgertest.Signed("org0", []string{"x"}, client.Transfer("org0:issuer", "org1:a", 5))
	n.submit(0, few)
	good := ledgertest.Signed("org0", []string{"y", "x"},
		client.Transfer("org0:issuer", "org1:a", 11))
	n.submit(0, good)
	n.flush()
	for shard, each := range n.shards {
		organisation, _ := each.state.Organisation("org0")
		if organisation.Policy == nil || organisation.Policy.Threshold != 2 {
			t.Errorf("shard %d: %+v", shard, organisation)
		}
	}
	// The first transfer, of 7, and the good one.
	account, _ := n.shards[1].state.Account("org1:a")
	if got := account.Balance(ledger.DefaultAsset); got.Compare(ledger.NewAmount(18)) != 0 {
		t.Errorf("a balance of %s, want 18", got)
	}
}

// Sealing knows what an organisation's keys may register as execution will, even if its policy
// changes within the block.
func TestPoliciesWithinABlock(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	n := newNetwork(t.Fatalf, genesis.Tree)
	waiting(n)
	n.flush()
	old, acme := ledgertest.NewClient(genesis, "org0"), ledgertest.NewClient(genesis, "acme")
	old.Sequence = 20
	registration := old.Next()
	registration.Registrations = acme.Register().Registrations
	bundle := old.Bundle(registration)
	if err := bundle.Sign("acme", ledgertest.Key("acme")); err != nil {
		t.Fatal(err)
	}
	opening := acme.Next()
	opening.Openings = []ledger.Opening{{Account: "acme:a"}}
	n.submit(0, old.Bundle(old.ChangePolicy(ledgertest.Policy(1, "x"))))
	n.submit(0, bundle) // with a revoked key
	n.submit(0, acme.Bundle(opening))
	n.flush()
	for shard, each := range n.shards {
		if _, known := each.state.Organisation("acme"); known {
			t.Errorf("shard %d: acme is registered", shard)
		}
	}
}
