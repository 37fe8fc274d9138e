package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/report"
)

func ask(t *testing.T, method, address string, header map[string]string, body string) (int,
	http.Header, string) {
	t.Helper()
	request, err := http.NewRequest(method, address, strings.NewReader(body))
	must(t, err)
	for key, value := range header {
		request.Header.Set(key, value)
	}
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, answer.Header, string(text)
}

// The curl commands of the package comment work.
func TestByHand(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	b.done(transfer("bank:mint", "bank:a", 12))
	service := b.door.URL + "/ledgerd.v1.LedgerService/"
	code, _, text := ask(t, "POST", service+"GetAccount",
		map[string]string{"Content-Type": "application/json"}, `{"account":"bank:a"}`)
	if code != 200 || !strings.Contains(text, `"12"`) {
		t.Errorf("POST: %d %s", code, text)
	}
	query := url.Values{"encoding": {"json"}, "message": {`{"head":true}`}}
	code, _, text = ask(t, "GET", service+"GetBlock?"+query.Encode(), nil, "")
	if code != 200 || !strings.Contains(text, b.cluster.Node(0).Store().Head().Hash.String()) {
		t.Errorf("GET: %d %s", code, text)
	}
	code, _, text = ask(t, "GET", service+"Submit?"+query.Encode(), nil, "")
	if code != http.StatusMethodNotAllowed {
		t.Errorf("GET of a call with effects: %d %s", code, text)
	}
	code, _, text = ask(t, "POST", service+"GetAccount",
		map[string]string{"Content-Type": "application/json"}, `{"account":`)
	if code != 400 || !strings.Contains(text, "invalid_argument") {
		t.Errorf("broken JSON: %d %s", code, text)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{},
		api.Options{Explorer: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "explorer "+r.URL.Path)
		})})
	b.cluster.Node(0).SetMode(report.ModeFollowing, "left out")
	cases := []struct {
		path string
		code int
		says string
	}{
		{"/healthz", 200, "ok"},
		{"/readyz", 503, `"mode":"following","reason":"left out"`},
		{"/readyz?for=reads", 200, `"ready":true`},
		{"/metrics", 200, `ledgerd_api_calls_total{code="ok",method="Submit"} 1`},
		{"/", 200, "explorer /"},
		{"/account/bank:a", 200, "explorer /account/bank:a"},
	}
	for _, c := range cases {
		if code, _, text := ask(t, "GET", b.door.URL+c.path, nil, ""); code != c.code ||
			!strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s", c.path, code, text)
		}
	}
	b.cluster.Node(0).SetMode(report.ModeOrdering, "")
	if code, _, text := ask(t, "GET", b.door.URL+"/readyz", nil, ""); code != 200 {
		t.Errorf("ready: %d %s", code, text)
	}
	b.cluster.Node(0).SetMode(report.ModeStarting, "")
	if code, _, text := ask(t, "GET", b.door.URL+"/readyz?for=reads", nil, ""); code != 503 {
		t.Errorf("starting: %d %s", code, text)
	}
}

// The buckets of a call's time grow by two. A scraper that accepts native histograms gets finer
// ones.
func TestCallTimeBuckets(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	b := newBank(t, apitest.Options{}, api.Options{Registry: registry})
	_, _, text := ask(t, "GET", b.door.URL+"/metrics", nil, "")
	var bounds []float64
	for _, found := range regexp.MustCompile(
		`ledgerd_api_call_seconds_bucket{method="Submit",le="([^"]*)"}`).FindAllStringSubmatch(text,
		-1) {
		bound, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		bounds = append(bounds, bound)
	}
	if len(bounds) != 21 || bounds[0] != 0.0001 || bounds[19] < 50 || !math.IsInf(bounds[20], 1) {
		t.Fatalf("buckets %v", bounds)
	}
	for i := range bounds[:19] {
		if factor := bounds[i+1] / bounds[i]; factor < 1.99 || factor > 2.01 {
			t.Errorf("from %g to %g", bounds[i], bounds[i+1])
		}
	}
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() != "ledgerd_api_call_seconds" {
			continue
		}
		// Schema 3 grows by the eighth root of two, which is less than a tenth.
		histogram := family.GetMetric()[0].GetHistogram()
		if histogram.GetSchema() < 3 || len(histogram.GetPositiveSpan()) == 0 {
			t.Errorf("no native histogram: %v", histogram)
		}
		return
	}
	t.Error("no histogram of calls")
}

