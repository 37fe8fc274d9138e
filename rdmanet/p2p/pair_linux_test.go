package p2p

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// TestAcknowledgementsStayOutOfBatches has one goroutine write batches that the kernel takes in
// parts, and others acknowledge meanwhile. The other end must find whole batches, with
// acknowledgements between them or in them that never go back.
func TestAcknowledgementsStayOutOfBatches(t *testing.T) {
	t.Parallel()
	for _, trusted := range []bool{true, false} {
		name := fabricName(trusted)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there := tcpPair(t)
			if err := here.SetWriteBuffer(8 << 10); err != nil {
				t.Fatal(err)
			}
			near := &directConn{host: &Host{}, socket: here}
			far := &directConn{host: &Host{}, socket: there.(*net.TCPConn), wire: there}
			if !trusted {
				admitted := ticket{suite: suiteAESGCM, token: [ticketBytes]byte{1}}
				if err := errors.Join(near.seal(admitted, true),
					far.seal(admitted, false)); err != nil {
					t.Fatal(err)
				}
			}
			plain, err := near.detach(nil)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			taken := uint64(0)
			w := &pairWriter{to: plain, sealer: near.sealer, taken: func() uint64 {
				mu.Lock()
				defer mu.Unlock()
				taken++
				return taken
			}}
			w.batch = batchWriter{to: w, paired: w.taken}
			const batches = 60
			size := func(i int) int { return i * i * 97 % 250_000 }
			stop := make(chan struct{})
			var work sync.WaitGroup
			for range 2 {
				work.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if err := w.acknowledge(false); err != nil {
							t.Error(err)
							return
						}
						time.Sleep(50 * time.Microsecond)
					}
				})
			}
			work.Go(func() {
				defer plain.Close()
				defer w.end()
				defer close(stop)
				for i := range batches {
					frames := [][]byte{bytes.Repeat([]byte{byte(i)}, size(i)), {byte(i)}}
					whole, err := w.write(frames, uint64(2*i))
					if err == nil && !whole {
						err = w.flush()
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
			lanes := lane.New(lane.Config{Self: rdmanet.Peer{ID: "b", Incarnation: 1},
				Limits: window.Defaults, MendTimeout: time.Minute,
				Peers: peers.New(func(rdmanet.Peer) {}), Log: slog.New(slog.DiscardHandler),
				Member: func(rdmanet.PeerID) bool { return true }})
			got := 0
			if err := lanes.ReceivePrompt("test", rdmanet.PromptReceiver{
				TryReceive: func(_ rdmanet.Peer, frames [][]byte) int {
					for _, frame := range frames {
						i, want := got/2, 1
						if got%2 == 0 {
							want = size(i)
						}
						if !bytes.Equal(frame, bytes.Repeat([]byte{byte(i)}, want)) {
							t.Errorf("frame %d of %d bytes is wrong", got, len(frame))
						}
						got++
					}
					return len(frames)
				},
				Receive: func(rdmanet.Peer, [][]byte) {}, Turn: func() {},
			}); err != nil {
				t.Fatal(err)
			}
			s := &inboundStream{host: &Host{}, due: make(chan struct{}, 1),
				urgent: make(chan struct{}, 1)}
			s.polled.Store(true)
			inbound, answer := lanes.Greet("a", lane.Hello{Name: "test", Sender: 1, Opening: 1,
				WindowBytes: 32 << 20, WindowFrames: 1 << 16}, s)
			if inbound == nil {
				t.Fatalf("answer %+v", answer)
			}
			defer inbound.End()
			last, alone := uint64(0), 0
			hear := func(delivered uint64) error {
				if delivered <= last {
					t.Errorf("acknowledgement %d after %d", delivered, last)
				}
				last = delivered
				return nil
			}
			feeder := lane.NewPairFeeder(lanes, inbound.Prompt(), far, lane.Acknowledged{
				Delivered: hear, MessageBytes: ackSize, Message: func(b []byte) error {
					alone++
					a, err := parseAck(b)
					if err != nil {
						return err
					}
					return hear(a.delivered)
				}})
			feeder.Join(inbound)
			if _, err := feeder.Poll(); !errors.Is(err, io.EOF) {
				t.Errorf("it ended with %v", err)
			}
			there.Close()
			work.Wait()
			if got != 2*batches || alone == 0 {
				t.Errorf("%d frames arrived, and %d acknowledgements by themselves", got, alone)
			}
		})
	}
}

