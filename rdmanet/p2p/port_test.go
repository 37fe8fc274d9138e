package p2p

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	manet "github.com/multiformats/go-multiaddr/net"
)

// testPort listens on loopback and passes libp2p's connections to the channel.
func testPort(t *testing.T, patience time.Duration) (p *port, address string,
	libp2p <-chan manet.Conn) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := manet.WrapNetListener(plain)
	if err != nil {
		t.Fatal(err)
	}
	p = newPort(listener, plain, newTicketOffice(), patience)
	accepted, ended := make(chan manet.Conn, 16), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return p, plain.Addr().String(), accepted
}

func dialPort(t *testing.T, address string, say []byte) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write(say); err != nil {
		t.Fatal(err)
	}
	return conn
}

// closedSoon fails unless the other side closes the connection without sending anything.
func closedSoon(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var timeout net.Error
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || errors.As(err, &timeout) &&
		timeout.Timeout() {
		t.Errorf("%s: %d bytes, error %v, want a connection that is closed", what, n, err)
	}
}

// TestPortAdmitsATokenOnce checks that a token admits one connection. A connection with no token, a
// wrong one or a used one is closed.
func TestPortAdmitsATokenOnce(t *testing.T) {
	t.Parallel()
	p, address, _ := testPort(t, time.Minute)
	admitted, shown, cancel := p.tickets.issue(true)
	defer cancel()
	wrong := admitted
	wrong.token[31] ^= 1
	closedSoon(t, "a wrong token", dialPort(t, address,
		append([]byte(directMagic), wrong.token[:]...)))
	greeting := append([]byte(directMagic), admitted.token[:]...)
	first := dialPort(t, address, greeting)
	select {
	case conn := <-shown:
		if conn.RemoteAddr().String() != first.LocalAddr().String() {
			t.Errorf("%s was admitted instead of %s", conn.RemoteAddr(), first.LocalAddr())
		}
		conn.Close()
	case <-time.After(20 * time.Second):
		t.Fatal("the token is not taken")
	}
	closedSoon(t, "a token again", dialPort(t, address, greeting))

	late, _, cancelLate := p.tickets.issue(true)
	cancelLate()
	closedSoon(t, "a token that nobody waits for any more",
		dialPort(t, address, append([]byte(directMagic), late.token[:]...)))
	if len(p.tickets.open) > 0 {
		t.Errorf("%d tickets are kept", len(p.tickets.open))
	}
}

// TestCancelledTicketClosesItsConnection checks that a connection admitted just as the wait for it
// ended is closed.
func TestCancelledTicketClosesItsConnection(t *testing.T) {
	t.Parallel()
	p, address, _ := testPort(t, time.Minute)
	admitted, _, cancel := p.tickets.issue(true)
	conn := dialPort(t, address, append([]byte(directMagic), admitted.token[:]...))
	for redeemed := false; !redeemed; {
		p.tickets.mu.Lock()
		redeemed = len(p.tickets.open) == 0
		p.tickets.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	cancel()
	closedSoon(t, "an admitted connection that nobody takes", conn)
}

// TestPortForwardsToLibp2p checks that a connection that starts like libp2p's is passed to libp2p,
// from its first byte.
func TestPortForwardsToLibp2p(t *testing.T) {
	t.Parallel()
	_, address, libp2p := testPort(t, time.Minute)
	text := []byte("\x13/multistream/1.0.0\n and more")
	conn := dialPort(t, address, text)
	select {
	case forwarded := <-libp2p:
		got := make([]byte, len(text))
		if _, err := io.ReadFull(forwarded, got); err != nil || !bytes.Equal(got, text) {
			t.Errorf("libp2p reads %q, error %v", got, err)
		}
		forwarded.Close()
	case <-time.After(20 * time.Second):
		t.Fatal("the connection does not get through")
	}
	closedSoon(t, "a connection that libp2p closes", conn)
}

// TestPortWaitsForNobody checks that a connection that sends nothing, or not everything, is closed
// in time.
func TestPortWaitsForNobody(t *testing.T) {
	t.Parallel()
	_, address, _ := testPort(t, 50*time.Millisecond)
	for _, said := range []string{"", "l", directMagic, directMagic + "half of a token"} {
		closedSoon(t, "a connection that says "+said, dialPort(t, address, []byte(said)))
	}
}

// TestPortInACrowd checks that many silent connections do not block others: the oldest are closed.
func TestPortInACrowd(t *testing.T) {
	t.Parallel()
	p, address, libp2p := testPort(t, time.Minute)
	oldest := dialPort(t, address, nil)
	for range newcomersMax {
		dialPort(t, address, nil)
	}
	closedSoon(t, "the oldest of a crowd", oldest)
	p.mu.Lock()
	if len(p.newcomers) > newcomersMax {
		t.Errorf("%d connections are kept", len(p.newcomers))
	}
	p.mu.Unlock()
	dialPort(t, address, []byte("\x13/multistream"))
	select {
	case forwarded := <-libp2p:
		forwarded.Close()
	case <-time.After(20 * time.Second):
		t.Fatal("nobody gets through")
	}
}

func FuzzTicket(f *testing.F) {
	f.Add(ticket{suite: suiteAESGCM}.append(nil))
	f.Add([]byte("ldgt"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readTicket(bytes.NewReader(b))
		if err == nil && !bytes.Equal(got.append(nil), b[:ticketSize]) || err != nil &&
			!decodeError(err) {
			t.Fatalf("%x gave %+v, error %v", b, got, err)
		}
	})
}

// TestPortWhereLibp2pTakesNobody checks that connections that libp2p does not accept are bounded
// too.
func TestPortWhereLibp2pTakesNobody(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := manet.WrapNetListener(plain)
	if err != nil {
		t.Fatal(err)
	}
	p := newPort(listener, plain, newTicketOffice(), time.Minute)
	text := []byte("\x13/multistream/1.0.0\n")
	oldest := dialPort(t, plain.Addr().String(), text)
	for range newcomersMax {
		dialPort(t, plain.Addr().String(), text)
	}
	closedSoon(t, "the oldest of those that wait for libp2p", oldest)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
