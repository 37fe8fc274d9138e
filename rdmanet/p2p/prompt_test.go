package p2p

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestTryWriter checks that writes which do not wait arrive whole and in order once the rest of
// each is flushed, sealed and plain, and that a broken connection returns an error.
func TestTryWriter(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"sealed": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, in := tcpPair(t)
			from, to := &directConn{socket: out, wire: out}, &directConn{socket: in.(*net.TCPConn),
				wire: in.(*net.TCPConn)}
			if sealed {
				from.sealer, to.opener = sealedPair(t)
			}
			w, err := from.tryWriter()
			if err != nil {
				t.Fatal(err)
			}
			piece := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 1000+i%2000) }
			var want []byte
			parts := 0
			for i := 0; parts == 0; i++ { // until the connection takes only a part
				if err := w.writePieces(&net.Buffers{piece(i), piece(i + 1)}); err != nil {
					t.Fatal(err)
				}
				want = append(append(want, piece(i)...), piece(i+1)...)
				if len(w.rest) > 0 {
					parts++
				}
			}
			flushed := make(chan error, 1)
			go func() { flushed <- w.flush() }()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes did not come back, error %v", len(want), err)
			}
			if err := <-flushed; err != nil || len(w.rest) > 0 {
				t.Errorf("flush: %v, %d bytes are left", err, len(w.rest))
			}
			if err := errors.Join(w.writePieces(&net.Buffers{piece(7)}), w.flush()); err != nil {
				t.Fatal(err)
			}
			got = got[:len(piece(7))]
			if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, piece(7)) {
				t.Errorf("the bytes after that did not come back, error %v", err)
			}
			unblock(out)
			if err := w.writePieces(&net.Buffers{piece(8)}); !isTimeout(err) {
				t.Errorf("a write after the deadline: %v", err)
			}
			if err := out.SetDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			if err := out.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if err := w.writePieces(&net.Buffers{piece(9)}); err == nil {
				t.Error("a write to a broken connection succeeds")
			}
		})
	}
}
