package state_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// issue moves an amount of an asset.
func issue(c *ledgertest.Client, from, to ledger.AccountPath, asset ledger.AssetName,
	amount int64) ledger.Transaction {
	transaction := c.Transfer(from, to, amount)
	for i := range transaction.Postings {
		transaction.Postings[i].Asset = asset
	}
	return transaction
}

// proven checks the proof of an asset against the header of the last block, and that nothing else
// passes for it.
func proven(t *testing.T, s *state.State, header *ledger.Header,
	name ledger.AssetName) *ledger.Asset {
	t.Helper()
	proof, known := s.ProveAsset(name)
	if !known {
		t.Fatalf("asset %s has no proof", name)
	}
	proof.Header = header.Encode()
	proof, err := ledger.DecodeAssetProof(proof.Encode())
	if err != nil {
		t.Fatal(err)
	}
	asset, of, hash, err := ledger.VerifyAssetProof(proof)
	if err != nil {
		t.Fatal(err)
	}
	if have, _ := s.Asset(name); fmt.Sprint(*have) != fmt.Sprint(*asset) ||
		of.Height != header.Height || hash != header.Hash() {
		t.Fatalf("proves %+v of block %d, want %+v of block %d", asset, of.Height, have,
			header.Height)
	}
	for place := range proof.Entry {
		forged := *proof
		forged.Entry = slices.Clone(proof.Entry)
		forged.Entry[place] ^= 1
		if _, _, _, err := ledger.VerifyAssetProof(&forged); err == nil {
			t.Fatalf("the proof holds with another byte %d", place)
		}
	}
	return asset
}