// A page of another origin cannot read an answer in a browser, unless its origin is allowed.
func TestOrigins(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{},
		api.Options{AllowedOrigins: []string{"https://friend.example"}})
	address := b.door.URL + "/ledgerd.v1.LedgerService/GetNode"
	cases := []struct {
		name, method, origin string
		code                 int
		allows               string
	}{
		{"same origin", "POST", b.door.URL, 200, ""},
		{"no browser", "POST", "", 200, ""},
		{"another origin", "POST", "https://evil.example", 403, ""},
		{"another origin asks first", "OPTIONS", "https://evil.example", 405, ""},
		{"a friend", "POST", "https://friend.example", 200, "https://friend.example"},
		{"a friend asks first", "OPTIONS", "https://friend.example", 204, "https://friend.example"},
	}
	for _, c := range cases {
		header := map[string]string{"Content-Type": "application/json",
			"Access-Control-Request-Method": "POST"}
		if c.origin != "" {
			header["Origin"] = c.origin
		}
		code, got, text := ask(t, c.method, address, header, "{}")
		if code != c.code || got.Get("Access-Control-Allow-Origin") != c.allows {
			t.Errorf("%s: %d %q %s", c.name, code, got.Get("Access-Control-Allow-Origin"), text)
		}
		readable := got.Get("Access-Control-Expose-Headers")
		for _, name := range []string{api.HeaderRetry, api.HeaderReason, api.HeaderWriters,
			api.HeaderUnsure} {
			if c.method == "POST" && c.allows != "" && !strings.Contains(readable, name) {
				t.Errorf("%s: a page cannot read %s, only %s", c.name, name, readable)
			}
		}
	}
	if _, err := api.New(b.cluster.Node(0), api.Options{AllowedOrigins: []string{"*"}}); err ==
		nil {
		t.Error("a wildcard was taken for an origin")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxMessageBytes: 10_000, MaxBundles: 2,
		CallsPerSecond: 0.001, CallBurst: 5})
	_, err := b.client.Submit(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitRequest{
			Bundle: &ledgerdv1.Bundle{Transactions: [][]byte{make([]byte, 20_000)}}}))
	codeIs(t, err, connect.CodeResourceExhausted)
	for _, count := range []int{0, 3} {
		_, err = b.client.SubmitMany(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitManyRequest{Bundles: make([]*ledgerdv1.Bundle,
				count)}))
		codeIs(t, err, connect.CodeInvalidArgument)
	}
	_, err = b.client.GetNode(b.context(), connect.NewRequest(&ledgerdv1.GetNodeRequest{}))
	must(t, err)
	_, err = b.client.GetNode(b.context(), connect.NewRequest(&ledgerdv1.GetNodeRequest{}))
	codeIs(t, err, connect.CodeResourceExhausted)
	if failure := new(connect.Error); !asConnect(err, &failure) ||
		failure.Meta().Get(api.HeaderRetry) != "true" {
		t.Fatalf("%v", err)
	}
	// The pages for operators are not counted.
	if code, _, _ := ask(t, "GET", b.door.URL+"/healthz", nil, ""); code != 200 {
		t.Fatal(code)
	}
}

// panicking is a backend with a bug.
type panicking struct{ api.Backend }

func (panicking) NodeState() report.NodeState { panic("a bug") }

