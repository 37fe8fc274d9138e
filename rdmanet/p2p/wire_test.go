package p2p

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

func sampleHello() hello {
	return hello{Hello: lane.Hello{Name: "rounds", Sender: 7, Receiver: 5, Opening: 2, Lost: 3,
		LostBy: 5, FrameMax: 1 << 20, WindowBytes: 1 << 22, WindowFrames: 64}}
}

// decodeError reports whether a decoder may return err: an error of the protocol, or of a stream
// that ends.
func decodeError(err error) bool {
	return errors.Is(err, errProtocol) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

func TestHelloAndAnswerComeBack(t *testing.T) {
	t.Parallel()
	h := sampleHello()
	if got, err := readHello(bytes.NewReader(h.append(nil))); err != nil || got != h {
		t.Errorf("hello %+v came back as %+v, error %v", h, got, err)
	}
	a := answer{status: statusWelcome, incarnation: 9, next: 12, delivered: 10}
	if got, err := readAnswer(bytes.NewReader(a.append(nil))); err != nil || got != a {
		t.Errorf("answer %+v came back as %+v, error %v", a, got, err)
	}
	var scratch [ackSize]byte
	for _, k := range []ack{{delivered: 1 << 40}, {delivered: 3, goodbye: true}} {
		if got, err := readAck(bytes.NewReader(k.append(nil)), &scratch); err != nil || got != k {
			t.Errorf("acknowledgement %+v came back as %+v, error %v", k, got, err)
		}
	}
}

// bufferOf collects batches in a buffer.
type bufferOf struct{ *bytes.Buffer }

func (b bufferOf) writePieces(pieces *net.Buffers) error {
	_, err := pieces.WriteTo(b)
	return err
}

// TestBatchesComeBack checks that frames written without copying are the same as copied ones.
func TestBatchesComeBack(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := batchWriter{to: bufferOf{&b}}
	reader := lane.NewBatchReader(&b, 8*gatherMin, false)
	next := uint64(0)
	for _, sizes := range [][]int{{0}, {1, 2}, {gatherMin},
		{5, gatherMin, 7, 8, gatherMin + 1, gatherMin - 1}, {6 * gatherMin}} {
		var frames [][]byte
		for i, size := range sizes {
			frames = append(frames, bytes.Repeat([]byte{byte(i + 1)}, size))
		}
		if err := w.write(frames, next); err != nil {
			t.Fatal(err)
		}
		got, err := reader.Read(nil, next)
		if err != nil || !slices.EqualFunc(got, frames, bytes.Equal) {
			t.Fatalf("frames of %v bytes came back as %d others, error %v", sizes, len(got), err)
		}
		next += uint64(len(frames))
	}
}

func FuzzHello(f *testing.F) {
	sound := sampleHello().append(nil)
	f.Add(sound)
	f.Add(sound[:20])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bytes.NewReader(b))
		if err != nil {
			if !decodeError(err) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if rdmanet.CheckLaneName(h.Name) != nil {
			t.Fatalf("lane name %q", h.Name)
		}
		if again := h.append(nil); !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(answer{status: statusWelcome, incarnation: 9, next: 12, delivered: 10}.append(nil))
	f.Add(answer{status: statusClosing, incarnation: 9}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := readAnswer(bytes.NewReader(b))
		if err != nil {
			if !decodeError(err) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if again := a.append(nil); !bytes.Equal(again, b[:len(again)]) || a.delivered > a.next {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}

func FuzzAck(f *testing.F) {
	f.Add(ack{delivered: 10}.append(nil))
	f.Add(ack{delivered: 10, goodbye: true}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var scratch [ackSize]byte
		a, err := readAck(bytes.NewReader(b), &scratch)
		if err == nil && !bytes.Equal(a.append(nil), b[:ackSize]) || err != nil &&
			!decodeError(err) {
			t.Fatalf("%x gave %+v, error %v", b, a, err)
		}
	})
}