// TestRulesOfAssets goes through every reason, each of which changes nothing.
func TestRulesOfAssets(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.AssetsVersion
	chain := newChain(t, genesis)
	acme, bank := ledgertest.NewClient(genesis, "acme"), ledgertest.NewClient(genesis, "bank")
	expect := func(code ledger.Code, by *ledgertest.Client, transaction ledger.Transaction) {
		t.Helper()
		if got := chain.result(by.Bundle(transaction)); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
		restoredFrom(t, genesis, chain.state)
	}
	change := func(number uint64, do func(*ledger.AssetTerms)) ledger.Transaction {
		found, _ := chain.state.Asset("EUR")
		terms := found.Clone()
		do(&terms)
		return acme.ChangeAsset("EUR", number, terms)
	}
	keep := func(*ledger.AssetTerms) {}
	terms := ledgertest.Capped(100, "acme", "bank")
	expect(ledger.UnknownOrganisation, acme, acme.ChangeAsset("EUR", 1, terms))
	expect(ledger.Applied, acme, acme.Register("issuer", "a"))
	expect(ledger.UnknownOrganisation, acme, acme.ChangeAsset("EUR", 1, terms)) // the bank
	expect(ledger.Applied, bank, bank.Register("issuer", "a"))
	expect(ledger.UnknownAsset, acme, acme.ChangeAsset("EUR", 2, terms))
	expect(ledger.Applied, acme, acme.ChangeAsset("EUR", 1, terms))
	expect(ledger.AssetTaken, acme, acme.ChangeAsset("EUR", 1, terms))
	expect(ledger.AssetTaken, bank, bank.ChangeAsset("EUR", 1, terms))
	expect(ledger.AssetTaken, bank, bank.ChangeAsset("EUR", 2, terms))
	expect(ledger.AssetOutdated, acme, change(3, keep))

	expect(ledger.SupplyExceeded, acme, issue(acme, "acme:issuer", "acme:a", "EUR", 101))
	expect(ledger.Applied, acme, issue(acme, "acme:issuer", "acme:a", "EUR", 100))
	expect(ledger.SupplyExceeded, acme, issue(acme, "acme:issuer", "acme:a", "EUR", 1))
	expect(ledger.Applied, bank, issue(bank, "bank:issuer", "acme:a", "EUR", 60))
	expect(ledger.Applied, acme, issue(acme, "acme:a", "acme:issuer", "EUR", 30)) // redeems
	expect(ledger.Applied, acme, issue(acme, "acme:issuer", "acme:a", "EUR", 20))
	asset := proven(t, chain.state, &chain.parent.Header, "EUR")
	if supply, err := ledger.SupplyOf(asset); err != nil || supply != (ledger.Supply{
		Issued: ledger.NewAmount(180), Redeemed: ledger.NewAmount(30),
		Outstanding: ledger.NewAmount(150)}) {
		t.Errorf("supply %+v: %v", supply, err)
	}

	raised := func(t *ledger.AssetTerms) { t.Cap = ledger.NewAmount(201) }
	given := func(t *ledger.AssetTerms) { // to acme, from the bank
		t.Issuers[0].Allowance, t.Issuers[1].Allowance = ledger.NewAmount(101), ledger.NewAmount(99)
	}
	for _, no := range []func(*ledger.AssetTerms){raised, given,
		func(t *ledger.AssetTerms) { t.Decimals = 3 },
		func(t *ledger.AssetTerms) { t.Supply = ledger.SupplyFixed },
		func(t *ledger.AssetTerms) { t.Issuers = t.Issuers[:1] }} {
		expect(ledger.TermsFixed, acme, change(2, no))
	}
	expect(ledger.Applied, acme, change(2, func(t *ledger.AssetTerms) {
		t.Issuers[1].Withdrawn = true
	}))
	expect(ledger.NotIssuer, bank, issue(bank, "bank:issuer", "acme:a", "EUR", 1))
	expect(ledger.Applied, acme, issue(acme, "acme:a", "bank:issuer", "EUR", 10))
	expect(ledger.Applied, acme, change(3, func(t *ledger.AssetTerms) { // below what is there
		t.Cap, t.Issuers[0].Allowance = ledger.NewAmount(150), ledger.NewAmount(50)
	}))
	expect(ledger.SupplyExceeded, acme, issue(acme, "acme:issuer", "acme:a", "EUR", 1))
	expect(ledger.Applied, acme, issue(acme, "acme:a", "acme:issuer", "EUR", 50))
	expect(ledger.SupplyExceeded, acme, issue(acme, "acme:issuer", "acme:a", "EUR", 11))
	expect(ledger.Applied, acme, issue(acme, "acme:issuer", "acme:a", "EUR", 10))
	expect(ledger.Applied, acme, issue(acme, "acme:a", "acme:issuer", "EUR", 10))
	expect(ledger.Applied, acme, change(4, func(t *ledger.AssetTerms) { t.Closed = true }))
	expect(ledger.IssuanceClosed, acme, issue(acme, "acme:issuer", "acme:a", "EUR", 1))
	expect(ledger.TermsFixed, acme, change(5, func(t *ledger.AssetTerms) { t.Closed = false }))

	// What is redeemed of a fixed supply is gone.
	terms.Supply = ledger.SupplyFixed
	expect(ledger.Applied, acme, acme.ChangeAsset("SHARE", 1, terms))
	expect(ledger.Applied, acme, issue(acme, "acme:issuer", "acme:a", "SHARE", 100))
	expect(ledger.Applied, acme, issue(acme, "acme:a", "acme:issuer", "SHARE", 100))
	expect(ledger.SupplyExceeded, acme, issue(acme, "acme:issuer", "acme:a", "SHARE", 1))
	// Assets that are not registered have no policy.
	expect(ledger.Applied, acme, issue(acme, "acme:issuer", "acme:a", "gold", 1<<40))
	// Once one is, it has: others may not issue it, and what they had issued stays.
	expect(ledger.Applied, bank, bank.ChangeAsset("gold", 1, ledger.AssetTerms{Decimals: 3,
		Issuers: []ledger.Issuer{{Organisation: "bank"}}}))
	expect(ledger.NotIssuer, acme, issue(acme, "acme:issuer", "acme:a", "gold", 1))
	expect(ledger.Applied, acme, issue(acme, "acme:a", "acme:issuer", "gold", 1))
	expect(ledger.Applied, bank, issue(bank, "bank:issuer", "acme:issuer", "gold", 5))
	asset = proven(t, chain.state, &chain.parent.Header, "gold")
	if supply, _ := ledger.SupplyOf(asset); supply.Outstanding != ledger.NewAmount(5) {
		t.Errorf("supply %+v", supply)
	}
}

