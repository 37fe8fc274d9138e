package p2p

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// polled is a connection that a poller reads.
type polled struct {
	stream *descriptor
	limit  int // how many bytes are read at a time
	read   int
	ended  chan error
}

func (c *polled) poll() (bool, error) {
	c.stream.left = min(c.stream.left, c.limit)
	for {
		var scrap [2000]byte
		n, err := c.stream.Read(scrap[:])
		c.read += n
		if errors.Is(err, lane.ErrNotYet) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}

// TestPollerLeavesNothing gives a poller connections of which it reads only a part in one go, and
// on which nothing more arrives that would wake it: bytes beyond what it reads of a connection at a
// time, the end of a connection behind the last bytes, more connections than it learns of at once.
func TestPollerLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ connections, bytes, limit int }{
		"bytes":       {1, 20_000, 100},
		"an end":      {1, 1, pollBytes},
		"connections": {pollEvents + 20, 100, pollBytes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := newPoller()
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			all := make([]*polled, c.connections)
			for i := range all {
				here, there := tcpPair(t)
				stream, err := (&directConn{host: &Host{}, socket: here}).detach(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Close()
				all[i] = &polled{stream: stream, limit: c.limit, ended: make(chan error, 1)}
				// All of it is there before the poller knows the connection.
				if _, err := there.Write(make([]byte, c.bytes)); err != nil {
					t.Fatal(err)
				}
				if err := there.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			for _, one := range all {
				go func() { one.ended <- p.serve(one.stream, nil, one.poll) }()
			}
			deadline := time.After(20 * time.Second)
			for i, one := range all {
				select {
				case err := <-one.ended:
					if !errors.Is(err, io.EOF) || one.read != c.bytes {
						t.Errorf("connection %d ended with %v after %d bytes", i, err, one.read)
					}
				case <-deadline:
					t.Fatalf("connection %d is not read to its end", i)
				}
			}
		})
	}
}

// TestUrgentAcknowledgements: the goroutine that hands over frames sends an acknowledgement once a
// quarter of the window waits for it. No other goroutine sends any here.
func TestUrgentAcknowledgements(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(frames int) int{
		"the poller":      func(frames int) int { return frames },
		"a full receiver": func(int) int { return 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := newPoller()
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			lanes := lane.New(lane.Config{Self: rdmanet.Peer{ID: "b", Incarnation: 1},
				Limits: window.Defaults, MendTimeout: time.Minute,
				Peers: peers.New(func(rdmanet.Peer) {}), Log: slog.New(slog.DiscardHandler),
				Member: func(rdmanet.PeerID) bool { return true }})
			if err := lanes.ReceivePrompt("test", rdmanet.PromptReceiver{
				TryReceive: func(_ rdmanet.Peer, frames [][]byte) int { return take(len(frames)) },
				Receive:    func(rdmanet.Peer, [][]byte) {}, Turn: func() {},
			}); err != nil {
				t.Fatal(err)
			}
			s := &inboundStream{host: &Host{poller: p}, due: make(chan struct{}, 1),
				urgent: make(chan struct{}, 1)}
			inbound, answer := lanes.Greet("a", lane.Hello{Name: "test", Sender: 1, Opening: 1,
				WindowBytes: 1 << 20, WindowFrames: 8}, s)
			if inbound == nil {
				t.Fatalf("answer %+v", answer)
			}
			defer inbound.End()
			here, there := tcpPair(t)
			conn := &directConn{host: s.host, socket: here}
			stream, err := conn.detach(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			s.inbound, s.carrier = inbound, conn
			fed := make(chan error, 1)
			go func() { fed <- s.feedPrompt(conn, stream) }()
			frames := [][]byte{{1}, {2}}
			batch := append(lane.AppendBatchHeader(nil, frames, 0), 1, 2)
			if _, err := there.Write(batch); err != nil {
				t.Fatal(err)
			}
			if err := there.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			var scratch [ackSize]byte
			if a, err := readAck(there, &scratch); err != nil || a.delivered != 2 || a.goodbye {
				t.Errorf("acknowledgement %+v, error %v", a, err)
			}
			there.Close()
			if err := <-fed; !errors.Is(err, io.EOF) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// TestGoodbyeBehindFullBuffer: a peer that has not read for long still gets the goodbye once it
// does, though the kernel has no room when the goodbye is written, and nothing is written after it.
func TestGoodbyeBehindFullBuffer(t *testing.T) {
	t.Parallel()
	lanes := lane.New(lane.Config{Self: rdmanet.Peer{ID: "b", Incarnation: 1},
		Limits: window.Defaults, MendTimeout: time.Minute,
		Peers: peers.New(func(rdmanet.Peer) {}), Log: slog.New(slog.DiscardHandler),
		Member: func(rdmanet.PeerID) bool { return true }})
	if err := lanes.Receive("test", func(rdmanet.Peer, [][]byte) {}, false); err != nil {
		t.Fatal(err)
	}
	s := &inboundStream{host: &Host{leaving: make(chan struct{}), mendTimeout: time.Hour},
		due: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
	s.stopped, s.cancel = context.WithCancel(context.Background())
	defer s.cancel()
	inbound, answer := lanes.Greet("a", lane.Hello{Name: "test", Sender: 1, Opening: 1,
		WindowBytes: 1 << 20, WindowFrames: 8}, s)
	if inbound == nil {
		t.Fatalf("answer %+v", answer)
	}
	defer inbound.End()
	here, there := tcpPair(t)
	conn := &directConn{host: s.host, socket: here}
	stream, err := conn.detach(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	s.inbound, s.carrier = inbound, conn
	// Not a byte fits, and goes on not to fit: on a busy machine the kernel makes room a while
	// after a write, as it takes to the other end what was written.
	filled := 0
	const full = 300 * time.Millisecond
	for size, since := 1<<16, time.Now(); time.Since(since) < full; {
		n, err := unix.Write(stream.fd, make([]byte, size))
		switch filled += max(n, 0); {
		case err == nil:
			since = time.Now()
		case err != unix.EAGAIN:
			t.Fatal(err)
		case size > 1:
			size /= 2
		default:
			time.Sleep(time.Millisecond)
		}
	}
	close(s.host.leaving)
	left := make(chan struct{})
	go func() {
		s.acknowledge()
		close(left)
	}()
	waits := func() bool {
		stream.mu.Lock()
		defer stream.mu.Unlock()
		return len(stream.rest) == ackSize
	}
	for deadline := time.Now().Add(20 * time.Second); !waits(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the goodbye does not wait for room")
		}
	}
	if err := there.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, there, int64(filled)); err != nil {
		t.Fatal(err)
	}
	var scratch [ackSize]byte
	if a, err := readAck(there, &scratch); err != nil || !a.goodbye {
		t.Errorf("goodbye %+v, error %v", a, err)
	}
	<-left
}
