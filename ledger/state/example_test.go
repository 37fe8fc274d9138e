package state_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// A transaction from its signature to the proof that it is in a block.
func Example() {
	if err := transfer(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// block 1 has 2 transactions
	// acme:cash holds 5
	// the proof: applied <nil>
	// with another id: ledger: proof does not hold: the body has another id
}

func transfer() error {
	genesis := &ledger.Genesis{Chain: "example", Time: 1_700_000_000_000,
		Members: []ledger.Member{{Name: "node-0", Key: []byte("key"), Address: "127.0.0.1:1"}}}
	if err := genesis.Validate(); err != nil {
		return err
	}
	book := state.New(genesis)

	// A client registers acme, opens two accounts and issues 5 units.
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)) // not a secret
	public := ledger.PublicKey(private.Public().(ed25519.PublicKey))
	bundle, err := ledger.NewBundle(
		ledger.Transaction{Ledger: genesis.Book(), Signer: "acme",
			Nonce:         ledger.Nonce{Stream: 1, Sequence: 1},
			Registrations: []ledger.Registration{{Name: "acme", Keys: []ledger.PublicKey{public}}},
			Openings: []ledger.Opening{{Account: "acme:mint", Issuer: true},
				{Account: "acme:cash"}},
		},
		ledger.Transaction{Ledger: genesis.Book(), Signer: "acme",
			Nonce: ledger.Nonce{Stream: 1, Sequence: 2},
			Postings: []ledger.Posting{
				{Account: "acme:mint", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-5)},
				{Account: "acme:cash", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(5)},
			}})
	if err != nil {
		return err
	}
	if err := bundle.Sign("acme", private); err != nil {
		return err
	}

	// A node admits it and proposes it. The round is A-delivered, sealed and executed.
	if err := ledger.VerifyBundle(bundle, genesis, genesis.Book(), book); err != nil {
		return err
	}
	batch := ledger.EncodeBatch(ledger.BatchHeader{Time: genesis.Time + 10},
		[][]byte{bundle.Encode()})
	first := genesis.Block()
	never := func(ledger.Hash, *ledger.Transaction) bool { return false } // all ids are new
	draft := state.Seal(state.Parent{Header: first.Header, Hash: first.Hash}, 1, 1,
		ledger.VerifyBatches([][]byte{batch}), never)
	block, _ := book.Execute(draft)
	fmt.Printf("block %d has %d transactions\n", block.Header.Height, block.Len())
	cash, _ := book.Account("acme:cash")
	fmt.Println("acme:cash holds", cash.Balance(ledger.DefaultAsset))

	// Every program can check the proof offline, given the hash of the block.
	proof := block.Proof(1)
	fmt.Println("the proof:", proof.Result.Code, ledger.VerifyProof(proof))
	proof.ID[0]++
	fmt.Println("with another id:", ledger.VerifyProof(proof))
	return nil
}
