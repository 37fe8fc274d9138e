package lane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// trickle is a stream that does not wait. It returns its bytes in pieces, and nothing at times.
type trickle struct {
	bytes []byte
	cut   func(left int) int // 0: nothing yet
	shut  bool               // the feeder waits for the receiver and must not read
	end   error
}

func (s *trickle) Read(b []byte) (int, error) {
	if s.shut {
		return 0, ErrNotYet
	}
	if len(s.bytes) == 0 {
		return 0, s.end
	}
	n := copy(b, s.bytes[:s.cut(len(s.bytes))])
	s.bytes = s.bytes[n:]
	if n == 0 {
		return 0, ErrNotYet
	}
	return n, nil
}

// fickle is a prompt receiver that takes as many frames as it likes.
type fickle struct {
	take  func(frames int) int
	got   [][]byte
	tried bool
	// If hold is set, frames are lent. It says whether some are kept for a while. kept are these,
	// with copies.
	hold func() bool
	kept []borrowed
}

type borrowed struct {
	frames, copies [][]byte
	loan           rdmanet.Loan
}

// borrow takes lent frames, and releases earlier ones.
func (r *fickle) borrow(frames [][]byte, loan rdmanet.Loan) int {
	r.tried = true
	taken := r.take(len(frames))
	var copies [][]byte
	for _, frame := range frames[:taken] {
		copies = append(copies, bytes.Clone(frame))
	}
	r.got = append(r.got, copies...)
	if r.hold() {
		loan.Hold()
		r.kept = append(r.kept, borrowed{slices.Clone(frames[:taken]), copies, loan})
	}
	if len(r.kept) > 2 {
		r.release()
	}
	return taken
}

// release releases the oldest frames that are kept, which must not have changed.
func (r *fickle) release() {
	oldest := r.kept[0]
	r.kept = r.kept[1:]
	if !slices.EqualFunc(oldest.frames, oldest.copies, bytes.Equal) {
		panic("frames that are held were written again")
	}
	oldest.loan.Release()
}

func (r *fickle) receiver() rdmanet.PromptReceiver {
	var lent func(rdmanet.Peer, [][]byte, rdmanet.Loan) int
	if r.hold != nil {
		lent = func(_ rdmanet.Peer, frames [][]byte, loan rdmanet.Loan) int {
			return r.borrow(frames, loan)
		}
	}
	return rdmanet.PromptReceiver{
		TryReceiveLent: lent,
		TryReceive: func(_ rdmanet.Peer, frames [][]byte) int {
			r.tried = true
			taken := r.take(len(frames))
			r.got = append(r.got, frames[:taken]...)
			return taken
		},
		Receive: func(_ rdmanet.Peer, frames [][]byte) { r.got = append(r.got, frames...) },
		Turn:    func() {},
	}
}

// fed returns a lane from host a that a feeder is to feed, with its receiver.
func fed(t rapid.TB, r *fickle) (*host, *Inbound) {
	b := newHost("b", 1, window.Limits{FrameBytes: 512 << 10}, time.Minute)
	if err := b.lanes.ReceivePrompt("test", r.receiver()); err != nil {
		t.Fatal(err)
	}
	return b, greet(t, b)
}

func greet(t rapid.TB, b *host) *Inbound {
	in, answer := b.lanes.Greet("a", Hello{Name: "test", Sender: 1, Opening: 1, FrameMax: 64,
		WindowBytes: 1 << 20, WindowFrames: 100}, &inlet{})
	if in == nil || in.Prompt() == nil {
		t.Fatalf("answer %+v", answer)
	}
	return in
}

// run polls and waits until the feeder returns an error other than ErrFull.
func run(f *Feeder, s *trickle, r *fickle, wrong func(string)) error {
	for {
		r.tried = false
		tried, err := f.Poll()
		if tried != r.tried {
			wrong("Poll does not say whether the receiver was given frames")
		}
		for errors.Is(err, ErrFull) {
			s.shut = true
			err = f.Wait()
			s.shut = false
		}
		if err != nil {
			return err
		}
	}
}

