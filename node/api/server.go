package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/doors"
)

// Server serves a Service on one address. Make it with New or NewServer.
type Server struct {
	options   Options
	handler   http.Handler
	forwarded http.Handler
	server    *http.Server
	open      *connections
	offences  *offences
	service   *Service
	metrics   *metrics
}

// Service implements the RPCs for one shard: it answers from the Backend's chain alone. Each family
// of RPCs has its own file.
type Service struct {
	backend  Backend
	options  Options
	limits   *limits
	facts    *factsCache
	figures  *figures
	stopping context.Context // ended by Server.Shutdown, which ends the streams
	stop     context.CancelFunc
	// snapshots counts the snapshots that are being streamed.
	snapshots atomic.Int32
	seeds     atomic.Int32 // directories that are being sent
	// roundsReaders counts those that read rounds.
	roundsReaders atomic.Int32

	// Of the server, for what a stream does beside the goroutine of its call.
	metrics   *metrics
	recovered func(ctx context.Context, spec connect.Spec, _ http.Header, panicked any) error
}

var _ ledgerdv1connect.LedgerServiceHandler = (*Service)(nil)

// NewService makes the RPCs of a backend.
func NewService(backend Backend, options Options) *Service {
	options = options.withDefaults()
	s := &Service{backend: backend, options: options, limits: newLimits(options),
		facts: new(factsCache), figures: newFigures()}
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s
}

// Options returns the options with their defaults filled in.
func (s *Service) Options() Options { return s.options }

// New makes a server for a backend. It registers its metrics with Options.Registry, so each
// registry can serve only one server.
func New(backend Backend, options Options) (*Server, error) {
	service := NewService(backend, options)
	return NewServer(service, service)
}

// NewServer makes a server whose clients front answers. Front may ask nodes of other shards, and
// uses service for its own shard. Nodes of other shards get the service itself.
func NewServer(service *Service, front ledgerdv1connect.LedgerServiceHandler) (*Server, error) {
	options := service.options
	metrics, err := newMetrics(options.Registry)
	if err != nil {
		return nil, fmt.Errorf("api: registering metrics: %w", err)
	}
	offences, err := newOffences(options, time.Now)
	if err != nil {
		return nil, err
	}
	s := &Server{options: options, service: service, metrics: metrics, offences: offences,
		open: newConnections(options, offences)}
	service.metrics, service.recovered = metrics, s.recovered
	if err := s.open.register(options.Registry); err != nil {
		return nil, err
	}
	if s.handler, err = s.newHandler(front); err != nil {
		return nil, err
	}
	s.handler = offences.watch(options.Doors.Hosts(options.Doors.Identify(s.handler)))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{
		Handler:   s.handler,
		Protocols: protocols,
		ErrorLog:  slog.NewLogLogger(options.Logger.Handler(), slog.LevelDebug),
	}
	bound(s.server, options)
	s.server.ConnState = s.open.state
	s.server.ConnContext = withConnection
	return s, nil
}

// Handler returns the handler of the whole site: API, health, metrics, explorer and documentation.
func (s *Server) Handler() http.Handler { return s.handler }

// Forwarded returns the service for nodes of other shards of the book. It answers their calls from
// this node and its shard alone, without another hop. The transport that carries the calls has
// authenticated the callers, so their rate is not limited here.
func (s *Server) Forwarded() http.Handler { return s.forwarded }

// Serve accepts connections until Shutdown, then returns nil. The listener is closed when it
// returns.
func (s *Server) Serve(listener net.Listener) error {
	err := s.options.Doors.Serve(s.server, s.open.listener(listener))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("api: serving %s: %w", listener.Addr(), err)
}

// Shutdown ends the streams with Unavailable, takes no more calls, and waits for running calls
// until ctx ends. Then it cuts them off and returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.service.stop()
	s.open.close()
	s.offences.close()
	err := s.server.Shutdown(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(err, s.server.Close())
}

func (s *Server) newHandler(front ledgerdv1connect.LedgerServiceHandler) (http.Handler, error) {
	requests, err := newRequests(s.options, s.offences)
	if err != nil {
		return nil, err
	}
	options := []connect.HandlerOption{
		requests.handlerOptions(),
		connect.WithCompressMinBytes(4 << 10),
		connect.WithInterceptors(s.metrics, requests, absent{s.service.backend}),
		connect.WithRecover(s.recovered),
	}
	_, forwarded := ledgerdv1connect.NewLedgerServiceHandler(s.service, options...)
	s.forwarded = requests.within(forwarded)
	path, rpcs := ledgerdv1connect.NewLedgerServiceHandler(front,
		append(options, connect.WithRequestGate(s.service.limits.gate),
			connect.WithInterceptors(access{}))...)
	mux := http.NewServeMux()
	mux.Handle(path, withBodyDeadline(requests.within(rpcs), s.options.MaxBodyPatience))
	s.probes(mux, doors.Readers)
	s.reflection(mux)
	mux.HandleFunc("GET /openapi.json", serveDescription)
	if s.options.Docs != nil {
		mux.Handle("/docs/", s.options.Docs)
	}
	mux.Handle("/", s.options.Explorer)
	return withOrigins(mux, s.options.AllowedOrigins)
}

// recovered turns a panic of a call into an internal error of that call.
func (s *Server) recovered(_ context.Context, spec connect.Spec, _ http.Header,
	panicked any) error {
	s.metrics.panics.Inc()
	s.options.Logger.Error("panic in an API call", "procedure", spec.Procedure, "panic", panicked,
		"stack", string(debug.Stack()))
	return connect.NewError(connect.CodeInternal,
		errors.New("internal error: the node's log has the details"))
}
