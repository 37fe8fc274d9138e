package client

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// instant is a backend that admits and orders everything at once.
type instant struct{ api.Backend }

func (instant) Admit(_ context.Context, bundles []*ledger.Bundle, _ bool) []*report.Refusal {
	return make([]*report.Refusal, len(bundles))
}

func (instant) Wait(_ context.Context, ids []ledger.Hash, _ report.Level) ([]report.Status,
	error) {
	statuses := make([]report.Status, len(ids))
	for i, id := range ids {
		statuses[i] = report.Status{ID: id, Outcome: report.OutcomeExecuted,
			Level: report.LevelDurable, Height: 7, Index: uint32(i)}
	}
	return statuses, nil
}

// BenchmarkSubmission measures what a bundle costs client and node together, without the ledger, as
// a unary call and on a stream.
func BenchmarkSubmission(b *testing.B) {
	cluster := apitest.NewCluster(b, apitest.Options{})
	served := apitest.Serve(b, instant{cluster.Node(0)}, api.Options{CallsPerSecond: -1})
	c, err := New([]string{served.URL}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	key := testKey(b, "acme")
	for _, size := range []int{1, 400} {
		transactions := make([]ledger.Transaction, size)
		for i := range transactions {
			transactions[i] = transfer("acme:mint", "acme:a", 1)
			transactions[i].Ledger, transactions[i].Signer = cluster.Genesis().Hash(), "acme"
			transactions[i].Nonce.Sequence = uint64(i + 1)
		}
		bundle, err := Sign(b.Context(), []Key{key}, transactions...)
		if err != nil {
			b.Fatal(err)
		}
		for _, way := range []string{"unary", "stream"} {
			b.Run(fmt.Sprintf("%s/%d", way, size), func(b *testing.B) {
				s, err := c.NewSender(b.Context(), SenderOptions{Keys: []Key{key}})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = s.Close(context.Background()) })
				if way == "unary" {
					s.at[0].avoid = time.Now().Add(time.Hour)
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.at[0].submit(b.Context(), bundle,
						ledgerdv1.Level_LEVEL_DURABLE); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
