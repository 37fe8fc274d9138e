package api

import (
	"net"
	"net/http"
	"sync"
)

// idleConnections holds the connections that have carried no call yet. Browsers open such
// connections ahead of need. http.Server.Shutdown waits five seconds for each of them; closing them
// at once harms no caller.
type idleConnections struct {
	mu          sync.Mutex
	connections map[net.Conn]struct{}
	closing     bool
}

// state implements http.Server.ConnState.
func (u *idleConnections) state(connection net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if state != http.StateNew {
		delete(u.connections, connection)
		return
	}
	if u.closing {
		_ = connection.Close() // it was accepted during Shutdown
		return
	}
	if u.connections == nil {
		u.connections = map[net.Conn]struct{}{}
	}
	u.connections[connection] = struct{}{}
}

// close closes these connections, and those that are accepted later.
func (u *idleConnections) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closing = true
	for connection := range u.connections {
		_ = connection.Close()
	}
	clear(u.connections)
}
