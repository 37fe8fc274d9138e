package wire_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T) (network *memory.Network, a, b *wire.Datagrams, hostA *memory.Host) {
	t.Helper()
	network = memory.NewNetwork(memory.Options{MendTimeout: 200 * time.Millisecond})
	var controls []*wire.Datagrams
	for _, name := range []rdmanet.PeerID{"a", "b"} {
		host, err := network.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "a" {
			hostA = host
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := host.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		c, err := wire.NewDatagrams(host, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		controls = append(controls, c)
	}
	return network, controls[0], controls[1], hostA
}

func get(t *testing.T, messages <-chan string) string {
	t.Helper()
	select {
	case message := <-messages:
		return message
	case <-time.After(time.Minute):
		t.Fatal("no message came")
		return ""
	}
}

func TestEachKindHasItsHandler(t *testing.T) {
	t.Parallel()
	_, a, b, hostA := pair(t)
	messages := make(chan string, 10)
	for _, kind := range []wire.Kind{1, 2, 255} {
		err := b.Register(kind, func(from rdmanet.Peer, payload []byte) {
			messages <- fmt.Sprintf("%d from %s: %s", kind, from.ID, payload)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Register(2, func(rdmanet.Peer, []byte) {}); !errors.Is(err, wire.ErrRegistered) {
		t.Errorf("a second handler: %v", err)
	}
	// Messages without a handler and malformed messages are skipped.
	if err := a.Send("b", 77, []byte("nobody")); err != nil {
		t.Fatal(err)
	}
	lane, err := hostA.Lane("b", wire.DatagramLane)
	if err != nil {
		t.Fatal(err)
	}
	if err := lane.Send(t.Context(), []byte{}); err != nil {
		t.Fatal(err)
	}
	for _, message := range []struct {
		kind    wire.Kind
		payload string
	}{{2, "x"}, {1, ""}, {255, "z"}} {
		if err := a.Send("b", message.kind, []byte(message.payload)); err != nil {
			t.Fatal(err)
		}
		if got, want := get(t, messages), fmt.Sprintf("%d from a: %s", message.kind,
			message.payload); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := a.Send("b", 1, make([]byte, wire.DatagramMax+1)); !errors.Is(err,
		wire.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

func TestRestartedPeerIsReached(t *testing.T) {
	t.Parallel()
	network, a, b, _ := pair(t)
	messages := make(chan string, 1000)
	note := func(_ rdmanet.Peer, payload []byte) { messages <- string(payload) }
	if err := b.Register(1, note); err != nil {
		t.Fatal(err)
	}
	if err := a.Send("b", 1, []byte("to the first life")); err != nil {
		t.Fatal(err)
	}
	if got := get(t, messages); got != "to the first life" {
		t.Errorf("got %q", got)
	}
	network.Kill("b")
	host, err := network.Host("b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	again, err := wire.NewDatagrams(host, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Register(1, note); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(time.Minute)
	for {
		if err := a.Send("b", 1, []byte("to the second life")); err != nil {
			t.Fatal(err)
		}
		select {
		case message := <-messages:
			if message != "to the second life" {
				t.Errorf("got %q", message)
			}
			return
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatal("the second life is not reached")
		}
	}
}
