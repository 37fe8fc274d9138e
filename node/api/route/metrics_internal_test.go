package route

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/report"
)

// oneShard is a book as a node of shard 0 sees it.
type oneShard struct {
	Shards
	state report.ShardState
}

func (o oneShard) Tree() *ledger.ShardTree {
	return ledgertest.ShardedGenesis(1, 0, 0, 0, 1).ShardTree()
}

func (o oneShard) Own() ledger.ShardID         { return 0 }
func (o oneShard) States() []report.ShardState { return []report.ShardState{o.state} }

// The metric of the oldest waiting transaction is its age, and 0 without one.
func TestOldestWaitingMetric(t *testing.T) {
	t.Parallel()
	age := func(since time.Time) float64 {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(newMetrics(oneShard{state: report.ShardState{Waiting: report.Waiting{
			Since: since}}}))
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

// What is overdue is a metric by the shard that is waited for, and by the child that takes nothing.
// It is there, as 0, also if nothing is overdue.
func TestOverdueMetrics(t *testing.T) {
	t.Parallel()
	gather := func(waiting report.Waiting) string {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(newMetrics(oneShard{state: report.ShardState{Waiting: waiting}}))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if strings.HasSuffix(family.GetName(), "overdue") {
					labels := metric.GetLabel()
					fmt.Fprintf(&b, "%s %s %v\n", family.GetName(), labels, metric.GetGauge())
				}
			}
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	for _, test := range []struct {
		waiting report.Waiting
		overdue [4]int // for shards 1 to 3, then of the streams to 1
	}{
		{},
		{report.Waiting{Overdue: 5, Verdicts: []report.Wait{{Shard: 2, Count: 9, Overdue: 5},
			{Shard: 3, Count: 9}}, Streams: []report.Wait{{Shard: 1, Count: 8, Overdue: 7}}},
			[4]int{0, 5, 0, 7}},
	} {
		got := gather(test.waiting)
		for i, count := range test.overdue {
			label, name, at := "waits_for", "ledgerd_shard_overdue", i+1
			if i == 3 {
				label, name, at = "child", "ledgerd_shard_stream_overdue", 1
			}
			found := regexp.MustCompile(fmt.Sprintf(`%s \[[^\]]*name:"%s" *value:"%d"[^\]]*\] value:%d\b`,
				name, label, at, count))
			if !found.MatchString(got) {
				t.Errorf("no %s of %d for shard %d in %s", name, count, at, got)
			}
		}
	}
}

// What is lost is a metric in the shard that streams and in the one that lacks it, 0 if nothing is.
func TestLossMetrics(t *testing.T) {
	t.Parallel()
	for _, lost := range []uint64{0, 6} {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(newMetrics(oneShard{state: report.ShardState{Waiting: report.Waiting{
			Streams: []report.Wait{{Shard: 1, Count: 8, Overdue: 8, Lost: lost, LostHeight: 4}},
			Lacks:   report.Wait{Shard: 3, Count: 9, Lost: lost}}}}))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				sums[family.GetName()] += metric.GetGauge().GetValue()
			}
		}
		for _, name := range []string{"ledgerd_shard_stream_lost", "ledgerd_shard_lacks"} {
			if got, there := sums[name]; !there || got != float64(lost) {
				t.Errorf("%s is %v, want %d", name, got, lost)
			}
		}
	}
}
