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

// TestTooFewOperators: a node with the threshold of the old set makes a block in which one of three
// operators removes a member. No other node appends that block, makes it, or believes the store
// that has it.
func TestTooFewOperators(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(2)
	charter := ledgertest.Charter(2, "operator", "x", "y")
	genesis.Operators, genesis.OperatorThreshold = charter.Operators, charter.Threshold
	dir := t.TempDir()
	liar, honest := openBook(t, dir, genesis, small()), openBook(t, t.TempDir(), genesis, small())
	believed := genesis.Charter()
	believed.Number, believed.Threshold = 1, 1
	if err := liar.state.Restore([]byte{'c', 0}, charterEntry(&believed)); err != nil {
		t.Fatal(err)
	}
	if err := liar.state.Complete(nil); err != nil {
		t.Fatal(err)
	}
	payload := ledgertest.Batch(1, ledgertest.NewOperator(genesis).Leave(1))
	block, err := liar.Apply(1, 1, [][]byte{payload})
	if err != nil || block.MembershipChange() == nil {
		t.Fatalf("at the liar: %+v, %v", block, err)
	}
	if made, err := honest.Apply(1, 1, [][]byte{payload}); err != nil ||
		made.Entry(0).Result.Code != ledger.Unauthorised {
		t.Errorf("the round makes %+v, %v", made, err)
	}
	other := openBook(t, t.TempDir(), genesis, small())
	if err := other.Append(block); !errors.Is(err, ErrMismatch) {
		t.Errorf("appending the block: %v", err)
	}
	if err := liar.Close(); err != nil {
		t.Fatal(err)
	}
	var damage *DamageError
	if _, err := Verify(t.Context(), dir, genesis, small(), nil); !errors.As(err, &damage) {
		t.Errorf("the liar's store is verified: %v", err)
	}
}

// charterEntry returns the entry of a charter in the state.
func charterEntry(c *ledger.Charter) []byte {
	entry := append([]byte{byte(c.Number), byte(len(c.Operators))},
		bytes.Join(keysOf(c.Operators), nil)...)
	return append(entry, byte(c.Threshold), 0)
}

func keysOf(keys []ledger.PublicKey) (all [][]byte) {
	for i := range keys {
		all = append(all, keys[i][:])
	}
	return all
}
