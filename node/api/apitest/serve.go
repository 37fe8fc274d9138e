package apitest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/api"
)

// TestServer is an API server on a free port of the loopback.
type TestServer struct {
	URL    string
	Server *api.Server

	stop   sync.Once
	served chan error
	tb     testing.TB
}

// Serve serves a backend until Close or the end of the test.
func Serve(tb testing.TB, backend api.Backend, options api.Options) *TestServer {
	tb.Helper()
	return ServeOn(tb, listen(tb), backend, options)
}

// listen binds a free port of the loopback.
func listen(tb testing.TB) net.Listener {
	tb.Helper()
	listener, err := api.Listen(tb.Context(), "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listening: %v", err)
	}
	return listener
}

// ServeOn is Serve with the caller's listener.
func ServeOn(tb testing.TB, listener net.Listener, backend api.Backend,
	options api.Options) *TestServer {
	tb.Helper()
	server, err := api.New(backend, options)
	if err != nil {
		tb.Fatalf("making the API server: %v", err)
	}
	return serve(tb, listener, server, options)
}

// serve serves with a server until Close or the end of the test.
func serve(tb testing.TB, listener net.Listener, server *api.Server,
	options api.Options) *TestServer {
	scheme := "http://"
	if options.Doors != nil {
		scheme = options.Doors.Scheme() + "://"
	}
	door := &TestServer{URL: scheme + listener.Addr().String(), Server: server,
		served: make(chan error, 1), tb: tb}
	go func() { door.served <- server.Serve(listener) }()
	tb.Cleanup(door.Close)
	return door
}

// Close stops the server. It cuts off running calls after a moment.
func (d *TestServer) Close() {
	d.stop.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = d.Server.Shutdown(ctx) // a test may want calls to be cut off
		if err := <-d.served; err != nil {
			d.tb.Errorf("serving: %v", err)
		}
	})
}