// TestFeederFeeds checks that all frames are received in order and once, however the stream cuts
// them and however many the receiver takes at a time, also over a new connection in the middle.
func TestFeederFeeds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Seldom large, so that batches are moved to buffers of their own.
		size := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 200), rapid.IntRange(0, 200),
			rapid.IntRange(100<<10, 300<<10))
		var batches, want [][]byte
		for range rapid.IntRange(0, 6).Draw(t, "batches") {
			var frames [][]byte
			total := 0
			for range rapid.IntRange(1, 9).Draw(t, "frames") {
				n := size.Draw(t, "size")
				if total += n; total > BatchBytesMax && len(frames) > 0 {
					break
				}
				frames = append(frames, bytes.Repeat([]byte{byte(len(want) + len(frames))}, n))
			}
			batches = append(batches, encode(frames, uint64(len(want))))
			want = append(want, frames...)
		}
		cut := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 40), rapid.IntRange(0, 200<<10))
		r := &fickle{take: func(frames int) int {
			return min(frames, rapid.OneOf(rapid.Just(frames), rapid.IntRange(0,
				frames)).Draw(t, "taken"))
		}}
		if rapid.Bool().Draw(t, "lent") {
			r.hold = func() bool { return rapid.Bool().Draw(t, "hold") }
		}
		b, in := fed(t, r)
		defer b.close()
		stream := &trickle{bytes: bytes.Join(batches, nil), end: io.EOF, cut: func(left int) int {
			return min(left, cut.Draw(t, "cut"))
		}}
		whole := stream.bytes
		wrong := func(text string) { t.Fatal(text) }
		stream.bytes = whole[:rapid.IntRange(0, len(whole)).Draw(t, "broken after")]
		if err := run(NewFeeder(in, stream), stream, r, wrong); err != io.EOF &&
			err != io.ErrUnexpectedEOF {
			t.Fatalf("at the end of the first connection: %v", err)
		}
		in.End()
		again := greet(t, b)
		defer again.End()
		next, rest := int(again.next), 0
		if next != len(r.got) || again.Delivered() != uint64(next) {
			t.Fatalf("%d frames received, %d counted, %d acknowledged", len(r.got), next,
				again.Delivered())
		}
		for _, batch := range batches {
			if first := int(binary.BigEndian.Uint64(batch[8:])); first < next {
				rest += len(batch)
			}
		}
		stream.bytes = whole[rest:]
		if err := run(NewFeeder(again, stream), stream, r, wrong); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
		for len(r.kept) > 0 {
			r.release()
		}
		if !slices.EqualFunc(r.got, want, bytes.Equal) {
			t.Fatalf("%d frames came back of %d, or other ones", len(r.got), len(want))
		}
		if again.Delivered() != uint64(len(want)) {
			t.Fatalf("%d frames are acknowledged of %d", again.Delivered(), len(want))
		}
	})
}

// TestLentFramesUseTheSameMemory feeds a lane with many times what a buffer holds. If the receiver
// holds nothing, that takes two buffers, which are overwritten when they are released, and a
// smaller one before the feeder knows how large the batches are.
func TestLentFramesUseTheSameMemory(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 2_000, "large": 100_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &fickle{take: func(frames int) int { return frames },
				hold: func() bool { return false }}
			b, in := fed(t, r)
			defer b.close()
			defer in.End()
			memory := map[*byte]bool{}
			var last *slab
			s := &trickle{end: ErrNotYet, cut: func(left int) int { return left }}
			f := NewFeeder(in, s)
			for i := range 20 * feederSlabBytes / size {
				s.bytes = encode([][]byte{make([]byte, size)}, uint64(i))
				if _, err := f.Poll(); err != nil {
					t.Fatal(err)
				}
				r.got = nil
				if f.slab != last && last != nil && last.bytes[0] != poison {
					t.Fatal("a buffer is not overwritten when it is released")
				}
				last = f.slab
				memory[&f.slab.bytes[0]] = true
			}
			if len(memory) > 3 {
				t.Errorf("it took %d buffers", len(memory))
			}
		})
	}
}

