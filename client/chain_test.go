package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Whole blocks come over the API as the node has them, one of more bytes than an answer too, and
// not before they are durable.
func TestReadChain(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 1, Manual: true})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	genesis, err := c.Genesis(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	register := ledger.Transaction{Ledger: genesis, Signer: "acme",
		Nonce: ledger.Nonce{Stream: 1, Sequence: 1}, Registrations: []ledger.Registration{
			{Name: "acme", Keys: []ledger.PublicKey{key.Public()}}}}
	sequence := uint64(1)
	admit := func(transactions ...ledger.Transaction) {
		t.Helper()
		bundle, err := Sign(testContext(t), []Key{key}, transactions...)
		if err != nil {
			t.Fatal(err)
		}
		if refused := cluster.Node(0).Admit(testContext(t), []*ledger.Bundle{bundle},
			true)[0]; refused != nil {
			t.Fatal(refused)
		}
	}
	admit(register)
	if err := cluster.Advance(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		var records []ledger.Transaction
		for i := range 60 {
			sequence++
			records = append(records, ledger.Transaction{Ledger: genesis, Signer: "acme",
				Nonce: ledger.Nonce{Stream: 1, Sequence: sequence}, Records: []ledger.Record{
					{Key: ledger.RecordKey(fmt.Sprint("acme:", i)), Value: make([]byte, 8<<10)}}})
		}
		admit(records...)
	}
	if err := cluster.Order(); err != nil {
		t.Fatal(err)
	}
	chain, err := c.ReadChain(testContext(t), 0, 1, 0)
	if err != nil || len(chain.Blocks) != 1 || chain.Durable != 1 {
		t.Fatalf("before block 2 is durable: %+v %v", chain, err)
	}
	if chain, err = c.ReadChain(testContext(t), 0, 2, time.Millisecond); err != nil ||
		len(chain.Blocks) != 0 {
		t.Fatalf("block 2 is not durable: %+v %v", chain, err)
	}
	if err := cluster.Store(); err != nil {
		t.Fatal(err)
	}
	cluster.Durable()
	for from := range ledger.Height(2) {
		chain, err := c.ReadChain(testContext(t), 0, from+1, 10*time.Second)
		if err != nil || len(chain.Blocks) != 1 || chain.Durable != 2 {
			t.Fatalf("from %d: %d blocks, %v", from+1, len(chain.Blocks), err)
		}
		head, err := cluster.Node(0).Store().Block(from + 1)
		if err != nil || chain.Blocks[0].Hash != head.Hash {
			t.Fatalf("another block %d: %v", from+1, err)
		}
		if from == 1 && len(head.Encode()) < 2<<20 {
			t.Fatalf("the block has %d bytes only", len(head.Encode()))
		}
		for _, entry := range chain.Blocks[0].All() {
			if found, err := c.TransactionIn(testContext(t), 0, entry.ID); err != nil ||
				found.Signer != "acme" {
				t.Fatalf("transaction %s: %v", entry.ID, err)
			}
			break
		}
	}
	for name, request := range map[string]*ledgerdv1.ReadChainRequest{
		"no height": {}, "a long wait": {FromHeight: 1, WaitMs: 1 << 20},
		"past the block": {FromHeight: 1, Offset: 1 << 40}, "no shard": {FromHeight: 1,
			Shard: new(uint32(7))},
	} {
		if _, err := call(testContext(t), c, false, request, service.ReadChain); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
