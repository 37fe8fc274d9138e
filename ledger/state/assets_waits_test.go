package state_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// issuers are acme, whose home is shard 0, and bank, whose home is shard 1 below it, while
// transactions of acme wait for shard 1.
type issuers struct {
	*network
	t          *testing.T
	acme, bank *ledgertest.Client
}

func newIssuers(t *testing.T) *issuers {
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	genesis.Version = ledger.AssetsVersion
	a := &issuers{network: newNetworkOf(t.Fatalf, genesis), t: t,
		acme: ledgertest.NewClient(genesis, "acme"), bank: ledgertest.NewClient(genesis, "bank")}
	for shard, c := range []*ledgertest.Client{a.acme, a.bank} {
		r := c.Register()
		r.Registrations[0].Pinned, r.Registrations[0].Shard = true, ledger.ShardID(shard)
		a.submit(0, c.Bundle(r))
		a.flush()
		o := c.Next()
		o.Openings = []ledger.Opening{{Account: c.Account("issuer"), Issuer: true},
			{Account: c.Account("more"), Issuer: true}, {Account: c.Account("a")}}
		a.submit(ledger.ShardID(shard), c.Bundle(o))
		a.flush()
	}
	return a
}

// does submits a transaction to shard 0, which must decide so.
func (a *issuers) does(want ledger.Code, c *ledgertest.Client, transaction ledger.Transaction) {
	a.t.Helper()
	bundle := c.Bundle(transaction)
	a.submit(0, bundle)
	a.flush()
	home := a.shards[0]
	if got := home.entries[home.places[bundle.ID(0)]].Result.Code; got != want {
		a.t.Fatalf("%s, want %s", got, want)
	}
}

// waits sets an amount aside in acme's home. Shard 1 has not heard of it.
func (a *issuers) waits(amount int64, until ledger.Milliseconds) {
	a.t.Helper()
	transaction := issue(a.acme, "acme:issuer", "bank:a", "EUR", amount)
	transaction.Deadline = until
	a.does(ledger.SetAside, a.acme, transaction)
}

// issued returns what acme issued, as its home counts it.
func (a *issuers) issued() ledger.Issuance {
	a.t.Helper()
	asset, known := a.shards[0].state.Asset("EUR")
	if !known {
		a.t.Fatal("EUR is not registered")
	}
	return asset.Issuances[0]
}

func (a *issuers) has(issued, waiting int64) {
	a.t.Helper()
	got := a.issued()
	if got.Issued != ledger.NewAmount(issued) || got.Waiting != ledger.NewAmount(waiting) {
		a.t.Errorf("%+v, want %d issued and %d waiting", got, issued, waiting)
	}
}

// TestWaitsOfBeforeTheRegistration: what waits when the name is registered is counted, so that its
// end does not take away the count of what began to wait later.
func TestWaitsOfBeforeTheRegistration(t *testing.T) {
	t.Parallel()
	a := newIssuers(t)
	a.shards[1].stopped = true
	a.waits(50, a.time+15) // shard 1 refuses it
	a.waits(20, a.time+1000)
	for range 4 { // so that a node with little memory has stored the account, and evicted it
		a.does(ledger.Applied, a.acme, a.acme.Transfer("acme:more", "acme:a", 1))
	}
	a.does(ledger.Applied, a.acme,
		a.acme.ChangeAsset("EUR", 1, ledgertest.Capped(100, "acme")))
	a.has(0, 70)
	a.waits(30, a.time+1000)
	a.has(0, 100)
	a.does(ledger.SupplyExceeded, a.acme, issue(a.acme, "acme:more", "acme:a", "EUR", 1))
	a.time += 20
	a.shards[1].stopped = false
	a.flush()
	a.has(50, 0)
	a.does(ledger.SupplyExceeded, a.acme, issue(a.acme, "acme:more", "acme:a", "EUR", 51))
	a.does(ledger.Applied, a.acme, issue(a.acme, "acme:more", "acme:a", "EUR", 50))
	a.has(100, 0)
	a.replay(0, a.shards[0])
}

// TestWaitsBecomeNoIssueOnceClosed: an issuer cannot turn what may still be refused into something
// issued, after the issuance was closed.
func TestWaitsBecomeNoIssueOnceClosed(t *testing.T) {
	t.Parallel()
	a := newIssuers(t)
	terms := ledgertest.Capped(50, "acme")
	a.does(ledger.Applied, a.acme, a.acme.ChangeAsset("EUR", 1, terms))
	a.shards[1].stopped = true
	a.waits(50, a.time+10)
	terms.Closed = true
	a.does(ledger.Applied, a.acme, a.acme.ChangeAsset("EUR", 2, terms))
	a.does(ledger.IssuanceClosed, a.acme, issue(a.acme, "acme:more", "acme:issuer", "EUR", 50))
	a.time += 20
	a.shards[1].stopped = false
	a.flush()
	a.has(0, 0)
}

