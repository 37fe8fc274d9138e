package ledger_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// transfers returns bundles of so many transfers between two accounts that a state knows.
func transfers(b *testing.B, bundles, each int) (*ledger.Genesis, *ledger.State, []*ledger.Bundle) {
	b.Helper()
	genesis := ledgertest.Genesis()
	client := ledgertest.NewClient(genesis, "acme")
	state := ledger.NewState(genesis)
	register := ledgertest.Batch(1, client.Bundle(client.Register("issuer", "a")))
	state.Execute(ledger.Seal(ledger.Parent{Hash: genesis.Hash()}, 1, 1, [][]byte{register}, func(ledger.Hash, *ledger.Transaction) bool { return false }))
	made := make([]*ledger.Bundle, bundles)
	for i := range made {
		transactions := make([]ledger.Transaction, each)
		for j := range transactions {
			transactions[j] = client.Transfer("acme:issuer", "acme:a", 1)
		}
		made[i] = client.Bundle(transactions...)
	}
	return genesis, state, made
}

func BenchmarkVerifyBundles(b *testing.B) {
	for name, size := range map[string]int{"one by one": 1, "batch of 64": 64, "batch of 1024": 1024} {
		b.Run(name, func(b *testing.B) {
			genesis, state, bundles := transfers(b, size, 1)
			hash := genesis.Hash()
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range ledger.VerifyBundles(bundles, genesis, hash, state) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "signatures/s")
		})
	}
}

// BenchmarkSealAndExecute is the work on one block of 10,000 transactions without the store.
func BenchmarkSealAndExecute(b *testing.B) {
	genesis, _, bundles := transfers(b, 20, 500)
	payload := ledgertest.Batch(1, bundles...)
	client := ledgertest.NewClient(genesis, "acme")
	register := ledgertest.Batch(1, client.Bundle(client.Register("issuer", "a")))
	never := func(ledger.Hash, *ledger.Transaction) bool { return false }
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		state := ledger.NewState(genesis)
		state.Execute(ledger.Seal(ledger.Parent{Hash: genesis.Hash()}, 1, 1, [][]byte{register}, never))
		b.StartTimer()
		block, _ := state.Execute(ledger.Seal(ledger.Parent{Hash: genesis.Hash()}, 1, 2, [][]byte{payload}, never))
		if !block.Entries[9999].Result.OK() {
			b.Fatal(block.Entries[9999].Result)
		}
	}
	b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "tx/s")
}
