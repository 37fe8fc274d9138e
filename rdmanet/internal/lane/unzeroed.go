package lane

import (
	"strings"
	"unsafe"
)

// unzeroed allocates a buffer whose contents are anything: it is for bytes that are read from the
// wire into all of it, right away. Frames belong to their receiver for ever, so that every batch
// takes a new buffer, and clearing it first would cost as much as a fifth of the time that its
// bytes take over loopback.
//
// strings.Builder is the one part of the standard library that allocates so.
func unzeroed(size int) []byte {
	if size == 0 {
		return nil
	}
	var builder strings.Builder
	builder.Grow(size)
	builder.WriteByte(0)
	return unsafe.Slice(unsafe.StringData(builder.String()), size)
}
