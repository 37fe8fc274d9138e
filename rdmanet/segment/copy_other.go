//go:build !amd64

package segment

import "unsafe"

// storeWords stores words from first to last, each atomically. to is aligned to a word.
func storeWords(to, from unsafe.Pointer, words int) { storeEach(to, from, words) }

// loadWords loads words from last to first, each atomically. from is aligned to a word.
func loadWords(to, from unsafe.Pointer, words int) { loadEach(to, from, words) }
