package client

import (
	"bytes"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
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
	c.packing.takes = true // as another node said
	c.mutex.Unlock()
	caller := s.Caller()
	var taken []*Submission
	for i := range 20 {
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
	if packed > 1 {
		t.Errorf("%d packed bundles were sent to a chain that refused the first", packed)
	}
}
