package api

import (
	"net"
	"net/http"
	"sync"
)

// unused holds the connections that have carried no call yet, as browsers open them ahead of need.
// http.Server.Shutdown waits five seconds for each of them; nobody is harmed where they are closed
// at once.
type unused struct {
	mu          sync.Mutex
	connections map[net.Conn]struct{}
	closing     bool
}

// state hears of a connection, as http.Server.ConnState.
func (u *unused) state(connection net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if state != http.StateNew {
		delete(u.connections, connection)
		return
	}
	if u.closing {
		_ = connection.Close() // it was accepted in the last moment
		return
	}
	if u.connections == nil {
		u.connections = map[net.Conn]struct{}{}
	}
	u.connections[connection] = struct{}{}
}

// close closes them, and those that still come.
func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closing = true
	for connection := range u.connections {
		_ = connection.Close()
	}
	clear(u.connections)
}
