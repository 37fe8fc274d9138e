package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSegment(t testing.TB, size int) *Segment {
	t.Helper()
	s, err := New(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Free)
	return s
}

// TestCopies checks copies at every alignment, and that they touch nothing else.
func TestCopies(t *testing.T) {
	t.Parallel()
	const size = 4 * stretch
	s := newSegment(t, size)
	before, want := make([]byte, size), make([]byte, size)
	for i := range before {
		before[i] = byte(i * 7)
	}
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 3*stretch)).Draw(t,
			"length")
		offset := rapid.IntRange(0, size-length).Draw(t, "offset")
		skew := rapid.IntRange(0, 17).Draw(t, "skew")
		copy(want, before)
		copy(s.Bytes(), before)
		from := bytes.Repeat([]byte{0xfe, 0xdc, 0xba}, length/3+20)[skew : skew+length]
		copy(want[offset:], from)
		s.CopyIn(offset, from)
		if !bytes.Equal(s.Bytes(), want) {
			t.Fatal("CopyIn wrote something else")
		}
		into := bytes.Repeat([]byte{1}, length+40)
		s.CopyOut(offset, into[skew:skew+length])
		if !bytes.Equal(into[skew:skew+length], from) {
			t.Fatal("CopyOut read something else")
		}
		if bytes.Count(into[:skew], []byte{1}) != skew ||
			bytes.Count(into[skew+length:], []byte{1}) != 40-skew {
			t.Fatalf("CopyOut touched a byte beside %d to %d", skew, skew+length)
		}
	})
}

// TestEach checks the word-by-word copies of other processors.
func TestEach(t *testing.T) {
	t.Parallel()
	s := newSegment(t, 4096)
	from, into := make([]byte, 801), make([]byte, 801)
	for i := range from {
		from[i] = byte(i * 11)
	}
	storeEach(unsafe.Pointer(&s.Bytes()[8]), unsafe.Pointer(&from[1]), 100)
	if !bytes.Equal(s.Bytes()[8:808], from[1:]) || s.Bytes()[7] != 0 || s.Bytes()[808] != 0 {
		t.Error("storeEach")
	}
	loadEach(unsafe.Pointer(&into[1]), unsafe.Pointer(&s.Bytes()[8]), 100)
	if !bytes.Equal(into[1:], from[1:]) || into[0] != 0 {
		t.Error("loadEach")
	}
}

// orders writes rounds of words with store while readers read them, with loadWord and with load. It
// returns an error if a word is torn or out of order. Every word of round k is k in each half.
func orders(size int, store func([]byte), loadWord func(int) uint64, load func([]byte),
	during time.Duration) error {
	check := func(words []uint64) error {
		for i := len(words) - 1; i >= 0; i-- {
			if words[i]>>32 != words[i]&(1<<32-1) {
				return fmt.Errorf("word %d of %d is torn: %#x", i, len(words), words[i])
			}
			if i+1 < len(words) && words[i] < words[i+1] {
				return fmt.Errorf("word %d of %d is of round %d, above it is round %d",
					i, len(words), words[i]>>32, words[i+1]>>32)
			}
		}
		return nil
	}
	over := make(chan struct{})
	var readers sync.WaitGroup
	errs := make(chan error, 2)
	for _, look := range []func([]uint64){
		func(words []uint64) {
			for i := len(words) - 1; i >= 0; i-- {
				words[i] = loadWord(8 * i)
			}
		},
		func(words []uint64) {
			into := make([]byte, size)
			load(into)
			for i := range words {
				words[i] = binary.NativeEndian.Uint64(into[8*i:])
			}
		},
	} {
		readers.Go(func() {
			words := make([]uint64, size/8)
			for {
				select {
				case <-over:
					return
				default:
				}
				look(words)
				if err := check(words); err != nil {
					errs <- err
					return
				}
				runtime.Gosched()
			}
		})
	}
	var err error
	from := make([]byte, size)
	deadline := time.Now().Add(during)
	for k := uint64(1); err == nil && time.Now().Before(deadline); k++ {
		for i := 0; i < size; i += 8 {
			binary.NativeEndian.PutUint64(from[i:], k<<32|k)
		}
		store(from)
		select {
		case err = <-errs:
		default:
		}
	}
	close(over)
	readers.Wait()
	return err
}

// TestOrders checks that a reader that sees a word sees it whole, and everything below it.
func TestOrders(t *testing.T) {
	for _, size := range []int{24, 256, 8 << 10, 200 << 10} {
		s := newSegment(t, size+8)
		for _, at := range []int{0, 8} {
			err := orders(size, func(from []byte) {
				s.CopyIn(at, from)
			}, func(i int) uint64 { return s.Load(at + i) },
				func(into []byte) { s.CopyOut(at, into) },
				50*time.Millisecond)
			if err != nil {
				t.Errorf("%d bytes at %d: %v", size, at, err)
			}
			clear(s.Bytes())
		}
		err := orders(size, func(from []byte) {
			storeEach(unsafe.Pointer(&s.Bytes()[0]), unsafe.Pointer(&from[0]), size/8)
		}, func(i int) uint64 { return s.Load(i) },
			func(into []byte) {
				loadEach(unsafe.Pointer(&into[0]), unsafe.Pointer(&s.Bytes()[0]), size/8)
			}, 50*time.Millisecond)
		if err != nil {
			t.Errorf("%d bytes word by word: %v", size, err)
		}
	}
}

