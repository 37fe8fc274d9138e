package node_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
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
					payments[i] = b.signed(b.clients[0].Transfer(b.clients[0].Account("issuer"),
						b.clients[1].Account("a"), 1))
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
