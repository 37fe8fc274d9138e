package p2p

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// sealedPair returns both halves of one direction.
func sealedPair(t rapid.TB) (*sealer, *opener) {
	t.Helper()
	admitted := ticket{suite: suiteAESGCM, token: [ticketBytes]byte{1}, secret: [keyBytes]byte{2}}
	seal, errSeal := admitted.newAEAD(labelDialler)
	open, errOpen := admitted.newAEAD(labelDialler)
	if err := errors.Join(errSeal, errOpen); err != nil {
		t.Fatal(err)
	}
	return &sealer{aead: seal}, &opener{aead: open}
}

// wireOf returns its bytes in pieces whose sizes cycle through sizes.
type wireOf struct {
	bytes []byte
	sizes []int
	reads int
}

func (w *wireOf) Read(b []byte) (int, error) {
	if len(w.bytes) == 0 {
		return 0, io.EOF
	}
	n := copy(b, w.bytes[:min(len(w.bytes), w.sizes[w.reads%len(w.sizes)])])
	w.bytes = w.bytes[n:]
	w.reads++
	return n, nil
}

// TestSealedBytesComeBack checks that bytes sealed in any pieces are read back the same in any
// other pieces.
func TestSealedBytesComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seal, open := sealedPair(t)
		size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(recordBytesMax-20,
			recordBytesMax+20), rapid.IntRange(0, 4*recordBytesMax))
		var sent, wire bytes.Buffer
		for call := range rapid.IntRange(1, 4).Draw(t, "writes") {
			var pieces [][]byte
			for range rapid.IntRange(0, 3).Draw(t, "pieces") {
				piece := bytes.Repeat([]byte{byte(call + 1)}, size.Draw(t, "size"))
				pieces = append(pieces, piece)
				sent.Write(piece)
			}
			if err := seal.write(&wire, pieces); err != nil {
				t.Fatal(err)
			}
		}
		from := &wireOf{bytes: wire.Bytes(), sizes: rapid.SliceOfN(size, 1,
			3).Filter(func(s []int) bool {
			return !slices.Contains(s, 0)
		}).Draw(t, "wire")}
		asked := rapid.IntRange(1, 2*recordBytesMax).Draw(t, "asked")
		var got []byte
		b := make([]byte, asked)
		for {
			n, err := open.read(from, b)
			got = append(got, b[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, sent.Bytes()) {
			t.Fatalf("%d bytes came back of %d", len(got), sent.Len())
		}
		if len(open.buffer) > openerBytesMax {
			t.Fatalf("a buffer of %d bytes", len(open.buffer))
		}
	})
}

// records seals one record for each text.
func records(t *testing.T, texts ...string) [][]byte {
	t.Helper()
	seal, _ := sealedPair(t)
	var all [][]byte
	for _, text := range texts {
		var wire bytes.Buffer
		if err := seal.write(&wire, [][]byte{[]byte(text)}); err != nil {
			t.Fatal(err)
		}
		all = append(all, wire.Bytes())
	}
	return all
}

// readAll opens the records on the wire until an error. It returns the error unless it is io.EOF.
func readAll(t *testing.T, wire []byte) (string, error) {
	t.Helper()
	_, open := sealedPair(t)
	var got []byte
	from := bytes.NewReader(wire)
	for {
		var b [64]byte
		n, err := open.read(from, b[:])
		got = append(got, b[:n]...)
		if err == io.EOF {
			return string(got), nil
		}
		if err != nil {
			return string(got), err
		}
	}
}

