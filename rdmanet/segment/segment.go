package segment

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	wordSize = rdmanet.WordSize
	// hugePage is the size of a huge page, in bytes.
	hugePage = 2 << 20
	// stretch is the largest number of bytes copied without giving the scheduler a chance to
	// preempt the goroutine: some microseconds.
	stretch = 64 << 10
)

// Segment is memory outside Go's heap. It starts as zeros and is aligned to a page, or to a huge
// page if it is at least as large as one. All methods may be called from several goroutines.
type Segment struct {
	bytes []byte
}

// New maps a segment of size bytes. The caller has checked size with rdmanet.CheckRegion: it is a
// multiple of rdmanet.WordSize. The error is the operating system's.
func New(size int) (*Segment, error) {
	page := os.Getpagesize()
	length := (size + page - 1) / page * page
	align := 0
	if size >= hugePage {
		align = hugePage
	}
	mapping, err := unix.MmapPtr(-1, 0, nil, uintptr(length+align), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", length, err)
	}
	start := mapping
	if past := uintptr(mapping) % hugePage; align > 0 && past > 0 {
		start = unsafe.Add(mapping, hugePage-past)
	}
	s := &Segment{bytes: unsafe.Slice((*byte)(start), size)}
	if align > 0 {
		advise(unsafe.Slice((*byte)(start), length))
	}
	// When this runs, no goroutine can call a method any more.
	runtime.AddCleanup(s, func(length uintptr) {
		if err := unix.MunmapPtr(mapping, length); err != nil {
			panic(fmt.Sprintf("segment: cannot unmap %d bytes: %v",
				length, err))
		}
	}, uintptr(length+align))
	return s, nil
}

// Size returns the size in bytes.
func (s *Segment) Size() int { return len(s.bytes) }

// Bytes returns the memory itself. It is invalid once Free was called and the Segment is no longer
// referenced.
func (s *Segment) Bytes() []byte { return s.bytes }

// word returns the address of a word. It panics for an invalid offset.
func (s *Segment) word(offset int) *uint64 {
	if offset%wordSize != 0 {
		panic(fmt.Sprintf("segment: offset %d of a word is no multiple of %d", offset, wordSize))
	}
	return (*uint64)(unsafe.Pointer(&s.bytes[offset]))
}

// Load reads the word at an offset that rdmanet.WordSize divides. Everything that its writer stored
// before is visible to later accesses.
func (s *Segment) Load(offset int) uint64 {
	word := atomic.LoadUint64(s.word(offset))
	runtime.KeepAlive(s)
	return word
}

// Store writes the word at an offset that rdmanet.WordSize divides. A reader that loads it sees
// everything stored before. All Stores and atomic operations have one total order.
func (s *Segment) Store(offset int, word uint64) {
	atomic.StoreUint64(s.word(offset), word)
	runtime.KeepAlive(s)
}

// CopyIn writes from to the bytes at offset, from the first to the last, each word atomically. It
// panics outside the segment, as a slice does.
func (s *Segment) CopyIn(offset int, from []byte) {
	to := s.bytes[offset : offset+len(from) : offset+len(from)]
	raceRead(from)
	// The common case: whole words.
	if (offset|len(from))%wordSize == 0 && uint(len(from)-1) < stretch {
		storeWords(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]), len(from)/wordSize)
		runtime.KeepAlive(s)
		return
	}
	if head := headOf(offset, len(from)); head > 0 {
		s.storePart(offset, from[:head])
		offset, to, from = offset+head, to[head:], from[head:]
	}
	for len(from) >= wordSize {
		length := min(len(from)&^(wordSize-1), stretch)
		storeWords(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]), length/wordSize)
		offset, to, from = offset+length, to[length:], from[length:]
	}
	if len(from) > 0 {
		s.storePart(offset, from)
	}
	runtime.KeepAlive(s)
}

// CopyOut reads the bytes at offset into into, from the last word to the first, each word
// atomically. A reader that finds a write's mark in them therefore has everything that the write
// put below. It panics outside the segment, as a slice does.
func (s *Segment) CopyOut(offset int, into []byte) {
	from := s.bytes[offset : offset+len(into) : offset+len(into)]
	raceWrite(into)
	// The common case: whole words.
	if (offset|len(into))%wordSize == 0 && uint(len(into)-1) < stretch {
		loadWords(unsafe.Pointer(&into[0]), unsafe.Pointer(&from[0]), len(into)/wordSize)
		runtime.KeepAlive(s)
		return
	}
	head := headOf(offset, len(into))
	if tail := (len(into) - head) % wordSize; tail > 0 {
		end := len(into) - tail
		s.loadPart(offset+end, into[end:])
		into = into[:end]
	}
	for len(into) > head {
		begin := max(len(into)-stretch, head)
		loadWords(unsafe.Pointer(&into[begin]), unsafe.Pointer(&from[begin]),
			(len(into)-begin)/wordSize)
		into = into[:begin]
	}
	if head > 0 {
		s.loadPart(offset, into)
	}
	runtime.KeepAlive(s)
}

// Free returns the memory to the operating system. Later loads return zeros or values stored after
// Free.
func (s *Segment) Free() {
	// If the kernel ignores the advice, the memory is freed together with the Segment.
	_ = unix.Madvise(unsafe.Slice(&s.bytes[0],
		(len(s.bytes)+os.Getpagesize()-1)/os.Getpagesize()*os.Getpagesize()), unix.MADV_DONTNEED)
	runtime.KeepAlive(s)
}

// headOf returns how many of length bytes at offset lie in a word that begins before offset.
func headOf(offset, length int) int { return min((wordSize-offset%wordSize)%wordSize, length) }

// storePart writes some bytes of one word atomically. It preserves the other bytes even if they
// change in between.
func (s *Segment) storePart(offset int, from []byte) {
	at := offset % wordSize
	word := s.word(offset - at)
	for {
		old := atomic.LoadUint64(word)
		var bytes [wordSize]byte
		binary.NativeEndian.PutUint64(bytes[:], old)
		copy(bytes[at:], from)
		if atomic.CompareAndSwapUint64(word, old, binary.NativeEndian.Uint64(bytes[:])) {
			return
		}
	}
}

// loadPart reads some bytes of one word atomically.
func (s *Segment) loadPart(offset int, into []byte) {
	at := offset % wordSize
	var bytes [wordSize]byte
	binary.NativeEndian.PutUint64(bytes[:], atomic.LoadUint64(s.word(offset-at)))
	copy(into, bytes[at:])
}

// storeEach implements storeWords word by word.
func storeEach(to, from unsafe.Pointer, words int) {
	for i := range words {
		word := binary.NativeEndian.Uint64(unsafe.Slice((*byte)(unsafe.Add(from, i*wordSize)),
			wordSize))
		atomic.StoreUint64((*uint64)(unsafe.Add(to, i*wordSize)), word)
	}
}

// loadEach implements loadWords word by word.
func loadEach(to, from unsafe.Pointer, words int) {
	for i := words - 1; i >= 0; i-- {
		word := atomic.LoadUint64((*uint64)(unsafe.Add(from, i*wordSize)))
		binary.NativeEndian.PutUint64(unsafe.Slice((*byte)(unsafe.Add(to, i*wordSize)), wordSize),
			word)
	}
}
