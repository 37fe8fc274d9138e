package lane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// heard collects the acknowledgements of a pair: those of batches, and the messages, which begin
// with two bytes that no batch begins with.
type heard struct{ numbers []uint64 }

const heardBytes = 16

func (h *heard) acknowledged() Acknowledged {
	return Acknowledged{
		Delivered: func(delivered uint64) error {
			h.numbers = append(h.numbers, delivered)
			return nil
		},
		Message: func(message []byte) error {
			if message[0] != 0 || len(message) != heardBytes {
				return ErrProtocol
			}
			h.numbers = append(h.numbers, binary.BigEndian.Uint64(message[8:]))
			return nil
		},
		MessageBytes: heardBytes,
	}
}

// lone encodes an acknowledgement that comes by itself.
func lone(number uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, heardBytes-8), number)
}

// paired encodes a batch with an acknowledgement.
func paired(frames [][]byte, first, delivered uint64) []byte {
	return append(AppendPairHeader(nil, frames, first, delivered), bytes.Join(frames, nil)...)
}

// pairOf returns a feeder of a pair at host b, and the lane that it feeds, which has not come yet.
func pairOf(t rapid.TB, b *host, r *fickle, s io.Reader) (*PairFeeder, *Inbound, *heard) {
	in, h := greet(t, b), &heard{}
	prompt := b.lanes.PromptReceiver("test")
	if prompt != in.Prompt() {
		t.Fatal("the name and the lane have different receivers")
	}
	return NewPairFeeder(b.lanes, prompt, s, h.acknowledged()), in, h
}

// TestPairFeederFeeds checks that all frames are received in order and once, and that every
// acknowledgement is reported as soon as it was read, however the stream cuts them, however many
// frames the receiver takes at a time, and whenever the backlog is drained, also over a new
// connection in the middle.
func TestPairFeederFeeds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 200), rapid.IntRange(0, 200),
			rapid.IntRange(100<<10, 200<<10))
		type message struct {
			bytes []byte
			first int // of a batch, otherwise -1
		}
		var messages []message
		var want [][]byte
		var said []uint64
		for i := range uint64(rapid.IntRange(0, 10).Draw(t, "messages")) {
			said = append(said, i)
			if rapid.Bool().Draw(t, "lone") {
				messages = append(messages, message{lone(i), -1})
				continue
			}
			var frames [][]byte
			total := 0
			for range rapid.IntRange(1, 5).Draw(t, "frames") {
				n := size.Draw(t, "size")
				if total += n; total > BatchBytesMax && len(frames) > 0 ||
					len(want) > 4 && n > 200 {
					break // the window is 1 MiB
				}
				frames = append(frames, bytes.Repeat([]byte{byte(len(want) + len(frames))}, n))
			}
			if len(frames) == 0 {
				frames = [][]byte{{byte(len(want))}}
			}
			messages = append(messages, message{paired(frames, uint64(len(want)), i), len(want)})
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
		b, _ := fed(t, r)
		defer b.close()
		// play feeds a stream to its end, and returns the acknowledgements.
		play := func(stream []byte) []uint64 {
			s := &trickle{bytes: stream, end: io.EOF, cut: func(left int) int {
				return min(left, cut.Draw(t, "cut"))
			}}
			f, in, h := pairOf(t, b, r, s)
			defer in.End()
			f.Join(in)
			var ended error
			for ended == nil {
				r.tried = false
				var tried bool
				if tried, ended = f.Poll(); tried != r.tried {
					t.Fatal("Poll does not say whether the receiver was given frames")
				}
				if rapid.Bool().Draw(t, "drain") || ended != nil {
					if err := f.Drain(); err != nil {
						t.Fatalf("drain: %v", err)
					}
				}
			}
			if ended != io.EOF && ended != io.ErrUnexpectedEOF {
				t.Fatalf("at the end of a connection: %v", ended)
			}
			return h.numbers
		}
		var whole []byte
		for _, m := range messages {
			whole = append(whole, m.bytes...)
		}
		broken := rapid.IntRange(0, len(whole)).Draw(t, "broken after")
		numbers := play(whole[:broken])
		if !slices.Equal(numbers, said[:len(numbers)]) {
			t.Fatalf("acknowledgements %v, want the first of %v", numbers, said)
		}
		again := greet(t, b)
		next := int(again.next)
		again.End()
		if next != len(r.got) || again.Delivered() != uint64(next) {
			t.Fatalf("%d frames received, %d counted, %d acknowledged", len(r.got), next,
				again.Delivered())
		}
		var rest []byte
		for _, m := range messages[len(numbers):] {
			rest = append(rest, m.bytes...)
		}
		numbers = append(numbers, play(rest)...)
		for len(r.kept) > 0 {
			r.release()
		}
		if !slices.EqualFunc(r.got, want, bytes.Equal) {
			t.Fatalf("%d frames came back of %d, or other ones", len(r.got), len(want))
		}
		if !slices.Equal(numbers, said) {
			t.Fatalf("acknowledgements %v, want %v", numbers, said)
		}
	})
}

