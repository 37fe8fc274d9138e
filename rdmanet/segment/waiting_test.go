package segment

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
)

func patience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestDoorbell makes two goroutines wait for each other ten thousand times. One lost ring would
// block them for ever.
func TestDoorbell(t *testing.T) {
	t.Parallel()
	ctx := patience(t)
	var bells [2]Doorbell
	var turn atomic.Uint64
	var players sync.WaitGroup
	for i := range uint64(2) {
		players.Go(func() {
			for k := range uint64(10_000) {
				if err := bells[i].Await(ctx, func() bool {
					return turn.Load() >= 2*k+i
				}); err != nil {
					t.Errorf("player %d, turn %d: %v", i, k, err)
					return
				}
				if k%100 == 0 {
					for bells[1-i].parked.Load() == 0 && k < 9_999 && ctx.Err() == nil {
						runtime.Gosched() // make the other one park now and then
					}
				}
				turn.Add(1)
				bells[1-i].Ring()
			}
		})
	}
	players.Wait()
	if bells[0].Parks()+bells[1].Parks() == 0 {
		t.Error("nobody ever parked")
	}
}

// TestDoorbellEnds checks that an idle waiter parks once and does not check again. Its context and
// Close wake it, and Close wakes all others.
func TestDoorbellEnds(t *testing.T) {
	t.Parallel()
	var bell Doorbell
	var looks atomic.Uint64
	never := func() bool { looks.Add(1); return false }
	ctx, cancel := context.WithCancel(patience(t))
	ends := make(chan error, 4)
	for i := range 4 {
		ctx := ctx
		if i > 0 {
			ctx = patience(t)
		}
		go func() { ends <- bell.Await(ctx, never) }()
	}
	for bell.parked.Load() < 4 {
		runtime.Gosched()
	}
	if n := looks.Load(); n > 4*(spinRounds+1) {
		t.Errorf("%d looks", n)
	}
	cancel()
	if err := <-ends; !errors.Is(err, context.Canceled) {
		t.Errorf("a waiter whose context ended: %v", err)
	}
	bell.Ring()
	for bell.parked.Load() < 3 || bell.Parks() < 7 {
		runtime.Gosched()
	}
	bell.Close()
	for range 3 {
		if err := <-ends; !errors.Is(err, rdmanet.ErrClosed) {
			t.Errorf("a waiter of a closed bell: %v", err)
		}
	}
	if err := bell.Await(ctx, func() bool { return true }); !errors.Is(err, rdmanet.ErrClosed) {
		t.Errorf("a closed bell: %v", err)
	}
	if bell.parked.Load() != 0 || len(bell.waiters) != 0 {
		t.Error("a waiter is left behind")
	}
}

func TestDoorbellAllocates(t *testing.T) {
	var bell Doorbell
	ctx := patience(t)
	if n := testing.AllocsPerRun(100, func() {
		i := 0
		if err := bell.Await(ctx, func() bool { i++; return i > 3 }); err != nil {
			t.Error(err)
		}
		bell.Ring()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCompletions compares Completions with a plain slice.
func TestCompletions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 300).Draw(t, "depth")
		queue, err := NewCompletions(depth)
		if err != nil {
			t.Fatal(err)
		}
		var there []uint64
		under, tag := 0, uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n := rapid.IntRange(0, depth+1).Draw(t, "operations")
				err := queue.Reserve(n)
				if full := under+len(there)+n > depth; full != errors.Is(err,
					rdmanet.ErrQueueFull) || !full && err != nil {
					t.Fatalf("%d more beside %d of %d: %v", n, under+len(there), depth, err)
				}
				if err == nil {
					under += n
				}
			},
			"complete": func(t *rapid.T) {
				n := rapid.IntRange(0, under).Draw(t, "operations")
				batch := make([]rdmanet.Completion, n)
				for i := range batch {
					tag++
					batch[i].Tag = tag
					there = append(there, tag)
				}
				queue.Complete(batch...)
				under -= n
			},
			"take": func(t *rapid.T) {
				into := make([]rdmanet.Completion, rapid.IntRange(0, 100).Draw(t, "room"))
				n := queue.Poll(into)
				if n != min(len(into), len(there)) {
					t.Fatalf("%d taken, %d are there", n, len(there))
				}
				for i, completion := range into[:n] {
					if completion.Tag != there[i] {
						t.Fatalf("completion %d, want %d", completion.Tag, there[i])
					}
				}
				there = there[n:]
			},
			"": func(t *rapid.T) {
				if n := queue.Outstanding(); n != under+len(there) {
					t.Fatalf("%d outstanding, want %d", n, under+len(there))
				}
			},
		})
	})
}

