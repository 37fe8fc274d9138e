package demo

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

func TestScenes(t *testing.T) {
	t.Parallel()
	total := 0
	for _, candidate := range scenes {
		total += candidate.weight
	}
	if total != 100 {
		t.Errorf("the weights add up to %d", total)
	}
	a, b := scene{mathrand.New(mathrand.NewPCG(1, 0))}, scene{mathrand.New(mathrand.NewPCG(1, 0))}
	for range 2000 {
		act := a.next()
		same := b.next()
		act.Transaction.Signer, same.Transaction.Signer = act.Signers[0], same.Signers[0]
		if err := act.Transaction.Validate(); err != nil {
			t.Fatalf("%v: %+v", err, act)
		}
		first, err := act.Transaction.EncodeBody()
		if err != nil {
			t.Fatal(err)
		}
		second, err := same.Transaction.EncodeBody()
		if err != nil || string(first) != string(second) {
			t.Fatalf("one seed makes two plays: %v", err)
		}
	}
}

func TestTraffic(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
	var urls []string
	for i := range 2 {
		urls = append(urls, apitest.Serve(t, cluster.Node(i), api.Options{}).URL)
	}
	if crossed := traffic(t, 1, 200, urls...).Crossed; crossed != 0 {
		t.Errorf("%d transactions crossed the one shard", crossed)
	}
}

// newestGenesis returns the genesis of a new book with one shard for each parent. It is of now,
// because clients set deadlines by their clocks.
func newestGenesis(parents ...ledger.ShardID) *ledger.Genesis {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version, genesis.Time = ledger.NewestVersion,
		ledger.Milliseconds(time.Now().UnixMilli())
	return genesis
}

// The same play runs in a book of three shards, at the nodes of all of them.
func TestTrafficAcrossShards(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	tally := traffic(t, 3, 100, book.Door(0).URL, book.Door(1).URL, book.Door(2).URL)
	if tally.Crossed < 20 || tally.Crossed > tally.Applied+tally.Refused-20 {
		t.Errorf("not some of the transactions crossed shards: %+v", tally)
	}
}

// traffic lets actors play at nodes until the given number of transactions is applied and some are
// refused. It checks that all money is there at the end.
func traffic(t *testing.T, shards int, applied uint64, urls ...string) Tally {
	t.Helper()
	var nodes []*client.Client
	for _, url := range urls {
		node, err := client.New([]string{url}, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(node.Close)
		nodes = append(nodes, node)
	}
	actors, err := NewActors(rand.Reader, shards)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := actors.Begin(ctx, nodes[0]); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		actors.Run(running, nodes, Options{Rate: 2000, Seed: 1})
	}()
	for ctx.Err() == nil {
		if tally := actors.Tally(); tally.Applied >= applied && tally.Refused >= 2 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	<-ended
	tally := actors.Tally()
	if tally.Applied < applied || tally.Refused < 2 || tally.Refused > tally.Applied/4 ||
		tally.Lost > inFlightMax {
		t.Errorf("%+v", tally)
	}
	for _, home := range actors.Homes() {
		organisation, err := nodes[len(nodes)-1].Organisation(ctx, home.Organisation)
		if err != nil || organisation.GetShard() != uint32(home.Shard) {
			t.Errorf("%s: %v, %v", home.Organisation, organisation, err)
		}
	}
	// One side of a payment may have taken an amount that the other side has not received yet.
	sum := sumOf(ctx, t, nodes[len(nodes)-1])
	for ; sum != 0 && ctx.Err() == nil; sum = sumOf(ctx, t, nodes[len(nodes)-1]) {
		time.Sleep(20 * time.Millisecond)
	}
	if sum != 0 {
		t.Errorf("all balances add up to %d", sum)
	}
	return tally
}

// sumOf returns the sum of all balances.
func sumOf(ctx context.Context, t *testing.T, node *client.Client) (sum int64) {
	t.Helper()
	for account, err := range node.Accounts(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		for _, balance := range account.GetBalances() {
			amount, err := ledger.ParseAmount(balance.GetAmount())
			if err != nil {
				t.Fatal(err)
			}
			value, fits := amount.Int64()
			if !fits {
				t.Fatal("too much money")
			}
			sum += value
		}
	}
	return sum
}

func TestBeginningRefused(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	node, err := client.New([]string{apitest.Serve(t, cluster.Node(0), api.Options{}).URL},
		client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	for i := range 2 {
		actors, err := NewActors(rand.Reader, 1)
		if err != nil {
			t.Fatal(err)
		}
		// The second actors have the same names as the first, and other keys.
		if err := actors.Begin(t.Context(), node); (err != nil) != (i == 1) {
			t.Errorf("actors %d: %v", i, err)
		} else if i == 1 && !errors.Is(err, ErrRefused) && client.CodeOf(err) == 0 {
			t.Errorf("%v", err)
		}
	}
}

// Registrations stand alone, and the organisations are spread over the shards so that they deal
// with each other across them.
func TestHomes(t *testing.T) {
	t.Parallel()
	for shards := 1; shards <= 7; shards++ {
		actors, err := NewActors(rand.Reader, shards)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[ledger.ShardID]bool{}
		for _, home := range actors.Homes() {
			seen[home.Shard] = true
			act := actors.registration(home)
			act.Transaction.Signer = home.Organisation
			registration := act.Transaction.Registrations[0]
			if len(act.Transaction.Openings) > 0 || registration.Pinned != (shards > 1) ||
				registration.Shard != home.Shard || act.Transaction.Validate() != nil {
				t.Errorf("%d shards: %+v", shards, act)
			}
		}
		if len(seen) != min(shards, len(organisations)) {
			t.Errorf("%d shards: organisations live in %d of them", shards, len(seen))
		}
	}
}
