package verdicts

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// BenchmarkApplied measures the time that the pipeline waits with each block of 1,000 transactions,
// while other shards' verdicts come and go.
func BenchmarkApplied(b *testing.B) {
	x := New(Config{Bounds: DefaultBounds()})
	block := &ledger.Block{}
	for i := range 1000 {
		block.Unpacked = append(block.Unpacked, ledger.Entry{ID: name(i),
			Decoded: &ledger.Transaction{}, Result: good})
	}
	x.early.add(&x.facts, x.facts.need(Key{ID: name(2000)}), good)
	b.ReportAllocs()
	for b.Loop() {
		x.Applied(block)
	}
}

// BenchmarkPropose proposes 100 of many verdicts and removes them, as when a block has them.
func BenchmarkPropose(b *testing.B) {
	x, now := New(Config{Bounds: DefaultBounds()}), 1000*time.Second
	for i := range 50_000 {
		x.awaited.add(ledger.Verdict{ID: name(i), Shard: 1, Result: good})
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, verdict := range x.Propose(100, now, time.Second) {
			x.awaited.remove(KeyOf(&verdict))
			x.awaited.add(verdict)
		}
	}
}

// BenchmarkProposeVouched restates 1,000 of many verdicts, of which a block takes 100 each time.
func BenchmarkProposeVouched(b *testing.B) {
	for _, awaited := range []int{1_000, state.MaxWaiting} {
		b.Run(fmt.Sprint(awaited), func(b *testing.B) {
			set, now := &orderedSet{}, 1000*time.Second
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
				verdicts := set.propose(1000, now, time.Second)
				b.StopTimer()
				for i := range 100 {
					set.remove(KeyOf(&verdicts[i]))
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
	var verdicts [state.MaxWaiting]ledger.Verdict
	for i := range verdicts {
		binary.BigEndian.PutUint64(verdicts[i].ID[:], random.Uint64())
		set.add(verdicts[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		verdict := &verdicts[i%len(verdicts)]
		set.remove(KeyOf(verdict))
		set.add(*verdict)
	}
}

// BenchmarkHear counts the words of five members on 1,024 verdicts, which then are believed.
func BenchmarkHear(b *testing.B) {
	indexes := []ledger.MemberIndex{0, 1, 2, 3, 4}
	x := New(Config{Vouched: true, Shards: func() int { return 2 }, Bounds: DefaultBounds(),
		Members: func(ledger.ShardID) []ledger.MemberIndex { return indexes }})
	const count = 1024
	verdicts := make([]ledger.Verdict, count)
	b.ReportAllocs()
	for turn := 0; b.Loop(); turn++ {
		for i := range verdicts {
			verdicts[i] = ledger.Verdict{ID: name(turn*count + i), Shard: 1, Result: good}
		}
		for _, index := range indexes {
			x.Hear(Member{1, index}, verdicts)
		}
		if got := x.TakeReceived(2 * count); len(got) != count {
			b.Fatalf("%d are believed", len(got))
		}
	}
}
