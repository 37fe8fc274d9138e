package p2p

import (
	"testing"
	"time"
)

// TestCloseBeforeStart: a lane may give up a connection before it uses it, if its peer was expelled
// meanwhile. There is no reader to wait for then.
func TestCloseBeforeStart(t *testing.T) {
	t.Parallel()
	near, far := tcpPair(t)
	o := &outlet{conn: &directConn{host: &Host{}, socket: near, wire: near},
		stop: func() bool { return true }, ended: make(chan struct{})}
	closed := make(chan error, 1)
	go func() {
		_, err := o.Close(nil)
		closed <- err
	}()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a reader that was never started")
	}
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is not closed")
	}
}