// TestAssetsNeedTheirVersion: a chain before leaves registrations out, and its digest has no
// assets.
func TestAssetsNeedTheirVersion(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	o, client := newOperated(t, genesis), ledgertest.NewClient(genesis, "acme")
	o.block(client.Bundle(client.Register("issuer", "a")))
	o.block(o.upgrade(1, ledger.AssetsVersion-1))
	registration := client.Bundle(client.ChangeAsset("EUR", 1, ledgertest.Capped(5, "acme")))
	// The block that raises the version does not take one either.
	if block := o.block(registration, o.upgrade(2, ledger.AssetsVersion)); block.Len() != 1 {
		t.Errorf("a block of %d transactions", block.Len())
	}
	o.expect(ledger.Applied, registration)
	proven(t, o.state, &o.parent.Header, "EUR")
	restoredFrom(t, genesis, o.state)
}

// TestOperatorsSignAssets: where the charter says that the operators sign registrations, that holds
// for assets, too.
func TestOperatorsSignAssets(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	genesis.Version = ledger.AssetsVersion
	o, client := newOperated(t, genesis), ledgertest.NewClient(genesis, "acme")
	o.block(client.Bundle(client.Register("issuer", "a")))
	charter := ledgertest.Charter(1, "operator")
	charter.Number, charter.Version, charter.RegistrationByOperators = 1, ledger.AssetsVersion, true
	o.expect(ledger.Applied, o.charter(charter, "operator"))
	registration := client.ChangeAsset("EUR", 1, ledgertest.Capped(5, "acme"))
	alone := client.Bundle(registration)
	o.expect(ledger.Unauthorised, alone)
	if err := ledger.VerifyBundle(alone, genesis, genesis.Book(), o.state); err == nil ||
		!strings.Contains(err.Error(), "an operator has to sign the registration of asset EUR") {
		t.Errorf("admission: %v", err)
	}
	both := client.Bundle(client.ChangeAsset("EUR", 1, ledgertest.Capped(5, "acme")))
	if err := both.Sign(ledger.Operator, ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	o.expect(ledger.Applied, both)
	o.expect(ledger.Applied, client.Bundle(client.ChangeAsset("EUR", 2,
		ledgertest.Capped(5, "acme"))))
}

// TestProofsOfManyAssets: a tree of any size proves each of its assets.
func TestProofsOfManyAssets(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.AssetsVersion
	chain, client := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	chain.block(client.Bundle(client.Register("issuer", "a")))
	for count := 1; count <= 22; count++ {
		name := func(i int) ledger.AssetName { return ledger.AssetName(fmt.Sprintf("A%d", i)) }
		chain.block(client.Bundle(client.ChangeAsset(name(count), 1,
			ledgertest.Capped(5, "acme")),
			issue(client, "acme:issuer", "acme:a", name(1+count/2), 1)))
		for _, each := range []int{1, 1 + count/2, count} {
			if got := proven(t, chain.state, &chain.parent.Header, name(each)); got.Name !=
				name(each) {
				t.Errorf("%s, want %s", got.Name, name(each))
			}
		}
	}
	restoredFrom(t, genesis, chain.state)
}

// TestSupplyAgainstModel: whatever a chain of one shard is asked, in bundles packed or not, an
// asset's supply is what its accounts say, and each issuer keeps to its allowance.
func TestSupplyAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		genesis := ledgertest.Genesis()
		genesis.Version = ledger.AssetsVersion
		chain := newChain(t, genesis)
		clients := []*ledgertest.Client{ledgertest.NewClient(genesis, "acme"),
			ledgertest.NewClient(genesis, "bank"), ledgertest.NewClient(genesis, "shop")}
		for _, each := range clients {
			opened := each.Register("issuer", "a")
			opened.Openings = append(opened.Openings, ledger.Opening{Account: each.Account("more"),
				Issuer: true})
			chain.block(each.Bundle(opened))
		}
		terms := ledgertest.Capped(40, "acme", "bank")
		terms.Supply = rapid.SampledFrom([]ledger.SupplyPolicy{ledger.SupplyCapped,
			ledger.SupplyFixed}).Draw(r, "policy")
		chain.block(clients[0].Bundle(clients[0].ChangeAsset("EUR", 1, terms)))
		var gross ledger.Amount
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			by := rapid.SampledFrom(clients).Draw(r, "by")
			name := rapid.SampledFrom([]string{"issuer", "more", "a"})
			transfer := issue(by, by.Account(name.Draw(r, "from")),
				rapid.SampledFrom(clients).Draw(r, "for").Account(name.Draw(r, "to")), "EUR",
				rapid.Int64Range(1, 30).Draw(r, "amount"))
			bundle := by.Bundle
			if transfer.Postings[0].Account != transfer.Postings[1].Account &&
				rapid.Bool().Draw(r, "packed") {
				bundle = by.Packed
			}
			chain.block(bundle(transfer))
			asset, _ := chain.state.Asset("EUR")
			owed := judgeSupply(r.Fatalf, []*state.State{chain.state}, "EUR")
			if terms.Supply == ledger.SupplyFixed {
				supply, _ := ledger.SupplyOf(asset)
				if gross = supply.Issued; gross.Compare(terms.Cap) > 0 {
					r.Fatalf("%s issued", gross)
				}
			}
			if owed.Compare(terms.Cap) > 0 {
				r.Fatalf("%s is outstanding", owed)
			}
		}
		restoredFrom(t, genesis, chain.state)
	})
}

