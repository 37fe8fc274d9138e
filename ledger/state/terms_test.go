package state_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// TestRulesOfTerms goes through every reason, each of which changes nothing, and proves accounts
// with their terms.
func TestRulesOfTerms(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.AccountTermsVersion
	chain := newChain(t, genesis)
	acme, bank := ledgertest.NewClient(genesis, "acme"), ledgertest.NewClient(genesis, "bank")
	expect := func(code ledger.Code, by *ledgertest.Client, transaction ledger.Transaction) {
		t.Helper()
		if got := chain.result(by.Bundle(transaction)); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
		restoredFrom(t, genesis, chain.state)
	}
	packed := func(code ledger.Code, transaction ledger.Transaction) {
		t.Helper()
		if got := chain.result(acme.Packed(transaction)); got.Code != code {
			t.Errorf("packed: %s, want %s", got, code)
		}
	}
	number := uint64(0)
	set := func(code ledger.Code, terms ledger.AccountTerms) {
		t.Helper()
		expect(code, acme, acme.ChangeAccount("acme:a", number+1, "cash", terms))
		if code == ledger.Applied {
			number++
		}
	}
	give := func(amount int64) ledger.Transaction {
		return acme.Transfer("acme:issuer", "acme:a", amount)
	}
	take := func(amount int64) ledger.Transaction {
		return acme.Transfer("acme:a", "acme:b", amount)
	}
	plain := ledger.AccountTerms{}

	expect(ledger.UnknownOrganisation, acme, acme.ChangeAccount("acme:a", 1, "", plain))
	opened := acme.Register("issuer", "a", "b")
	opened.Openings = append(opened.Openings, ledger.Opening{Account: "acme:c", Alias: "till"})
	expect(ledger.Applied, acme, opened)
	expect(ledger.UnknownAccount, acme, acme.ChangeAccount("acme:x", 1, "", plain))
	expect(ledger.UnknownOrganisation, acme, acme.ChangeAccount("acme:a", 1, "",
		ledger.AccountTerms{Guardian: "bank"}))
	expect(ledger.Applied, bank, bank.Register("issuer"))
	expect(ledger.Unauthorised, bank, bank.Guard("acme:a", 1, ledger.FreezeGuardian))
	expect(ledger.AccountOutdated, acme, acme.ChangeAccount("acme:a", 2, "", plain))
	expect(ledger.AliasTaken, acme, acme.ChangeAccount("acme:a", 1, "till", plain))
	set(ledger.Applied, plain)
	expect(ledger.AliasTaken, acme, acme.ChangeAccount("acme:b", 1, "cash", plain))
	again := acme.Next()
	again.Openings = []ledger.Opening{{Account: "acme:d", Alias: "cash"}}
	expect(ledger.AliasTaken, acme, again)
	// An alias that is given up may be used again, also in the same block.
	expect(ledger.Applied, acme, acme.ChangeAccount("acme:c", 2, "", plain))
	expect(ledger.Applied, acme, acme.ChangeAccount("acme:b", 1, "till", plain))
	chain.block(acme.Bundle(acme.ChangeAccount("acme:b", 2, "", plain),
		acme.ChangeAccount("acme:c", 3, "till", plain),
		acme.ChangeAccount("acme:c", 4, "", plain), acme.ChangeAccount("acme:b", 3, "till", plain)))
	if path, known := chain.state.Aliased("acme", "till"); !known || path != "acme:b" {
		t.Errorf("till is %s", path)
	}

	expect(ledger.Applied, acme, give(10))
	set(ledger.Applied, ledger.AccountTerms{NoDebits: true})
	expect(ledger.NoDebits, acme, take(1))
	packed(ledger.NoDebits, take(1))
	expect(ledger.Applied, acme, give(1))
	set(ledger.Applied, ledger.AccountTerms{NoCredits: true})
	expect(ledger.NoCredits, acme, give(1))
	expect(ledger.Applied, acme, take(1))

	set(ledger.AccountFixed, below(-1))
	set(ledger.Applied, ledgertest.Limited(4, 12, -1, 0))
	expect(ledger.AboveCeiling, acme, give(3))
	packed(ledger.AboveCeiling, give(3))
	expect(ledger.Applied, acme, give(2))
	expect(ledger.BelowFloor, acme, take(9))
	expect(ledger.Applied, acme, take(8))
	// Of several postings counts what they do together.
	both := give(100)
	both.Postings = append(both.Postings, take(99).Postings...)
	expect(ledger.Applied, acme, both)
	set(ledger.Applied, ledgertest.Limited(-1, -1, 3, 60))
	expect(ledger.Applied, acme, take(2))
	expect(ledger.VelocityExceeded, acme, take(2))
	packed(ledger.Applied, take(1))
	packed(ledger.VelocityExceeded, take(1))
	set(ledger.Applied, ledgertest.Limited(-1, -1, 4, 60)) // what was spent still counts
	expect(ledger.VelocityExceeded, acme, take(2))

	frozen := ledger.AccountTerms{Freeze: ledger.FreezeOwner, Guardian: "bank"}
	set(ledger.Applied, frozen)
	expect(ledger.AccountFrozen, acme, take(1))
	expect(ledger.AccountFrozen, acme, give(1))
	packed(ledger.AccountFrozen, give(1))
	set(ledger.AccountFixed, ledger.AccountTerms{Freeze: ledger.FreezeGuardian, Guardian: "bank"})
	guards := uint64(0) // the changes of the guardian
	guard := func(code ledger.Code, freeze ledger.Freeze, left ledger.AccountTerms) {
		t.Helper()
		expect(code, bank, bank.Guard("acme:a", guards+1, freeze))
		if code != ledger.Applied {
			return
		}
		number, guards = number+1, guards+1
		account, _ := chain.state.Account("acme:a")
		if s := account.Standing; s.Revision != number || s.Guarded != guards ||
			account.Alias != "cash" || !reflect.DeepEqual(s.AccountTerms, left) {
			t.Errorf("the guardian left %s, want %+v", s, left)
		}
	}
	guarded, free, twice := frozen, frozen, frozen
	guarded.Freeze, free.Freeze = ledger.FreezeGuardian, ledger.FreezeNone
	twice.Freeze = ledger.FreezeBoth
	guard(ledger.AccountFixed, ledger.FreezeNone, frozen) // it froze nothing
	expect(ledger.AccountOutdated, bank, bank.Guard("acme:a", 2, ledger.FreezeGuardian))
	guard(ledger.Applied, ledger.FreezeGuardian, twice)
	expect(ledger.AccountFrozen, acme, take(1))
	set(ledger.AccountFixed, guarded)
	set(ledger.AccountFixed, frozen)
	guard(ledger.AccountFixed, ledger.FreezeGuardian, twice)
	guard(ledger.Applied, ledger.FreezeNone, frozen) // what is left is the organisation's
	expect(ledger.AccountOutdated, bank, bank.Guard("acme:a", 1, ledger.FreezeGuardian))
	set(ledger.Applied, free)
	guard(ledger.Applied, ledger.FreezeGuardian, guarded)
	set(ledger.AccountFixed, free)
	set(ledger.AccountFixed, plain)
	guard(ledger.Applied, ledger.FreezeNone, free)
	// The organisation cannot outrun the freeze: its changes in the same block leave it in force.
	labelled, and := free, free
	labelled.Metadata = []ledger.Metadatum{{Key: "a", Value: "b"}}
	and.Metadata = []ledger.Metadatum{{Key: "c", Value: "d"}}
	chain.block(acme.Bundle(acme.ChangeAccount("acme:a", number+1, "cash", labelled),
		acme.ChangeAccount("acme:a", number+2, "cash", and)))
	number += 2
	frozenAs := and
	frozenAs.Freeze = ledger.FreezeGuardian
	guard(ledger.Applied, ledger.FreezeGuardian, frozenAs)
	expect(ledger.AccountFrozen, acme, take(1))
	guard(ledger.Applied, ledger.FreezeNone, and)
	set(ledger.Applied, plain) // without the guardian
	expect(ledger.Unauthorised, bank, bank.Guard("acme:a", guards+1, ledger.FreezeGuardian))
	// A guardian that is named again goes on where it was: what it signed before has no effect.
	set(ledger.Applied, free)
	expect(ledger.AccountOutdated, bank, bank.Guard("acme:a", 1, ledger.FreezeGuardian))
	set(ledger.Applied, plain)

	metadata := ledger.AccountTerms{Metadata: []ledger.Metadatum{
		{Key: "iban", Value: "DE12", Indexed: true}, {Key: "note", Value: "ours"}}}
	set(ledger.Applied, metadata)
	proof, err := chain.state.ProveAccount("acme:a", nil)
	if err != nil {
		t.Fatal(err)
	}
	proof.Header = chain.parent.Header.Encode()
	account, _, err := ledger.VerifyAccountProof(proof)
	if err != nil || fmt.Sprint(account.Standing.AccountTerms) != fmt.Sprint(metadata) ||
		account.Standing.Revision != number || account.Alias != "cash" {
		t.Errorf("proves %+v: %v", account, err)
	}
	closed := ledger.AccountTerms{Closed: true}
	set(ledger.AccountNotEmpty, closed)
	left, _ := account.Balance("unit").Int64()
	expect(ledger.Applied, acme, take(left))
	set(ledger.Applied, closed)
	expect(ledger.AccountClosed, acme, give(1))
	expect(ledger.AccountClosed, acme, take(1))
	set(ledger.AccountClosed, plain)
	again.Openings = []ledger.Opening{{Account: "acme:a", Alias: "cash"}}
	again.Nonce = acme.Next().Nonce
	expect(ledger.AccountClosed, acme, again)
	// An issuer account has a floor below zero.
	expect(ledger.Applied, acme, acme.ChangeAccount("acme:issuer", 1, "",
		below(-1000)))
	expect(ledger.BelowFloor, acme, acme.Transfer("acme:issuer", "acme:b", 1000))
}

