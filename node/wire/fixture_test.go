package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// patience bounds the wait for an expected event.
const patience = 30 * time.Second

// lane is the lane of the tests' requests.
const lane = "test"

func closeLater(t testing.TB, host rdmanet.Host) {
	t.Cleanup(func() {
		// Do not wait for frames in the windows of dead peers.
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_ = host.Close(ctx)
	})
}

func memoryHost(t testing.TB, network *memory.Network, id rdmanet.PeerID) *memory.Host {
	t.Helper()
	host, err := network.Host(id)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, host)
	return host
}

// overP2P makes two hosts that know each other.
func overP2P(t testing.TB) (a, b rdmanet.Host) {
	t.Helper()
	hosts, members := make([]*p2p.Host, 2), make(map[rdmanet.PeerID]string)
	for i := range hosts {
		key, err := p2p.NewIdentity(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if hosts[i], err = p2p.New(p2p.Options{PrivateKey: key,
			Listen: "127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
		closeLater(t, hosts[i])
		members[hosts[i].ID()] = hosts[i].Address()
	}
	for _, host := range hosts {
		if err := host.SetMembers(members); err != nil {
			t.Fatal(err)
		}
	}
	return hosts[0], hosts[1]
}

func overMemory(t testing.TB) (a, b rdmanet.Host) {
	network := memory.NewNetwork()
	return memoryHost(t, network, "a"), memoryHost(t, network, "b")
}

// start makes a Requests on a host; change may be nil.
func start(t testing.TB, host rdmanet.Host, serve handler, change func(*Config)) *Requests {
	t.Helper()
	config := Config{Host: host, Lane: lane, Serve: serve, Logger: slog.New(slog.DiscardHandler),
		Admit: func(rdmanet.PeerID) bool { return true }, BodyMax: 16 << 20,
		Busy: []byte("busy"), Serving: NewBudget(64 << 20), Arriving: NewBudget(64 << 20)}
	if change != nil {
		change(&config)
	}
	x, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

type handler = func(context.Context, *Served) error

// echo answers with the request's head and body, in chunks of a megabyte.
func echo(_ context.Context, r *Served) error {
	rest := slices.Concat(r.Head, r.Body)
	for ; len(rest) > 1<<20; rest = rest[1<<20:] {
		if err := r.Send(rest[:1<<20]); err != nil {
			return err
		}
	}
	return r.End(rest)
}

// unused is the handler of a Requests that only asks.
func unused(context.Context, *Served) error { return errors.New("nobody asks it") }

// named answers with a text.
func named(text string) handler {
	return func(_ context.Context, r *Served) error { return r.End([]byte(text)) }
}

// waiting waits for its context's end, and signals its begin and end.
func waiting(began, ended chan<- struct{}) handler {
	return func(ctx context.Context, _ *Served) error {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return ctx.Err()
	}
}

// ask sends a request with a body of bytes of a text.
func ask(x *Requests, to rdmanet.PeerID, body string) (*Asked, <-chan struct{}) {
	wake := make(chan struct{}, 1)
	return x.Ask(to, Request{Kind: 1, Head: []byte("head "), Body: []byte(body),
		Deadline: time.Now().Add(time.Hour), AnswerMax: 32 << 20, Wake: wake}), wake
}

// post makes a request and reads the whole answer. It looks at a doubted request as a service does.
func post(ctx context.Context, x *Requests, to rdmanet.PeerID, body string) (string, error) {
	asked, wake := ask(x, to, body)
	defer asked.Close()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		now := asked.Progress()
		switch {
		case now.Err != nil:
			return "", now.Err
		case now.Whole:
			return string(slices.Concat(chunks(asked)...)), nil
		case now.Doubted:
			asked.Check()
		}
		select {
		case <-wake:
		case <-look.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// chunks takes the chunks that are here.
func chunks(asked *Asked) (list [][]byte) {
	for chunk, ok := asked.Next(); ok; chunk, ok = asked.Next() {
		list = append(list, chunk)
	}
	return list
}

// idle waits until nothing is under way, and nothing reserved.
func idle(t testing.TB, list ...*Requests) {
	t.Helper()
	await(t, "the end of all requests", func() bool {
		for _, x := range list {
			if s := x.Status(); s.Asking+s.Serving != 0 || x.config.Serving.Used() != 0 ||
				x.config.Arriving.Used() != 0 {
				return false
			}
		}
		return true
	})
}

// within returns a context that ends with the test, or after a time limit.
func within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func receive[T any](t testing.TB, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
	return got
}

// await waits for a condition.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}
