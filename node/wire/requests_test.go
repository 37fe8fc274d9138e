package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// Requests and answers of all sizes arrive, in both directions at once, over one lane each way.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for name, hosts := range map[string]func(testing.TB) (a, b rdmanet.Host){
		"memory": overMemory, "p2p": overP2P,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hostA, hostB := hosts(t)
			a, b := start(t, hostA, echo, nil), start(t, hostB, echo, nil)
			var all sync.WaitGroup
			for _, size := range []int{0, 1, 4 << 10, copyMax + 1, PieceBytesDefault,
				PieceBytesDefault + 1, 9 << 20} {
				for from, to := range map[*Requests]rdmanet.PeerID{a: hostB.ID(), b: hostA.ID()} {
					all.Go(func() {
						body := strings.Repeat(string(rune('a'+size%26)), size)
						got, err := post(within(t, patience), from, to, body)
						if err != nil || got != "head "+body {
							t.Errorf("%d bytes: %d came, %v", size, len(got), err)
						}
					})
				}
			}
			all.Wait()
			idle(t, a, b)
		})
	}
}

// An asker takes the chunks of an answer as they arrive, as they were sent.
func TestAnswerArrivesInChunks(t *testing.T) {
	t.Parallel()
	hostA, hostB := overMemory(t)
	next := make(chan string)
	a := start(t, hostA, unused, nil)
	b := start(t, hostB, func(_ context.Context, r *Served) error {
		for text := range next {
			if err := r.Send([]byte(text[:1]), []byte(text[1:])); err != nil {
				return err
			}
		}
		return r.End()
	}, nil)
	asked, wake := ask(a, "b", "")
	defer asked.Close()
	for i := range 5 {
		text := fmt.Sprint("chunk ", i)
		next <- text
		// A sign that the peer still works on it wakes, too.
		var chunk []byte
		for ok := false; !ok; chunk, ok = asked.Next() {
			receive(t, "a chunk", wake)
		}
		if string(chunk) != text || asked.Progress().Whole {
			t.Fatalf("%q, %+v", chunk, asked.Progress())
		}
		if _, more := asked.Next(); more {
			t.Fatal("one more")
		}
	}
	close(next)
	await(t, "the end", func() bool { return asked.Progress().Whole })
	if asked.Close(); len(chunks(asked)) != 0 {
		t.Error("there are more chunks")
	}
	idle(t, a, b)
}

