package segment

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// storeWords stores words from first to last, each atomically. to is aligned to a word, and words
// is at least 1.
func storeWords(to, from unsafe.Pointer, words int) {
	if cpu.X86.HasAVX {
		storePairs(to, from, words)
	} else {
		storeEach(to, from, words)
	}
}

// loadWords loads words from last to first, each atomically. from is aligned to a word, and words
// is at least 1.
func loadWords(to, from unsafe.Pointer, words int) {
	if cpu.X86.HasAVX {
		loadPairs(to, from, words)
	} else {
		loadEach(to, from, words)
	}
}

// storePairs implements storeWords on processors where aligned accesses of 16 bytes are atomic.
//
//go:noescape
func storePairs(to, from unsafe.Pointer, words int)

// loadPairs implements loadWords on processors where aligned accesses of 16 bytes are atomic.
//
//go:noescape
func loadPairs(to, from unsafe.Pointer, words int)
