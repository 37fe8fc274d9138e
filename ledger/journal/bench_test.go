package journal_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
)

// BenchmarkJournal measures the export of transactions in each format, and verifying them.
func BenchmarkJournal(b *testing.B) {
	source := fixedChain()
	options := journal.Options{To: ledger.Height(len(source.blocks))}
	const transactions = 59 * 100
	for _, name := range []string{"jsonl", "csv"} {
		b.Run(name, func(b *testing.B) {
			format, err := journal.FormatOf(name)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := journal.Export(b.Context(), io.Discard, source, format,
					options); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(transactions*float64(b.N)/b.Elapsed().Seconds(), "transactions/s")
		})
	}
	b.Run("verify", func(b *testing.B) {
		text := export(b, source, "jsonl", options)
		b.ResetTimer()
		for b.Loop() {
			if _, err := journal.Verify(b.Context(), bytes.NewReader(text), source.genesis,
				nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(transactions*float64(b.N)/b.Elapsed().Seconds(), "transactions/s")
	})
}