// judgeSupply checks that an asset's supply, of all shards, is what their accounts are below zero,
// and that it never exceeds the cap, whatever becomes of what waits. It returns how far all
// accounts are below zero.
func judgeSupply(fail func(string, ...any), shards []*state.State,
	name ledger.AssetName) ledger.Amount {
	var owed, most ledger.Amount
	var assets []*ledger.Asset
	for _, s := range shards {
		asset, known := s.Asset(name)
		if !known {
			return owed
		}
		assets = append(assets, asset)
		for _, account := range s.Accounts() {
			for i := range account.Balances {
				balance := &account.Balances[i]
				if balance.Asset != name {
					continue
				}
				if settled := balance.Settled(); settled.Sign() < 0 {
					owed = owed.Minus(settled)
				}
				if balance.Amount.Sign() < 0 {
					most = most.Minus(balance.Amount)
				}
			}
		}
	}
	supply, err := ledger.SupplyOf(assets...)
	if err != nil {
		return owed // the shards do not have the same terms yet
	}
	if supply.Outstanding != owed || supply.Waiting != most.Minus(owed) {
		fail("asset %s: %+v, and the accounts are %s below zero, at most %s", name, supply, owed,
			most)
	}
	if assets[0].Limited() && most.Compare(ledger.NewAmount(registeredCap)) > 0 {
		fail("asset %s: %s of %d may be outstanding", name, most, registeredCap)
	}
	return owed
}

// registeredCap is the cap of the assets of these tests.
const registeredCap = 80

