package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// A keyring keeps one key for each organisation, in a folder that only its owner can read.
func ExampleOpenKeyring() {
	folder, err := os.MkdirTemp("", "keys-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	keyring, err := client.OpenKeyring(folder)
	if err != nil {
		fmt.Println(err)
		return
	}
	created, err := keyring.Create("acme")
	if err != nil {
		fmt.Println(err)
		return
	}
	loaded, err := keyring.Load("acme")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(loaded.Organisation, loaded.Public() == created.Public())
	_, err = keyring.Create("acme")
	fmt.Println(errors.Is(err, client.ErrKeyExists))
	// Output:
	// acme true
	// true
}

// Sign makes a bundle. A client that is offline can sign it and submit it later with
// Client.Submit.
func ExampleSign() {
	folder, err := os.MkdirTemp("", "keys-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	keyring, err := client.OpenKeyring(folder)
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := keyring.Create("acme")
	if err != nil {
		fmt.Println(err)
		return
	}
	transfer := ledger.Transaction{
		Ledger: ledger.Hash{1}, // see Client.Genesis
		Signer: "acme", Nonce: ledger.Nonce{Stream: 1, Sequence: 1},
		Postings: []ledger.Posting{
			{Account: "acme:cash", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-5)},
			{Account: "zeta:cash", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(5)},
		},
	}
	bundle, err := client.Sign(context.Background(), []client.Key{key}, transfer)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, signature := range bundle.Signatures() {
		fmt.Println("signed by", signature.Organisation)
	}
	// Output:
	// signed by acme
}
