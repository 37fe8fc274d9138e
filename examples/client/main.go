// Command client shows the Go client of a running ledger. It registers an organisation, opens two
// accounts, issues money from one to the other, waits until the transfer is durable, reads the
// balance and verifies the node's proof of the transfer. Start a ledger, then run it:
//
//	go run ./cmd/ledgerd testnet --dir net --nodes 4 --run
//	go run ./examples/client --nodes http://127.0.0.1:26600,http://127.0.0.1:26602
package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func main() {
	nodes := flag.String("nodes", "http://127.0.0.1:26600,http://127.0.0.1:26602",
		"the addresses of nodes of the ledger, separated by commas")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout, strings.Split(*nodes, ",")); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, urls []string) error {
	// The client talks to the first node, and to the next one if that node is gone.
	nodes, err := client.New(urls, client.Options{})
	if err != nil {
		return err
	}
	defer nodes.Close()

	// Each run is a new organisation. Keep real keys in a file: see client.OpenKeyring.
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	name := ledger.OrganisationName(fmt.Sprintf("shop-%x", public[:4]))
	key := client.NewKey(name, private)
	mint, till := ledger.AccountPath(name+":mint"), ledger.AccountPath(name+":till")

	status, err := nodes.Post(ctx, []client.Key{key}, ledger.Transaction{
		Registrations: []ledger.Registration{{Name: name, Keys: []ledger.PublicKey{key.Public()}}},
		// An issuer may go below zero: its debt is the money that it issued.
		Openings: []ledger.Opening{{Account: mint, Issuer: true}, {Account: till}},
	}, ledgerdv1.Level_LEVEL_DURABLE)
	if err := applied(status, err); err != nil {
		return fmt.Errorf("registering %s: %w", name, err)
	}
	fmt.Fprintf(out, "%s is registered, with the accounts %s and %s\n", name, mint, till)

	// A transfer is a set of postings that add up to zero.
	status, err = nodes.Post(ctx, []client.Key{key}, ledger.Transaction{
		Postings: []ledger.Posting{
			{Account: mint, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-100)},
			{Account: till, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(100)},
		},
		Note: []byte("the first hundred"),
	}, ledgerdv1.Level_LEVEL_ORDERED)
	if err := applied(status, err); err != nil {
		return fmt.Errorf("issuing: %w", err)
	}
	id := ledger.Hash(status.GetId())
	fmt.Fprintf(out, "transfer %s is ordered\n", id)
	transfer, err := nodes.Wait(ctx, id, ledgerdv1.Level_LEVEL_DURABLE)
	if err := applied(transfer.GetStatus(), err); err != nil {
		return fmt.Errorf("waiting for %s: %w", id, err)
	}
	fmt.Fprintf(out, "it is durable, in block %d\n", transfer.GetStatus().GetHeight())

	account, err := nodes.Account(ctx, till)
	if err != nil {
		return err
	}
	for _, balance := range account.GetBalances() {
		fmt.Fprintf(out, "%s holds %s %s\n", till, balance.GetAmount(), balance.GetAsset())
	}

	// The client checks a node's proof that the transaction is in a block, with its result and
	// signatures. The proof ends at the block's hash, so every node must have that block.
	if _, err := nodes.VerifiedProof(ctx, id); err != nil {
		return err
	}
	fmt.Fprintf(out, "the proof holds; %d nodes have its block\n", len(nodes.URLs()))
	return nil
}

// applied returns an error unless the transaction took effect.
func applied(status *ledgerdv1.TransactionStatus, err error) error {
	switch {
	case err != nil:
		return err
	case status.GetReason() != "":
		return errors.New(status.GetReason())
	}
	return nil
}
