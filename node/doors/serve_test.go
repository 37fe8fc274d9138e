package doors

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair writes a new certificate to two files, whose changes are as long ago as age says.
func pair(t *testing.T, dir string, age time.Duration) *x509.CertPool {
	t.Helper()
	certificate, key, err := SelfSigned([]string{"127.0.0.1", "named.example"}, time.Now(),
		time.Hour)
	must(t, err)
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		at := time.Now().Add(-age)
		must(t, os.Chtimes(path, at, at))
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots
}

// serve serves 204 behind the doors, until the test ends.
func serve(t *testing.T, gates *Doors) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: gates.Hosts(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })),
		ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = gates.Serve(server, listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return listener.Addr().String()
}

// get asks over a connection of its own.
func get(t *testing.T, url string, config *tls.Config) (*http.Response, string, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer, string(text), nil
}

func secure(t *testing.T, dir string, log io.Writer) *Doors {
	t.Helper()
	gates, err := New(Config{Certificate: filepath.Join(dir, "tls.crt"),
		Key: filepath.Join(dir, "tls.key"), Logger: slog.New(slog.NewTextHandler(log, nil))})
	must(t, err)
	return gates
}

func TestPlainRequestIsSentToTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair(t, dir, 0)
	address := serve(t, secure(t, dir, io.Discard))
	answer, text, err := get(t, "http://"+address, nil)
	must(t, err)
	if answer.StatusCode != 400 || !strings.Contains(text, "https://") ||
		answer.Header.Get(HeaderScheme) != "https" {
		t.Errorf("%d %s", answer.StatusCode, text)
	}
	// A large body must not cost the client the answer, nor hold the node.
	large, err := http.Post("http://"+address, "text/plain", bytes.NewReader(make([]byte, 32<<10)))
	must(t, err)
	_ = large.Body.Close()
	if large.StatusCode != 400 {
		t.Errorf("a large request: %d", large.StatusCode)
	}
}

// Handshakes use a certificate that replaced the previous one, and keep a good one if the new one
// is damaged.
func TestCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := pair(t, dir, time.Hour)
	var log bytes.Buffer
	gates := secure(t, dir, &log)
	address := "https://" + serve(t, gates)
	now := time.Now()
	ask := func(roots *x509.CertPool) error {
		_, _, err := get(t, address, &tls.Config{RootCAs: roots})
		return err
	}
	must(t, ask(first))
	second := pair(t, dir, time.Minute)
	now = now.Add(2 * checkEvery)
	gates.current.Load().certificates.refresh(now)
	if ask(first) == nil {
		t.Error("the previous certificate is served")
	}
	must(t, ask(second))
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), []byte("damaged"), 0o600))
	now = now.Add(2 * checkEvery)
	gates.current.Load().certificates.refresh(now)
	must(t, ask(second))
	if !strings.Contains(log.String(), "keeps its certificate") {
		t.Errorf("the log does not say so: %s", log.String())
	}
	// A reload with a damaged certificate changes nothing.
	config := Config{Certificate: filepath.Join(dir, "tls.crt"),
		Key: filepath.Join(dir, "tls.key")}
	if err := gates.Reload(config); err == nil || !strings.Contains(err.Error(), "tls.key") {
		t.Errorf("reload: %v", err)
	}
	must(t, ask(second))
	if err := gates.Reload(Config{}); err == nil {
		t.Error("a reload switched TLS off")
	}
}

// The names of the certificate are names of the node.
func TestCertificateNamesHosts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	roots := pair(t, dir, 0)
	gates := secure(t, dir, io.Discard)
	address := serve(t, gates)
	for host, want := range map[string]int{"named.example": 204, "evil.example": 421} {
		request, err := http.NewRequest(http.MethodGet, "https://"+address, nil)
		must(t, err)
		request.Host = host
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
			DisableKeepAlives: true}
		answer, err := (&http.Client{Transport: transport}).Do(request)
		must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d", host, answer.StatusCode)
		}
	}
}

func TestWrongCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair(t, dir, 0)
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for want, config := range map[string]Config{
		"both":              {Certificate: certificate},
		"no such file":      {Certificate: certificate, Key: filepath.Join(dir, "none")},
		"need TLS":          {ClientCA: certificate},
		"holds no certific": {Certificate: certificate, Key: key, ClientCA: key},
	} {
		_, err := New(config)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