// below returns terms with a floor.
func below(floor int64) ledger.AccountTerms {
	amount := ledger.NewAmount(floor)
	return ledger.AccountTerms{Limits: []ledger.AccountLimit{{Asset: ledger.DefaultAsset,
		Floor: &amount}}}
}

// TestTermsNeedTheirVersion: a chain before leaves changes of accounts out, and takes an alias
// twice.
func TestTermsNeedTheirVersion(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	o, client := newOperated(t, genesis), ledgertest.NewClient(genesis, "acme")
	opened := client.Register("issuer")
	opened.Openings = append(opened.Openings, ledger.Opening{Account: "acme:a", Alias: "cash"},
		ledger.Opening{Account: "acme:b", Alias: "cash"})
	o.expect(ledger.Applied, client.Bundle(opened))
	o.block(o.upgrade(1, ledger.AccountTermsVersion-1))
	change := client.Bundle(client.ChangeAccount("acme:a", 1, "cash", ledger.AccountTerms{}))
	if block := o.block(change, o.upgrade(2, ledger.AccountTermsVersion)); block.Len() != 1 {
		t.Errorf("a block of %d transactions", block.Len())
	}
	o.expect(ledger.Applied, change)
	o.expect(ledger.AliasTaken, client.Bundle(client.ChangeAccount("acme:b", 1, "cash",
		ledger.AccountTerms{})))
	restoredFrom(t, genesis, o.state)
}

