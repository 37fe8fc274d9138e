package route

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// oneShard is a book as a node of shard 0 sees it.
type oneShard struct {
	Shards
	state report.ShardState
}

func (o oneShard) Own() ledger.ShardID         { return 0 }
func (o oneShard) States() []report.ShardState { return []report.ShardState{o.state} }

// The metric of the oldest waiting transaction is its age, and 0 without one.
func TestOldestWaitingMetric(t *testing.T) {
	t.Parallel()
	age := func(since time.Time) float64 {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(newMetrics(oneShard{state: report.ShardState{OldestWaiting: since}}))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "ledgerd_shard_oldest_waiting_seconds" {
				return family.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("no such metric")
		return 0
	}
	if got := age(time.Now().Add(-time.Hour)); got < 3600 {
		t.Errorf("%v seconds after an hour", got)
	}
	if got := age(time.Now().Add(time.Hour)); got != 0 {
		t.Errorf("%v seconds for a block ahead of this node's clock", got)
	}
	if got := age(time.Time{}); got != 0 {
		t.Errorf("%v seconds though none waits", got)
	}
}
