package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// BenchmarkPaymentsAcrossShards measures payments between two shards of three members, until they
// are durable at their signer's home, with some callers at a time.
func BenchmarkPaymentsAcrossShards(bench *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, vouched := range []bool{false, true} {
			name := fmt.Sprintf("callers=%d/vouched=%t", callers, vouched)
			bench.Run(name, func(bench *testing.B) {
				b := newBookOf(bench, vouched, 3, 0, 0)
				b.open()
				payments := make([]*ledger.Bundle, bench.N)
				for i := range payments {
					payment := b.clients[0].Transfer(b.clients[0].Account("issuer"),
						b.clients[1].Account("a"), 1)
					if ledger.TakesDeadlines(b.version) {
						payment.Deadline = soon(time.Hour)
					}
					payments[i] = b.signed(payment)
				}
				via := b.via(0, 1, 2)
				bench.ResetTimer()
				var next atomic.Int64
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for i := next.Add(1) - 1; i < int64(bench.N); i = next.Add(1) - 1 {
							if _, err := via.Submit(context.Background(), payments[i],
								ledgerdv1.Level_LEVEL_DURABLE); err != nil {
								bench.Error(err)
							}
						}
					})
				}
				all.Wait()
				bench.ReportMetric(float64(bench.N)/bench.Elapsed().Seconds(), "payments/s")
			})
		}
	}
}

// BenchmarkBundlesAcrossShards measures the processor time of all twelve nodes of four shards, and
// of their clients, for a transaction in a bundle of 100: of bundles that stay in their shard, and
// of bundles that cross to each other shard in turn.
func BenchmarkBundlesAcrossShards(bench *testing.B) {
	for _, across := range []bool{false, true} {
		bench.Run(fmt.Sprintf("across=%t", across), func(bench *testing.B) {
			const each, callers = 100, 6 // callers of each shard
			b := newBookOf(bench, true, 3, 0, 0, 0, 0)
			b.store = store.Options{}
			b.open()
			var bundles [][]*ledger.Bundle
			var vias []*client.Client
			for caller := range callers * len(b.tree) {
				from := caller % len(b.tree)
				bundles = append(bundles, b.bundles(from, caller, bench.N, each, across))
				vias = append(vias, b.via(b.of(from)[caller/len(b.tree)%b.members]))
			}
			before := processorTime(bench)
			bench.ResetTimer()
			var all sync.WaitGroup
			for caller := range bundles {
				all.Go(func() {
					for _, bundle := range bundles[caller] {
						statuses, err := vias[caller].Submit(context.Background(), bundle,
							ledgerdv1.Level_LEVEL_DURABLE)
						if err != nil {
							bench.Error(err)
							return
						}
						b.applied(statuses)
					}
				})
			}
			all.Wait()
			b.eventually("nothing waits", func() bool {
				return !slices.ContainsFunc(b.nodes, func(n *node.Node) bool {
					return n.Store().PendingCount() > 0
				})
			})
			took := processorTime(bench) - before
			bench.ReportMetric(float64(took.Nanoseconds())/1e3/
				float64(bench.N*each*len(bundles)), "cpu-µs/tx")
		})
	}
}

// bundles returns bundles of payments from a shard's organisation, in a stream of their own: to
// itself, or to the organisations of the other shards in turn.
func (b *book) bundles(from, stream, count, each int, across bool) (made []*ledger.Bundle) {
	c := b.clients[from]
	for i := range count {
		to := from
		if across {
			to = (from + 1 + i%(len(b.tree)-1)) % len(b.tree)
		}
		payments := make([]ledger.Transaction, each)
		for j := range payments {
			payments[j] = c.Transfer(c.Account("issuer"), b.clients[to].Account("a"), 1)
			payments[j].Nonce = ledger.Nonce{Stream: uint64(10 + stream),
				Sequence: uint64(i*each + j + 1)}
			payments[j].Deadline = soon(time.Hour)
		}
		made = append(made, b.signed(payments...))
	}
	return made
}

// applied checks that no transaction was refused.
func (b *book) applied(statuses []*ledgerdv1.TransactionStatus) {
	for _, status := range statuses {
		if status.GetReasonCode() != "" {
			b.t.Errorf("refused: %v", status)
			return
		}
	}
}

// processorTime returns the processor time of this process.
func processorTime(t testing.TB) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
