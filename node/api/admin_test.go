package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/healthv1"
	"github.com/ledgerd/ledgerd/node/report"
)

func TestAdmin(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{Version: "1.2.3"})
	admin := httptest.NewServer(b.door.Server.Admin())
	t.Cleanup(admin.Close)
	cases := []struct {
		path string
		code int
		says string
	}{
		{"/livez", 200, "ok"}, {"/healthz", 200, "ok"}, {"/readyz", 200, `"ready":true`},
		{"/version", 200, `"version":"1.2.3"`}, {"/metrics", 200, "ledgerd_api_calls_total"},
		{"/debug/pprof/", 200, "goroutine"}, {"/debug/pprof/goroutine?debug=1", 200, "goroutine"},
		{"/", 404, ""}, {"/livezz", 404, ""},
		{"/ledgerd.v1.LedgerService/GetNode?encoding=json&message=%7B%7D", 404, ""},
	}
	for _, c := range cases {
		code, _, text := ask(t, "GET", admin.URL+c.path, nil, "")
		if code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s", c.path, code, text)
		}
	}
	// The API has the probes too, but no profiles, and unknown paths are unknown there as well.
	for path, want := range map[string]int{"/livez": 200, "/version": 200, "/readyz": 200,
		"/debug/pprof/": 404, "/debug/pprof/heap": 404, "/livezz": 404,
		"/ledgerd.v1.LedgerService/Nothing": 404} {
		if code, _, text := ask(t, "GET", b.door.URL+path, nil, ""); code != want {
			t.Errorf("API %s: %d %s", path, code, text)
		}
	}
	// A page of another origin, or of another name for this address, reads no profile.
	request, err := http.NewRequest(http.MethodGet, admin.URL+"/debug/pprof/heap", nil)
	must(t, err)
	request.Host = "evil.example"
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a foreign host: %d", answer.StatusCode)
	}
}

// Clients of the standard health service get answers over gRPC, gRPC-Web and Connect.
func TestHealth(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{ClusterInterval: time.Millisecond})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	for name, option := range map[string]connect.ClientOption{"gRPC": connect.WithGRPC(),
		"gRPC-Web": connect.WithGRPCWeb(), "JSON": connect.WithProtoJSON()} {
		check := connect.NewClient[healthv1.HealthCheckRequest, healthv1.HealthCheckResponse](
			&http.Client{Transport: transport}, b.door.URL+"/grpc.health.v1.Health/Check", option)
		for _, service := range []string{"", "ledgerd.v1.LedgerService"} {
			answer, err := check.CallUnary(b.context(), connect.NewRequest(
				&healthv1.HealthCheckRequest{Service: service}))
			must(t, err)
			if answer.Msg.GetStatus() != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("%s, %q: %v", name, service, answer.Msg)
			}
		}
		_, err := check.CallUnary(b.context(), connect.NewRequest(
			&healthv1.HealthCheckRequest{Service: "other"}))
		codeIs(t, err, connect.CodeNotFound)
	}
	watch := connect.NewClient[healthv1.HealthCheckRequest, healthv1.HealthCheckResponse](
		&http.Client{Transport: transport}, b.door.URL+"/grpc.health.v1.Health/Watch",
		connect.WithGRPC())
	ctx, cancel := context.WithCancel(b.context())
	defer cancel()
	stream, err := watch.CallServerStream(ctx, connect.NewRequest(&healthv1.HealthCheckRequest{}))
	must(t, err)
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
	b.cluster.Node(0).SetMode(report.ModeFollowing, "left out")
	if !stream.Receive() || stream.Msg().GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
}
