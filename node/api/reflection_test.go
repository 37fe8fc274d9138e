package api_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// overHTTP2 returns a client without TLS, as gRPC needs it.
func overHTTP2(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestReflection: a client without the API's description asks for it.
func TestReflection(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	stream := grpcreflect.NewClient(overHTTP2(t), b.door.URL).NewStream(t.Context())
	services, err := stream.ListServices()
	must(t, err)
	if len(services) != 1 || services[0] != ledgerdv1connect.LedgerServiceName {
		t.Errorf("services %v", services)
	}
	files, err := stream.FileContainingSymbol("ledgerd.v1.LedgerService.Submit")
	must(t, err)
	described := false
	for _, file := range files {
		for _, service := range file.GetService() {
			described = described || service.GetName() == "LedgerService"
		}
	}
	if !described {
		t.Errorf("%d files do not describe the service", len(files))
	}
	_, err = stream.Close()
	must(t, err)
}

// TestAccessToReflection: a caller needs an identity where reading needs one, in both versions.
func TestAccessToReflection(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	guardedURL, tokens := guardedTokens(t, b)
	// ListServices in gRPC's framing: a message of two bytes, field 7 and no text.
	question := []byte{0, 0, 0, 0, 2, 7<<3 | 2, 0}
	for _, version := range []string{"v1", "v1alpha"} {
		for role, token := range tokens {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, guardedURL+
				"/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo",
				bytes.NewReader(question))
			must(t, err)
			request.Header.Set("Content-Type", "application/grpc")
			if token != "" {
				request.Header.Set("Authorization", "Bearer "+token)
			}
			answer, err := overHTTP2(t).Do(request)
			must(t, err)
			text, err := io.ReadAll(answer.Body)
			must(t, err)
			_ = answer.Body.Close()
			got := strings.Contains(string(text), ledgerdv1connect.LedgerServiceName)
			if may := role != "nobody" && role != "stranger"; got != may {
				t.Errorf("%s as %s: %d %q %v", version, role, answer.StatusCode, text,
					answer.Trailer)
			}
		}
	}
}

// TestReflectionIsBounded: a long question is refused, and questions count as calls.
func TestReflectionIsBounded(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: 5, CallBurst: 5})
	client := grpcreflect.NewClient(overHTTP2(t), b.door.URL)
	stream := client.NewStream(t.Context())
	_, err := stream.FileByFilename(strings.Repeat("a", 8<<10))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a question of 8 KiB: %v", err)
	}
	_, _ = stream.Close()
	stream = client.NewStream(t.Context())
	for range 100 {
		if _, err = stream.ListServices(); err != nil {
			break
		}
	}
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a hundred questions at once: %v", err)
	}
	_, _ = stream.Close()
}
