package client

import (
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// newDetailed returns two nodes of a ledger that takes details.
func newDetailed(t *testing.T, foresee bool) (urls []string) {
	t.Helper()
	genesis := *ledgertest.OperatedGenesis(2)
	genesis.Version = ledger.DetailsVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2, Genesis: genesis})
	for i := range 2 {
		if foresee {
			cluster.Node(i).Foresee()
		}
		urls = append(urls, apitest.Serve(t, cluster.Node(i), api.Options{}).URL)
	}
	return urls
}

// keyed returns an entry with an idempotency key.
func keyed(amount int64, key string) ledger.Transaction {
	entry := transfer("acme:mint", "acme:a", amount)
	entry.Details = &ledger.Details{Key: key}
	return entry
}

// TestKeyOfTwoClients: of two clients that post with one idempotency key at once, through two
// nodes, one succeeds. The other one is told why it failed, and asks which entry has the key.
func TestKeyOfTwoClients(t *testing.T) {
	t.Parallel()
	urls := newDetailed(t, false)
	key := testKey(t, "acme")
	clients := []*Client{newTestClient(t, urls[0]), newTestClient(t, urls[1])}
	beginBank(t, clients[0], key)
	statuses := make([]*ledgerdv1.TransactionStatus, len(clients))
	var both sync.WaitGroup
	for i, c := range clients {
		both.Go(func() {
			var err error
			statuses[i], err = c.Post(testContext(t), []Key{key}, keyed(int64(i+1), "order"),
				ledgerdv1.Level_LEVEL_DURABLE)
			if err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	first, second := statuses[0], statuses[1]
	if first.GetReasonCode() != "" {
		first, second = second, first
	}
	if first.GetReasonCode() != "" || second.GetReasonCode() != "key_taken" ||
		second.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED {
		t.Fatalf("%v\n%v", first, second)
	}
	for _, c := range clients {
		has, err := c.Key(testContext(t), "acme", "order")
		if err != nil || has.GetEntryHex() != first.GetIdHex() || has.GetWaits() {
			t.Errorf("%v, %v, want %s", has, err, first.GetIdHex())
		}
	}
	for of, name := range map[string]string{"acme": "another", "shop": "order"} {
		has, err := clients[0].Key(testContext(t), ledger.OrganisationName(of), name)
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("key %q of %s: %v, %v", name, of, has, err)
		}
	}
}

// TestResubmittedKey: a client that lost an acknowledgement submits the same bytes again, to any
// node, and gets the outcome of its entry. Its own key is not in its way.
func TestResubmittedKey(t *testing.T) {
	t.Parallel()
	for _, foresees := range []bool{false, true} {
		urls := newDetailed(t, foresees)
		key := testKey(t, "acme")
		c := newTestClient(t, urls[0])
		beginBank(t, c, key)
		signed := func(sequence uint64, amount int64) *ledger.Bundle {
			entry := keyed(amount, "order")
			genesis, err := c.Genesis(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			entry.Ledger, entry.Signer = genesis, key.Organisation
			entry.Nonce = ledger.Nonce{Stream: 7, Sequence: sequence}
			bundle, err := Sign(testContext(t), []Key{key}, entry)
			if err != nil {
				t.Fatal(err)
			}
			return bundle
		}
		good, other := signed(1, 5), signed(2, 6)
		for _, url := range []string{urls[0], urls[1], urls[0]} {
			for _, each := range []struct {
				bundle *ledger.Bundle
				reason string
			}{{good, ""}, {other, "key_taken"}} {
				statuses, err := newTestClient(t, url).Submit(testContext(t), each.bundle,
					ledgerdv1.Level_LEVEL_DURABLE)
				if err != nil || len(statuses) != 1 || statuses[0].GetReasonCode() != each.reason ||
					statuses[0].GetHeight() == 0 {
					t.Errorf("foresees %v: %v, %v, want %q", foresees, statuses, err, each.reason)
				}
			}
		}
	}
}
