package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledgerd/node/home"
)

// adminListener serves the admin pages of the API's server. It is nil if the configuration names no
// address.
type adminListener struct {
	address string
	server  *http.Server
	done    chan struct{}
}

// listenAdmin begins to serve the admin pages.
func (n *Node) listenAdmin(ctx context.Context) (*adminListener, error) {
	at := n.home.Config.Admin.Listen
	if at == "" {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("%w for operators on %s: %w; stop what uses it, or change [admin] "+
			"listen in %s", ErrAddress, at, err, filepath.Join(n.home.Dir, home.ConfigFile))
	}
	admin := &adminListener{address: listener.Addr().String(), done: make(chan struct{}),
		server: &http.Server{Handler: n.server.Admin(), ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
			ErrorLog: slog.NewLogLogger(n.logger.Handler(), slog.LevelDebug)}}
	admin.server.Protocols = new(http.Protocols)
	admin.server.Protocols.SetHTTP1(true)
	admin.server.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		defer close(admin.done)
		if err := admin.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.logger.Error("the admin listener ended", "address", at, "error", err)
		}
	}()
	return admin, nil
}

// url returns the listener's address, or "" if there is none.
func (a *adminListener) url() string {
	if a == nil {
		return ""
	}
	return "http://" + a.address
}

// close cuts off the calls and ends the listener.
func (a *adminListener) close() {
	if a == nil {
		return
	}
	_ = a.server.Close()
	<-a.done
}

// AdminURL returns the address of the admin listener, or "" if there is none.
func (n *Node) AdminURL() string { return n.admin.url() }