// TestMeetings tells how two lanes find one connection. Terms: the host with the smaller identity
// comes first (ownFirst).
func TestMeetings(t *testing.T) {
	t.Parallel()
	key, ctx := pairKey{"peer", "rounds"}, context.Background()
	fresh := func() *meetings {
		return &meetings{at: make(map[pairKey]*meeting), patience: time.Minute}
	}
	made := func(token byte) *pair {
		return &pair{key: key, conn: &directConn{token: [ticketBytes]byte{token}}}
	}
	t.Run("both connect at the same time", func(t *testing.T) {
		t.Parallel()
		first, other := fresh(), fresh()
		if first.find(ctx, key, false, &pairOutlet{}) != nil ||
			other.find(ctx, key, false, &pairOutlet{}) != nil {
			t.Fatal("there is no connection yet")
		}
		if first.arrive(key, true, false) {
			t.Error("the first host does not make the other one wait")
		}
		if !other.arrive(key, false, false) {
			t.Error("the other host makes the first one wait")
		}
		if !first.arrive(key, true, true) {
			t.Error("the first host makes a lane wait that has waited already")
		}
	})
	t.Run("the peer's lane is on its way", func(t *testing.T) {
		t.Parallel()
		m, p, out := fresh(), made(1), &pairOutlet{}
		if !m.arrive(key, true, false) {
			t.Fatal("it has to wait for nothing")
		}
		go m.arrived(key, p)
		if m.find(ctx, key, false, out) != p || p.out.Load() != out {
			t.Error("the lane does not wait for it")
		}
		m.over(p)
		if len(m.at) != 0 {
			t.Error("the meeting is remembered for ever")
		}
	})
	t.Run("the peer's lane does not come", func(t *testing.T) {
		t.Parallel()
		m := fresh()
		m.patience = 0
		if m.find(ctx, key, true, &pairOutlet{}) != nil || m.arrive(key, true, false) {
			t.Error("the lane does not make a connection of its own")
		}
		m.left(key, nil)
		if len(m.at) != 0 {
			t.Error("the meeting is remembered for ever")
		}
	})
	t.Run("an own connection can be joined once", func(t *testing.T) {
		t.Parallel()
		m, p := fresh(), made(1)
		m.find(ctx, key, false, &pairOutlet{})
		go m.left(key, p) // the peer may know of it before
		if m.named(ctx, key, p.conn.token) != p {
			t.Fatal("it cannot be joined")
		}
		if m.named(ctx, key, p.conn.token) != nil ||
			m.named(ctx, key, [ticketBytes]byte{2}) != nil {
			t.Error("it can be joined twice, or under another name")
		}
		if !m.arrive(key, true, false) {
			t.Error("a lane has to wait for a connection that it cannot join")
		}
	})
	t.Run("a lane is told to join", func(t *testing.T) {
		t.Parallel()
		m, p := fresh(), made(1)
		m.find(ctx, key, false, &pairOutlet{})
		m.left(key, p)
		if m.arrive(key, false, false) {
			t.Error("it makes another connection")
		}
	})
}

// TestOutletsCloseBeforeTheyStart: the lane gives up a connection that it has not used if the peer
// has restarted meanwhile.
func TestOutletsCloseBeforeTheyStart(t *testing.T) {
	t.Parallel()
	released := func() bool { return true }
	for name, dial := range map[string]func(*testing.T, *Host) lane.Outlet{
		"alone": func(t *testing.T, h *Host) lane.Outlet {
			here, _ := tcpPair(t)
			return &outlet{host: h, sender: &lane.Sender{}, ctx: t.Context(), stop: released,
				ended: make(chan struct{}),
				conn:  &directConn{host: h, socket: here, wire: here}}
		},
		"paired": func(t *testing.T, h *Host) lane.Outlet {
			here, _ := tcpPair(t)
			p, err := h.newPair(pairKey{"peer", "rounds"}, &directConn{host: h, socket: here},
				&rdmanet.PromptReceiver{})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { <-p.done })
			return &pairOutlet{host: h, sender: &lane.Sender{}, ctx: t.Context(), stop: released,
				pair: p}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			polls, err := newPoller()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(polls.close)
			out := dial(t, &Host{poller: polls, meetings: meetings{at: map[pairKey]*meeting{}}})
			closed := make(chan time.Time, 1)
			go func() {
				heard, _ := out.Close(nil)
				closed <- heard
			}()
			select {
			case heard := <-closed:
				if !heard.IsZero() {
					t.Errorf("the peer gave a sign of life at %v", heard)
				}
			case <-time.After(20 * time.Second):
				t.Error("it waits for ever")
			}
		})
	}
}
