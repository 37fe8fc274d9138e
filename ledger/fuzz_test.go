package ledger_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// seeds are one good encoding of each kind.
func seeds(f *testing.F) (body, bundle, batch, block, proof []byte) {
	f.Helper()
	genesis := ledgertest.Genesis()
	client := ledgertest.NewClient(genesis, "acme")
	register, transfer := client.Register("issuer", "a"), client.Transfer("acme:issuer", "acme:a", 5)
	transfer.Records = []ledger.Record{{Key: "acme:record", Value: []byte("value")}}
	transfer.Note = []byte(`{"of":"a note"}`)
	signed := client.Bundle(register, transfer)
	batch = ledgertest.Batch(7, signed)
	draft := ledger.Seal(ledger.Parent{Hash: genesis.Hash()}, 1, 1, [][]byte{batch}, func(ledger.Hash, *ledger.Transaction) bool { return false })
	executed, _ := ledger.NewState(genesis).Execute(draft)
	return signed.Body(1), signed.Encode(), batch, executed.Encode(), executed.Proof(1).Encode()
}

// changeSeeds are a join and a leave, as bundles.
func changeSeeds() []*ledger.Bundle {
	operator := ledgertest.NewOperator(ledgertest.OperatedGenesis(2))
	return []*ledger.Bundle{operator.Join(ledgertest.Member(2)), operator.Leave(1)}
}

func FuzzTransaction(f *testing.F) {
	body, _, _, _, _ := seeds(f)
	f.Add(body)
	for _, bundle := range changeSeeds() {
		f.Add(bundle.Body(0))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		transaction, err := ledger.DecodeBody(data)
		if err != nil {
			return
		}
		_ = transaction.Validate()
		if again, err := transaction.EncodeBody(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("a transaction has two encodings: %v", err)
		}
		text, err := json.Marshal(transaction)
		if err != nil {
			t.Fatal(err)
		}
		var read ledger.Transaction
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

func FuzzBundle(f *testing.F) {
	_, bundle, _, _, _ := seeds(f)
	f.Add(bundle)
	for _, change := range changeSeeds() {
		f.Add(change.Encode())
	}
	genesis := ledgertest.Genesis()
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeBundle(data)
		if err != nil {
			return
		}
		var transactions []ledger.Transaction
		for i := range decoded.Len() {
			transactions = append(transactions, *decoded.Transaction(i))
		}
		again, err := ledger.NewBundle(transactions...)
		if err != nil {
			return
		}
		for _, signature := range decoded.Signatures() {
			if err := again.AddSignature(signature); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(again.Encode(), data) || again.Root() != decoded.Root() {
			t.Fatal("a bundle has two encodings")
		}
		_ = ledger.VerifyBundle(decoded, genesis, genesis.Hash(), ledger.NewState(genesis))
	})
}

func FuzzBatch(f *testing.F) {
	_, _, batch, _, _ := seeds(f)
	f.Add(batch)
	f.Add(ledgertest.Batch(7, changeSeeds()...))
	genesis := ledgertest.OperatedGenesis(2)
	f.Fuzz(func(t *testing.T, data []byte) {
		// Whatever a round holds, sealing and executing it must not fail.
		never := func(ledger.Hash, *ledger.Transaction) bool { return false }
		if draft := ledger.Seal(ledger.Parent{Hash: genesis.Hash()}, 1, 1, [][]byte{data}, never); draft != nil {
			state := ledger.NewState(genesis)
			block, _ := state.Execute(draft)
			if state.Membership().Number > 0 && !ledger.MembershipChangeIn(data, genesis, genesis.Hash()) {
				t.Fatal("a change was applied that is not found in the round message")
			}
			if _, err := ledger.DecodeBlock(block.Encode()); err != nil {
				t.Fatal(err)
			}
		}
		batch, err := ledger.DecodeBatch(data)
		if err == nil && !bytes.Equal(ledger.EncodeBatch(batch.Header, batch.Bundles), data) {
			t.Fatal("a batch has two encodings")
		}
	})
}

func FuzzBlock(f *testing.F) {
	_, _, _, block, _ := seeds(f)
	f.Add(block)
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeBlock(data)
		if err == nil && !bytes.Equal(decoded.Encode(), data) {
			t.Fatal("a block has two encodings")
		}
	})
}

func FuzzProof(f *testing.F) {
	_, _, _, _, proof := seeds(f)
	f.Add(proof)
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeProof(data)
		if err != nil {
			return
		}
		if !bytes.Equal(decoded.Encode(), data) {
			t.Fatal("a proof has two encodings")
		}
		_ = ledger.VerifyProof(decoded)
	})
}

func FuzzGenesis(f *testing.F) {
	f.Add(ledgertest.Genesis().Encode())
	f.Add(ledgertest.ShardedGenesis(2, 0, 0, 1).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		genesis, err := ledger.DecodeGenesis(data)
		if err == nil && !bytes.Equal(genesis.Encode(), data) {
			t.Fatal("a genesis has two encodings")
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add("acme:a")
	f.Add("-170141183460469231731687303715884105728")
	f.Fuzz(func(t *testing.T, text string) {
		if path, err := ledger.ParseAccountPath(text); err == nil && path.Organisation().Validate() != nil {
			t.Fatal("an account of no organisation")
		}
		if amount, err := ledger.ParseAmount(text); err == nil && amount.String() != text {
			t.Fatal("an amount has two texts")
		}
		if hash, err := ledger.ParseHash(text); err == nil && len(hash.String()) != len(text) {
			t.Fatal("a hash has two texts")
		}
	})
}

func FuzzStateEntry(f *testing.F) {
	state := ledger.NewState(ledgertest.Genesis())
	_, _, batch, _, _ := seeds(f)
	state.Execute(ledger.Seal(ledger.Parent{}, 1, 1, [][]byte{batch}, func(ledger.Hash, *ledger.Transaction) bool { return false }))
	_ = state.Entries(func(key, value []byte) error {
		f.Add(bytes.Clone(key), bytes.Clone(value))
		return nil
	})
	operated := ledgertest.OperatedGenesis(2)
	members := ledger.NewState(operated)
	members.Execute(ledger.Seal(ledger.Parent{Hash: operated.Hash()}, 1, 1, [][]byte{ledgertest.Batch(7, changeSeeds()[0])}, func(ledger.Hash, *ledger.Transaction) bool { return false }))
	_ = members.Entries(func(key, value []byte) error {
		f.Add(bytes.Clone(key), bytes.Clone(value))
		return nil
	})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		_ = ledger.NewState(ledgertest.Genesis()).Restore(key, value)
	})
}
