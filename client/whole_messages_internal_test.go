package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// TestWholeMessagesTogether: a message that is written in two pieces is read in one.
func TestWholeMessagesTogether(t *testing.T) {
	t.Parallel()
	from, to := io.Pipe()
	body := &wholeMessages{ReadCloser: from}
	want := framed(bytes.Repeat([]byte{7}, 300))
	go func() {
		for range 2 {
			_, _ = to.Write(want[:prefixBytes])
			_, _ = to.Write(want[prefixBytes:])
		}
		_, _ = to.Write(framed(nil))
		_ = to.Close()
	}()
	buffer := make([]byte, 1<<14)
	for _, expected := range [][]byte{want, want, framed(nil)} {
		if n, err := body.Read(buffer); err != nil || !bytes.Equal(buffer[:n], expected) {
			t.Fatalf("read %x, %v; want %x", buffer[:n], err, expected)
		}
	}
	if n, err := body.Read(buffer); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %d bytes, %v", n, err)
	}
}

// TestWholeMessages: whatever the messages and the pieces in which they come, all bytes pass, and
// so does the error at the end, also within a message.
func TestWholeMessages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		for range rapid.IntRange(0, 5).Draw(t, "messages") {
			all = append(all, framed(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "message"))...)
		}
		all = all[:rapid.IntRange(0, len(all)).Draw(t, "cut")]
		cut := errors.New("cut")
		var source io.Reader = io.MultiReader(bytes.NewReader(all), iotest.ErrReader(cut))
		if rapid.Bool().Draw(t, "error with the last bytes") {
			source = iotest.DataErrReader(source)
		}
		if rapid.Bool().Draw(t, "half") {
			source = iotest.HalfReader(source)
		}
		body := &wholeMessages{ReadCloser: io.NopCloser(source)}
		var got []byte
		for {
			buffer := make([]byte, rapid.IntRange(1, 30).Draw(t, "room"))
			n, err := body.Read(buffer)
			got = append(got, buffer[:n]...)
			if err != nil {
				if !errors.Is(err, cut) || !bytes.Equal(got, all) {
					t.Fatalf("%x, %v; want %x", got, err, all)
				}
				return
			}
		}
	})
}
