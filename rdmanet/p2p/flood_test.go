package p2p_test

import (
	"context"
	"crypto/ed25519"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// TestMemberReconnectsDuringAFlood floods a host's port with half-open handshakes of every kind,
// from the address that the member has too, while the member restarts. The member gets through
// each time.
func TestMemberReconnectsDuringAFlood(t *testing.T) {
	t.Parallel()
	f := newFabric(t, fabrictest.Config{Members: 2, MendTimeout: 5 * time.Second})
	victim, err := f.Start(0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan struct{}, 100)
	if err := victim.Receive("test", func(rdmanet.Peer, [][]byte) {
		got <- struct{}{}
	}); err != nil {
		t.Fatal(err)
	}
	raw, _ := identity(t, 1)
	public := ed25519.PrivateKey(raw).Public().(ed25519.PublicKey)
	flooding, stop := context.WithCancel(context.Background())
	var floods sync.WaitGroup
	var opened atomic.Int64
	for _, say := range []string{"", "\x13/multistream/1.0.0\n",
		"\x13/multistream/1.0.0\n\x07/noise\n", "ldgd", "ldgm" + string(public)} {
		floods.Go(func() {
			var open [1024]net.Conn // more than libp2p's handshakes that may be under way
			defer func() {
				for _, conn := range open {
					if conn != nil {
						_ = conn.Close()
					}
				}
			}()
			for i := 0; flooding.Err() == nil; i++ {
				conn, err := net.DialTimeout("tcp", victim.(*p2p.Host).Address(), time.Second)
				if err != nil {
					continue
				}
				_, _ = conn.Write([]byte(say)) // the port may have closed it
				if last := open[i%len(open)]; last != nil {
					_ = last.Close()
				}
				open[i%len(open)] = conn
				opened.Add(1)
				time.Sleep(500 * time.Microsecond)
			}
		})
	}
	defer floods.Wait()
	defer stop()
	// By then the flood has all places that it can get.
	for begin := time.Now(); opened.Load() < 5000 && time.Since(begin) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	const restarts = 5
	begin := time.Now()
	for range restarts {
		member, err := f.Start(1)
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			lane, err := member.Lane(victim.ID(), "test")
			if err == nil {
				_ = lane.Send(ctx, []byte("here"))
				err = lane.Flushed(ctx)
			}
			cancel()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the member does not get through: %v", err)
			}
		}
		<-got
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = member.Close(ended) // at once, as a process that ends
	}
	t.Logf("%d reconnections in %v, while %d connections were opened", restarts,
		time.Since(begin).Round(time.Millisecond), opened.Load())
}
