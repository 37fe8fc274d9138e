package client

import (
	"encoding/binary"
	"io"
)

// prefixBytes is the length of what precedes each message of a stream in Connect, gRPC and
// gRPC-Web: a byte of flags, and the length of the message in four bytes.
const prefixBytes = 5

// wholeMessages is the body of a call that streams messages. The service's code writes a message's
// prefix and the message one after the other, and HTTP/2 would send each by itself: two frames, two
// system calls here and several at the node. A read gets the message with its prefix.
type wholeMessages struct {
	io.ReadCloser
	prefix  [prefixBytes]byte
	arrived int    // bytes of the prefix
	left    uint32 // bytes of the message to come
}

// Read implements io.Reader. Once it has a prefix, it waits for the first bytes of the message.
func (w *wholeMessages) Read(buffer []byte) (n int, err error) {
	if w.left == 0 {
		n, err = w.ReadCloser.Read(buffer[:min(len(buffer), prefixBytes-w.arrived)])
		copy(w.prefix[w.arrived:], buffer[:n])
		if w.arrived += n; w.arrived < prefixBytes {
			return n, err
		}
		w.arrived, w.left = 0, binary.BigEndian.Uint32(w.prefix[1:])
		if err != nil || w.left == 0 || n == len(buffer) {
			return n, err
		}
	}
	rest := buffer[n:]
	read, err := w.ReadCloser.Read(rest[:min(uint64(len(rest)), uint64(w.left))])
	w.left -= uint32(read)
	return n + read, err
}