// TestFeederWaitsForEarlierConnection: a connection that replaces another one must not hand over
// frames while the receiver still works on frames of the other.
func TestFeederWaitsForEarlierConnection(t *testing.T) {
	t.Parallel()
	r := &fickle{take: func(int) int { return 1 }}
	b, in := fed(t, r)
	defer b.close()
	all := func(left int) int { return left }
	old := NewFeeder(in, &trickle{bytes: encode([][]byte{{1}, {2}}, 0), cut: all, end: ErrNotYet})
	if _, err := old.Poll(); !errors.Is(err, ErrFull) {
		t.Fatalf("the receiver took one of two frames: %v", err)
	}
	again := greet(t, b)
	if again.next != 2 {
		t.Fatalf("it begins with frame %d", again.next)
	}
	feeder := NewFeeder(again, &trickle{bytes: encode([][]byte{{3}}, 2), cut: all, end: ErrNotYet})
	if tried, err := feeder.Poll(); tried || !errors.Is(err, ErrFull) {
		t.Fatalf("the lane is busy: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- feeder.Wait() }()
	select {
	case err := <-waited:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := old.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if want := [][]byte{{1}, {2}, {3}}; !slices.EqualFunc(r.got, want, bytes.Equal) {
		t.Errorf("received %v", r.got)
	}
	again.End()
	in.End()
}

// TestFeederTellsOfLosses: the watchers hear of lost frames before the frames after them, and not
// from the goroutine that must not wait.
func TestFeederTellsOfLosses(t *testing.T) {
	t.Parallel()
	r := &fickle{take: func(frames int) int { return frames }}
	b := newHost("b", 1, window.Limits{}, time.Minute)
	defer b.close()
	var lost uint64
	b.tracker.Watch(func(event rdmanet.PeerEvent) {
		if event.Kind == rdmanet.LaneReset && len(r.got) == 0 {
			lost = event.Lost
		}
	})
	if err := b.lanes.ReceivePrompt("test", r.receiver()); err != nil {
		t.Fatal(err)
	}
	in, _ := b.lanes.Greet("a", Hello{Name: "test", Sender: 1, Opening: 2, Lost: 7,
		WindowFrames: 9}, &inlet{})
	stream := &trickle{bytes: encode([][]byte{{1}}, 0), end: ErrNotYet,
		cut: func(left int) int { return left }}
	feeder := NewFeeder(in, stream)
	if tried, err := feeder.Poll(); tried || lost != 0 || !errors.Is(err, ErrFull) {
		t.Fatalf("Poll tells %d, error %v", lost, err)
	}
	if err := feeder.Wait(); err != nil || lost != 7 || len(r.got) != 1 {
		t.Errorf("error %v, %d lost, %d received", err, lost, len(r.got))
	}
	in.End()
}

// FuzzFeeder gives the same bytes to both readers of batches. They must agree.
func FuzzFeeder(f *testing.F) {
	f.Add(encode([][]byte{{1}, {}, {2, 3}}, 0), 3)
	f.Add(append(encode([][]byte{{1}}, 0), encode([][]byte{{2}}, 1)...), 1000)
	f.Add(encode([][]byte{{1}}, 5), 1)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		cut = max(1, cut%2000)
		r := &fickle{take: func(frames int) int { return frames }}
		b, in := fed(t, r)
		defer b.close()
		defer in.End()
		s := &trickle{bytes: stream, end: io.EOF, cut: func(left int) int { return min(left, cut) }}
		err := run(NewFeeder(in, s), s, r, func(text string) { t.Fatal(text) })
		reader := NewBatchReader(bytes.NewReader(stream), 512<<10, false)
		var want [][]byte
		var wantErr error
		for wantErr == nil {
			want, wantErr = reader.Read(want, uint64(len(want)))
		}
		if !slices.EqualFunc(r.got, want, bytes.Equal) {
			t.Fatalf("%d frames, the other reader has %d", len(r.got), len(want))
		}
		if !decodeError(err) || errors.Is(err, ErrProtocol) != errors.Is(wantErr, ErrProtocol) ||
			(err == io.EOF) != (wantErr == io.EOF) {
			t.Fatalf("error %v, the other reader's is %v", err, wantErr)
		}
	})
}