// TestFullReceiverLeavesAcknowledgements: the two lanes of a pair do not wait for each other. An
// acknowledgement behind frames that the receiver does not take is reported, up to the window of
// frames. One more is a violation.
func TestFullReceiverLeavesAcknowledgements(t *testing.T) {
	t.Parallel()
	r := &fickle{take: func(int) int { return 0 }}
	b, _ := fed(t, r)
	defer b.close()
	var stream []byte
	const window = 100 // of greet
	for i := range uint64(window) {
		stream = append(stream, paired([][]byte{{byte(i)}}, i, 1+i)...)
	}
	s := &trickle{bytes: append(stream, lone(1000)...), end: ErrNotYet,
		cut: func(left int) int { return min(left, 64) }}
	f, in, h := pairOf(t, b, r, s)
	defer in.End()
	f.Join(in)
	if _, err := f.Poll(); err != nil {
		t.Fatal(err)
	}
	if len(h.numbers) != window+1 || h.numbers[window] != 1000 {
		t.Fatalf("acknowledgements %v", h.numbers)
	}
	if in.Delivered() != 0 || len(r.got) != 0 {
		t.Fatalf("%d frames received, %d acknowledged", len(r.got), in.Delivered())
	}
	select {
	case <-f.Backlogged():
	default:
		t.Fatal("nobody is told to drain the backlog")
	}
	s.bytes = paired([][]byte{{0}}, window, 0)
	if _, err := f.Poll(); !errors.Is(err, ErrProtocol) {
		t.Fatalf("a frame beyond the window: error %v", err)
	}
	if err := f.Drain(); err != nil {
		t.Fatal(err)
	}
	if in.Delivered() < window || len(r.got) < window {
		t.Fatalf("%d frames received, %d acknowledged", len(r.got), in.Delivered())
	}
}

// TestBacklogIsNotOvertaken: frames that come once the receiver has room again wait behind those of
// the backlog.
func TestBacklogIsNotOvertaken(t *testing.T) {
	t.Parallel()
	r := &fickle{take: func(frames int) int { return frames }}
	b, _ := fed(t, r)
	defer b.close()
	s := &trickle{bytes: paired([][]byte{{0}}, 0, 0), end: ErrNotYet,
		cut: func(left int) int { return left }}
	f, in, _ := pairOf(t, b, r, s)
	defer in.End()
	f.Join(in)
	in.lane.calling.Lock() // an earlier connection still hands over frames
	_, err := f.Poll()
	in.lane.calling.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.bytes = paired([][]byte{{1}}, 1, 0)
	if _, err := f.Poll(); err != nil {
		t.Fatal(err)
	}
	if err := f.Drain(); err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(r.got, [][]byte{{0}, {1}}, bytes.Equal) {
		t.Fatalf("received %v", r.got)
	}
}

