package client

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestHoldOutcome: how a hold stands and ended, and what is no hold. The time of a block is a
// millisecond after that of the one before.
func TestHoldOutcome(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	cluster := apitest.NewCluster(t, apitest.Options{Genesis: genesis})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	post := func(transaction ledger.Transaction) ledger.Hash {
		t.Helper()
		status, err := c.Post(testContext(t), []Key{key}, transaction,
			ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil {
			t.Fatal(err)
		}
		id, err := ledger.ParseHash(status.GetIdHex())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	payment := post(transfer("acme:mint", "acme:a", 100))
	held := ledger.Hold{From: "acme:a", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(10),
		To: []ledger.AccountPath{"acme:b"}, Poster: "acme", Expires: genesis.Time + 1000}
	expect := func(id ledger.Hash, state HoldState, posted int64, ended bool) {
		t.Helper()
		got, err := c.HoldOutcome(testContext(t), id)
		if err != nil || got.State != state || got.Posted != ledger.NewAmount(posted) ||
			(got.EndedBy != "") != ended || got.Hold.GetHoldHex() != id.String() ||
			got.Hold.GetHold().GetAccount() != "acme:a" {
			t.Errorf("%+v, want %s of %d: %v", got, state, posted, err)
		}
	}
	end := func(id ledger.Hash, amount int64) {
		t.Helper()
		ending := ledger.Transaction{HoldEnd: &ledger.HoldEnd{Hold: id, From: "acme:a"}}
		if amount > 0 {
			ending.Postings = transfer("acme:a", "acme:b", amount).Postings
		}
		post(ending)
	}
	for amount, want := range []HoldState{0: HoldVoided, 4: HoldPostedInPart, 10: HoldPosted} {
		if want == "" {
			continue
		}
		id := post(PlaceHold(held))
		expect(id, HoldOpen, 0, false)
		end(id, int64(amount))
		expect(id, want, int64(amount), true)
	}
	held.Expires = cluster.Node(0).Store().Head().Time + 5
	short := post(PlaceHold(held))
	expect(short, HoldOpen, 0, false)
	for range 5 {
		post(transfer("acme:mint", "acme:a", 1))
	}
	expect(short, HoldExpired, 0, false)
	held.Amount = ledger.NewAmount(1_000_000)
	held.Expires = genesis.Time + 1000
	status, err := c.Post(testContext(t), []Key{key}, PlaceHold(held),
		ledgerdv1.Level_LEVEL_DURABLE)
	failed, malformed := ledger.ParseHash(status.GetIdHex())
	if err != nil || malformed != nil {
		t.Fatal(err, malformed)
	}
	expect(failed, HoldFailed, 0, false)
	for _, id := range []ledger.Hash{payment, {1}} {
		if _, err := c.HoldOutcome(testContext(t), id); CodeOf(err) != connect.CodeNotFound ||
			!strings.Contains(err.Error(), "no hold") {
			t.Errorf("no hold: %v", err)
		}
	}
}
