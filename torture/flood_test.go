//go:build linux

package torture

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestIdleConnectionsEndNoNode opens a thousand connections to the API and to the fabric of nodes
// that may open 256 files, and sends nothing on them. No node ends, and all take transactions.
func TestIdleConnectionsEndNoNode(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3)
	narrow := filepath.Join(t.TempDir(), "ledgerd")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n 256\nexec %q \"$@\"\n", program)
	if err := os.WriteFile(narrow, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s.program = narrow
	s.start(s.all()...)
	s.ordering(s.all()...)
	acme := s.newParty("acme", []string{"cash"}, 0)
	var open []net.Conn
	defer func() {
		for _, connection := range open {
			_ = connection.Close()
		}
	}()
	for _, i := range []int{0, 1} {
		for _, address := range []string{s.homes[i].Config.API.Listen,
			s.homes[i].FabricAddress()} {
			for range 1000 {
				connection, err := net.DialTimeout("tcp", address, 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, connection)
			}
		}
	}
	for round := range 5 {
		s.unharmed(acme, fmt.Sprintf("flooded-%d", round), s.all()...)
		time.Sleep(time.Second)
	}
	s.exports(s.all()...)
}
