package client_test

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Post submits one transaction and waits for its outcome.
func ExampleClient_Post() {
	nodes, key, end := shop() // client.New and Keyring.Load
	defer end()
	status, err := nodes.Post(context.Background(), []client.Key{key},
		pay("shop:mint", "shop:till", 5), ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(status.GetState())
	// Output: TRANSACTION_STATE_DURABLE
}

// Submit takes a bundle of transactions that one signature covers. It may be submitted again until
// the outcome is known. Sign packs the bundle if the chain takes that.
func ExampleClient_Submit() {
	nodes, key, end := shop()
	defer end()
	ctx := context.Background()
	book, err := nodes.Genesis(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	const stream = 7 // of the program's own
	next, err := nodes.NextSequence(ctx, "shop", stream)
	if err != nil {
		fmt.Println(err)
		return
	}
	var transfers []ledger.Transaction
	for i := range uint64(3) {
		transfer := pay("shop:mint", "shop:till", 5)
		transfer.Ledger, transfer.Signer = book, "shop"
		transfer.Nonce = ledger.Nonce{Stream: stream, Sequence: next + i}
		transfers = append(transfers, transfer)
	}
	bundle, err := nodes.Sign(ctx, []client.Key{key}, transfers...)
	if err != nil {
		fmt.Println(err)
		return
	}
	statuses, err := nodes.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, status := range statuses {
		fmt.Println(client.Reached(status, ledgerdv1.Level_LEVEL_DURABLE))
	}
	// Output:
	// true
	// true
	// true
}

// VerifiedProof fetches a transaction's proof and checks it.
func ExampleClient_VerifiedProof() {
	nodes, key, end := shop()
	defer end()
	ctx := context.Background()
	status, err := nodes.Post(ctx, []client.Key{key}, pay("shop:mint", "shop:till", 5),
		ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		fmt.Println(err)
		return
	}
	proof, err := nodes.VerifiedProof(ctx, ledger.Hash(status.GetId()))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(proof.Result.OK(), proof.ID == ledger.Hash(status.GetId()))
	// Output: true true
}
