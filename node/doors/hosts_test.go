package doors

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	const arrived = "192.0.2.7:8080"
	cases := []struct {
		listen  string
		hosts   []string
		host    string
		allowed bool
	}{
		{"127.0.0.1:8080", nil, "127.0.0.1:8080", true},
		{"127.0.0.1:8080", nil, "127.3.2.1", true},
		{"127.0.0.1:8080", nil, "localhost:99", true},
		{"127.0.0.1:8080", nil, "LocalHost.", true},
		{"127.0.0.1:8080", nil, "ledger.localhost", true},
		{"127.0.0.1:8080", nil, "[::1]:8080", true},
		{"127.0.0.1:8080", nil, "evil.example:8080", false},
		{"127.0.0.1:8080", nil, "127.0.0.1.evil.example", false},
		{"127.0.0.1:8080", nil, "localhost.evil.example", false},
		{"127.0.0.1:8080", nil, "notlocalhost", false},
		{"127.0.0.1:8080", nil, "", false},
		{"127.0.0.1:8080", nil, "192.0.2.9", false},
		{"0.0.0.0:8080", nil, "0.0.0.0:8080", false},
		{"0.0.0.0:8080", nil, arrived, true},
		{"0.0.0.0:8080", nil, "192.0.2.8:8080", false},
		{"books.example:8080", nil, "Books.Example:8080", true},
		{"books.example:8080", nil, "books.example.evil.example:8080", false},
		{"0.0.0.0:8080", []string{"books.example", "2001:db8::1"}, "books.example.:443", true},
		{"0.0.0.0:8080", []string{"books.example", "2001:db8::1"}, "[2001:db8:0::1]:443", true},
		{"0.0.0.0:8080", []string{"books.example"}, "sub.books.example", false},
	}
	for _, c := range cases {
		gates, err := New(Config{Listen: c.listen, Hosts: c.hosts, Access: AccessPublic})
		must(t, err)
		local, err := net.ResolveTCPAddr("tcp", arrived)
		must(t, err)
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(),
			http.LocalAddrContextKey, local), "GET", "/", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		gates.Hosts(http.NotFoundHandler()).ServeHTTP(w, r)
		want := http.StatusMisdirectedRequest
		if c.allowed {
			want = http.StatusNotFound
		}
		if w.Code != want {
			t.Errorf("at %s with %v, host %q: %d, want %d", c.listen, c.hosts, c.host, w.Code, want)
		}
		if text, _ := io.ReadAll(w.Body); !c.allowed && !strings.Contains(string(text), "hosts") {
			t.Errorf("the refusal names no setting: %s", text)
		}
	}
}

func TestWrongHosts(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"", "https://books.example", "books.example:80", "*", "a b"} {
		if _, err := New(Config{Hosts: []string{wrong}}); err == nil ||
			!strings.Contains(err.Error(), "api.hosts") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// A call for another host gets an error in its own protocol, so that clients can show the text.
func TestHostOfCall(t *testing.T) {
	t.Parallel()
	gates, err := New(Config{})
	must(t, err)
	for contentType, want := range map[string]string{"application/json": "permission_denied",
		"application/proto": "permission_denied", "application/grpc": ""} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://evil.example/a.B/C",
			strings.NewReader("{}"))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		gates.Hosts(http.NotFoundHandler()).ServeHTTP(w, r)
		if text := w.Body.String(); !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", contentType, w.Code, text)
		}
		if contentType == "application/grpc" && !strings.Contains(
			w.Result().Trailer.Get("Grpc-Message"), "evil.example") {
			t.Errorf("gRPC: %v %v", w.Header(), w.Result().Trailer)
		}
	}
}

// Reload replaces all settings or none.
func TestReloadHosts(t *testing.T) {
	t.Parallel()
	gates, err := New(Config{Hosts: []string{"one.example"}})
	must(t, err)
	status := func(host string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://"+host+"/", nil)
		w := httptest.NewRecorder()
		gates.Hosts(http.NotFoundHandler()).ServeHTTP(w, r)
		return w.Code
	}
	if err := gates.Reload(Config{Hosts: []string{"two.example", "*"}}); err == nil ||
		status("one.example") != 404 || status("two.example") != 421 {
		t.Fatalf("a wrong setting was taken: %v", err)
	}
	must(t, gates.Reload(Config{Hosts: []string{"two.example"}}))
	if status("one.example") != 421 || status("two.example") != 404 {
		t.Fatal("the new setting was not taken")
	}
}
