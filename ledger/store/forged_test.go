package store

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestForgedBlocksAreRefused: a member that skips verification makes a block of a forged bundle. No
// other node appends that block from it, and none makes it from the same round.
func TestForgedBlocksAreRefused(t *testing.T) {
	t.Parallel()
	careless := small()
	careless.Verify = func(batches [][]byte) []*ledger.VerifiedBatch {
		verified := ledger.VerifyBatches(batches)
		for _, batch := range verified {
			for i := range batch.Proposals {
				batch.Proposals[i].Err = nil
			}
		}
		return verified
	}
	liar, honest := open(t, t.TempDir(), careless), open(t, t.TempDir(), small())
	client := ledgertest.NewClient(testGenesis(), "acme")
	first := ledgertest.Batch(1, client.Bundle(client.Register("issuer", "a")))
	forged := bytes.Clone(client.Bundle(client.Transfer("acme:issuer", "acme:a", 5)).Encode())
	forged[len(forged)-1] ^= 1
	second := ledger.EncodeBatch(ledger.BatchHeader{Time: 2}, [][]byte{forged})
	var block *ledger.Block
	for round, payload := range [][]byte{first, second} {
		var err error
		if block, err = liar.Apply(1, ledger.Round(round+1), [][]byte{payload}); err != nil ||
			block == nil {
			t.Fatalf("round %d at the liar: %v, %v", round+1, block, err)
		}
		if round == 0 {
			if err := honest.Append(block); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := honest.Append(block); !errors.Is(err, ledger.ErrSignature) {
		t.Errorf("appending the forged block: %v", err)
	}
	if made, err := honest.Apply(1, 2, [][]byte{second}); made != nil || err != nil {
		t.Errorf("the forged round makes block %v, %v", made, err)
	}
	if head := honest.Head(); head.Height != 1 {
		t.Errorf("the head is block %d", head.Height)
	}
	if _, err := honest.Apply(1, 3, [][]byte{ledgertest.Batch(3,
		client.Bundle(client.Transfer("acme:issuer", "acme:a", 7)))}); err != nil {
		t.Errorf("after the attack: %v", err)
	}
}
