package shards

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// BenchmarkApplied measures the time that the pipeline waits with each block of 1,000 transactions,
// while other shards' verdicts come and go.
func BenchmarkApplied(b *testing.B) {
	v := &Verdicts{wake: make(chan struct{}, 1), awaited: newAwaitedSet(),
		early: newEarlySet(earlyMax), settled: newRecentSet(settledMax)}
	block := &ledger.Block{}
	for i := range 1000 {
		block.Entries = append(block.Entries, ledger.Entry{ID: name(i),
			Transaction: &someTransaction, Result: good})
	}
	v.early.add(ledger.Verdict{ID: name(2000)})
	b.ReportAllocs()
	for b.Loop() {
		v.Applied(block)
	}
}

// BenchmarkPropose proposes 100 of many verdicts and removes them, as when a block has them.
func BenchmarkPropose(b *testing.B) {
	v := &Verdicts{wake: make(chan struct{}, 1), closed: make(chan struct{}),
		awaited: newAwaitedSet()}
	for i := range 50_000 {
		v.awaited.add(ledger.Verdict{ID: name(i), Shard: 1, Result: good})
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, verdict := range v.Propose(100 * ledger.VerdictSize) {
			v.awaited.remove(keyOf(&verdict))
			v.awaited.add(verdict)
		}
	}
}