// A peer serves as many requests as its bounds allow, and answers the others with busy at once.
func TestBounds(t *testing.T) {
	t.Parallel()
	hostA, hostB := overMemory(t)
	var now, most atomic.Int32
	a := start(t, hostA, unused, nil)
	b := start(t, hostB, func(ctx context.Context, r *Served) error {
		for n, m := now.Add(1), most.Load(); n > m && !most.CompareAndSwap(m, n); {
			m = most.Load()
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
		return echo(ctx, r)
	}, func(c *Config) { c.ServingPerPeer = 8 })
	var all sync.WaitGroup
	var served, busy atomic.Int32
	for i := range 200 {
		all.Go(func() {
			body := fmt.Sprint(i)
			switch got, err := post(within(t, patience), a, "b", body); {
			case err == nil && got == "head "+body:
				served.Add(1)
			case err == nil && got == "busy":
				busy.Add(1)
			default:
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
	if most.Load() > 8 || served.Load() < 8 {
		t.Errorf("%d were served at a time, %d in all", most.Load(), served.Load())
	}
	if s := b.Status(); s.Served != uint64(served.Load()) || s.Refused != uint64(busy.Load()) {
		t.Errorf("%+v, %d and %d came", s, served.Load(), busy.Load())
	}
	idle(t, a, b)
}

// The handler of a request that its asker gives up ends, whether it came in one frame or in
// several.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3 << 20} {
		hostA, hostB := overMemory(t)
		began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
		a := start(t, hostA, unused, nil)
		b := start(t, hostB, waiting(began, ended), nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-began
			cancel()
		}()
		if _, err := post(ctx, a, "b", strings.Repeat("x", size)); !errors.Is(err,
			context.Canceled) {
			t.Fatal(err)
		}
		receive(t, "the handler's end", ended)
		idle(t, a, b)
	}
}

// A handler that returns without the end of its answer fails the request, with its error's text.
func TestFailure(t *testing.T) {
	t.Parallel()
	hostA, hostB := overMemory(t)
	a := start(t, hostA, unused, nil)
	b := start(t, hostB, func(_ context.Context, r *Served) error {
		if bytes.Equal(r.Body, []byte("half")) {
			return r.Send([]byte("a half"))
		}
		return errors.New(string(r.Body))
	}, nil)
	for body, want := range map[string]string{
		"half": errUnfinished.Error(), "planted": "planted",
		strings.Repeat("é", 1000): strings.Repeat("é", 100),
	} {
		if _, err := post(within(t, patience), a, "b", body); !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v", body, err)
		}
	}
	idle(t, a, b)
}

// half answers with a chunk, and then waits for the end of the request.
func half(ctx context.Context, r *Served) error {
	if err := r.Send([]byte("12345")); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// A peer that dies, is cut off or restarts in the midst of an answer ends the request, with the
// fabric's error. Its next process is reached.
func TestPeerEndsInTheMidstOfAnAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(*testing.T, *memory.Network)
		want error
	}{
		{"dies", func(_ *testing.T, n *memory.Network) { n.Kill("b") }, rdmanet.ErrUnreachable},
		{"cut off", func(_ *testing.T, n *memory.Network) { n.Cut("a", "b") },
			rdmanet.ErrUnreachable},
		{"restarts", func(t *testing.T, n *memory.Network) {
			n.Kill("b")
			again := start(t, memoryHost(t, n, "b"), named("again"), nil)
			go func() { _, _ = post(t.Context(), again, "a", "") }() // it announces itself
		}, rdmanet.ErrReset},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			network := memory.NewNetwork(memory.Options{MendTimeout: 300 * time.Millisecond})
			a := start(t, memoryHost(t, network, "a"), named("a"), nil)
			b := start(t, memoryHost(t, network, "b"), half, nil)
			asked, wake := ask(a, "b", "x")
			defer asked.Close()
			receive(t, "the beginning of the answer", wake)
			c.end(t, network)
			if c.name != "restarts" { // the lane has to be used to find that it is broken
				go func() { _, _ = post(within(t, time.Second), a, "b", "x") }()
			}
			await(t, "the end", func() bool {
				asked.Check()
				return asked.Progress().Err != nil
			})
			if err := asked.Progress().Err; !errors.Is(err, c.want) {
				t.Fatal(err)
			}
			if c.name != "restarts" {
				b.Close()
				network.Mend("a", "b")
				network.Kill("b")
				start(t, memoryHost(t, network, "b"), named("again"), nil)
			}
			got, err := post(within(t, patience), a, "b", "x")
			if err != nil || got != "again" {
				t.Fatal(got, err)
			}
		})
	}
}

// An asker that restarts ends the handlers of its earlier life.
func TestAskerRestarts(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	began, ended := make(chan struct{}, 2), make(chan struct{}, 2)
	a := start(t, memoryHost(t, network, "a"), unused, nil)
	b := start(t, memoryHost(t, network, "b"), waiting(began, ended), nil)
	go func() { _, _ = post(t.Context(), a, "b", "x") }()
	receive(t, "the request", began)
	network.Kill("a")
	a.Close()
	again := start(t, memoryHost(t, network, "a"), unused, nil)
	go func() { _, _ = post(t.Context(), again, "b", "x") }()
	receive(t, "the end of the first life's request", ended)
	receive(t, "the second life's request", began)
	await(t, "one request", func() bool { return b.Status().Serving == 1 })
}

// Frames that were lost while two hosts were apart end the requests that they belonged to, on both
// sides, and no later one.
func TestLostFrames(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork(memory.Options{MendTimeout: 100 * time.Millisecond})
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	a := start(t, memoryHost(t, network, "a"), unused, nil)
	b := start(t, memoryHost(t, network, "b"), waiting(began, ended), nil)
	result := make(chan error, 1)
	go func() {
		_, err := post(t.Context(), a, "b", "x")
		result <- err
	}()
	receive(t, "the request", began)
	network.Cut("a", "b")
	go func() { _, _ = post(within(t, patience), a, "b", "x") }() // it finds the cut
	if err := receive(t, "the end of the request", result); !errors.Is(err,
		rdmanet.ErrUnreachable) {
		t.Error(err)
	}
	receive(t, "the end of the handler", ended) // its signs find the cut
	network.Mend("a", "b")
	go func() { <-began }()
	if _, err := post(within(t, 200*time.Millisecond), a, "b", "x"); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	receive(t, "the end of the second handler", ended)
	idle(t, a, b)
}

