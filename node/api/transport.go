package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// healthz reports that the process is alive.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// readyz answers 200 while the node takes writes (or, with for=reads, serves reads), else 503 with
// the reason.
func readyz(backend Backend) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := backend.NodeState()
		ready := takesWrites(&state)
		if r.URL.Query().Get("for") == "reads" {
			ready = servesReads(&state)
		}
		w.Header().Set("Content-Type", "application/json")
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(struct {
			Ready  bool   `json:"ready"`
			Mode   string `json:"mode"`
			Reason string `json:"reason,omitempty"`
		}{ready, state.Mode.String(), state.Reason})
	})
}

// withOrigins refuses requests that a browser sends from another origin, and answers the preflight
// requests of allowed origins.
func withOrigins(next http.Handler, allowed []string) (http.Handler, error) {
	protection := http.NewCrossOriginProtection()
	for _, origin := range allowed {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("api: allowed origin %q is not of the form "+
				"https://host[:port]: %w", origin, err)
		}
	}
	protected := protection.Handler(next)
	if len(allowed) == 0 {
		return protected, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if !slices.Contains(allowed, origin) {
			protected.ServeHTTP(w, r)
			return
		}
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", origin)
		header.Add("Vary", "Origin")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			header.Set("Access-Control-Allow-Methods", "GET, POST")
			header.Set("Access-Control-Allow-Headers",
				strings.Join([]string{"Content-Type", "Connect-Protocol-Version",
					"Connect-Timeout-Ms",
					"Authorization", "Grpc-Timeout", "X-Grpc-Web", "X-User-Agent"}, ", "))
			header.Set("Access-Control-Max-Age", "7200")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		header.Set("Access-Control-Expose-Headers",
			strings.Join([]string{"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin",
				HeaderRetry, HeaderReason, HeaderWriters, HeaderUnsure}, ", "))
		protected.ServeHTTP(w, r)
	}), nil
}

type controllerKey struct{}

// allowWrite gives the reader of a stream a time limit to take the next message. It does nothing if
// the transport has no deadlines.
func allowWrite(ctx context.Context, limit time.Duration) {
	if controller, ok := ctx.Value(controllerKey{}).(*http.ResponseController); ok {
		_ = controller.SetWriteDeadline(time.Now().Add(limit))
	}
}
