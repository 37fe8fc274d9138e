package state_test

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// openedBook returns a state with this number of accounts, each with a balance of one asset. Their
// paths have 20 bytes.
func openedBook(accounts int) (*ledger.Genesis, *state.State) {
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.NewestVersion
	s, client := state.New(genesis), ledgertest.NewClient(genesis, "acme")
	parent := state.Parent{Hash: genesis.Hash()}
	execute := func(transactions ...ledger.Transaction) {
		block, _ := s.Execute(state.Seal(parent, 1, 1, ledger.VerifyBatches([][]byte{
			ledgertest.Batch(1, client.Bundle(transactions...))}),
			func(ledger.Hash, *ledger.Transaction) bool { return false }))
		if last := block.Entry(block.Len() - 1).Result; !last.OK() {
			panic(last)
		}
	}
	issuer := client.Account("issuer")
	first := client.Register()
	first.Openings = []ledger.Opening{{Account: issuer, Issuer: true}}
	execute(first)
	for done := 1; done < accounts; {
		opening, count := client.Next(), min(accounts-done, ledger.MaxOpenings)
		for range count {
			account := client.Account(fmt.Sprintf("account-%07d", done))
			opening.Openings = append(opening.Openings, ledger.Opening{Account: account})
			opening.Postings = append(opening.Postings, ledger.Posting{Account: account,
				Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(1)})
			done++
		}
		opening.Postings = append(opening.Postings, ledger.Posting{Account: issuer,
			Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(int64(-count))})
		execute(opening)
	}
	return genesis, s
}

// BenchmarkMemory measures what a million accounts with one balance each take of the heap, and the
// processor time of collecting garbage beside them. They were opened, or restored from the entries.
func BenchmarkMemory(b *testing.B) {
	const accounts = 1_000_000
	heap := func() (bytes, objects float64) {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc), float64(stats.HeapObjects)
	}
	collecting := func() float64 {
		sample := []metrics.Sample{{Name: "/cpu/classes/gc/mark/dedicated:cpu-seconds"}}
		metrics.Read(sample)
		return sample[0].Value.Float64()
	}
	measure := func(name string, fill func() *state.State) {
		b.Run(name, func(b *testing.B) {
			bytesBefore, objectsBefore := heap()
			s := fill()
			bytesAfter, objectsAfter := heap()
			b.ResetTimer()
			before := collecting()
			for b.Loop() {
				runtime.GC()
			}
			b.ReportMetric((collecting()-before)*1e3/float64(b.N), "gc-ms/op")
			b.ReportMetric((bytesAfter-bytesBefore)/accounts, "bytes/account")
			b.ReportMetric((objectsAfter-objectsBefore)/accounts, "objects/account")
			runtime.KeepAlive(s)
		})
	}
	measure("opened", func() *state.State {
		_, s := openedBook(accounts)
		return s
	})
	measure("restored", func() *state.State {
		genesis, from := openedBook(accounts)
		s := state.New(genesis)
		if err := from.Entries(func(key, value []byte) error {
			return s.Restore(bytes.Clone(key), value)
		}); err != nil {
			b.Fatal(err)
		}
		if err := s.Complete(nil); err != nil {
			b.Fatal(err)
		}
		return s
	})
}
