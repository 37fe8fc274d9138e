package shards

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// BenchmarkApplied measures the time that the pipeline waits with each block of 1,000 transactions,
// while other shards' verdicts come and go.
func BenchmarkApplied(b *testing.B) {
	v := &Verdicts{wake: make(chan struct{}, 1), awaited: newAwaitedSet(),
		early: newEarlySet(earlyMax), settled: newRecentSet(settledMax)}
	block := &ledger.Block{}
	for i := range 1000 {
		block.Unpacked = append(block.Unpacked, ledger.Entry{ID: name(i),
			Decoded: &someTransaction, Result: good})
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

// BenchmarkProposeVouched restates 1,000 of many verdicts, of which a block takes 100 each time.
func BenchmarkProposeVouched(b *testing.B) {
	for _, awaited := range []int{1_000, awaitedMax} {
		b.Run(fmt.Sprint(awaited), func(b *testing.B) {
			set := &orderedSet{}
			v := &Verdicts{config: VerdictsConfig{Vouched: true}, closed: make(chan struct{}),
				awaited: set}
			random := rand.New(rand.NewPCG(1, 2))
			draw := func() ledger.Verdict {
				verdict := ledger.Verdict{Shard: 1, Result: good}
				binary.BigEndian.PutUint64(verdict.ID[:], random.Uint64())
				return verdict
			}
			for set.len() < awaited {
				set.add(draw())
			}
			b.ReportAllocs()
			for b.Loop() {
				verdicts := v.Propose(1000 * ledger.VerdictSize)
				b.StopTimer()
				for i := range 100 {
					set.remove(keyOf(&verdicts[i]))
					set.add(draw())
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkOrderedSet adds and removes a verdict in a full set.
func BenchmarkOrderedSet(b *testing.B) {
	set := &orderedSet{}
	random := rand.New(rand.NewPCG(1, 2))
	var verdicts [awaitedMax]ledger.Verdict
	for i := range verdicts {
		binary.BigEndian.PutUint64(verdicts[i].ID[:], random.Uint64())
		set.add(verdicts[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		verdict := &verdicts[i%len(verdicts)]
		set.remove(keyOf(verdict))
		set.add(*verdict)
	}
}

// BenchmarkHear counts the words of five members on 1,024 verdicts, which then are believed.
func BenchmarkHear(b *testing.B) {
	members := directory(b, 0)
	indexes := map[ledger.MemberIndex]int{}
	for i := range 5 {
		indexes[ledger.MemberIndex(i)] = 20 + i
	}
	members.Learn(1, changed(1, indexes))
	v := &Verdicts{config: VerdictsConfig{Vouched: true, Directory: members},
		settled: newRecentSet(settledMax), believed: newRecentSet(believedMax),
		words: newWordSet(faults{}), exposed: map[memberKey]time.Time{}}
	v.words.follow(members)
	verdicts := make([]ledger.Verdict, verdictsMax)
	b.ReportAllocs()
	for turn := 0; b.Loop(); turn++ {
		for i := range verdicts {
			verdicts[i] = ledger.Verdict{ID: name(turn*verdictsMax + i), Shard: 1, Result: good}
		}
		for index := range indexes {
			v.hear(memberKey{1, index}, verdicts)
		}
		if len(v.inbox) != verdictsMax {
			b.Fatalf("%d are believed", len(v.inbox))
		}
		v.inbox = v.inbox[:0]
	}
}
