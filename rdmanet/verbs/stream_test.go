package verbs

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// encode gives the frames as one batch.
func encode(frames [][]byte, first uint64) []byte {
	b := appendBatch(nil, frames, first)
	for _, frame := range frames {
		b = append(b, frame...)
	}
	return b
}

func TestBatches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want [][]byte
		for range rapid.IntRange(0, 5).Draw(t, "batches") {
			frames := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 20).Draw(t, "frames")
			stream = append(stream, encode(frames, uint64(len(want)))...)
			want = append(want, frames...)
		}
		reader := batchReader{stream: bytes.NewReader(stream), frameMax: 300}
		var got [][]byte
		for len(got) < len(want) {
			frames, err := reader.read(nil, uint64(len(got)))
			if err != nil {
				t.Fatalf("after %d frames of %d: %v", len(got), len(want), err)
			}
			got = append(got, frames...)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("frame %d is %x instead of %x", i, got[i], want[i])
			}
		}
		if _, err := reader.read(nil, uint64(len(got))); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func FuzzBatch(f *testing.F) {
	f.Add(encode([][]byte{{1, 2, 3}, nil, {4}}, 7))
	f.Add(encode([][]byte{bytes.Repeat([]byte{9}, 1000)}, 7))
	f.Add(encode([][]byte{{1}}, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		reader := batchReader{stream: bytes.NewReader(b), frameMax: 512}
		frames, err := reader.read(nil, 7)
		if err == nil && !bytes.HasPrefix(b, encode(frames, 7)) {
			t.Fatalf("%x gave %x", b, frames)
		}
		if err != nil && !errors.Is(err, errProtocol) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%x: %v", b, err)
		}
	})
}
