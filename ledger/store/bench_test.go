package store

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// BenchmarkApply seals, executes and appends blocks of 10,000 two-posting transactions in bundles
// of 500, and syncs at the end. The signatures are made before the clock starts and are not
// verified.
func BenchmarkApply(b *testing.B) {
	const perBlock, perBundle, accounts = 10_000, 500, 1000
	s := open(b, b.TempDir(), Options{})
	traffic := newBook(accounts)
	traffic.apply(b, s, 0)
	client := traffic.client
	var rounds [][]byte
	for done := 0; done < b.N; done += perBlock {
		var bundles []*ledger.Bundle
		for range min(perBlock, b.N-done)/perBundle + 1 {
			transactions := make([]ledger.Transaction, perBundle)
			for i := range transactions {
				transactions[i] = client.Transfer("acme:issuer",
					traffic.account((done+i*7)%accounts), 1)
			}
			bundles = append(bundles, client.Bundle(transactions...))
		}
		rounds = append(rounds, ledgertest.Batch(1, bundles...))
	}
	b.ReportAllocs()
	b.ResetTimer()
	total := s.Head().Total
	for i, payload := range rounds {
		if _, err := s.Apply(1, ledger.Round(i+2), [][]byte{payload}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(s.Head().Total-total)/b.Elapsed().Seconds(), "tx/s")
}

// BenchmarkApplyAndSyncOne appends a block of one transaction and makes it durable. It measures the
// latency of a write of a single client.
func BenchmarkApplyAndSyncOne(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	traffic := newBook(10)
	traffic.apply(b, s, 0)
	for b.Loop() {
		traffic.apply(b, s, 1)
		if err := s.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}
