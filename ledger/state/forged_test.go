package state_test

import (
	"bytes"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// forge returns the encoding of a bundle with a wrong signature.
func forge(t *testing.T, bundle *ledger.Bundle) []byte {
	t.Helper()
	encoded := bytes.Clone(bundle.Encode())
	encoded[len(encoded)-1] ^= 1
	if _, err := ledger.DecodeBundle(encoded); err != nil {
		t.Fatal(err)
	}
	return encoded
}

// TestForgedBundlesAreDropped: no block takes a bundle with a wrong signature, whichever member
// proposes it. The other bundles of the batch stay, and so does the same bundle as its client
// signed it.
func TestForgedBundlesAreDropped(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	client := ledgertest.NewClient(genesis, "acme")
	register := client.Bundle(client.Register("issuer", "a", "b"))
	first := client.Bundle(client.Transfer("acme:issuer", "acme:a", 5))
	second := client.Bundle(client.Transfer("acme:issuer", "acme:b", 6))
	never := func(ledger.Hash, *ledger.Transaction) bool { return false }
	seal := func(batches ...[][]byte) *state.Draft {
		var payloads [][]byte
		for _, bundles := range batches {
			payloads = append(payloads, ledger.EncodeBatch(ledger.BatchHeader{Time: 5}, bundles))
		}
		return state.Seal(state.Parent{Hash: genesis.Hash()}, 1, 1, ledger.VerifyBatches(payloads),
			never)
	}
	forged := forge(t, first)
	if draft := seal([][]byte{forged}); draft != nil {
		t.Errorf("a forged bundle alone makes a block of %d", draft.Len())
	}
	draft := seal([][]byte{forged, register.Encode()}, [][]byte{second.Encode(), first.Encode()})
	if draft == nil || draft.Len() != 3 || draft.Forged != 1 || draft.Malformed != 0 {
		t.Fatalf("%+v, want three transactions, one forged bundle", draft)
	}
	block, _ := state.New(genesis).Execute(draft)
	for i := range block.Len() {
		if !block.Entry(i).Result.OK() {
			t.Errorf("transaction %d: %s", i, block.Entry(i).Result)
		}
	}
	if err := ledger.VerifySignatures(block); err != nil {
		t.Error(err)
	}
}
