package client

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestClientsSetDeadlines: Post and a Sender give transactions across shards a deadline once the
// chain asks for it, even if they learned its rules a moment before. A deadline that the caller
// names stays, and a transaction of one organisation gets none.
func TestClientsSetDeadlines(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	genesis.Version, genesis.Time = ledger.DeadlineVersion-1,
		ledger.Milliseconds(time.Now().UnixMilli())
	book := apitest.NewBook(t, genesis, api.Options{})
	url := book.Door(0).URL
	c, ctx := newTestClient(t, url), testContext(t)
	acme, bank := testKey(t, "acme"), testKey(t, "bank")
	must := func(status *ledgerdv1.TransactionStatus, err error) *ledgerdv1.TransactionStatus {
		t.Helper()
		if err != nil || status.GetReason() != "" {
			t.Fatalf("%v, %v", status, err)
		}
		return status
	}
	post := func(transaction ledger.Transaction,
		keys ...Key) (*ledgerdv1.TransactionStatus, error) {
		return c.Post(ctx, keys, transaction, ledgerdv1.Level_LEVEL_DURABLE)
	}
	for shard, key := range []Key{acme, bank} {
		must(post(ledger.Transaction{Registrations: []ledger.Registration{{Name: key.Organisation,
			Keys: []ledger.PublicKey{key.Public()}, Pinned: true, Shard: ledger.ShardID(shard)}}},
			key))
		must(post(ledger.Transaction{Openings: []ledger.Opening{
			{Account: ledger.AccountPath(key.Organisation + ":a"), Issuer: true},
			{Account: ledger.AccountPath(key.Organisation + ":b")}}}, key))
	}
	deadline := func(id []byte) int64 {
		t.Helper()
		shown, err := c.Transaction(ctx, ledger.Hash(id))
		if err != nil {
			t.Fatal(err)
		}
		return int64(shown.GetBody().GetDeadline())
	}
	crossing, within := transfer("acme:a", "bank:b", 1), transfer("acme:a", "acme:b", 1)
	if got := deadline(must(post(crossing, acme)).GetId()); got != 0 {
		t.Errorf("deadline %d before the chain takes any", got)
	}
	late := newTestClient(t, url) // learns the rules before the upgrade
	sender := newTestSender(t, late, SenderOptions{Keys: []Key{acme}})

	charter := genesis.Charter()
	charter.Number, charter.Version = 1, ledger.DeadlineVersion
	statuses, err := c.Submit(ctx, ledgertest.Signed(ledger.Operator, []string{"operator"},
		ledger.Transaction{Ledger: genesis.Book(), Charter: &ledger.CharterChange{
			Charter: charter}}), ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		t.Fatal(err)
	}
	must(statuses[0], nil)

	now := time.Now()
	near := func(milliseconds int64) bool {
		ahead := time.UnixMilli(milliseconds).Sub(now)
		return ahead > DefaultDeadline-time.Minute && ahead < DefaultDeadline+time.Minute
	}
	if got := deadline(must(post(crossing, acme)).GetId()); !near(got) {
		t.Errorf("Post: deadline %d", got)
	}
	if got := deadline(must(post(within, acme)).GetId()); got != 0 {
		t.Errorf("Post: deadline %d of a transaction of one organisation", got)
	}
	crossing.Deadline = ledger.Milliseconds(now.Add(time.Hour).UnixMilli())
	if got := deadline(must(post(crossing, acme)).GetId()); got != int64(crossing.Deadline) {
		t.Errorf("Post: deadline %d, not the one that the caller named", got)
	}
	crossing.Deadline = 0
	answer, err := sender.Post(ctx, crossing)
	if err != nil || !answer.Applied() || !near(deadline(answer.ID[:])) {
		t.Errorf("sender: %+v, %v", answer, err)
	}
	signed := crossing
	if err := late.SetDeadline(ctx, &signed); err != nil || !near(int64(signed.Deadline)) {
		t.Errorf("SetDeadline: %d, %v", signed.Deadline, err)
	}
}

// While the nodes cannot be reached, a client that asks for the rules again keeps those that it
// knows: other callers go on.
func TestRulesStayWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	genesis.Version, genesis.Time = ledger.DeadlineVersion-1,
		ledger.Milliseconds(time.Now().UnixMilli())
	door := apitest.NewBook(t, genesis, api.Options{}).Door(0)
	c, ctx := newTestClient(t, door.URL), testContext(t)
	if needed, err := c.NeedsDeadlines(ctx); err != nil || needed {
		t.Fatalf("%v, %v", needed, err)
	}
	door.Close()
	crossing := transfer("acme:a", "bank:b", 1)
	crossing.Signer = "acme"
	if c.nowNeedsDeadline(ctx, &crossing) || c.stillPacks(ctx) {
		t.Error("the client knows what nobody told")
	}
	if known, err := c.knownRules(ctx); err != nil || !known.sharded {
		t.Errorf("%+v, %v", known, err)
	}
}
