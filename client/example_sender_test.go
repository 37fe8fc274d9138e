package client_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Many goroutines of a service post at the same time. The Sender signs and sends what is there as
// one bundle, and each goroutine gets the answer for its own transaction.
func ExampleSender() {
	nodes, key, end := shop()
	defer end()
	ctx := context.Background()
	sender, err := nodes.NewSender(ctx, client.SenderOptions{Keys: []client.Key{key}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var working sync.WaitGroup
	for range 100 {
		working.Go(func() {
			answer, err := sender.Post(ctx, pay("shop:mint", "shop:till", 5))
			if err != nil || !answer.Applied() {
				fmt.Println(answer.Status.GetReason(), err)
			}
		})
	}
	working.Wait()
	if err := sender.Close(ctx); err != nil {
		fmt.Println(err)
		return
	}
	till, err := nodes.Account(ctx, "shop:till")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the till holds", till.GetBalances()[0].GetAmount())
	// Output: the till holds 500
}

// The transactions of a Caller take effect in their order, although it does not wait for each: the
// second spends what the first one brings.
func ExampleCaller_Begin() {
	nodes, key, end := shop()
	defer end()
	ctx := context.Background()
	sender, err := nodes.NewSender(ctx, client.SenderOptions{Keys: []client.Key{key}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sender.Close(ctx)
	customer := sender.Caller()
	var taken []*client.Submission
	for _, transaction := range []ledger.Transaction{
		pay("shop:mint", "shop:till", 20), pay("shop:till", "shop:safe", 15),
	} {
		submission, err := customer.Begin(ctx, transaction)
		if err != nil {
			fmt.Println(err)
			return
		}
		taken = append(taken, submission)
	}
	for _, submission := range taken {
		answer, err := submission.Wait(ctx)
		fmt.Println(answer.Applied(), err)
	}
	// Output:
	// true <nil>
	// true <nil>
}

// A transaction that the ledger refuses is no error. Its status says why.
func ExampleSender_Post() {
	nodes, key, end := shop()
	defer end()
	ctx := context.Background()
	sender, err := nodes.NewSender(ctx, client.SenderOptions{Keys: []client.Key{key}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sender.Close(ctx)
	answer, err := sender.Post(ctx, pay("shop:till", "shop:safe", 1))
	switch {
	case errors.Is(err, client.ErrOutcomeUnknown):
		fmt.Println("ask later for", answer.ID)
	case err != nil:
		fmt.Println("it changed nothing:", err)
	default:
		fmt.Println(answer.Applied(), answer.Status.GetReasonCode())
	}
	// Output: false insufficient_funds
}

func pay(from, to ledger.AccountPath, amount int64) ledger.Transaction {
	return ledger.Transaction{Postings: []ledger.Posting{
		{Account: from, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-amount)},
		{Account: to, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(amount)},
	}}
}

// shop runs a ledger with an organisation and its accounts, until end is called.
func shop() (nodes *client.Client, key client.Key, end func()) {
	run := new(exampleRun)
	cluster := apitest.NewCluster(run, apitest.Options{})
	server := apitest.Serve(run, cluster.Node(0), api.Options{})
	nodes, err := client.New([]string{server.URL}, client.Options{})
	if err != nil {
		panic(err)
	}
	run.Cleanup(nodes.Close)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	key = client.NewKey("shop", private)
	if _, err := nodes.Post(context.Background(), []client.Key{key}, ledger.Transaction{
		Registrations: []ledger.Registration{{Name: "shop",
			Keys: []ledger.PublicKey{key.Public()}}},
		Openings: []ledger.Opening{{Account: "shop:mint", Issuer: true}, {Account: "shop:till"},
			{Account: "shop:safe"}},
	}, ledgerdv1.Level_LEVEL_DURABLE); err != nil {
		panic(err)
	}
	return nodes, key, run.end
}

// exampleRun stands for the test of an example, which has none.
type exampleRun struct {
	testing.TB
	cleanups []func()
}

func (r *exampleRun) Helper() {}

func (r *exampleRun) Context() context.Context { return context.Background() }

func (r *exampleRun) TempDir() string {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (r *exampleRun) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *exampleRun) Errorf(format string, arguments ...any) { fmt.Printf(format, arguments...) }

func (r *exampleRun) Fatalf(format string, arguments ...any) {
	panic(fmt.Sprintf(format, arguments...))
}

func (r *exampleRun) end() {
	for len(r.cleanups) > 0 {
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		last()
	}
}