// TestIssuerArrivesBeforeTheRegistration: an organisation that brings what it issued waits until
// its new home has the registration, which came after the move.
func TestIssuerArrivesBeforeTheRegistration(t *testing.T) {
	t.Parallel()
	a := newIssuers(t)
	book := a.shards[0].genesis.Book()
	a.shards[1].stopped = true
	a.waits(8, a.time+1000)
	a.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: book, Book: &ledger.BookChange{Number: 1,
			Move: &ledger.OrganisationMove{Organisation: "acme", To: 1}}}))
	a.flush()
	before := a.stream(1)
	a.does(ledger.Applied, a.bank,
		a.bank.ChangeAsset("EUR", 1, ledgertest.Capped(50, "acme")))
	for range 2 { // a change of the book ends a block
		a.round(1, &ledger.Batch{Carried: before})
	}
	a.flush() // shard 0 hears that the transaction took effect
	a.has(8, 0)
	entries, _ := a.shards[0].state.Leaves(1, func() {})
	for _, path := range []ledger.AccountPath{"acme:issuer", "acme:more", "acme:a"} {
		account, _ := a.shards[0].state.Account(path)
		entries = append(entries, state.MovedAccountEntry(&account))
	}
	arrivals, first, err := state.Arrivals(book, 1, entries, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	a.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{ledger.Departure(1, 0, first)}})
	arrive := func() (all bool) {
		for _, each := range arrivals {
			a.round(1, &ledger.Batch{Bundles: [][]byte{each.Encode()}})
		}
		return !a.shards[1].state.IsComing("acme")
	}
	if _, known := a.shards[1].state.Asset("EUR"); known || arrive() {
		t.Fatal("it arrives before the registration")
	}
	a.shards[1].stopped = false
	a.flush()
	if !arrive() {
		t.Fatal("it never arrives")
	}
	asset, _ := a.shards[1].state.Asset("EUR")
	if got := asset.Issuances[0]; got.Issued != ledger.NewAmount(8) || got.Arrived != 1 {
		t.Errorf("%+v at the new home", got)
	}
}

// TestIssuersAreCountedApart: two assets that one account issues at once count both, and who
// becomes an issuer later, and sorts earlier, has issued nothing.
func TestIssuersAreCountedApart(t *testing.T) {
	t.Parallel()
	a := newIssuers(t)
	for _, name := range []ledger.AssetName{"EUR", "USD"} {
		a.does(ledger.Applied, a.acme, a.acme.ChangeAsset(name, 1, ledgertest.Capped(50, "bank")))
	}
	both := issue(a.bank, "bank:issuer", "bank:a", "EUR", 7)
	both.Postings = append(both.Postings,
		issue(a.bank, "bank:issuer", "bank:a", "USD", 9).Postings...)
	bundle := a.bank.Bundle(both)
	a.submit(1, bundle)
	a.flush()
	issued := func(name ledger.AssetName, want ...int64) {
		t.Helper()
		asset, _ := a.shards[1].state.Asset(name)
		for i, each := range want {
			if got := asset.Issuances[i].Issued; got != ledger.NewAmount(each) {
				t.Errorf("%s issued %s %s, want %d", asset.Issuers[i].Organisation, got, name, each)
			}
		}
	}
	issued("EUR", 7)
	issued("USD", 9)
	terms := ledger.AssetTerms{Decimals: 2, Supply: ledger.SupplyCapped, Cap: ledger.NewAmount(50),
		Issuers: []ledger.Issuer{{Organisation: "acme"},
			{Organisation: "bank", Allowance: ledger.NewAmount(50)}}}
	a.does(ledger.Applied, a.acme, a.acme.ChangeAsset("EUR", 2, terms))
	issued("EUR", 0, 7)
}

// TestTooManyAssets: one organisation does not fill the registry of a book.
func TestTooManyAssets(t *testing.T) {
	t.Parallel()
	a := newIssuers(t)
	register := func(number int) ledger.Transaction {
		return a.acme.ChangeAsset(ledger.AssetName(fmt.Sprintf("A%d", number)), 1,
			ledgertest.Capped(50, "acme"))
	}
	for first := 0; first < ledger.MaxOwnAssets; first += 64 {
		var many []ledger.Transaction
		for i := range 64 {
			many = append(many, register(first+i))
		}
		a.submit(0, a.acme.Bundle(many...))
		a.flush()
	}
	if got := a.shards[1].state.AssetCount(); got != ledger.MaxOwnAssets {
		t.Fatalf("%d assets are registered", got)
	}
	a.does(ledger.TooManyRegistered, a.acme, register(ledger.MaxOwnAssets))
	a.does(ledger.Applied, a.bank, a.bank.ChangeAsset("EUR", 1, ledgertest.Capped(50, "bank")))
}
