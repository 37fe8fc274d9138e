package p2p_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// TestManyMembersBehindOneAddress checks that only the member set limits connections from one
// address.
func TestManyMembersBehindOneAddress(t *testing.T) {
	const members, patient = 80, 3 * time.Minute // on a busy machine
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	f := newFabric(t, fabrictest.Config{Members: members, MendTimeout: patient})
	var arrived, answered sync.WaitGroup
	arrived.Add(members - 1)
	answered.Add(members - 1)
	centre, err := f.Start(0)
	if err != nil {
		t.Fatal(err)
	}
	err = centre.Receive("call", func(_ rdmanet.Peer, frames [][]byte) {
		arrived.Add(-len(frames))
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < members; i++ {
		h, err := f.Start(i)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Receive("answer", func(_ rdmanet.Peer, frames [][]byte) {
			answered.Add(-len(frames))
		}); err != nil {
			t.Fatal(err)
		}
		call, callErr := h.Lane(f.ID(0), "call")
		answer, answerErr := centre.Lane(f.ID(i), "answer")
		if err := errors.Join(callErr, answerErr); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(call.Send(ctx, []byte("hello")),
			answer.Send(ctx, []byte("hello"))); err != nil {
			t.Fatal(err)
		}
	}
	all := make(chan struct{})
	go func() {
		arrived.Wait()
		answered.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
		t.Fatal("not every member got through")
	}
}

// TestHostileMember checks that bytes from a member that violate the lane protocol end its stream,
// and that the host goes on.
func TestHostileMember(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	f := newFabric(t, fabrictest.Config{Members: 3})
	started, err := f.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	victim := started.(*p2p.Host)
	got := make(chan string, 1)
	if err := victim.Receive("test", func(_ rdmanet.Peer, frames [][]byte) {
		got <- string(frames[0])
	}); err != nil {
		t.Fatal(err)
	}
	raw, _ := identity(t, 2)
	key, err := libp2pcrypto.UnmarshalEd25519PrivateKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.Decode(string(victim.ID()))
	if err != nil {
		t.Fatal(err)
	}
	rogue, err := libp2p.New(libp2p.Identity(key), libp2p.NoListenAddrs, libp2p.DisableMetrics(),
		libp2p.DisableRelay(), p2p.RogueTransport(key, func() peer.ID { return id }))
	if err != nil {
		t.Fatal(err)
	}
	defer rogue.Close()
	host, port := splitAddress(t, victim.Address())
	address, err := multiaddr.NewMultiaddr("/ip4/" + host + "/tcp/" + port)
	if err != nil {
		t.Fatal(err)
	}
	if err := rogue.Connect(ctx, peer.AddrInfo{ID: id,
		Addrs: []multiaddr.Multiaddr{address}}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		stream, err := rogue.NewStream(ctx, id, "/ledgerd/lane/2")
		if err != nil {
			t.Fatal(err)
		}
		garbage := make([]byte, 4096)
		for i := range garbage {
			garbage[i] = byte(i * 7)
		}
		// The stream may be gone in the middle of the write.
		_, _ = stream.Write(garbage)
		_ = stream.SetReadDeadline(time.Now().Add(10 * time.Second))
		var timeout interface{ Timeout() bool }
		if _, err := stream.Read(garbage); err == nil || errors.As(err, &timeout) &&
			timeout.Timeout() {
			t.Fatalf("the stream was not dropped: %v", err)
		}
		_ = stream.Reset()
	}
	from, err := f.Start(0)
	if err != nil {
		t.Fatal(err)
	}
	lane, err := from.Lane(victim.ID(), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := lane.Send(ctx, []byte("still here")); err != nil {
		t.Fatal(err)
	}
	select {
	case word := <-got:
		if word != "still here" {
			t.Fatalf("got %q", word)
		}
	case <-ctx.Done():
		t.Fatal("the host does not go on")
	}
}

// TestExpelledMember checks that a removed member loses its lanes, at both ends.
func TestExpelledMember(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	f := newFabric(t, fabrictest.Config{Members: 2, MendTimeout: 2 * time.Second})
	a, errA := f.Start(0)
	b, errB := f.Start(1)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Receive("test", func(rdmanet.Peer, [][]byte) {}),
		b.Receive("test", func(rdmanet.Peer, [][]byte) {})); err != nil {
		t.Fatal(err)
	}
	there, errThere := a.Lane(b.ID(), "test")
	back, errBack := b.Lane(a.ID(), "test")
	if err := errors.Join(errThere, errBack); err != nil {
		t.Fatal(err)
	}
	for _, lane := range []rdmanet.Lane{there, back} {
		if err := errors.Join(lane.Send(ctx, []byte("x")), lane.Flushed(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.(*p2p.Host).SetMembers(nil); err != nil {
		t.Fatal(err)
	}
	if err := there.Send(ctx, []byte("x")); !errors.Is(err, rdmanet.ErrNotMember) {
		t.Errorf("the member set's owner sends with error %v", err)
	}
	_, err := a.Lane(b.ID(), "test")
	if !errors.Is(err, rdmanet.ErrNotMember) {
		t.Errorf("a lane to the expelled gave error %v", err)
	}
	_ = back.Send(ctx, []byte("x")) // accepted, or refused already
	if err := back.Flushed(ctx); !errors.Is(err, rdmanet.ErrUnreachable) {
		t.Errorf("the expelled sends with error %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	key, id := identity(t, 1)
	for name, options := range map[string]p2p.Options{
		"no key":     {Listen: "127.0.0.1:0"},
		"no address": {PrivateKey: key},
		"no port":    {PrivateKey: key, Listen: "127.0.0.1"},
		"a bad member": {PrivateKey: key, Listen: "127.0.0.1:0",
			Members: map[rdmanet.PeerID]string{"x": ""}},
		"a bad address": {PrivateKey: key, Listen: "127.0.0.1:0",
			Members: map[rdmanet.PeerID]string{id: "/ip4"}},
		"a window too small": {PrivateKey: key, Listen: "127.0.0.1:0", WindowBytes: 10,
			FrameMax: 20},
		"a negative timeout":  {PrivateKey: key, Listen: "127.0.0.1:0", MendTimeout: -1},
		"an occupied address": {PrivateKey: key, Listen: occupied(t)},
	} {
		if h, err := p2p.New(options); err == nil {
			t.Errorf("%s: no error", name)
			_ = h.Close(t.Context())
		}
	}
	public, err := p2p.PublicKey(id)
	if err != nil || !public.Equal(key.Public().(ed25519.PublicKey)) {
		t.Errorf("the identity's key is %x, error %v", public, err)
	}
}

// TestEndedProcessIsRefused checks that the end of a process is reported at once, long before the
// lane is given up: its machine refuses the connection.
func TestEndedProcessIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	f := newFabric(t, fabrictest.Config{Members: 2, MendTimeout: time.Minute})
	a, errA := f.Start(0)
	b, errB := f.Start(1)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	refused := make(chan rdmanet.PeerEvent, 1)
	a.Watch(func(event rdmanet.PeerEvent) {
		if event.Kind == rdmanet.PeerRefused {
			select {
			case refused <- event:
			default:
			}
		}
	})
	if err := b.Receive("test", func(rdmanet.Peer, [][]byte) {}); err != nil {
		t.Fatal(err)
	}
	lane, err := a.Lane(b.ID(), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lane.Send(ctx, []byte("x")), lane.Flushed(ctx)); err != nil {
		t.Fatal(err)
	}
	victim := rdmanet.Peer{ID: b.ID(), Incarnation: b.Incarnation()}
	f.Kill(1)
	select {
	case event := <-refused:
		if event.Peer != victim || event.Cause == nil {
			t.Fatalf("event %+v, want one of %v with a cause", event, victim)
		}
	case <-ctx.Done():
		t.Fatal("nobody was told")
	}
}
