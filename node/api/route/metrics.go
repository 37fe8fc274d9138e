package route

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// metrics collects, at scrape time, the metrics of this node's shard and its streams to child
// shards.
type metrics struct {
	shards                                     Shards
	height, pending, carried, streamed, behind *prometheus.Desc
	oldest, overdue, untaken, lost, lacks      *prometheus.Desc
}

func newMetrics(shards Shards) *metrics {
	own := prometheus.Labels{"shard": shardLabel(shards.Own())}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ledgerd_shard_"+name, help, labels, own)
	}
	return &metrics{
		shards: shards,
		height: describe("height", "Height of this node's shard, the highest that any of "+
			"its nodes reported."),
		pending: describe("pending_crossings",
			"Transactions in this shard's chain that wait for other shards."),
		oldest: describe("oldest_waiting_seconds", "Time since the block of the oldest "+
			"transaction in this shard's chain that waits for other shards; 0 if none waits."),
		overdue: describe("overdue", "Transactions in this shard's chain that have waited for "+
			"the verdict of another shard for longer than alarm_after.", "waits_for"),
		untaken: describe("stream_overdue", "Entries of this shard's stream that a child shard "+
			"has not taken for longer than alarm_after.", "child"),
		lost: describe("stream_lost", "Entries of this shard's stream that a child shard can "+
			"never take, since all members said that they lack the blocks.", "child"),
		lacks: describe("lacks", "Entries of the parent shard's stream that this shard can never "+
			"take, since all members there said that they lack the blocks."),
		carried: describe("carried_total", "Entries of the parent shard's stream in this "+
			"shard's chain."),
		streamed: describe("streamed_total", "Entries of this shard's stream to a child shard.",
			"child"),
		behind: describe("stream_behind", "Entries of this shard's stream that a child shard "+
			"has not carried yet, as far as reported.", "child"),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, each := range []*prometheus.Desc{m.height, m.pending, m.oldest, m.overdue, m.untaken,
		m.lost, m.lacks,
		m.carried, m.streamed, m.behind} {
		to <- each
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	tree, carried := m.shards.Tree(), make(map[ledger.ShardID]uint64)
	states := m.shards.States()
	for i := range states {
		carried[states[i].Shard] = states[i].Carried
	}
	for i := range states {
		state := &states[i]
		if state.Shard != m.shards.Own() {
			continue
		}
		to <- prometheus.MustNewConstMetric(m.height, prometheus.GaugeValue, float64(state.Height))
		to <- prometheus.MustNewConstMetric(m.pending, prometheus.GaugeValue,
			float64(state.Pending))
		age := 0.0
		if !state.Waiting.Since.IsZero() {
			age = max(time.Since(state.Waiting.Since).Seconds(), 0)
		}
		to <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, age)
		m.collectOverdue(to, &state.Waiting)
		to <- prometheus.MustNewConstMetric(m.lacks, prometheus.GaugeValue,
			float64(state.Waiting.Lacks.Lost))
		to <- prometheus.MustNewConstMetric(m.carried, prometheus.CounterValue,
			float64(sinceBase(state.Carried)))
		for child, streamed := range state.Streamed {
			at, name := streamTo(tree, child, streamed, carried[child]), shardLabel(child)
			to <- prometheus.MustNewConstMetric(m.streamed, prometheus.CounterValue,
				float64(at.GetStreamed()), name)
			to <- prometheus.MustNewConstMetric(m.behind, prometheus.GaugeValue,
				float64(at.GetStreamed()-min(at.GetStreamed(), at.GetCarried())), name)
		}
	}
}

// collectOverdue collects what is overdue for each other shard and for each child, also if it is
// nothing: an alert then tells no alarm from no node.
func (m *metrics) collectOverdue(to chan<- prometheus.Metric, waiting *report.Waiting) {
	tree, own := m.shards.Tree(), m.shards.Own()
	overdue := func(waits []report.Wait, shard ledger.ShardID) (count float64, name string) {
		for i := range waits {
			if waits[i].Shard == shard {
				count = float64(waits[i].Overdue)
			}
		}
		return count, strconv.FormatUint(uint64(shard), 10)
	}
	for shard := range ledger.ShardID(tree.Shards()) {
		if shard != own {
			count, name := overdue(waiting.Verdicts, shard)
			to <- prometheus.MustNewConstMetric(m.overdue, prometheus.GaugeValue, count, name)
		}
	}
	for _, child := range tree.Children(own) {
		count, name := overdue(waiting.Streams, child)
		to <- prometheus.MustNewConstMetric(m.untaken, prometheus.GaugeValue, count, name)
		lost := waiting.LostFor(own, child)
		to <- prometheus.MustNewConstMetric(m.lost, prometheus.GaugeValue, float64(lost.Lost), name)
	}
}

// refusals counts the bundles that this node refused because of obstacles.
type refusals struct {
	shards Shards
	counts *prometheus.CounterVec
}

func newRefusals(shards Shards) *refusals {
	own := shards.Own()
	return &refusals{shards, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ledgerd_shard_refused_bundles_total",
		Help: "Bundles that this node refused because they cross to a shard that is down, " +
			"full or lost, by that shard and reason.",
		ConstLabels: prometheus.Labels{"shard": shardLabel(own)},
	}, []string{"destination", "reason"})}
}

// Describe implements prometheus.Collector.
func (r *refusals) Describe(to chan<- *prometheus.Desc) { r.counts.Describe(to) }

// Collect implements prometheus.Collector. Counts begin at zero for all other shards, so that the
// first refusal counts as a rise.
func (r *refusals) Collect(to chan<- prometheus.Metric) {
	for shard := range ledger.ShardID(r.shards.Tree().Shards()) {
		for _, reason := range []string{report.ReasonShardDown, report.ReasonShardFull,
			report.ReasonShardLost} {
			if shard != r.shards.Own() || reason == report.ReasonShardFull {
				r.counts.WithLabelValues(shardLabel(shard), reason)
			}
		}
	}
	r.counts.Collect(to)
}

func (r *refusals) count(destination ledger.ShardID, reason string) {
	r.counts.WithLabelValues(shardLabel(destination), reason).Inc()
}

func shardLabel(shard ledger.ShardID) string { return strconv.FormatUint(uint64(shard), 10) }