// watcher watches the accounts of shards, and judges what becomes of them.
type watcher struct {
	fail   func(string, ...any)
	before map[ledger.AccountPath]*ledger.Account
	at     ledger.Milliseconds
	spent  map[ledger.AccountPath][]debits
	// refused counts what terms kept from happening.
	refused int
}

type debits struct {
	revision uint64
	from, to ledger.Milliseconds
	amount   ledger.Amount
}

// watch judges all accounts at a time.
func (w *watcher) watch(shards []*shardChain, now ledger.Milliseconds) {
	for _, c := range shards {
		for _, account := range c.state.Accounts() {
			if c.state.HomeShard(account.Path.Organisation()) != c.genesis.Shard {
				continue
			}
			before := w.before[account.Path]
			if err := ledger.KeepsTerms(before, &account); err != nil {
				w.fail("%v", err)
			}
			w.judgeVelocity(before, &account, now)
			w.before[account.Path] = &account
		}
	}
	w.at = now
}

// judgeVelocity adds up how far the balance fell, in steps that lie within the time.
func (w *watcher) judgeVelocity(before, after *ledger.Account, now ledger.Milliseconds) {
	if before == nil || after.Standing == nil || len(after.Standing.Limits) == 0 ||
		after.Standing.Limits[0].Velocity == nil {
		return
	}
	limit := &after.Standing.Limits[0]
	if before.Standing == nil || before.Standing.Revision != after.Standing.Revision {
		return // some of it may have been under other terms
	}
	fell := before.Balance(limit.Asset).Minus(after.Balance(limit.Asset))
	if fell.Sign() > 0 {
		w.spent[after.Path] = append(w.spent[after.Path], debits{after.Standing.Revision, w.at, now,
			fell})
	}
	var sum ledger.Amount
	for _, each := range w.spent[after.Path] {
		if each.revision == after.Standing.Revision &&
			each.from >= now-ledger.Milliseconds(limit.Velocity.Seconds)*1000 {
			sum, _ = sum.Add(each.amount)
		}
	}
	if sum.Compare(limit.Velocity.Amount) > 0 {
		w.fail("%s gave %s in %d seconds, and may give %s", after.Path, sum,
			limit.Velocity.Seconds, limit.Velocity.Amount)
	}
}

