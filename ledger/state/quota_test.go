package state_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

func TestQuotas(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	genesis.Quotas = ledger.Quotas{Streams: 2, Accounts: 3, Assets: 3, Records: 2}
	decoded, err := ledger.DecodeGenesis(genesis.Encode())
	if err != nil || decoded.Quotas != genesis.Quotas || decoded.Hash() != genesis.Hash() {
		t.Fatalf("%+v, %v", decoded, err)
	}
	chain, acme := newOperated(t, genesis), ledgertest.NewClient(genesis, "acme")
	chain.block(acme.Bundle(acme.Register("issuer", "a")))
	expect := func(code ledger.Code, item uint32, change func(*ledger.Transaction)) {
		t.Helper()
		transaction := acme.Next()
		change(&transaction)
		if got := chain.result(acme.Bundle(transaction)); got.Code != code || got.Item != item {
			t.Errorf("%s, want %s", got, code)
		}
	}
	const all = ledger.NoItem
	open := func(names ...string) func(*ledger.Transaction) {
		return func(t *ledger.Transaction) {
			for _, name := range names {
				t.Openings = append(t.Openings, ledger.Opening{Account: acme.Account(name)})
			}
		}
	}
	pay := func(asset ledger.AssetName) func(*ledger.Transaction) {
		return func(t *ledger.Transaction) {
			t.Postings = acme.Transfer("acme:issuer", "acme:a", 1).Postings
			t.Postings[0].Asset, t.Postings[1].Asset = asset, asset
		}
	}
	put := func(names ...string) func(*ledger.Transaction) {
		return func(t *ledger.Transaction) {
			for _, name := range names {
				t.Records = append(t.Records, ledger.Record{Key: ledger.RecordKey("acme:" + name)})
			}
		}
	}
	stream := func(number uint64) func(*ledger.Transaction) {
		return func(t *ledger.Transaction) {
			pay("EUR")(t)
			t.Nonce.Stream = number
		}
	}
	expect(ledger.AccountQuota, 1, open("b", "c"))
	expect(ledger.Applied, all, open("b"))
	expect(ledger.Applied, all, open("b")) // it is open already
	expect(ledger.AccountQuota, 0, open("c"))
	expect(ledger.Applied, all, pay("EUR")) // one asset in two accounts
	expect(ledger.AssetQuota, 1, pay("USD"))
	expect(ledger.Applied, all, pay("EUR"))
	expect(ledger.RecordQuota, 3, put("x", "x", "y", "z"))
	expect(ledger.Applied, all, put("x", "x", "y"))
	expect(ledger.Applied, all, put("y"))
	expect(ledger.RecordQuota, 1, put("y", "z"))
	expect(ledger.Applied, all, stream(7))
	expect(ledger.StreamQuota, all, stream(8))
	expect(ledger.Applied, all, stream(7))
	want := ledger.Quotas{Streams: 2, Accounts: 3, Assets: 2, Records: 2}
	if got := chain.state.Use("acme"); got != want {
		t.Errorf("uses %+v, want %+v", got, want)
	}

	// The operators set others. Lower ones take nothing away.
	charter := genesis.Charter()
	charter.Number, charter.Quotas = 1, ledger.Quotas{Accounts: 1, Records: 3}
	chain.expect(ledger.Unauthorised, chain.charter(charter, "mallory"))
	chain.expect(ledger.Applied, chain.charter(charter, "operator"))
	expect(ledger.AccountQuota, 0, open("c"))
	expect(ledger.Applied, all, pay("USD"))
	expect(ledger.Applied, all, put("z"))
	expect(ledger.Applied, all, stream(9))
	restored := restoredFrom(t, genesis, chain.state)
	if restored.Use("acme") != chain.state.Use("acme") || restored.CheckUses() != nil ||
		restored.Charter().Quotas != charter.Quotas {
		t.Errorf("%+v, was %+v", restored.Use("acme"), chain.state.Use("acme"))
	}
	charter.Number, charter.Quotas = 2, ledger.Quotas{}
	chain.expect(ledger.Applied, chain.charter(charter, "operator"))
	expect(ledger.Applied, all, open("c"))
}