// TestOrdersCatches checks that orders finds unsuitable copies.
func TestOrdersCatches(t *testing.T) {
	const size = 8 << 10
	s := newSegment(t, size)
	load, loadWord := func(into []byte) {
		s.CopyOut(0, into)
	}, func(i int) uint64 { return s.Load(i) }
	in := func(from []byte) { s.CopyIn(0, from) }
	for name, run := range map[string]func() error{
		"stores backward": func() error {
			return orders(size, func(from []byte) {
				for i := size - 64; i >= 0; i -= 64 {
					s.CopyIn(i, from[i:i+64])
				}
			}, loadWord, load, 10*time.Second)
		},
		"stores bytes": func() error {
			return orders(size, func(from []byte) {
				for i := range from {
					s.CopyIn(i, from[i:i+1])
				}
			}, loadWord, load, 10*time.Second)
		},
		"loads forward": func() error {
			return orders(size, in, loadWord, func(into []byte) {
				for i := 0; i < size; i += 8 {
					s.CopyOut(i, into[i:i+8])
				}
			}, 10*time.Second)
		},
	} {
		if err := run(); err == nil {
			t.Errorf("%s: nothing was found", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
		clear(s.Bytes())
	}
}

// TestParts checks that writers of parts of one word do not undo each other, and that no part is
// ever torn.
func TestParts(t *testing.T) {
	t.Parallel()
	const rounds = 20_000
	s := newSegment(t, 64)
	var writers sync.WaitGroup
	for i := range 2 {
		writers.Go(func() {
			for k := range rounds {
				s.CopyIn(9+3*i, []byte{byte(k), byte(k), byte(k)})
				var into [3]byte
				s.CopyOut(9+3*i, into[:])
				if into != [3]byte{byte(k), byte(k), byte(k)} {
					t.Errorf("writer %d reads %x in round %d", i, into, k)
					return
				}
				s.CopyOut(9+3*(1-i), into[:])
				if into[0] != into[1] || into[1] != into[2] {
					t.Errorf("writer %d reads the other's part torn: %x", i, into)
					return
				}
			}
		})
	}
	writers.Wait()
	if s.Bytes()[8] != 0 || s.Bytes()[15] != 0 {
		t.Error("a byte beside the parts was written")
	}
}

func TestSegment(t *testing.T) {
	t.Parallel()
	for _, size := range []int{8, 4096, 5000, hugePage, hugePage + 8, 3*hugePage - 8} {
		s := newSegment(t, size)
		if s.Size() != size || len(s.Bytes()) != size || cap(s.Bytes()) != size {
			t.Errorf("%d bytes became %d", size, s.Size())
		}
		align := uintptr(4096)
		if size >= hugePage {
			align = hugePage
		}
		if at := uintptr(unsafe.Pointer(&s.Bytes()[0])); at%align != 0 {
			t.Errorf("%d bytes at %#x", size, at)
		}
		for i, b := range s.Bytes() {
			if b != 0 {
				t.Fatalf("byte %d is not zero", i)
			}
		}
		s.Store(size-8, 7)
		if s.Load(size-8) != 7 {
			t.Error("a word was lost")
		}
		for name, touch := range map[string]func(){
			"load past the end":     func() { s.Load(size) },
			"load before":           func() { s.Load(-8) },
			"load beside":           func() { s.Load(4) },
			"store past the end":    func() { s.Store(size, 1) },
			"copy in past the end":  func() { s.CopyIn(size-7, make([]byte, 8)) },
			"copy out past the end": func() { s.CopyOut(size-7, make([]byte, 8)) },
			"copy out before":       func() { s.CopyOut(-1, make([]byte, 1)) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", name)
					}
				}()
				touch()
			}()
		}
		s.Free()
		_ = s.Load(size - 8) // late, and harmless
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, size := range []int{8, 64, 100, 1 << 10, 64 << 10, 1 << 20, 16 << 20} {
		s := newSegment(b, size+64)
		private, other := make([]byte, size), make([]byte, size)
		for i := range s.Bytes() {
			s.Bytes()[i] = 1
		}
		for _, way := range []struct {
			name string
			copy func()
		}{
			{"in", func() { s.CopyIn(0, private) }},
			{"out", func() { s.CopyOut(0, private) }},
			{"copy", func() { copy(other, private) }},
		} {
			b.Run(fmt.Sprintf("%d/%s", size, way.name), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					way.copy()
				}
			})
		}
	}
}
