package ledger_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// transfers returns bundles with one transfer each, and an authority that knows their signer.
func transfers(bundles int) (*ledger.Genesis, *authority, []*ledger.Bundle) {
	genesis := ledgertest.Genesis()
	client := ledgertest.NewClient(genesis, "acme")
	known := newAuthority(genesis)
	known.register(client.Bundle(client.Register("issuer", "a")))
	made := make([]*ledger.Bundle, bundles)
	for i := range made {
		made[i] = client.Bundle(client.Transfer("acme:issuer", "acme:a", 1))
	}
	return genesis, known, made
}

func BenchmarkVerifyBundles(b *testing.B) {
	for name, size := range map[string]int{"one by one": 1, "batch of 64": 64,
		"batch of 1024": 1024} {
		b.Run(name, func(b *testing.B) {
			genesis, known, bundles := transfers(size)
			hash := genesis.Hash()
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range ledger.VerifyBundles(bundles, genesis, hash, known) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "signatures/s")
		})
	}
}

// BenchmarkComplete makes the roots of a block of 16 bundles of 400 transfers. In "aligned" the
// block keeps all transactions. In "shifted" it drops the first one.
func BenchmarkComplete(b *testing.B) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	bundles := make([]*ledger.Bundle, 16)
	for i := range bundles {
		transactions := make([]ledger.Transaction, 400)
		for j := range transactions {
			transactions[j] = client.Transfer("acme:issuer", "acme:a", 1)
		}
		bundles[i] = client.Bundle(transactions...)
	}
	whole := ledgertest.Block(ledgertest.Genesis(), bundles...)
	for name, dropped := range map[string]int{"aligned": 0, "shifted": 1} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			block := &ledger.Block{Header: whole.Header, Unpacked: whole.Unpacked[dropped:],
				Bundles: make([]ledger.BundleSeal, len(bundles))}
			for b.Loop() {
				for i, bundle := range bundles {
					block.Bundles[i] = bundle.Seal(whole.Bundles[i].Kept)
				}
				block.Complete(ledger.Hash{})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/
				float64(b.N*block.Len()), "ns/tx")
		})
	}
}
