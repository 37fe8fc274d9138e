package api

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/intake"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// requests keeps all requests under way within one memory budget, and each within its call's
// limits.
type requests struct {
	table  *intake.Table
	budget *intake.Budget

	offences *offences
	idleTime time.Duration // of a stream of requests
}

var _ connect.Interceptor = (*requests)(nil)

func newRequests(options Options, offences *offences) (*requests, error) {
	r := &requests{table: intake.NewTable(options.MaxMessageBytes, options.MaxBundles),
		budget: intake.NewBudget(options.MaxRequestMemory), offences: offences,
		idleTime: options.MaxIdleTime}
	for _, collector := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ledgerd_api_request_bytes",
			Help: "Memory that is reserved for requests under way.",
		}, func() float64 { return float64(r.budget.Used()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ledgerd_api_requests_over_budget_total",
			Help: "Requests refused because the memory for requests was spent.",
		}, func() float64 { return float64(r.budget.Refused()) }),
	} {
		if err := options.Registry.Register(collector); err != nil {
			return nil, fmt.Errorf("api: registering metrics: %w", err)
		}
	}
	return r, nil
}

// handlerOptions returns the options of a handler behind within.
func (r *requests) handlerOptions() connect.HandlerOption {
	return connect.WithHandlerOptions(
		r.table.Codecs(),
		connect.WithRequestGate(refuseOverBudget),
		connect.WithCompression("gzip",
			func() connect.Decompressor { return intake.Compressed{} },
			func() connect.Compressor { return gzip.NewWriter(io.Discard) }))
}

type bodyKey struct{}

// within reserves the memory of each request: the least that a call takes at once, the rest as its
// body arrives.
func (r *requests) within(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		limits := r.table.Of(intake.MethodOf(request.URL.Path))
		if limits.Each {
			r.withinEach(next, limits, w, request)
			return
		}
		var body *budgetedBody
		if reservation := r.budget.Open(hostOf(request.RemoteAddr)); reservation != nil {
			defer reservation.Close()
			body = &budgetedBody{ReadCloser: request.Body, reservation: reservation,
				limits: limits}
			if !body.reserve(len(request.URL.RawQuery)) { // has the message of a GET
				body = nil
			}
		}
		request = request.WithContext(context.WithValue(request.Context(), bodyKey{}, body))
		if body != nil {
			request.Body = body
		}
		next.ServeHTTP(w, request)
		// What a client takes back is not refused for its form.
		if body != nil && body.read > 0 && !body.accepted && request.Context().Err() == nil {
			r.offences.offend(request.Context(), offenceRequest, 1+body.read/bytesPerOffence)
		}
	})
}

func overBudget() *connect.Error {
	return Retryable(connect.CodeResourceExhausted,
		errors.New("this node has no memory for more requests: try again in a moment or ask "+
			"another node"), nil)
}

// refuseOverBudget refuses a call that got no reservation, before its body is read.
func refuseOverBudget(ctx context.Context, _ connect.Spec, _ connect.Peer,
	_ http.Header) (context.Context, error) {
	if body, _ := ctx.Value(bodyKey{}).(*budgetedBody); body == nil && streamedBodyOf(ctx) == nil {
		return nil, overBudget()
	}
	return ctx, nil
}

// budgetedBody reserves what each byte may take, decoded too, when it arrives.
type budgetedBody struct {
	io.ReadCloser
	reservation *intake.Reservation
	limits      intake.Limits
	read        int
	failed      error
	// accepted: the request was decoded, or lacked memory that others have.
	accepted bool
}

func (b *budgetedBody) reserve(bytes int) bool {
	before := b.read
	b.read += bytes
	return b.reservation.Grow(b.limits.Needs(b.read) - b.limits.Needs(before))
}

func (b *budgetedBody) Read(buffer []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	n, err := b.ReadCloser.Read(buffer)
	switch {
	// A gRPC message has a prefix of five bytes.
	case b.read+n > b.limits.Bytes+5:
		b.failed = connect.NewError(connect.CodeResourceExhausted, fmt.Errorf(
			"the request is larger than the %d bytes that are allowed", b.limits.Bytes))
	case !b.reserve(n):
		b.failed, b.accepted = overBudget(), true
	default:
		return n, err
	}
	return 0, b.failed
}

// failedMemory is what a transfer takes in an answer if it fails: only then has it a status of its
// own there.
const failedMemory = 256

// packedMemory returns what the packed bundles of a request take at most once they are decoded, and
// in the answer. Limits does not count it: for their bytes, they take far more than other bundles.
func packedMemory(message any) (bytes int64) {
	add := func(encoded []byte) {
		transfers := ledger.PackedTransfers(encoded)
		bytes += int64(ledger.PackedMemory(encoded) + failedMemory*transfers)
	}
	switch request := message.(type) {
	case *ledgerdv1.SubmitRequest:
		add(request.GetBundle().GetPacked())
	case *ledgerdv1.DryRunRequest:
		add(request.GetBundle().GetPacked())
	case *ledgerdv1.SubmitManyRequest:
		for _, bundle := range request.GetBundles() {
			add(bundle.GetPacked())
		}
	case *ledgerdv1.SubmitStreamRequest:
		add(request.GetBundle())
	}
	return bytes
}

// WrapUnary implements connect.Interceptor. A request that is decoded gives back the memory of its
// encoded form, and reserves that of packed bundles.
func (r *requests) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if body, _ := ctx.Value(bodyKey{}).(*budgetedBody); body != nil {
			body.accepted = true
			body.reservation.Shrink(body.limits.Encoded(body.read))
			if packed := packedMemory(request.Any()); !body.reservation.Grow(packed) {
				return nil, overBudget()
			}
		}
		return next(ctx, request)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (r *requests) WrapStreamingClient(
	next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. A stream's request is small, so a malformed
// one is no offence.
func (r *requests) WrapStreamingHandler(
	next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, connection connect.StreamingHandlerConn) error {
		if body, _ := ctx.Value(bodyKey{}).(*budgetedBody); body != nil {
			body.accepted = true
		}
		return next(ctx, connection)
	}
}
