package client

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/doors"
)

// A client with the node's authority gets in; all others get a DoorError that says why.
func TestDoors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key, err := doors.SelfSigned([]string{"127.0.0.1"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certificateFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(os.WriteFile(certificateFile, certificate, 0o600),
		os.WriteFile(keyFile, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	gates, err := doors.New(doors.Config{Certificate: certificateFile, Key: keyFile})
	if err != nil {
		t.Fatal(err)
	}
	cluster := apitest.NewCluster(t, apitest.Options{})
	secure := apitest.Serve(t, cluster.Node(0), api.Options{Doors: gates}).URL
	plain := apitest.Serve(t, cluster.Node(0), api.Options{}).URL
	trusting, err := ReadTLS(certificateFile, "", "")
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		address string
		options Options
		want    DoorReason
	}{
		{secure, Options{TLS: trusting}, 0},
		{secure, Options{}, DoorUnknownAuthority},
		{strings.Replace(secure, "127.0.0.1", "localhost", 1), Options{TLS: trusting},
			DoorWrongName},
		{strings.Replace(secure, "https", "http", 1), Options{}, DoorWantsHTTPS},
		{strings.Replace(plain, "http", "https", 1), Options{TLS: trusting}, DoorWantsHTTP},
	}
	for _, c := range cases {
		nodes, err := New([]string{c.address}, c.options)
		if err != nil {
			t.Fatal(err)
		}
		_, err = nodes.Node(testContext(t))
		nodes.Close()
		refused := (*DoorError)(nil)
		if c.want == 0 && err == nil {
			continue
		}
		if !errors.As(err, &refused) || refused.Reason != c.want || refused.Address != c.address {
			t.Errorf("%s: %v, want reason %d", c.address, err, c.want)
		}
	}
}

// A token goes to nodes with TLS and to this machine, and clients beside the first one show it,
// too.
func TestToken(t *testing.T) {
	t.Parallel()
	if _, err := New([]string{"http://192.0.2.1:80"}, Options{Token: "secret"}); err == nil {
		t.Error("a token would have been sent in the clear")
	}
	shown := make(chan string, 2)
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shown <- r.Header.Get("Authorization")
			http.NotFound(w, r)
		})}
	listener := listenLoopback(t)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	address := "http://" + listener.Addr().String()
	first, err := New([]string{address}, Options{Token: "secret", Tries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	beside, err := first.Beside([]string{address}, Options{Tries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	for _, nodes := range []*Client{first, beside} {
		_, _ = nodes.Node(testContext(t)) // the answer does not matter
		if got := <-shown; got != "Bearer secret" {
			t.Errorf("shown: %q", got)
		}
	}
	if _, err := first.Beside([]string{"http://192.0.2.1:80"}, Options{}); err == nil {
		t.Error("a client beside would have sent the token in the clear")
	}
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