// A gap in what a peer sends ends an answer of which a part is here, and doubts the others until
// the peer shows that it still works on them. On the other side it ends bodies that are not whole.
func TestGap(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	a := start(t, memoryHost(t, network, "a"), unused, nil)
	b := memoryHost(t, network, "b")
	arrived := make(chan requestFrame, 2)
	if err := b.Receive(lane, func(_ rdmanet.Peer, frames [][]byte) {
		for _, frame := range frames {
			if r, err := decodeRequest(frame, 100); err == nil {
				arrived <- r
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	begun, _ := ask(a, "b", "begun")
	defer begun.Close()
	first := receive(t, "the request", arrived)
	other, _ := ask(a, "b", "other")
	defer other.Close()
	second := receive(t, "the request", arrived)
	peer := rdmanet.Peer{ID: "b", Incarnation: 1}
	a.receive(peer, [][]byte{encodePiece(frameChunk, first.id, 0, []byte("x"))})
	a.watch(rdmanet.PeerEvent{Kind: rdmanet.LaneReset, Peer: peer, Lane: "another"})
	if now := begun.Progress(); now.Err != nil || now.Doubted {
		t.Errorf("%+v", now)
	}
	a.watch(rdmanet.PeerEvent{Kind: rdmanet.LaneReset, Peer: peer, Lane: lane})
	if now := begun.Progress(); !errors.Is(now.Err, rdmanet.ErrReset) {
		t.Errorf("%+v", now)
	}
	if now := other.Progress(); now.Err != nil || !now.Doubted || !now.Gap {
		t.Errorf("%+v", now)
	}
	a.receive(peer, [][]byte{encodeWorking([]uint64{first.id, second.id})})
	if now := other.Progress(); now.Err != nil || now.Doubted || now.Gap {
		t.Errorf("%+v", now)
	}
	// The other side.
	a.receive(peer, encodeRequest(7, 1000, 1, nil, []byte("a body"), 3)[:1])
	await(t, "the request", func() bool { return a.Status().Serving == 1 })
	a.watch(rdmanet.PeerEvent{Kind: rdmanet.LaneReset, Peer: peer, Lane: lane})
	await(t, "its end", func() bool { return a.Status().Serving == 0 })
}

// A request whose lane turns out to be dead before it is sent goes to the peer's new process at
// once.
func TestSentOnceMore(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	a := start(t, memoryHost(t, network, "a"), unused, nil)
	b := start(t, memoryHost(t, network, "b"), named("first"), nil)
	if got, err := post(within(t, patience), a, "b", "x"); err != nil || got != "first" {
		t.Fatal(got, err)
	}
	over, err := a.host.Lane("b", lane)
	if err != nil {
		t.Fatal(err)
	}
	network.Kill("b")
	b.Close()
	start(t, memoryHost(t, network, "b"), named("again"), nil)
	await(t, "the end of the lane", func() bool {
		_, err := over.TrySend()
		return err != nil
	})
	if got, err := post(within(t, patience), a, "b", "x"); err != nil || got != "again" {
		t.Fatal(got, err)
	}
}

// A peer that works for long shows it with signs. A peer whose program hangs takes frames and shows
// nothing; its asker ends the request. The time is virtual.
func TestSignsAndSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := memory.NewNetwork()
		a := start(t, memoryHost(t, network, "a"), unused, nil)
		start(t, memoryHost(t, network, "b"), func(_ context.Context, r *Served) error {
			time.Sleep(30 * time.Second)
			return r.End([]byte("slow"))
		}, nil)
		if err := memoryHost(t, network, "c").Receive(lane,
			func(rdmanet.Peer, [][]byte) {}); err != nil {
			t.Fatal(err)
		}
		slow, _ := ask(a, "b", "x")
		hangs, _ := ask(a, "c", "x")
		began := time.Now()
		for range 29 {
			time.Sleep(time.Second)
			if silent := time.Since(slow.Progress().Heard); silent > signEvery+signTick {
				t.Errorf("no sign for %v", silent)
			}
			if heard := hangs.Progress().Heard; heard != began {
				t.Errorf("heard at %v", heard.Sub(began))
			}
		}
		time.Sleep(2 * time.Second)
		if !slow.Progress().Whole || hangs.Progress().over() {
			t.Errorf("%+v, %+v", slow.Progress(), hangs.Progress())
		}
		slow.Close()
		hangs.Close()
		idle(t, a)
	})
}

// A peer that takes no frame fills its lane. What it asked ends at its deadline; another peer is
// served meanwhile. The time is virtual.
func TestStalledPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := memory.NewNetwork(memory.Options{WindowBytes: 2 << 20})
		a := start(t, memoryHost(t, network, "a"), unused, nil)
		b := start(t, memoryHost(t, network, "b"), func(_ context.Context, r *Served) error {
			for range 7 {
				if err := r.Send(make([]byte, 1<<20)); err != nil {
					return err
				}
			}
			return r.End(make([]byte, 1<<20))
		}, func(c *Config) { c.TimeoutMax = 10 * time.Second })
		// c asks and then takes no answer: its lane stands.
		c := newSender(t, network, "c")
		release := c.stall()
		c.send("b", encodeRequest(1, 1<<30, 1, nil, nil, 1)[0])
		synctest.Wait()
		if got, err := post(within(t, patience), a, "b", ""); err != nil || len(got) != 8<<20 {
			t.Errorf("another peer got %d bytes, %v", len(got), err)
		}
		if serving := b.Status().Serving; serving != 1 {
			t.Errorf("%d requests are served", serving)
		}
		time.Sleep(11 * time.Second)
		if serving := b.Status().Serving; serving != 0 {
			t.Error("the stalled peer's request goes on")
		}
		release()
		synctest.Wait()
	})
}

