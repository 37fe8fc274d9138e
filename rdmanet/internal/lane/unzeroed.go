package lane

import (
	"strings"
	"unsafe"
)

// unzeroed allocates a buffer with undefined contents. Use it only for bytes that are then read
// from the wire, filling the whole buffer. Frames belong to their receiver permanently, so every
// batch takes a new buffer. Clearing it first would cost up to a fifth of the time that its bytes
// take over loopback.
//
// strings.Builder is the only part of the standard library that allocates this way.
func unzeroed(size int) []byte {
	if size == 0 {
		return nil
	}
	var builder strings.Builder
	builder.Grow(size)
	builder.WriteByte(0)
	return unsafe.Slice(unsafe.StringData(builder.String()), size)
}
