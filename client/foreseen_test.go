package client

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Bundles that a node refuses because they must fail have failed, in no block: one transaction by a
// unary call, and many on a stream. Submitted with one that may be applied, they are in a block.
func TestForeseenFailures(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	cluster.Node(0).Foresee()
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	submit := func(amount int64, sequences ...uint64) []*ledgerdv1.TransactionStatus {
		t.Helper()
		var all []ledger.Transaction
		for _, sequence := range sequences {
			one := transfer("acme:mint", "acme:b", amount)
			one.Ledger, one.Signer = cluster.Genesis().Hash(), key.Organisation
			one.Nonce = ledger.Nonce{Stream: 7, Sequence: sequence}
			all = append(all, one)
		}
		bundle, err := Sign(testContext(t), []Key{key}, all...)
		if err != nil {
			t.Fatal(err)
		}
		statuses, err := c.Submit(testContext(t), bundle, ledgerdv1.Level_LEVEL_ORDERED)
		if err != nil || matches(statuses, bundle) != nil {
			t.Fatal(statuses, err)
		}
		return statuses
	}
	var taken []uint64
	for sequence := range uint64(2 * streamFrom) {
		taken = append(taken, sequence+1)
	}
	submit(1, taken...)
	for _, c := range []struct {
		sequences []uint64
		inBlock   bool
	}{{taken[:1], false}, {taken, false}, {[]uint64{taken[0], 900}, true}} {
		statuses := submit(2, c.sequences...)
		for i := range min(len(statuses), len(taken)) {
			if c.sequences[i] != 900 && (statuses[i].GetReasonCode() != "stale_nonce" ||
				!Reached(statuses[i], ledgerdv1.Level_LEVEL_DURABLE) ||
				(statuses[i].GetHeight() > 0) != c.inBlock) {
				t.Errorf("%d transactions: %v", len(statuses), statuses[i])
			}
		}
	}
	_ = submit(1, taken...) // what is in a block has its outcome
}

// A transaction whose nonce another client took is signed anew, unless a later one of its caller is
// already through: if it failed in a block, and if the node refused it.
func TestSenderStaleNonces(t *testing.T) {
	t.Parallel()
	for _, foresees := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreseen=%v", foresees), func(t *testing.T) {
			t.Parallel()
			testSenderStaleNonces(t, foresees)
		})
	}
}
