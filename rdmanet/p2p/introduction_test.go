package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// acquainted starts a host that knows nobody, and a stranger that knows it.
func acquainted(t *testing.T) (host, stranger *p2p.Host) {
	t.Helper()
	start := func(i int, members map[rdmanet.PeerID]string) *p2p.Host {
		key, _ := identity(t, i)
		h, err := p2p.New(p2p.Options{PrivateKey: key, Listen: "127.0.0.1:0", Members: members,
			MendTimeout: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = h.Close(ctx)
		})
		return h
	}
	host = start(1, nil)
	return host, start(2, map[rdmanet.PeerID]string{host.ID(): host.Address()})
}

// TestStrangerIntroducesItself checks that a stranger can say one thing and nothing else, until the
// host admits it.
func TestStrangerIntroducesItself(t *testing.T) {
	t.Parallel()
	host, stranger := acquainted(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	said := bytes.Repeat([]byte("who I am. "), rdmanet.IntroductionMax/10)
	if _, err := stranger.Introduce(ctx, host.ID(), said); !errors.Is(err,
		rdmanet.ErrUnreachable) {
		t.Errorf("before the host takes introductions: %v", err)
	}
	if err := host.Receive("test", func(rdmanet.Peer, [][]byte) {}); err != nil {
		t.Fatal(err)
	}
	var believe atomic.Bool
	if err := host.Introduced(func(from string, read func() ([]byte, error)) ([]byte, error) {
		got, err := read()
		if err != nil || !bytes.Equal(got, said) || from != "127.0.0.1" {
			t.Errorf("%d bytes from %s, error %v", len(got), from, err)
		}
		if !believe.Load() {
			return nil, errors.New("not believed")
		}
		return []byte("welcome"), host.SetMembers(map[rdmanet.PeerID]string{
			stranger.ID(): stranger.Address()})
	}); err != nil {
		t.Fatal(err)
	}
	if err := host.Introduced(nil); !errors.Is(err, rdmanet.ErrDuplicate) {
		t.Errorf("a second function: %v", err)
	}
	if _, err := stranger.Introduce(ctx, host.ID(), said); !errors.Is(err,
		rdmanet.ErrUnreachable) {
		t.Errorf("while it is not believed: %v", err)
	}
	lane, err := stranger.Lane(host.ID(), "test")
	if err != nil {
		t.Fatal(err)
	}
	_ = lane.Send(ctx, []byte("x"))
	if err := lane.Flushed(ctx); !errors.Is(err, rdmanet.ErrUnreachable) {
		t.Errorf("a lane of a stranger: %v", err)
	}
	believe.Store(true)
	if answer, err := stranger.Introduce(ctx, host.ID(), said); err != nil ||
		string(answer) != "welcome" {
		t.Errorf("%q, %v", answer, err)
	}
	if lane, err = stranger.Lane(host.ID(), "test"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lane.Send(ctx, []byte("x")), lane.Flushed(ctx)); err != nil {
		t.Errorf("a lane of a member: %v", err)
	}
}

// TestImpossibleIntroductions checks the errors of the stranger's end.
func TestImpossibleIntroductions(t *testing.T) {
	t.Parallel()
	host, stranger := acquainted(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, other := identity(t, 3)
	for what, each := range map[string]struct {
		to   rdmanet.PeerID
		said int
		want error
	}{
		"too large":  {host.ID(), rdmanet.IntroductionMax + 1, rdmanet.ErrTooLarge},
		"to nobody":  {other, 1, rdmanet.ErrNotMember},
		"no address": {"", 1, rdmanet.ErrNotMember},
	} {
		if _, err := stranger.Introduce(ctx, each.to, make([]byte, each.said)); !errors.Is(err,
			each.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := stranger.SetMembers(map[rdmanet.PeerID]string{host.ID(): ""}); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Introduce(ctx, host.ID(), nil); !errors.Is(err,
		rdmanet.ErrUnreachable) {
		t.Errorf("without an address: %v", err)
	}
	if err := stranger.SetMembers(map[rdmanet.PeerID]string{host.ID(): host.Address()}); err !=
		nil {
		t.Fatal(err)
	}
	began, end := make(chan struct{}), make(chan struct{})
	if err := host.Introduced(func(string, func() ([]byte, error)) ([]byte, error) {
		close(began)
		<-end
		return make([]byte, rdmanet.IntroductionAnswerMax+1), nil
	}); err != nil {
		t.Fatal(err)
	}
	impatient, stop := context.WithCancel(ctx)
	go func() {
		<-began
		stop()
	}()
	if _, err := stranger.Introduce(impatient, host.ID(), nil); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	close(end)
	if err := stranger.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Introduce(ctx, host.ID(), nil); !errors.Is(err, rdmanet.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
