package p2p

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet"
)

func sampleHello() hello {
	return hello{lane: "rounds", sender: 7, receiver: 5, opening: 2, lost: 3, lostBy: 5, frameMax: 1 << 20, windowBytes: 1 << 22, windowFrames: 64}
}

// decodeError reports whether err is one that a decoder may give: of the protocol, or of a stream that ends.
func decodeError(err error) bool {
	return errors.Is(err, errProtocol) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
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

// bufferOf takes batches into a buffer.
type bufferOf struct{ *bytes.Buffer }

func (b bufferOf) writePieces(pieces *net.Buffers) error {
	_, err := pieces.WriteTo(b)
	return err
}

func TestHostileBatches(t *testing.T) {
	t.Parallel()
	good := func(first uint64, frames ...[]byte) []byte {
		var b bytes.Buffer
		w := batchWriter{to: bufferOf{&b}}
		if err := w.write(frames, first); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	change := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	sound := good(4, []byte("one"), []byte("two"))
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
		"over the bound":      good(4, make([]byte, 1025)),
		"an end in the frame": sound[:len(sound)-1],
	} {
		if frames, err := newBatchReader(bytes.NewReader(b), 1024, false).read(nil, 4); !decodeError(err) || len(frames) > 0 {
			t.Errorf("%s: %d frames, error %v", name, len(frames), err)
		}
	}
	frames, err := newBatchReader(bytes.NewReader(sound), 1024, false).read(nil, 4)
	if err != nil || len(frames) != 2 || string(frames[1]) != "two" {
		t.Errorf("the sound batch: %q, error %v", frames, err)
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
		if rdmanet.CheckLaneName(h.lane) != nil {
			t.Fatalf("lane name %q", h.lane)
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
		if err == nil && !bytes.Equal(a.append(nil), b[:ackSize]) || err != nil && !decodeError(err) {
			t.Fatalf("%x gave %+v, error %v", b, a, err)
		}
	})
}

func FuzzBatch(f *testing.F) {
	var b bytes.Buffer
	w := batchWriter{to: bufferOf{&b}}
	if err := errors.Join(w.write([][]byte{[]byte("one"), {}, []byte("three")}, 0), w.write([][]byte{make([]byte, 900)}, 3)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:30])
	f.Fuzz(func(t *testing.T, b []byte) {
		const frameMax = 1024
		r := newBatchReader(bytes.NewReader(b), frameMax, false)
		var out bytes.Buffer
		w := batchWriter{to: bufferOf{&out}}
		for next := uint64(0); ; {
			frames, err := r.read(nil, next)
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
			if err := w.write(frames, next); err != nil {
				t.Fatal(err)
			}
			next += uint64(len(frames))
		}
		if !bytes.HasPrefix(b, out.Bytes()) {
			t.Fatal("what was read is not what was there")
		}
	})
}
