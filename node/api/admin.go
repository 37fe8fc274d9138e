package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ledgerd/ledgerd/node/api/healthv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

// Admin returns the handler of the admin listener: probes, metrics and profiles. It asks nobody for
// an identity, so its address must be out of clients' reach.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	s.probes(mux, func(next http.Handler) http.Handler { return next })
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return s.options.Doors.Hosts(http.NewCrossOriginProtection().Handler(mux))
}

// probes adds what supervisors ask for. Whether the node is alive and ready is for every caller;
// guard protects the rest.
func (s *Server) probes(mux *http.ServeMux, guard func(http.Handler) http.Handler) {
	mux.HandleFunc("GET /livez", healthz)
	mux.HandleFunc("GET /healthz", healthz)
	mux.Handle("GET /readyz", readyz(s.service.backend))
	mux.Handle("GET /version", guard(http.HandlerFunc(s.version)))
	mux.Handle("GET /metrics",
		guard(promhttp.HandlerFor(s.options.Registry, promhttp.HandlerOpts{})))
	options := []connect.HandlerOption{connect.WithReadMaxBytes(4 << 10),
		connect.WithRecover(s.recovered), connect.WithRequestGate(s.service.limits.gate)}
	mux.Handle(healthCheck, withBodyDeadline(connect.NewUnaryHandler(healthCheck, s.service.health,
		options...), s.options.MaxBodyPatience))
	mux.Handle(healthWatch, withBodyDeadline(connect.NewServerStreamHandler(healthWatch,
		s.service.watchHealth, options...), s.options.MaxBodyPatience))
}

// version names the program and the chain.
func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		Chain   string `json:"chain"`
	}{s.options.Version, runtime.Version(), s.service.backend.Store().Genesis().Chain})
}

// The calls of the standard health service. Their messages are in package healthv1.
const (
	healthCheck = "/grpc.health.v1.Health/Check"
	healthWatch = "/grpc.health.v1.Health/Watch"
)

// serving returns the health of a service: of the node, which is healthy while it takes writes, or
// of the LedgerService, which is healthy while it answers reads.
func (s *Service) serving(service string) healthv1.HealthCheckResponse_ServingStatus {
	state := s.backend.NodeState()
	ready := false
	switch service {
	case "":
		ready = takesWrites(&state)
	case ledgerdv1connect.LedgerServiceName:
		ready = servesReads(&state)
	default:
		return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
	}
	if !ready {
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVING
}

func (s *Service) health(_ context.Context,
	request *connect.Request[healthv1.HealthCheckRequest],
) (*connect.Response[healthv1.HealthCheckResponse], error) {
	status := s.serving(request.Msg.GetService())
	if status == healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, notFound("there is no service %q: ask for %s, or for none",
			request.Msg.GetService(), ledgerdv1connect.LedgerServiceName)
	}
	return connect.NewResponse(&healthv1.HealthCheckResponse{Status: status}), nil
}

// watchHealth sends the health now and after each change.
func (s *Service) watchHealth(ctx context.Context,
	request *connect.Request[healthv1.HealthCheckRequest],
	stream *connect.ServerStream[healthv1.HealthCheckResponse]) error {
	release, err := s.limits.openStream(request.Peer().Addr)
	if err != nil {
		return err
	}
	defer release()
	ticker := time.NewTicker(s.options.ClusterInterval)
	defer ticker.Stop()
	sent := healthv1.HealthCheckResponse_ServingStatus(-1)
	for {
		if status := s.serving(request.Msg.GetService()); status != sent {
			allowWrite(ctx, s.options.MaxStuckTime)
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: status}); err != nil {
				return err
			}
			sent = status
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ContextError(ctx)
		case <-s.stopping.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("this node stops"))
		}
	}
}

// takesWrites reports whether a node takes writes now.
func takesWrites(state *report.NodeState) bool {
	return state.Mode == report.ModeOrdering && !state.ReadsOnly
}

// servesReads reports whether a node answers reads.
func servesReads(state *report.NodeState) bool {
	return state.Mode != report.ModeStarting && state.Mode != report.ModeStopping
}
