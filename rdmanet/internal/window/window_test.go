package window_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// TestWindowAgainstModel checks that for any order of pushes, takes, acknowledgements and rewinds
// the window holds the same as a plain list, and never more than its limits.
func TestWindowAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := window.Limits{Bytes: 2000, Frames: 150, FrameBytes: 200}
		w := window.New(limits)
		var frames [][]byte // all frames ever pushed
		base, taken, sent := 0, 0, 0
		held := func() (bytes int) {
			for _, frame := range frames[base:] {
				bytes += len(frame)
			}
			return bytes
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				var call [][]byte
				bytes := 0
				for range rapid.IntRange(0, 40).Draw(t, "frames") {
					frame := make([]byte, rapid.IntRange(4, 30).Draw(t, "size"))
					binary.BigEndian.PutUint32(frame, uint32(len(frames)+len(call)))
					call, bytes = append(call, frame), bytes+len(frame)
				}
				room := len(frames)-base+len(call) <= limits.Frames && held()+bytes <= limits.Bytes
				ok, err := w.TryPush(call)
				if err != nil || ok != room {
					t.Fatalf("pushed %t, error %v; there is room: %t", ok, err, room)
				}
				if ok {
					frames = append(frames, call...)
				}
			},
			"take": func(t *rapid.T) {
				got, first := w.Take(nil, rapid.IntRange(1, 50).Draw(t, "frames"),
					rapid.IntRange(0, 500).Draw(t, "bytes"))
				if int(first) != taken || len(got) == 0 && taken < len(frames) {
					t.Fatalf("took %d from %d, want some from %d of %d", len(got), first, taken,
						len(frames))
				}
				for _, frame := range got {
					if int(binary.BigEndian.Uint32(frame)) != taken {
						t.Fatalf("took frame %d for %d", binary.BigEndian.Uint32(frame), taken)
					}
					taken++
				}
				sent = max(sent, taken)
			},
			"ack": func(t *rapid.T) {
				to := rapid.IntRange(0, len(frames)+1).Draw(t, "to")
				if ok := w.Ack(uint64(to)); ok != (to <= sent) {
					t.Fatalf("acknowledging %d of %d sent: %t", to, sent, ok)
				} else if ok {
					base = max(base, to)
					taken = max(taken, base)
				}
			},
			"rewind": func(t *rapid.T) {
				to := rapid.IntRange(0, len(frames)+1).Draw(t, "to")
				if ok := w.Rewind(uint64(to)); ok != (base <= to && to <= sent) {
					t.Fatalf("winding back to %d, from %d to %d are there: %t", to, base, sent, ok)
				} else if ok {
					taken = to
				}
			},
			"": func(t *rapid.T) {
				if w.Pending() != len(frames)-base {
					t.Fatalf("%d pending, want %d", w.Pending(), len(frames)-base)
				}
			},
		})
	})
}

// TestWaitingSendersAreServedInOrder checks that room goes to the sender that has waited longest,
// and that TryPush does not overtake.
func TestWaitingSendersAreServedInOrder(t *testing.T) {
	t.Parallel()
	w := window.New(window.Limits{Bytes: 10, Frames: 10, FrameBytes: 10})
	if err := w.Push(t.Context(), [][]byte{make([]byte, 8)}); err != nil {
		t.Fatal(err)
	}
	pushed := make(chan error, 1)
	go func() { pushed <- w.Push(t.Context(), [][]byte{make([]byte, 9)}) }()
	deadline := time.Now().Add(10 * time.Second)
	for {
		// The large frame starts to wait at some moment. From then on the empty one is refused.
		ok, err := w.TryPush([][]byte{{}})
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if w.Take(nil, 10, 10); !w.Ack(uint64(0)) || time.Now().After(deadline) {
			t.Fatal("the small frames overtake the large one")
		}
		time.Sleep(time.Millisecond)
	}
	for w.Pending() > 0 {
		got, first := w.Take(nil, 10, 100)
		w.Ack(first + uint64(len(got)))
	}
	if err := <-pushed; err != nil {
		t.Fatal(err)
	}
}

func TestBreakEndsEverything(t *testing.T) {
	t.Parallel()
	w := window.New(window.Limits{Bytes: 10, Frames: 1, FrameBytes: 10})
	if err := w.Push(t.Context(), [][]byte{{1}}); err != nil {
		t.Fatal(err)
	}
	ends := make(chan error, 3)
	for range 2 {
		go func() { ends <- w.Push(context.Background(), [][]byte{{2}}) }()
	}
	go func() { ends <- w.Flushed(context.Background()) }()
	if !w.Break(rdmanet.ErrReset) || w.Break(rdmanet.ErrClosed) {
		t.Error("the window does not break once")
	}
	for range 3 {
		if err := <-ends; !errors.Is(err, rdmanet.ErrReset) {
			t.Errorf("a waiting call ended with %v", err)
		}
	}
	if got, _ := w.Take(nil, 1, 1); len(got) > 0 || w.Pending() != 1 {
		t.Errorf("%d frames taken after the end, %d pending", len(got), w.Pending())
	}
}
