package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// TestLocalConnections checks when direct connections are UNIX sockets: if both ends have it set,
// and if neither a proxy nor another process with the name is between them. Frames arrive in any
// case.
func TestLocalConnections(t *testing.T) {
	t.Parallel()
	const unix, tcp = "unix", "tcp"
	for _, test := range []struct {
		name   string
		config fabrictest.Config
		local  [2]bool
		taken  bool // the hosts' names are taken before they start
		want   string
	}{
		{"both", fabrictest.Config{}, [2]bool{true, true}, false, unix},
		{"one of two", fabrictest.Config{}, [2]bool{true, false}, false, tcp},
		{"the other of two", fabrictest.Config{}, [2]bool{false, true}, false, tcp},
		{"behind a proxy", fabrictest.Config{Cuts: true}, [2]bool{true, true}, false, tcp},
		{"names taken", fabrictest.Config{}, [2]bool{true, true}, true, tcp},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			test.config.Members = 2
			f := newTrustedFabric(t, test.config).(*fabric)
			var hosts [2]*p2p.Host
			received := make(chan []byte, 2)
			for i := range hosts {
				if test.taken {
					takeName(ctx, t, f, i)
				}
				f.local = test.local[i]
				host, err := f.Start(i)
				if err != nil {
					t.Fatal(err)
				}
				if err := host.Receive("test", func(_ rdmanet.Peer, frames [][]byte) {
					received <- frames[0]
				}); err != nil {
					t.Fatal(err)
				}
				hosts[i] = host.(*p2p.Host)
			}
			frame := bytes.Repeat([]byte("a large frame"), 100_000)
			for i, host := range hosts {
				lane, err := host.Lane(f.ID(1-i), "test")
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(lane.Send(ctx, frame), lane.Flushed(ctx)); err != nil {
					t.Fatal(err)
				}
				if got := <-received; !bytes.Equal(got, frame) {
					t.Errorf("host %d: another frame arrives", 1-i)
				}
			}
			for i, host := range hosts {
				networks := host.DirectNetworks()
				if len(networks) == 0 || slices.ContainsFunc(networks,
					func(network string) bool { return network != test.want }) {
					t.Errorf("host %d has connections over %q, want %s", i, networks, test.want)
				}
			}
		})
	}
}

// takeName listens on the name of host i before the host does, and hangs up on all callers.
func takeName(ctx context.Context, t *testing.T, f *fabric, i int) {
	t.Helper()
	f.local = false
	host, err := f.Start(i) // which chooses the port
	if err != nil {
		t.Fatal(err)
	}
	_, port := splitAddress(t, f.Host(i).Address())
	if err := host.Close(ctx); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", "@ledgerd/"+string(f.ID(i))+"/"+port)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-ended
	})
}

// TestLocalHasToBeTrusted checks that nobody expects encryption within a machine.
func TestLocalHasToBeTrusted(t *testing.T) {
	t.Parallel()
	key, _ := identity(t, 0)
	if host, err := p2p.New(p2p.Options{PrivateKey: key, Listen: "127.0.0.1:0",
		Local: true}); err == nil || !strings.Contains(err.Error(), "Trusted") {
		if host != nil {
			_ = host.Close(t.Context())
		}
		t.Errorf("error %v, want one that asks for Trusted", err)
	}
}