// termsStory is a random history of a book of several shards, in which organisations change the
// terms of their accounts and move amounts.
func termsStory(fail func(string, ...any), random *rand.Rand, parents []ledger.ShardID,
	fault state.Fault) *watcher {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version = ledger.AccountTermsVersion
	n := newNetworkOf(fail, genesis)
	n.fault = fault
	for _, c := range n.shards {
		c.state.Plant(fault)
	}
	w := &watcher{fail: fail, before: map[ledger.AccountPath]*ledger.Account{},
		spent: map[ledger.AccountPath][]debits{}}
	f := newTraffic(random, n.shards[0].genesis, 4, 1000)
	for _, client := range f.clients {
		n.submit(n.tree.Root(), f.registration(client))
	}
	n.flush()
	for _, client := range f.clients {
		n.enter(f, f.opening(client))
	}
	n.flush()
	for _, client := range f.clients {
		n.enter(f, f.bundle(client.Transfer(client.Account("issuer"), client.Account("a"), 30)))
	}
	n.flush()
	numbers := map[ledger.AccountPath]uint64{}
	for range 50 {
		by := f.client()
		if random.IntN(5) == 0 {
			path := by.Account([]string{"issuer", "a", "a"}[random.IntN(3)])
			numbers[path]++
			alias := []string{"", "x", "y"}[random.IntN(3)]
			n.enter(f, f.bundle(by.ChangeAccount(path, numbers[path], alias,
				drawTerms(random, accountOf(n, path)))))
			n.flush()
			if found := accountOf(n, path); found == nil || found.Standing == nil ||
				found.Standing.Revision != numbers[path] {
				numbers[path]-- // the alias is taken, or the account not empty
			}
			w.watch(n.shards, n.time)
		}
		account := func(c *ledgertest.Client) ledger.AccountPath {
			return c.Account([]string{"issuer", "a", "a"}[random.IntN(3)])
		}
		transfer := by.Transfer(account(by), account(f.client()), int64(1+random.IntN(12)))
		transfer.Deadline = n.time + ledger.Milliseconds(1+random.IntN(100))
		n.enter(f, f.bundle(transfer))
		n.disorder(f, ledger.ShardID(random.IntN(len(n.shards))))
		w.watch(n.shards, n.time)
	}
	n.flush()
	w.watch(n.shards, n.time)
	n.checkEnd()
	for _, c := range n.shards {
		for _, entry := range c.entries {
			if code := entry.Result.Code; code >= ledger.AccountFrozen {
				w.refused++
			}
		}
	}
	return w
}

func accountOf(n *network, path ledger.AccountPath) *ledger.Account {
	for _, c := range n.shards {
		if c.state.HomeShard(path.Organisation()) == c.genesis.Shard {
			if found, open := c.state.Account(path); open {
				return &found
			}
		}
	}
	return nil
}

