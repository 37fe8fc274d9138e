package p2p_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// TestMixedVersions plays cases between hosts of which one does not know pairs.
func TestMixedVersions(t *testing.T) {
	fabrictest.RunPrompt(t, func(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
		f := newFabric(t, config).(*fabric)
		f.mixed = true
		return f
	}, "fifo", "severed connections", "sender restarts", "close acknowledges")
}

// talker is a host with a prompt receiver, which checks that the frames of its peer arrive in order
// and once.
type talker struct {
	*p2p.Host
	lane rdmanet.Lane

	mu      sync.Mutex
	changed chan struct{}
	got     uint64
	wrong   error
	events  []rdmanet.PeerEvent
}

// talkers starts two hosts, and opens their lanes to each other at the same time.
func talkers(t *testing.T, factory fabrictest.Factory,
	receiver func(*talker) rdmanet.PromptReceiver) (fabrictest.Fabric, [2]*talker) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("there is no poller")
	}
	f := factory(t, fabrictest.Config{Members: 2, WindowFrames: 64, MendTimeout: time.Minute})
	var both [2]*talker
	for i := range both {
		host, err := f.Start(i)
		if err != nil {
			t.Fatal(err)
		}
		both[i] = &talker{Host: host.(*p2p.Host), changed: make(chan struct{})}
		both[i].Watch(both[i].watch)
		if err := both[i].ReceivePrompt("talk", receiver(both[i])); err != nil {
			t.Fatal(err)
		}
	}
	for i, one := range both {
		one.open(t, f.ID(1-i))
	}
	return f, both
}

func (a *talker) open(t *testing.T, to rdmanet.PeerID) {
	t.Helper()
	lane, err := a.Lane(to, "talk")
	if err != nil {
		t.Fatal(err)
	}
	a.lane = lane
}

func (a *talker) watch(event rdmanet.PeerEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, event)
}

// receiver takes everything promptly.
func (a *talker) receiver() rdmanet.PromptReceiver {
	return rdmanet.PromptReceiver{
		TryReceive: func(_ rdmanet.Peer, frames [][]byte) int {
			a.take(frames)
			return len(frames)
		},
		Receive: func(_ rdmanet.Peer, frames [][]byte) { a.take(frames) },
		Turn:    func() {},
	}
}

