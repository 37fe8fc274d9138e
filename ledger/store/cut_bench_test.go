package store

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// BenchmarkAccountAt reads an account at a place after which 20,000 transactions changed it, in
// blocks of one transaction or of several. No block is in memory.
func BenchmarkAccountAt(b *testing.B) {
	for _, each := range []struct {
		name     string
		perBlock int
	}{{"in each block", 1}, {"several times in each block", 100}} {
		b.Run(each.name, func(b *testing.B) {
			const changes, accounts = 20_000, 100
			s := open(b, b.TempDir(), Options{DecodedCacheBytes: 1})
			traffic := newBook(accounts)
			traffic.apply(b, s, 0)
			place := Place{Height: s.AppendedHeight()}
			for done := 0; done < changes; done += each.perBlock {
				transactions := make([]ledger.Transaction, each.perBlock)
				for i := range transactions {
					transactions[i] = traffic.client.Transfer("acme:issuer",
						traffic.account((done+i*7)%accounts), 1)
				}
				if _, err := s.Apply(1, s.Head().Round+1, [][]byte{ledgertest.Batch(1,
					traffic.client.Bundle(transactions...))}); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.awaitWritten(s.AppendedHeight()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.AccountAt(b.Context(), "acme:issuer", place,
					nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/changes, "ns/change")
		})
	}
}