// Random transactions of two organisations stay within random quotas, and the counts are right
// after each.
func TestQuotasHold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		genesis := ledgertest.OperatedGenesis(3)
		for _, number := range genesis.Quotas.Numbers() {
			*number = 3 + random.Uint64N(6)
		}
		chain := newChain(t, genesis)
		clients := []*ledgertest.Client{ledgertest.NewClient(genesis, "acme"),
			ledgertest.NewClient(genesis, "other")}
		for _, client := range clients {
			chain.block(client.Bundle(client.Register("issuer", "a")))
		}
		refused := 0
		for range 200 {
			client, other := clients[random.IntN(2)], clients[random.IntN(2)]
			transaction := client.Next()
			transaction.Nonce.Stream = random.Uint64N(12)
			for range random.IntN(3) {
				transaction.Openings = append(transaction.Openings, ledger.Opening{
					Account: client.Account(fmt.Sprint("a", random.IntN(12)))})
			}
			for range random.IntN(3) {
				transaction.Records = append(transaction.Records, ledger.Record{
					Key: ledger.RecordKey(client.Account(fmt.Sprint("r", random.IntN(12))))})
			}
			for range random.IntN(3) {
				transaction.Postings = append(transaction.Postings, client.Transfer(
					client.Account("issuer"), other.Account("a"), 1).Postings...)
				asset := ledger.AssetName(fmt.Sprint("A", random.IntN(12)))
				last := transaction.Postings[len(transaction.Postings)-2:]
				last[0].Asset, last[1].Asset = asset, asset
			}
			if transaction.Validate() != nil {
				continue
			}
			if !chain.result(client.Bundle(transaction)).OK() {
				refused++
			}
			for _, each := range []ledger.OrganisationName{"acme", "other"} {
				used := chain.state.Use(each)
				for i, number := range used.Numbers() {
					if *number > *genesis.Quotas.Numbers()[i] {
						t.Fatalf("seed %d: %s keeps %+v of %+v", seed, each, used, genesis.Quotas)
					}
				}
			}
		}
		if refused == 0 {
			t.Errorf("seed %d: nothing was refused", seed)
		}
	}
}

// In a book of several shards, assets and records that may come in count while they wait, and so do
// the signer's waiting transactions.
func TestQuotasAcrossShards(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	genesis.Version = ledger.AccountTreeVersion
	n := newNetworkOf(t.Fatalf, genesis)
	waiting(n)
	n.flush()
	charter := genesis.Charter()
	charter.Number, charter.Quotas = 1, ledger.Quotas{Assets: 2, Records: 2, Pending: 2}
	n.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: genesis.Book(), Charter: &ledger.CharterChange{Charter: charter}}))
	n.flush()
	client := ledgertest.NewClient(genesis, "org0")
	client.Sequence = 20
	send := func(asset ledger.AssetName, records ...ledger.RecordKey) ledger.Hash {
		transfer := client.Transfer("org0:issuer", "org1:a", 1)
		transfer.Postings[0].Asset, transfer.Postings[1].Asset = asset, asset
		for _, key := range records {
			transfer.Records = append(transfer.Records, ledger.Record{Key: key})
		}
		bundle := client.Bundle(transfer)
		n.submit(0, bundle)
		return bundle.ID(0)
	}
	n.shards[1].stopped = true
	ids := []ledger.Hash{send("EUR", "org0:new"), send("EUR", "org0:record"),
		send(ledger.DefaultAsset), send("USD")}
	n.flush()
	c := n.shards[0]
	code := func(id ledger.Hash) ledger.Code { return c.entries[c.places[id]].Result.Code }
	for i, want := range []ledger.Code{ledger.SetAside, ledger.SetAside, ledger.PendingQuota,
		ledger.AssetQuota} {
		if got := code(ids[i]); got != want {
			t.Errorf("transaction %d: %s, want %s", i, got, want)
		}
	}
	if used := c.state.Use("org0"); used.Pending != 2 || used.Assets != 2 || used.Records != 1 {
		t.Errorf("%+v", used)
	}
	restored := restoredFrom(t, c.genesis, c.state)
	if restored.CheckUses() != nil || restored.Use("org0") != c.state.Use("org0") {
		t.Errorf("restored as %+v", restored.Use("org0"))
	}
	n.shards[1].stopped = false
	n.flush()
	n.check()
	if used := c.state.Use("org0"); used.Pending != 0 || used.Assets != 2 || used.Records != 2 {
		t.Errorf("after all transactions: %+v", used)
	}
	last := send("EUR", "org0:more")
	n.flush()
	if got := code(last); got != ledger.RecordQuota {
		t.Errorf("one record more: %s", got)
	}
}
