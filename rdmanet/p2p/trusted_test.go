package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// TestTrustHasToBeMutual checks that members with different settings do not connect, and report the
// reason, in both directions.
func TestTrustHasToBeMutual(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	f := newFabric(t, fabrictest.Config{Members: 2, MendTimeout: 3 * time.Second}).(*fabric)
	var hosts [2]rdmanet.Host
	for i := range hosts {
		f.trusted = i == 0
		h, err := f.Start(i)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Receive("test", func(rdmanet.Peer, [][]byte) {
			t.Error("a frame arrived")
		}); err != nil {
			t.Fatal(err)
		}
		hosts[i] = h
	}
	for i, h := range hosts {
		lane, err := h.Lane(f.ID(1-i), "test")
		if err != nil {
			t.Fatal(err)
		}
		if err := lane.Send(ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
		err = lane.Flushed(ctx)
		if !errors.Is(err, rdmanet.ErrUnreachable) ||
			!strings.Contains(err.Error(), p2p.FabricTrusted) {
			t.Errorf("host %d: error %v, want one that names the setting", i, err)
		}
	}
}

// TestWhoReadsTheWire checks that an eavesdropper can read the lanes' data only on a trusted
// network.
func TestWhoReadsTheWire(t *testing.T) {
	t.Parallel()
	for name, factory := range map[string]fabrictest.Factory{p2p.Fabric: newFabric,
		p2p.FabricTrusted: newTrustedFabric} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			f := factory(t, fabrictest.Config{Members: 2, Cuts: true}).(*fabric)
			secret := bytes.Repeat([]byte("balance of airline:alice "), 400)
			var mu sync.Mutex
			var seen []byte
			f.Tap(func(b []byte) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, b...)
			})
			from, errFrom := f.Start(0)
			to, errTo := f.Start(1)
			err := errors.Join(errFrom, errTo)
			if err == nil {
				err = to.Receive("test", func(rdmanet.Peer, [][]byte) {})
			}
			if err != nil {
				t.Fatal(err)
			}
			lane, err := from.Lane(to.ID(), "test")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(lane.Send(ctx, secret, secret[:500]),
				lane.Flushed(ctx)); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(seen) < len(secret) {
				t.Fatalf("%d bytes passed", len(seen))
			}
			if readable := bytes.Contains(seen, secret[:25]); readable != f.trusted {
				t.Errorf("readable on the wire: %t", readable)
			}
		})
	}
}

// TestLentFrames checks that lent frames of all sizes arrive intact and in order, and that their
// memory is reused.
func TestLentFrames(t *testing.T) {
	t.Parallel()
	for name, factory := range map[string]fabrictest.Factory{p2p.Fabric: newFabric,
		p2p.FabricTrusted: newTrustedFabric} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			f := factory(t, fabrictest.Config{Members: 2})
			from, errFrom := f.Start(0)
			to, errTo := f.Start(1)
			if err := errors.Join(errFrom, errTo); err != nil {
				t.Fatal(err)
			}
			const count = 300
			sizes := []int{0, 1, 100, 5_000, 70_000, 300_000}
			next, again := 0, 0
			var last *byte
			err := to.(*p2p.Host).ReceiveLent("test", func(_ rdmanet.Peer, frames [][]byte) {
				for _, frame := range frames {
					if want := bytes.Repeat([]byte{byte(next)},
						sizes[next%len(sizes)]); !bytes.Equal(frame, want) {
						t.Errorf("frame %d of %d bytes is not what was sent", next, len(frame))
					}
					next++
				}
				if len(frames[0]) > 0 {
					if last == &frames[0][0] {
						again++
					}
					last = &frames[0][0]
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := to.Receive("test", func(rdmanet.Peer, [][]byte) {}); !errors.Is(err,
				rdmanet.ErrDuplicate) {
				t.Errorf("a second receiver: error %v", err)
			}
			lane, err := from.Lane(to.ID(), "test")
			if err != nil {
				t.Fatal(err)
			}
			for i := range count {
				if err := lane.Send(ctx, bytes.Repeat([]byte{byte(i)},
					sizes[i%len(sizes)])); err != nil {
					t.Fatal(err)
				}
			}
			if err := lane.Flushed(ctx); err != nil {
				t.Fatal(err)
			}
			if next != count || again == 0 {
				t.Errorf("%d frames arrived of %d; memory was used again %d times", next, count,
					again)
			}
		})
	}
}
