package lane

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// encode returns the frames as one batch.
func encode(frames [][]byte, first uint64) []byte {
	b := AppendBatchHeader(nil, frames, first)
	for _, frame := range frames {
		b = append(b, frame...)
	}
	return b
}

// decodeError reports whether the decoder may return err: an error of the protocol, or of a stream
// that ends.
func decodeError(err error) bool {
	return errors.Is(err, ErrProtocol) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

func TestBatchesComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lent := rapid.Bool().Draw(t, "lent")
		var stream []byte
		var want [][]byte
		for range rapid.IntRange(0, 5).Draw(t, "batches") {
			frames := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 20).Draw(t, "frames")
			stream = append(stream, encode(frames, uint64(len(want)))...)
			want = append(want, frames...)
		}
		reader := NewBatchReader(bytes.NewReader(stream), 300, lent)
		var kept [][]byte
		for at := 0; at < len(want); {
			frames, err := reader.Read(nil, uint64(at))
			if err != nil {
				t.Fatalf("after %d frames of %d: %v", at, len(want), err)
			}
			for _, frame := range frames {
				if !bytes.Equal(frame, want[at]) {
					t.Fatalf("frame %d is %x instead of %x", at, frame, want[at])
				}
				at++
			}
			kept = append(kept, frames...)
		}
		if _, err := reader.Read(nil, uint64(len(want))); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
		for i := range kept {
			if !lent && !bytes.Equal(kept[i], want[i]) {
				t.Fatalf("frame %d was written again: %x instead of %x", i, kept[i], want[i])
			}
		}
	})
}

func TestHostileBatches(t *testing.T) {
	t.Parallel()
	change := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	sound := encode([][]byte{[]byte("one"), []byte("two")}, 4)
	for name, b := range map[string][]byte{
		"wrong magic":         change(sound, 0, 0),
		"no frames":           change(sound, 3, 0),
		"too many frames":     change(sound, 2, 0xff),
		"too many bytes":      change(sound, 4, 0xff),
		"a gap":               change(sound, 15, 5),
		"a frame again":       change(sound, 15, 3),
		"a length too long":   change(sound, 19, 200),
		"a length too short":  change(sound, 19, 1),
		"an enormous length":  change(sound, 16, 0xff),
		"over the bound":      encode([][]byte{make([]byte, 1025)}, 4),
		"an end in the frame": sound[:len(sound)-1],
	} {
		if frames, err := NewBatchReader(bytes.NewReader(b), 1024, false).Read(nil,
			4); !decodeError(err) || len(frames) > 0 {
			t.Errorf("%s: %d frames, error %v", name, len(frames), err)
		}
	}
	frames, err := NewBatchReader(bytes.NewReader(sound), 1024, false).Read(nil, 4)
	if err != nil || len(frames) != 2 || string(frames[1]) != "two" {
		t.Errorf("the sound batch: %q, error %v", frames, err)
	}
}

func FuzzBatch(f *testing.F) {
	sound := append(encode([][]byte{[]byte("one"), {}, []byte("three")}, 0),
		encode([][]byte{make([]byte, 900)}, 3)...)
	f.Add(sound)
	f.Add(sound[:30])
	f.Add(encode([][]byte{{1}}, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		const frameMax = 1024
		r := NewBatchReader(bytes.NewReader(b), frameMax, false)
		var out []byte
		for next := uint64(0); ; {
			frames, err := r.Read(nil, next)
			if err != nil {
				if !decodeError(err) {
					t.Fatalf("error %v", err)
				}
				break
			}
			for _, frame := range frames {
				if len(frame) > frameMax {
					t.Fatalf("a frame of %d bytes", len(frame))
				}
			}
			out = append(out, encode(frames, next)...)
			next += uint64(len(frames))
		}
		if !bytes.HasPrefix(b, out) {
			t.Fatal("what was read is not what was there")
		}
	})
}