// supplyStory is a random history of a book of several shards, in which organisations issue, redeem
// and pass on an asset, and its owner changes the terms.
func supplyStory(fail func(string, ...any), random *rand.Rand, parents []ledger.ShardID,
	fault state.Fault) (issued int) {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version = ledger.AssetsVersion
	n := newNetworkOf(fail, genesis)
	n.fault = fault
	for _, c := range n.shards {
		c.state.Plant(fault)
	}
	f := newTraffic(random, n.shards[0].genesis, 4, 1000)
	for _, client := range f.clients {
		n.submit(n.tree.Root(), f.registration(client))
	}
	n.flush()
	for _, client := range f.clients {
		n.enter(f, f.opening(client))
	}
	n.flush()
	// Two organisations register the name at once. Both give the other one a part.
	policy := []ledger.SupplyPolicy{ledger.SupplyCapped, ledger.SupplyFixed}[random.IntN(2)]
	terms := ledger.AssetTerms{Supply: policy, Cap: ledger.NewAmount(registeredCap),
		Issuers: []ledger.Issuer{{Organisation: "org0", Allowance: ledger.NewAmount(30)},
			{Organisation: "org1", Allowance: ledger.NewAmount(30)}}}
	for _, i := range random.Perm(2) {
		n.enter(f, f.bundle(f.clients[i].ChangeAsset("EUR", 1, terms)))
	}
	n.flush()
	owner := f.clients[0]
	for i, c := range n.shards {
		asset, known := c.state.Asset("EUR")
		first, _ := n.shards[0].state.Asset("EUR")
		if !known || asset.Owner != first.Owner {
			fail("shard %d: asset %+v, and shard 0 has %+v", i, asset, first)
		}
		if asset.Owner != owner.Organisation {
			owner = f.clients[1]
		}
	}
	number := uint64(1)
	for range 60 {
		if random.IntN(15) == 0 {
			number++
			switch random.IntN(5) {
			case 0:
				at := random.IntN(len(terms.Issuers))
				terms.Issuers[at].Withdrawn = !terms.Issuers[at].Withdrawn
			case 1:
				if len(terms.Issuers) == 2 {
					terms.Issuers = append(terms.Issuers, ledger.Issuer{Organisation: "org2",
						Allowance: ledger.NewAmount(20)})
				}
			case 2:
				if policy == ledger.SupplyCapped && terms.Issuers[0].Allowance.Sign() > 0 {
					terms.Cap = terms.Cap.Minus(ledger.NewAmount(10))
					terms.Issuers[0].Allowance = terms.Issuers[0].Allowance.Minus(
						ledger.NewAmount(10))
				}
			}
			n.enter(f, f.bundle(owner.ChangeAsset("EUR", number, terms.Clone())))
		}
		by := f.client()
		account := func(c *ledgertest.Client) ledger.AccountPath {
			return c.Account([]string{"issuer", "issuer", "a"}[random.IntN(3)])
		}
		transfer := issue(by, account(by), account(f.client()), "EUR", int64(1+random.IntN(15)))
		if random.IntN(3) == 0 {
			back, other := -int64(random.IntN(20)), account(by)
			transfer.Postings = append(transfer.Postings, ledger.Posting{Account: other,
				Asset: "EUR", Amount: ledger.NewAmount(back)}, ledger.Posting{
				Account: account(f.client()), Asset: "EUR", Amount: ledger.NewAmount(-back)})
		}
		transfer.Deadline = n.time + ledger.Milliseconds(1+random.IntN(100))
		n.enter(f, f.bundle(transfer))
		n.disorder(f, ledger.ShardID(random.IntN(len(n.shards))))
		n.judgeSupply()
	}
	n.flush()
	n.judgeSupply()
	n.checkEnd()
	for _, c := range n.shards {
		asset, _ := c.state.Asset("EUR")
		for i := range asset.Issuances {
			if asset.Issuances[i].Waiting.Sign() != 0 {
				fail("nothing waits, and %+v", asset.Issuances[i])
			}
			if asset.Issuances[i].Issued.Sign() > 0 {
				issued++
			}
		}
	}
	return issued
}

func (n *network) judgeSupply() {
	var all []*state.State
	for _, c := range n.shards {
		all = append(all, c.state)
	}
	judgeSupply(n.fail, all, "EUR")
}

// TestSupplyAcrossShards: whatever the shards do, and in whatever order, no more is ever
// outstanding than the cap.
func TestSupplyAcrossShards(t *testing.T) {
	t.Parallel()
	issued := 0
	rapid.Check(t, func(r *rapid.T) {
		parents := drawParents(r, 4)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 2))
		issued += supplyStory(r.Fatalf, random, parents, state.FaultNone)
	})
	if issued == 0 {
		t.Error("nothing was ever issued")
	}
}

// TestSupplyBugsAreCaught plants the bugs that a cap over several shards invites.
func TestSupplyBugsAreCaught(t *testing.T) {
	t.Parallel()
	catchInStories(t, 400, supplyStory, state.FaultWholeCap, state.FaultWaitingUncounted)
}