func (a *talker) take(frames [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, frame := range frames {
		if number := binary.BigEndian.Uint64(frame); number != a.got && a.wrong == nil {
			a.wrong = fmt.Errorf("frame %d arrived in the place of %d", number, a.got)
		}
		a.got++
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// send sends the frames from number first to number before.
func (a *talker) send(ctx context.Context, first, before uint64) error {
	for i := first; i < before; i++ {
		if err := a.lane.Send(ctx, binary.BigEndian.AppendUint64(nil, i)); err != nil {
			return err
		}
	}
	return nil
}

// await waits until so many frames have arrived.
func (a *talker) await(ctx context.Context, count uint64) error {
	for {
		a.mu.Lock()
		got, wrong, changed := a.got, a.wrong, a.changed
		a.mu.Unlock()
		if wrong != nil || got >= count {
			return wrong
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d frames of %d arrived", got, count)
		}
	}
}

// TestTwoLanesShareAConnection checks that two hosts whose lanes connect at the same time end up
// with one direct connection, again and again.
func TestTwoLanesShareAConnection(t *testing.T) {
	t.Parallel()
	for name, factory := range map[string]fabrictest.Factory{p2p.Fabric: newFabric,
		p2p.FabricTrusted: newTrustedFabric} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			f, both := talkers(t, factory, (*talker).receiver)
			for round := range uint64(5) {
				shared := false
				// A lane that waited too long for the other one makes a connection of its own.
				for tries := 0; !shared; tries++ {
					if tries == 10 {
						t.Fatal("the lanes share a connection in none of ten attempts")
					}
					if tries > 0 || round > 0 {
						f.Sever(int(round)%2, 1-int(round)%2)
					}
					for _, one := range both {
						if err := one.lane.Flushed(ctx); err != nil {
							t.Fatal(err)
						}
					}
					for until := time.Now().Add(time.Second); !shared &&
						time.Now().Before(until); time.Sleep(time.Millisecond) {
						shared = both[0].Paired() == 1 && both[1].Paired() == 1 &&
							len(both[0].DirectNetworks()) == 1
					}
					if ctx.Err() != nil {
						t.Fatalf("the lanes do not share a connection: there are %d",
							len(both[0].DirectNetworks()))
					}
				}
				for i, one := range both {
					if err := one.send(ctx, 100*round, 100*round+100); err != nil {
						t.Fatal(err)
					}
					if err := both[1-i].await(ctx, 100*round+100); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestFullReceiverDoesNotStopItsOwnLane: a receiver that waits until the peer has taken a frame of
// its own gets the acknowledgement, although that comes behind frames that it has not taken.
func TestFullReceiverDoesNotStopItsOwnLane(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	own := make(chan rdmanet.Lane, 1)
	var first *talker
	_, both := talkers(t, newTrustedFabric, func(a *talker) rdmanet.PromptReceiver {
		receiver := a.receiver()
		if first == nil {
			first = a
			sent := uint64(0)
			receiver.TryReceive = func(rdmanet.Peer, [][]byte) int { return 0 }
			receiver.Receive = func(_ rdmanet.Peer, frames [][]byte) {
				lane := <-own
				own <- lane
				frame := binary.BigEndian.AppendUint64(nil, sent)
				sent++
				if err := errors.Join(lane.Send(ctx, frame), lane.Flushed(ctx)); err != nil {
					a.mu.Lock()
					a.wrong = err
					a.mu.Unlock()
				}
				a.take(frames)
			}
		}
		return receiver
	})
	own <- both[0].lane
	const frames = 200 // three windows
	if err := both[1].send(ctx, 0, frames); err != nil {
		t.Fatal(err)
	}
	if err := both[0].await(ctx, frames); err != nil {
		t.Fatal(err)
	}
	if err := both[1].await(ctx, 1); err != nil {
		t.Fatal(err)
	}
}

// TestOneLaneOfAPairCloses: the other lane goes on, and loses and repeats nothing. A new lane in
// place of the closed one works too.
func TestOneLaneOfAPairCloses(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f, both := talkers(t, newFabric, (*talker).receiver)
	const frames = 300
	sent := make(chan error, 1)
	go func() { sent <- both[1].send(ctx, 0, 4*frames) }()
	for i := range uint64(3) {
		if err := both[0].send(ctx, i*frames, (i+1)*frames); err != nil {
			t.Fatal(err)
		}
		if err := both[0].lane.Flushed(ctx); err != nil {
			t.Fatal(err)
		}
		if err := both[0].lane.Close(); err != nil {
			t.Fatal(err)
		}
		both[0].open(t, f.ID(1))
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for i, count := range []uint64{4 * frames, 3 * frames} {
		if err := both[i].await(ctx, count); err != nil {
			t.Fatal(err)
		}
	}
	if err := both[1].lane.Flushed(ctx); err != nil {
		t.Fatal(err)
	}
	for _, one := range both {
		one.mu.Lock()
		for _, event := range one.events {
			if event.Kind == rdmanet.LaneReset || event.Kind == rdmanet.PeerUnreachable {
				t.Errorf("event %s of lane %q, lost %d", event.Kind, event.Lane, event.Lost)
			}
		}
		one.mu.Unlock()
	}
}

// TestGoodbyeOfAPair: a host that closes while both lanes of a pair are busy delivers its frames,
// and acknowledges exactly those that its program got.
func TestGoodbyeOfAPair(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, both := talkers(t, newTrustedFabric, (*talker).receiver)
	accepted := make(chan uint64, 1)
	var broken error
	go func() {
		n := uint64(0)
		for ; broken == nil; n++ {
			broken = both[0].send(ctx, n, n+1)
		}
		accepted <- n - 1
	}()
	if err := both[1].send(ctx, 0, 500); err != nil {
		t.Fatal(err)
	}
	if err := both[1].await(ctx, 100); err != nil {
		t.Fatal(err)
	}
	if err := both[1].Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := both[0].await(ctx, 500); err != nil {
		t.Fatal(err)
	}
	n := <-accepted
	if !errors.Is(broken, rdmanet.ErrUnreachable) {
		t.Fatalf("error %v", broken)
	}
	both[1].mu.Lock()
	defer both[1].mu.Unlock()
	if acknowledged := n - uint64(both[0].lane.Pending()); both[1].got != acknowledged {
		t.Fatalf("%d frames arrived before the peer closed, %d are acknowledged", both[1].got,
			acknowledged)
	}
}