// TestSealedBytesCannotBeTamperedWith checks that an attacker's changes, omissions, repetitions and
// swaps are detected, and that no byte from there on is handed out.
func TestSealedBytesCannotBeTamperedWith(t *testing.T) {
	t.Parallel()
	r := records(t, "one", "two", "three")
	if got, err := readAll(t, slices.Concat(r...)); err != nil || got != "onetwothree" {
		t.Fatalf("untouched: %q, error %v", got, err)
	}
	for name, c := range map[string]struct {
		wire []byte
		want string
	}{
		"left out":  {slices.Concat(r[0], r[2]), "one"},
		"repeated":  {slices.Concat(r[0], r[0], r[1]), "one"},
		"swapped":   {slices.Concat(r[1], r[0]), ""},
		"cut":       {slices.Concat(r[0], r[1][:len(r[1])-1]), "one"},
		"no length": {slices.Concat(r[0], r[1][:3]), "one"},
		"too long":  {binary.BigEndian.AppendUint32(nil, recordBytesMax+1), ""},
		"empty":     {binary.BigEndian.AppendUint32(nil, 0), ""},
	} {
		if got, err := readAll(t, c.wire); got != c.want || !decodeError(err) {
			t.Errorf("%s: %q, error %v, want %q and an error", name, got, err, c.want)
		}
	}
	for i := range r[1] {
		changed := slices.Clone(r[1])
		changed[i] ^= 0x10
		if got, err := readAll(t, slices.Concat(r[0], changed, r[2])); got != "one" ||
			!decodeError(err) {
			t.Errorf("byte %d changed: %q, error %v", i, got, err)
		}
	}
}

// TestSealedDirectionsDiffer checks that the keys of the two directions differ, so that an attacker
// cannot send a host its own bytes back. The keys of two connections differ too.
func TestSealedDirectionsDiffer(t *testing.T) {
	t.Parallel()
	r := records(t, "one")
	for name, admitted := range map[string]ticket{
		"another secret": {token: [ticketBytes]byte{1}, secret: [keyBytes]byte{3}},
		"another token":  {token: [ticketBytes]byte{2}, secret: [keyBytes]byte{2}},
	} {
		open, err := admitted.newAEAD(labelDialler)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&opener{aead: open}).read(bytes.NewReader(r[0]),
			make([]byte, 64)); !errors.Is(err, errProtocol) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	open, err := ticket{token: [ticketBytes]byte{1},
		secret: [keyBytes]byte{2}}.newAEAD(labelAcceptor)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&opener{aead: open}).read(bytes.NewReader(r[0]),
		make([]byte, 64)); !errors.Is(err, errProtocol) {
		t.Errorf("the other direction: error %v", err)
	}
}

func FuzzOpener(f *testing.F) {
	admitted := ticket{suite: suiteAESGCM, token: [ticketBytes]byte{1}, secret: [keyBytes]byte{2}}
	aead, err := admitted.newAEAD(labelDialler)
	if err != nil {
		f.Fatal(err)
	}
	var wire bytes.Buffer
	if err := (&sealer{aead: aead}).write(&wire, [][]byte{[]byte("one"),
		make([]byte, 300)}); err != nil {
		f.Fatal(err)
	}
	sound := slices.Clone(wire.Bytes())
	f.Add(sound, 10)
	f.Add(sound[:30], 400)
	f.Add([]byte{0, 1, 0, 0}, 1)
	f.Fuzz(func(t *testing.T, b []byte, asked int) {
		open, from := &opener{aead: aead}, bytes.NewReader(b)
		into := make([]byte, min(max(asked, 1), 1<<20))
		total := 0
		for {
			n, err := open.read(from, into)
			total += n
			if err != nil {
				if !decodeError(err) {
					t.Fatalf("error %v", err)
				}
				break
			}
		}
		if total > 0 && !bytes.HasPrefix(b, sound[:recordHeaderBytes+3+recordTagBytes]) {
			t.Fatalf("%d bytes are taken for authentic", total)
		}
	})
}

func BenchmarkSealed(b *testing.B) {
	seal, open := sealedPair(b)
	text, into := make([]byte, recordBytesMax), make([]byte, recordBytesMax)
	var wire bytes.Buffer
	b.SetBytes(recordBytesMax)
	b.ReportAllocs()
	for b.Loop() {
		wire.Reset()
		if err := seal.write(&wire, [][]byte{text}); err != nil {
			b.Fatal(err)
		}
		if _, err := open.read(&wire, into); err != nil {
			b.Fatal(err)
		}
	}
}
