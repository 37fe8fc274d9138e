package state_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// transfers returns bundles with this number of transfers each, between two accounts. Their nonces
// follow that of the transaction that opens the accounts.
func transfers(genesis *ledger.Genesis, bundles, each int) []*ledger.Bundle {
	client := ledgertest.NewClient(genesis, "acme")
	client.Sequence = 1
	made := make([]*ledger.Bundle, bundles)
	for i := range made {
		transactions := make([]ledger.Transaction, each)
		for j := range transactions {
			transactions[j] = client.Transfer("acme:issuer", "acme:a", 1)
		}
		made[i] = client.Bundle(transactions...)
	}
	return made
}

// BenchmarkSealAndExecute measures sealing and executing a block of 10,000 transactions, without
// the store.
func BenchmarkSealAndExecute(b *testing.B) {
	genesis := ledgertest.Genesis()
	payload := ledgertest.Batch(1, transfers(genesis, 20, 500)...)
	client := ledgertest.NewClient(genesis, "acme")
	register := ledgertest.Batch(1, client.Bundle(client.Register("issuer", "a")))
	never := func(ledger.Hash, *ledger.Transaction) bool { return false }
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := state.New(genesis)
		s.Execute(state.Seal(state.Parent{Hash: genesis.Hash()},
			1, 1, ledger.VerifyBatches([][]byte{register}),
			never))
		b.StartTimer()
		block, _ := s.Execute(state.Seal(state.Parent{Hash: genesis.Hash()},
			1, 2, ledger.VerifyBatches([][]byte{payload}), never))
		if !block.Entry(9999).Result.OK() {
			b.Fatal(block.Entry(9999).Result)
		}
	}
	b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "tx/s")
}

// BenchmarkShard measures 10,000 transactions in a shard of a book with two shards. They are either
// the shard's own or cross both shards. Each crossing one is set aside, and a verdict settles it.
func BenchmarkShard(b *testing.B) {
	never := func(ledger.Hash, *ledger.Transaction) bool { return false }
	for _, across := range []bool{false, true} {
		name, to := "own", "org0:a"
		if across {
			name, to = "across", "org1:a"
		}
		b.Run(name, func(b *testing.B) {
			genesis := ledgertest.ShardedGenesis(1, 0, 0)
			genesis.Version = ledger.NewestVersion
			client, other := ledgertest.NewClient(genesis, "org0"),
				ledgertest.NewClient(genesis, "org1")
			var setup []*ledger.Bundle
			for shard, each := range []*ledgertest.Client{client, other} {
				registration := each.Register()
				registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
					ledger.ShardID(shard)
				setup = append(setup, each.Bundle(registration))
			}
			opening := client.Next()
			opening.Openings = []ledger.Opening{{Account: "org0:issuer", Issuer: true},
				{Account: "org0:a"}}
			setup = append(setup, client.Bundle(opening))
			var bundles []*ledger.Bundle
			var verdicts []ledger.Verdict
			for range 20 {
				transactions := make([]ledger.Transaction, 500)
				for i := range transactions {
					transactions[i] = client.Transfer("org0:issuer", ledger.AccountPath(to), 1)
					transactions[i].Deadline = 60_000
				}
				bundle := client.Bundle(transactions...)
				bundles = append(bundles, bundle)
				for i := range bundle.Len() {
					verdicts = append(verdicts, ledger.Verdict{ID: bundle.ID(i), Shard: 1,
						Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}})
				}
			}
			payload, second := ledgertest.Batch(1, bundles...),
				(&ledger.Batch{Verdicts: verdicts}).Encode()
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				s := state.New(genesis)
				s.Execute(s.Seal(state.Parent{Hash: genesis.Hash()},
					1, 1, ledger.VerifyBatches([][]byte{ledgertest.Batch(1, setup...)}), never))
				b.StartTimer()
				block, _ := s.Execute(s.Seal(state.Parent{Hash: genesis.Hash()}, 1,
					2, ledger.VerifyBatches([][]byte{payload}), never))
				want := ledger.Applied
				if across {
					want = ledger.SetAside
				}
				if block.Entry(9999).Result.Code != want {
					b.Fatal(block.Entry(9999).Result)
				}
				if across {
					block, _ = s.Execute(s.Seal(state.Parent{Hash: genesis.Hash()},
						1, 3, ledger.VerifyBatches([][]byte{second}), never))
					if block.Entry(9999).Result.Code != ledger.Settled {
						b.Fatal(block.Entry(9999).Result)
					}
				}
			}
			b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "tx/s")
		})
	}
}

// BenchmarkExecute executes blocks of 16 bundles with 400 transfers each, between accounts that are
// chosen equally often. In "divided" all processors hash them. In "one cold" one more account is
// not resident, so the state looks which accounts a block needs first.
func BenchmarkExecute(b *testing.B) {
	for _, accounts := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(accounts), func(b *testing.B) {
			benchmarkExecute(b, accounts, nil, false)
		})
		b.Run(fmt.Sprintf("%d one cold", accounts), func(b *testing.B) {
			benchmarkExecute(b, accounts, nil, true)
		})
		b.Run(fmt.Sprintf("%d divided", accounts), func(b *testing.B) {
			benchmarkExecute(b, accounts, onAllProcessors, false)
		})
	}
}

// onAllProcessors is a state.Divide.
func onAllProcessors(parts int, do func(part int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), parts) {
		working.Go(func() {
			for part := int(next.Add(1)) - 1; part < parts; part = int(next.Add(1)) - 1 {
				do(part)
			}
		})
	}
	working.Wait()
}

func benchmarkExecute(b *testing.B, accounts int, divide state.Divide, cold bool) {
	never := func(ledger.Hash, *ledger.Transaction) bool { return false }
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.NewestVersion
	s := state.New(genesis)
	if err := s.Complete(divide); err != nil {
		b.Fatal(err)
	}
	parent := state.Parent{Hash: genesis.Hash()}
	sealed := func(bundles ...*ledger.Bundle) *state.Draft {
		return state.Seal(parent, 1, 1,
			ledger.VerifyBatches([][]byte{ledgertest.Batch(1, bundles...)}), never)
	}
	client := ledgertest.NewClient(genesis, "acme")
	names := []string{"cold"} // the first one that is dropped
	for i := range accounts {
		names = append(names, fmt.Sprintf("account-%d", i))
		if len(names) >= 200 || i == accounts-1 {
			registration := client.Register(names...)
			for j := range registration.Openings {
				registration.Openings[j].Issuer = true
			}
			s.Execute(sealed(client.Bundle(registration)))
			names = names[:0]
		}
	}
	for cold && s.AllResident() {
		s.Evict(1, accounts)
	}
	random, count := rand.New(rand.NewPCG(1, 1)), 0
	account := func() ledger.AccountPath {
		return client.Account(fmt.Sprintf("account-%d", random.IntN(accounts)))
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		var bundles []*ledger.Bundle
		for range 16 {
			client.Stream++
			client.Sequence = 0
			transactions := make([]ledger.Transaction, 400)
			for i := range transactions {
				transactions[i] = client.Transfer(account(), account(), 1)
			}
			bundles = append(bundles, client.Bundle(transactions...))
		}
		draft := sealed(bundles...)
		count += draft.Len()
		b.StartTimer()
		if wanted := s.Wanted(draft); len(wanted) > 0 {
			b.Fatal(wanted)
		}
		s.Execute(draft)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(count), "ns/tx")
}