func TestCompletionsEnd(t *testing.T) {
	t.Parallel()
	ctx := patience(t)
	for _, depth := range []int{0, -1, rdmanet.QueueDepthMax + 1} {
		if _, err := NewCompletions(depth); !errors.Is(err, rdmanet.ErrTooLarge) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	queue, err := NewCompletions(10)
	if err != nil {
		t.Fatal(err)
	}
	var into [4]rdmanet.Completion
	waited := make(chan error, 1)
	go func() {
		n, err := queue.Wait(ctx, into[:])
		if n != 1 || into[0].Tag != 7 {
			t.Errorf("%d completions, the first is %d", n, into[0].Tag)
		}
		waited <- err
	}()
	if err := queue.Reserve(3); err != nil {
		t.Error(err)
	}
	queue.Complete(rdmanet.Completion{Tag: 7})
	if err := <-waited; err != nil {
		t.Error(err)
	}
	queue.Complete(rdmanet.Completion{Tag: 8})
	queue.Close()
	queue.Complete(rdmanet.Completion{Tag: 9}) // dropped
	if n := queue.Outstanding(); n != 1 {
		t.Errorf("%d outstanding", n)
	}
	if n, err := queue.Wait(ctx, into[:]); n != 1 || err != nil || into[0].Tag != 8 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := queue.Wait(ctx, into[:]); n != 0 || !errors.Is(err, rdmanet.ErrClosed) {
		t.Errorf("%d, %v", n, err)
	}
	if err := queue.Reserve(1); !errors.Is(err, rdmanet.ErrClosed) {
		t.Error(err)
	}
}

// TestCompletionsSealed checks that a sealed queue returns the outstanding completions and then no
// more.
func TestCompletionsSealed(t *testing.T) {
	t.Parallel()
	ctx := patience(t)
	queue, err := NewCompletions(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Reserve(2); err != nil {
		t.Fatal(err)
	}
	tags := make(chan uint64, 2)
	ended := make(chan error, 1)
	go func() {
		var into [1]rdmanet.Completion
		for {
			if _, err := queue.Wait(ctx, into[:]); err != nil {
				ended <- err
				return
			}
			tags <- into[0].Tag
		}
	}()
	queue.Seal()
	if err := queue.Reserve(1); !errors.Is(err, rdmanet.ErrClosed) {
		t.Error(err)
	}
	queue.Complete(rdmanet.Completion{Tag: 1})
	if tag := <-tags; tag != 1 {
		t.Error(tag)
	}
	queue.Complete(rdmanet.Completion{Tag: 2})
	if err := <-ended; !errors.Is(err, rdmanet.ErrClosed) || <-tags != 2 {
		t.Error(err)
	}
}

func BenchmarkRing(b *testing.B) {
	var bell Doorbell
	b.ReportAllocs()
	for b.Loop() {
		bell.Ring()
	}
}

func BenchmarkCompletion(b *testing.B) {
	queue, err := NewCompletions(16)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	var into [1]rdmanet.Completion
	b.ReportAllocs()
	for b.Loop() {
		if err := queue.Reserve(1); err != nil {
			b.Fatal(err)
		}
		queue.Complete(rdmanet.Completion{Tag: 1})
		if _, err := queue.Wait(ctx, into[:]); err != nil {
			b.Fatal(err)
		}
	}
}