// Two nodes that ask each other, with answers larger than the lanes' windows, do not wait in a
// circle.
func TestNoCircle(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork(memory.Options{WindowBytes: 2 << 20})
	a := start(t, memoryHost(t, network, "a"), echo, nil)
	b := start(t, memoryHost(t, network, "b"), echo, nil)
	body := strings.Repeat("x", 6<<20)
	var all sync.WaitGroup
	for range 4 {
		for from, to := range map[*Requests]rdmanet.PeerID{a: "b", b: "a"} {
			all.Go(func() {
				got, err := post(within(t, patience), from, to, body)
				if err != nil || len(got) != len(body)+len("head ") {
					t.Error(len(got), err)
				}
			})
		}
	}
	all.Wait()
	idle(t, a, b)
}

// Close ends what is under way on both sides, waits for handlers, and may be called again.
func TestClose(t *testing.T) {
	t.Parallel()
	hostA, hostB := overMemory(t)
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	a, b := start(t, hostA, unused, nil), start(t, hostB, waiting(began, ended), nil)
	results := make(chan error, 2)
	go func() {
		_, err := post(t.Context(), a, "b", "x")
		results <- err
	}()
	receive(t, "the request", began)
	a.Close()
	if err := receive(t, "the end", results); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := post(t.Context(), a, "b", "x"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	b.Close()
	select {
	case <-ended:
	default:
		t.Error("Close did not wait for the handler")
	}
	b.Close()
	idle(t, a, b)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	host, _ := overMemory(t)
	admit := func(rdmanet.PeerID) bool { return true }
	for i, config := range []Config{
		{Lane: lane, Admit: admit, Serve: unused}, {Host: host, Admit: admit, Serve: unused},
		{Host: host, Lane: lane, Serve: unused}, {Host: host, Lane: lane, Admit: admit},
		{Host: host, Lane: strings.Repeat("x", rdmanet.LaneNameMax+1), Admit: admit,
			Serve: unused},
		{Host: host, Lane: lane, Admit: admit, Serve: unused, ServingMax: -1},
		{Host: host, Lane: lane, Admit: admit, Serve: unused, BodyMax: -1},
		{Host: host, Lane: lane, Admit: admit, Serve: unused, TimeoutMax: -1},
	} {
		if x, err := New(config); err == nil {
			x.Close()
			t.Errorf("configuration %d was taken", i)
		}
	}
	start(t, host, unused, nil)
	if _, err := New(Config{Host: host, Lane: lane, Admit: admit, Serve: unused}); !errors.Is(err,
		rdmanet.ErrDuplicate) {
		t.Error(err)
	}
}
