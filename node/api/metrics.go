package api

import (
	"context"
	"errors"
	"path"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
)

// callBuckets returns the upper bounds, in seconds, of the buckets of ledgerd_api_call_seconds: 0.1
// ms, 0.2 ms, 0.4 ms and so on to 52.4 s. A quantile read from them is wrong by a factor of two at
// most. Submissions wait for seconds when members fail, so the series ends near the time-out of a
// minute.
func callBuckets() []float64 { return prometheus.ExponentialBuckets(0.0001, 2, 20) }

// metrics counts calls. It is the innermost interceptor but one, so it sees the errors that the
// recovery of panics returns.
type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	streams *prometheus.GaugeVec
	panics  prometheus.Counter
}

var _ connect.Interceptor = (*metrics)(nil)

func newMetrics(registry *prometheus.Registry) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ledgerd_api_calls_total", Help: "Calls of the API by method and code.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ledgerd_api_call_seconds",
			Help: "Duration of the API's unary calls, in buckets from 0.1 ms to 52 s " +
				"that grow by two; " +
				"and as a native histogram, in buckets that grow by a tenth, for scrapers that " +
				"ask for it.",
			Buckets:                         callBuckets(),
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"method"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ledgerd_api_streams", Help: "Streams open now, by method.",
		}, []string{"method"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ledgerd_api_panics_total", Help: "Calls that panicked; each is a bug.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.calls, m.seconds, m.streams, m.panics} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// shardMetrics collects, at scrape time, the metrics of this node's shard and its streams to child
// shards.
type shardMetrics struct {
	shards                                     Shards
	height, pending, carried, streamed, behind *prometheus.Desc
}

func newShardMetrics(shards Shards) *shardMetrics {
	own := prometheus.Labels{"shard": strconv.FormatUint(uint64(shards.Own()), 10)}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ledgerd_shard_"+name, help, labels, own)
	}
	return &shardMetrics{
		shards: shards,
		height: describe("height", "Height of this node's shard, the highest that any of "+
			"its nodes reported."),
		pending: describe("pending_crossings",
			"Transactions in this shard's chain that wait for other shards."),
		carried: describe("carried_total", "Entries of the parent shard's stream in this "+
			"shard's chain."),
		streamed: describe("streamed_total", "Entries of this shard's stream to a child shard.",
			"child"),
		behind: describe("stream_behind", "Entries of this shard's stream that a child shard "+
			"has not carried yet, as far as reported.", "child"),
	}
}

// Describe implements prometheus.Collector.
func (m *shardMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, each := range []*prometheus.Desc{m.height, m.pending, m.carried, m.streamed, m.behind} {
		to <- each
	}
}

// Collect implements prometheus.Collector.
func (m *shardMetrics) Collect(to chan<- prometheus.Metric) {
	carried := make(map[ledger.ShardID]uint64)
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
		to <- prometheus.MustNewConstMetric(m.carried, prometheus.CounterValue,
			float64(state.Carried))
		for child, streamed := range state.Streamed {
			name := strconv.FormatUint(uint64(child), 10)
			to <- prometheus.MustNewConstMetric(m.streamed, prometheus.CounterValue,
				float64(streamed), name)
			to <- prometheus.MustNewConstMetric(m.behind, prometheus.GaugeValue,
				float64(streamed-min(streamed, carried[child])), name)
		}
	}
}

func codeName(err error) string {
	if err == nil {
		return "ok"
	}
	if errors.Is(err, context.Canceled) {
		return connect.CodeCanceled.String()
	}
	return connect.CodeOf(err).String()
}

// WrapUnary implements connect.Interceptor.
func (m *metrics) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		method := path.Base(request.Spec().Procedure)
		begin := time.Now()
		response, err := next(ctx, request)
		m.seconds.WithLabelValues(method).Observe(time.Since(begin).Seconds())
		m.calls.WithLabelValues(method, codeName(err)).Inc()
		return response, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (m *metrics) WrapStreamingClient(
	next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (m *metrics) WrapStreamingHandler(
	next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, connection connect.StreamingHandlerConn) error {
		method := path.Base(connection.Spec().Procedure)
		open := m.streams.WithLabelValues(method)
		open.Inc()
		defer open.Dec()
		err := next(ctx, connection)
		m.calls.WithLabelValues(method, codeName(err)).Inc()
		return err
	}
}