func TestPanicEndsTheCallOnly(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	var log bytes.Buffer
	door := apitest.Serve(t, panicking{cluster.Node(0)},
		api.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	client := ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, door.URL)
	_, err := client.GetNode(context.Background(), connect.NewRequest(&ledgerdv1.GetNodeRequest{}))
	codeIs(t, err, connect.CodeInternal)
	if strings.Contains(err.Error(), "a bug") {
		t.Error("the caller hears of the node's inside")
	}
	if _, err := client.GetCluster(context.Background(),
		connect.NewRequest(&ledgerdv1.GetClusterRequest{})); err != nil {
		t.Fatalf("after a panic: %v", err)
	}
	door.Close()
	if !strings.Contains(log.String(), "a bug") || !strings.Contains(log.String(), "GetNode") {
		t.Errorf("log: %s", log.String())
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certificate, key, roots := selfSigned(t)
	cluster := apitest.NewCluster(t, apitest.Options{})
	gates, err := doors.New(doors.Config{Certificate: certificate, Key: key})
	must(t, err)
	door := apitest.Serve(t, cluster.Node(0), api.Options{Doors: gates})
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
			ForceAttemptHTTP2: http2}
		var options []connect.ClientOption
		if http2 {
			options = append(options, connect.WithGRPC())
		}
		client := ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: transport},
			door.URL, options...)
		if _, err := client.GetNode(context.Background(),
			connect.NewRequest(&ledgerdv1.GetNodeRequest{})); err != nil {
			t.Errorf("HTTP/2 %v: %v", http2, err)
		}
		transport.CloseIdleConnections()
	}
}

func selfSigned(t *testing.T) (certificateFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	certificate, key, err := doors.SelfSigned([]string{"127.0.0.1"}, time.Now(), time.Hour)
	must(t, err)
	certificateFile, keyFile = filepath.Join(t.TempDir(), "certificate"),
		filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(certificateFile, certificate, 0o600))
	must(t, os.WriteFile(keyFile, key, 0o600))
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return certificateFile, keyFile, roots
}

// Every result of the ledger has a word.
func TestReasonCodes(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for code := ledger.Applied; !strings.HasPrefix(code.String(), "code "); code++ {
		word := api.ReasonCode(code)
		if seen[word] || strings.HasPrefix(word, "code_") {
			t.Errorf("%s has the word %q", code, word)
		}
		seen[word] = true
	}
}

// TestDocs checks that the documentation has its place beside the explorer's.
func TestDocs(t *testing.T) {
	t.Parallel()
	page := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text)
		})
	}
	node := apitest.NewCluster(t, apitest.Options{}).Node(0)
	with := apitest.Serve(t, node, api.Options{Explorer: page("explorer"), Docs: page("docs")})
	without := apitest.Serve(t, node, api.Options{Explorer: page("explorer")})
	for url, want := range map[string]string{
		with.URL + "/docs": "docs", with.URL + "/docs/a/b": "docs",
		with.URL + "/docsother": "explorer", with.URL + "/": "explorer",
		without.URL + "/docs/": "explorer",
	} {
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(text) != want {
			t.Errorf("GET %s = %q, %v; want %q", url, text, err, want)
		}
	}
}

// A page whose name resolves to the node's address (DNS rebinding) reads nothing.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	for path, want := range map[string]int{"/": 421, "/metrics": 421, "/readyz": 421,
		"/ledgerd.v1.LedgerService/GetNode": 421} {
		request, err := http.NewRequest(http.MethodGet, b.door.URL+path, nil)
		must(t, err)
		request.Host = "evil.example"
		answer, err := http.DefaultClient.Do(request)
		must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
	request, err := http.NewRequest(http.MethodPost,
		b.door.URL+"/ledgerd.v1.LedgerService/GetNode", strings.NewReader("{}"))
	must(t, err)
	request.Host = "evil.example"
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(string(text), "[api]") {
		t.Errorf("%d %s", answer.StatusCode, text)
	}
}