// TestIssuancesMove: an issuer that moves takes along what it issued, and nothing that is
// malformed.
func TestIssuancesMove(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	genesis.Version = ledger.AssetsVersion
	n := newNetworkOf(t.Fatalf, genesis)
	client := ledgertest.NewClient(genesis, "acme")
	registration := client.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 1
	n.submit(0, client.Bundle(registration))
	n.flush()
	n.submit(0, client.Bundle(client.ChangeAsset("EUR", 1, ledgertest.Capped(10, "acme"))))
	opening := client.Next()
	opening.Openings = []ledger.Opening{{Account: "acme:issuer", Issuer: true},
		{Account: "acme:a"}}
	n.submit(1, client.Bundle(opening))
	n.flush()
	n.submit(1, client.Bundle(issue(client, "acme:issuer", "acme:a", "EUR", 8),
		issue(client, "acme:a", "acme:issuer", "EUR", 3)))
	n.flush()
	n.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: genesis.Book(), Book: &ledger.BookChange{Number: 1,
			Move: &ledger.OrganisationMove{Organisation: "acme", To: 0}}}))
	n.flush()
	entries, _ := n.shards[1].state.Leaves(1, func() {})
	for _, path := range []ledger.AccountPath{"acme:issuer", "acme:a"} {
		account, _ := n.shards[1].state.Account(path)
		entries = append(entries, state.MovedAccountEntry(&account))
	}
	arrivals, first, err := state.Arrivals(genesis.Book(), 1, entries, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	n.round(0, &ledger.Batch{Verdicts: []ledger.Verdict{ledger.Departure(1, 1, first)}})
	for _, each := range arrivals {
		n.round(0, &ledger.Batch{Bundles: [][]byte{each.Encode()}})
	}
	asset, _ := n.shards[0].state.Asset("EUR")
	if asset.Issuances[0] != (ledger.Issuance{Issued: ledger.NewAmount(8),
		Redeemed: ledger.NewAmount(3), Arrived: 1}) {
		t.Errorf("arrived with %+v", asset.Issuances[0])
	}
	old, _ := n.shards[1].state.Asset("EUR")
	if supply, err := ledger.SupplyOf(old, asset); err != nil ||
		supply.Outstanding != ledger.NewAmount(5) {
		t.Errorf("supply %+v: %v", supply, err)
	}
	for _, next := range []struct {
		amount int64
		want   ledger.Code
	}{{6, ledger.SupplyExceeded}, {5, ledger.Applied}} {
		bundle := client.Bundle(issue(client, "acme:issuer", "acme:a", "EUR", next.amount))
		n.submit(0, bundle)
		n.flush()
		c := n.shards[0]
		if got := c.entries[c.places[bundle.ID(0)]].Result.Code; got != next.want {
			t.Errorf("%d more: %s, want %s", next.amount, got, next.want)
		}
	}
	restoredFrom(t, n.shards[0].genesis, n.shards[0].state)
}

// TestAddedShardKnowsAssets: the chain of a shard that is added later begins with the terms of all
// assets, and judges by them.
func TestAddedShardKnowsAssets(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	genesis.Version = ledger.AssetsVersion
	n := newNetworkOf(t.Fatalf, genesis)
	f := newTraffic(rand.New(rand.NewPCG(1, 1)), genesis, 2, 10)
	for _, client := range f.clients {
		n.submit(0, f.registration(client))
	}
	n.flush()
	terms := ledgertest.Capped(10, "org0", "org1")
	n.submit(0, f.bundle(f.clients[0].ChangeAsset("EUR", 1, terms)))
	n.flush()
	n.submit(0, addition(genesis, 1, 0, ledgertest.Member(1001)))
	n.flush()
	if len(n.shards) != 3 {
		t.Fatalf("%d shards", len(n.shards))
	}
	n.submit(0, f.bundle(f.clients[0].ChangeAsset("GBP", 1, terms)))
	n.flush()
	for i, c := range n.shards {
		for number, name := range []ledger.AssetName{"EUR", "GBP"} {
			asset, known := c.state.Asset(name)
			if !known || asset.Number != uint32(number+1) ||
				fmt.Sprint(asset.AssetTerms) != fmt.Sprint(terms) {
				t.Errorf("shard %d: %+v", i, asset)
			}
		}
		restoredFrom(t, c.genesis, c.state)
	}
	n.checkEnd()
}