// TestPairFeederRefuses checks that a batch needs a lane that has come.
func TestPairFeederRefuses(t *testing.T) {
	t.Parallel()
	r := &fickle{take: func(frames int) int { return frames }}
	b, _ := fed(t, r)
	defer b.close()
	s := &trickle{bytes: append(lone(7), paired([][]byte{{1}}, 0, 8)...), end: ErrNotYet,
		cut: func(left int) int { return left }}
	f, in, h := pairOf(t, b, r, s)
	defer in.End()
	if _, err := f.Poll(); !errors.Is(err, ErrProtocol) {
		t.Fatalf("a batch before the lane: error %v", err)
	}
	if !slices.Equal(h.numbers, []uint64{7}) || len(r.got) > 0 {
		t.Fatalf("acknowledgements %v, %d frames", h.numbers, len(r.got))
	}
}

// TestBegunBatchIsFinished: a batch that the receiver has begun is handed over as a whole, even if
// the connection has ended, and keeps no later connection waiting.
func TestBegunBatchIsFinished(t *testing.T) {
	t.Parallel()
	r := &fickle{take: func(int) int { return 1 }}
	b, _ := fed(t, r)
	defer b.close()
	all := func(left int) int { return left }
	old, in, _ := pairOf(t, b, r, &trickle{bytes: append(paired([][]byte{{0}, {1}}, 0, 0),
		paired([][]byte{{2}}, 2, 0)...), end: io.EOF, cut: all})
	defer in.End()
	old.Join(in)
	if _, err := old.Poll(); err != io.EOF {
		t.Fatal(err)
	}
	next := &trickle{bytes: paired([][]byte{{2}, {3}}, 2, 0), end: ErrNotYet, cut: all}
	feeder, again, _ := pairOf(t, b, r, next) // it supersedes the old connection
	defer again.End()
	feeder.Join(again)
	if _, err := feeder.Poll(); err != nil {
		t.Fatal(err)
	}
	if err := old.Drain(); !errors.Is(err, ErrSuperseded) {
		t.Fatalf("the old connection's later batch: error %v", err)
	}
	if err := feeder.Drain(); err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(r.got, [][]byte{{0}, {1}, {2}, {3}}, bytes.Equal) {
		t.Fatalf("received %v", r.got)
	}
}

// FuzzPairFeeder gives the same bytes to two feeders, in different pieces, of which one has a
// receiver that takes nothing promptly. They must agree.
func FuzzPairFeeder(f *testing.F) {
	f.Add(append(paired([][]byte{{1}, {}, {2, 3}}, 0, 4), lone(5)...), 3)
	f.Add(append(lone(1), paired([][]byte{{1}}, 0, 0)...), 1000)
	f.Add(paired([][]byte{{1}}, 5, 0), 1)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		cut = max(1, cut%2000)
		type outcome struct {
			got     [][]byte
			numbers []uint64
			err     error
		}
		play := func(cut int, takes func(int) int) outcome {
			r := &fickle{take: takes}
			b, _ := fed(t, r)
			defer b.close()
			feeder, in, h := pairOf(t, b, r, &trickle{bytes: stream, end: io.EOF,
				cut: func(left int) int { return min(left, cut) }})
			defer in.End()
			feeder.Join(in)
			_, err := feeder.Poll()
			for err == nil {
				_, err = feeder.Poll()
			}
			if drained := feeder.Drain(); drained != nil {
				t.Fatal(drained)
			}
			return outcome{r.got, h.numbers, err}
		}
		one := play(cut, func(frames int) int { return frames })
		other := play(1<<20, func(int) int { return 0 })
		if !slices.Equal(one.numbers, other.numbers) && len(stream) < 1000 {
			t.Fatalf("acknowledgements %v and %v", one.numbers, other.numbers)
		}
		if !decodeError(one.err) {
			t.Fatal(one.err)
		}
		// A receiver that takes nothing may see the end of the window first.
		if len(other.got) > len(one.got) || !slices.EqualFunc(one.got[:len(other.got)], other.got,
			bytes.Equal) || len(one.got) < 100 && len(other.got) != len(one.got) {
			t.Fatalf("%d frames and %d, or other ones", len(one.got), len(other.got))
		}
	})
}
