package api

import (
	"context"
	"errors"
	"path"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
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
			Name: "ledgerd_api_calls_total",
			Help: "Calls of the API by method and code. A bundle of a SubmitStream counts as a " +
				"Submit.",
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

// submitted counts a bundle of a stream as a Submit.
func (m *metrics) submitted(begun time.Time, err error) {
	const method = "Submit"
	m.seconds.WithLabelValues(method).Observe(time.Since(begun).Seconds())
	m.calls.WithLabelValues(method, codeName(err)).Inc()
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
