package client

import (
	"bytes"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// packingGenesis is of a chain that takes packed bundles.
func packingGenesis() ledger.Genesis {
	genesis := *ledgertest.Genesis()
	genesis.Version = ledger.PackedVersion
	return genesis
}

// A Sender packs plain transfers where the chain takes that, and nothing else.
func TestSenderPacks(t *testing.T) {
	t.Parallel()
	for _, version := range []int{ledger.PackedVersion - 1, ledger.PackedVersion} {
		genesis := packingGenesis()
		genesis.Version = version
		cluster := apitest.NewCluster(t, apitest.Options{Genesis: genesis})
		g := newGate(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
		c, key := newTestClient(t, g.URL), testKey(t, "acme")
		beginBank(t, c, key)
		s := newTestSender(t, c, SenderOptions{Keys: []Key{key}})
		for _, what := range []ledger.Transaction{transfer("acme:mint", "acme:a", 1),
			noted(transfer("acme:mint", "acme:a", 1), "a note")} {
			answer, err := s.Post(testContext(t), what)
			if err != nil || !answer.Applied() {
				t.Fatalf("version %d: %v, %v", version, answer, err)
			}
			sent := g.bundles[len(g.bundles)-1]
			if sent.Packed() != (version >= ledger.PackedVersion && len(what.Note) == 0) {
				t.Errorf("version %d: with the note %q it is packed: %v", version, what.Note,
					sent.Packed())
			}
			if answer.ID != sent.ID(0) || !bytes.Equal(answer.Status.GetId(), answer.ID[:]) {
				t.Errorf("version %d: the answer is for %s", version, answer.ID)
			}
		}
	}
}

// A node that is behind the change of the chain's version, or that cannot say what the chain takes,
// is no reason to refuse a transfer.
func TestSenderPacksTooEarly(t *testing.T) {
	t.Parallel()
	cluster, g, c, key := newGuardedBank(t) // which takes no packed bundles
	s := newTestSender(t, c, SenderOptions{Keys: []Key{key}, InFlight: 1})
	c.mutex.Lock()
	c.rules.packs = true // as another node said
	c.mutex.Unlock()
	caller := s.Caller()
	var taken []*Submission
	for i := range 2 { // alone in their bundles
		answer, err := caller.Post(testContext(t), transfer("acme:mint", "acme:a", int64(i+1)))
		if err != nil || !answer.Applied() {
			t.Fatalf("transfer %d: %v, %v", i, answer, err)
		}
	}
	for i := 2; i < 20; i++ {
		submission, err := caller.Begin(testContext(t), transfer("acme:mint", "acme:a", int64(i+1)))
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, submission)
	}
	var last ledger.Hash
	for i, submission := range taken {
		answer, err := submission.Wait(testContext(t))
		if err != nil || !answer.Applied() {
			t.Fatalf("transfer %d: %v, %v", i, answer, err)
		}
		last = answer.ID
	}
	if balance := balanceOf(t, cluster, "acme:a"); balance != ledger.NewAmount(210) {
		t.Errorf("the balance is %s", balance)
	}
	if known, err := cluster.Node(0).Store().Known(last); err != nil || !known {
		t.Errorf("the last id is not in the chain: %v", err)
	}
	packed := 0
	for _, bundle := range g.bundles {
		if bundle.Packed() {
			packed++
		}
	}
	if packed != 1 {
		t.Errorf("%d packed bundles were sent to a chain that refuses the first, want 1", packed)
	}
}

// Everything that a node tells of transactions, it tells of packed transfers, too: their statuses,
// blocks, histories and proofs. The bundle may be submitted again, and other ids are of nothing.
func TestPackedTransfersAreTold(t *testing.T) {
	t.Parallel()
	genesis := packingGenesis()
	cluster := apitest.NewCluster(t, apitest.Options{Genesis: genesis})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key, ctx := testKey(t, "acme"), testContext(t)
	beginBank(t, c, key)
	transfers := []ledger.Transaction{transfer("acme:a", "acme:b", 5),
		transfer("acme:mint", "acme:a", 5), transfer("acme:a", "acme:b", 3)}
	for i := range transfers {
		transfers[i].Ledger, transfers[i].Signer = cluster.Genesis().Hash(), "acme"
		transfers[i].Nonce = ledger.Nonce{Stream: 9, Sequence: uint64(1 + i)}
	}
	bundle, err := c.Sign(ctx, []Key{key}, transfers...)
	if err != nil || !bundle.Packed() {
		t.Fatal(err)
	}
	for range 2 {
		statuses, err := c.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil || len(statuses) != 3 || statuses[0].GetReasonCode() !=
			api.ReasonCode(ledger.InsufficientFunds) || statuses[2].GetReasonCode() != "" {
			t.Fatalf("%v, %v", statuses, err)
		}
	}
	for i, id := range bundle.IDs() {
		told, err := c.Transaction(ctx, id)
		if err != nil || told.GetBundleSize() != 3 ||
			told.GetBody().GetNonce().GetSequence() != uint64(1+i) ||
			(told.GetStatus().GetReasonCode() == "") != (i > 0) {
			t.Errorf("transfer %d: %v, %v", i, told, err)
		}
		shown, err := ledger.DecodeBody(told.GetCanonical())
		if err != nil || shown.Nonce != transfers[i].Nonce {
			t.Errorf("transfer %d is shown as %+v: %v", i, shown, err)
		}
		proof, err := c.VerifiedProof(ctx, id)
		if err != nil || proof.ID != id || proof.Result.OK() != (i > 0) {
			t.Errorf("transfer %d is proven by %+v: %v", i, proof, err)
		}
		hits, err := c.Search(ctx, id.String())
		if err != nil || len(hits) != 1 {
			t.Errorf("a search finds transfer %d %d times: %v", i, len(hits), err)
		}
	}
	other := bundle.ID(2)
	other[31]++
	if told, err := c.Transaction(ctx, other); err == nil {
		t.Errorf("a fourth transfer: %v", told)
	}
	entries := 0
	for entry, err := range c.History(ctx, "acme:a", true) {
		if err != nil || entry == nil {
			t.Fatal(err)
		}
		entries++
	}
	if entries != 2 {
		t.Errorf("the history has %d entries", entries)
	}
}