// drawTerms draws terms with limits near the balance of the account.
func drawTerms(random *rand.Rand, of *ledger.Account) ledger.AccountTerms {
	switch random.IntN(8) {
	case 0:
		return ledger.AccountTerms{NoDebits: true}
	case 1:
		return ledger.AccountTerms{NoCredits: true}
	case 2:
		return ledger.AccountTerms{Freeze: ledger.FreezeOwner}
	case 3:
		return ledger.AccountTerms{Closed: random.IntN(2) == 0}
	}
	limit := ledger.AccountLimit{Asset: ledger.DefaultAsset}
	near := func(by int64) *ledger.Amount {
		amount, _ := of.Balance(ledger.DefaultAsset).Add(ledger.NewAmount(by))
		return &amount
	}
	if random.IntN(3) > 0 {
		if floor := near(-random.Int64N(25)); of.Issuer || floor.Sign() >= 0 {
			limit.Floor = floor
		}
	}
	if random.IntN(3) > 0 {
		limit.Ceiling = near(random.Int64N(25))
	}
	if random.IntN(3) > 0 {
		limit.Velocity = &ledger.Velocity{Amount: ledger.NewAmount(random.Int64N(30)), Seconds: 1}
	}
	terms := ledger.AccountTerms{Limits: []ledger.AccountLimit{limit}}
	if terms.Validate() != nil {
		return ledger.AccountTerms{}
	}
	return terms
}

// TestTermsAcrossShards: whatever the shards do, and in whatever order, no account goes beyond its
// terms, and every transaction is still all or none.
func TestTermsAcrossShards(t *testing.T) {
	t.Parallel()
	refused := 0
	rapid.Check(t, func(r *rapid.T) {
		parents := drawParents(r, 4)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 2))
		refused += termsStory(r.Fatalf, random, parents, state.FaultNone).refused
	})
	if refused == 0 {
		t.Error("nothing was ever refused")
	}
}

// TestTermsBugsAreCaught plants the bugs that terms over several shards invite.
func TestTermsBugsAreCaught(t *testing.T) {
	t.Parallel()
	catchInStories(t, 200, termsStory, state.FaultCreditUnjudged, state.FaultFloorOfAll,
		state.FaultSpentForgotten)
}

// TestTermsMove: the accounts of an organisation that moves keep their terms, what they spent, and
// their aliases.
func TestTermsMove(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	genesis.Version = ledger.AccountTermsVersion
	n := newNetworkOf(t.Fatalf, genesis)
	client := ledgertest.NewClient(genesis, "acme")
	registration := client.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 1
	n.submit(0, client.Bundle(registration))
	n.flush()
	opening := client.Next()
	opening.Openings = []ledger.Opening{{Account: "acme:issuer", Issuer: true},
		{Account: "acme:a", Alias: "cash"}, {Account: "acme:b"}}
	n.submit(1, client.Bundle(opening))
	n.submit(1, client.Bundle(client.ChangeAccount("acme:issuer", 1, "",
		ledgertest.Limited(-1, -1, 10, 60))))
	n.flush()
	n.submit(1, client.Bundle(client.Transfer("acme:issuer", "acme:a", 8)))
	n.flush()
	n.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: genesis.Book(), Book: &ledger.BookChange{Number: 1,
			Move: &ledger.OrganisationMove{Organisation: "acme", To: 0}}}))
	n.flush()
	entries, _ := n.shards[1].state.Leaves(1, func() {})
	for _, path := range []ledger.AccountPath{"acme:issuer", "acme:a", "acme:b"} {
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
	for _, next := range []struct {
		transaction ledger.Transaction
		want        ledger.Code
	}{{client.Transfer("acme:issuer", "acme:a", 3), ledger.VelocityExceeded},
		{client.Transfer("acme:issuer", "acme:a", 2), ledger.Applied},
		{client.ChangeAccount("acme:b", 1, "cash", ledger.AccountTerms{}), ledger.AliasTaken},
		{client.ChangeAccount("acme:a", 2, "cash", ledger.AccountTerms{}), ledger.Applied}} {
		bundle := client.Bundle(next.transaction)
		n.submit(0, bundle)
		n.flush()
		c := n.shards[0]
		if got := c.entries[c.places[bundle.ID(0)]].Result.Code; got != next.want {
			t.Errorf("%s, want %s", got, next.want)
		}
	}
	restoredFrom(t, n.shards[0].genesis, n.shards[0].state)
}
