package p2p

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	manet "github.com/multiformats/go-multiaddr/net"
)

// localPort is testPort that also listens within this machine. It returns a function that dials
// there.
func localPort(t *testing.T, patience time.Duration) (p *port, dial func(say []byte) net.Conn) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := manet.WrapNetListener(plain)
	if err != nil {
		t.Fatal(err)
	}
	owner := portOwner(t)
	local, err := listenLocal(owner.own, plain.Addr())
	if err != nil || local == nil {
		t.Fatal(local, err)
	}
	p = newPort(listener, plain, local, owner, patience)
	t.Cleanup(func() {
		for range 2 { // the second one changes nothing
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return p, func(say []byte) net.Conn {
		t.Helper()
		conn, err := dialLocal(t.Context(), owner.own, plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if len(say) == 0 {
			return conn // the port may have closed it: then a write fails, even of nothing
		}
		if _, err := conn.Write(say); err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

// TestLocalPort checks that only a token opens a connection within the machine, and only once. What
// starts like libp2p's connections is closed, as is a connection that says nothing.
func TestLocalPort(t *testing.T) {
	t.Parallel()
	p, dial := localPort(t, time.Minute)
	admitted, shown, cancel := p.owner.tickets.issue(true)
	defer cancel()
	greeting := append([]byte(directMagic), admitted.token[:]...)
	wrong := append([]byte(directMagic), make([]byte, ticketBytes)...)
	closedSoon(t, "a wrong token", dial(wrong))
	closedSoon(t, "a pass", dial([]byte(passMagic)))
	closedSoon(t, "libp2p's greeting", dial([]byte("\x13/multistream/1.0.0\n")))
	dial(greeting)
	select {
	case conn := <-shown:
		if _, local := conn.(*net.UnixConn); !local {
			t.Errorf("%T was admitted", conn)
		}
		conn.Close()
	case <-time.After(20 * time.Second):
		t.Fatal("the token is not taken")
	}
	closedSoon(t, "a token again", dial(greeting))

	_, impatient := localPort(t, time.Millisecond)
	closedSoon(t, "silence", impatient(nil))
}

// TestLocalUser checks that an end of another user is refused.
func TestLocalUser(t *testing.T) {
	t.Parallel()
	_, dial := localPort(t, time.Minute)
	conn := dial(nil).(*net.UnixConn)
	if err := prepareLocal(conn, os.Geteuid()); err != nil {
		t.Error(err)
	}
	if err := prepareLocal(conn, os.Geteuid()+1); err == nil {
		t.Error("another user is accepted")
	}
}

// TestLocalNameIsTaken checks that a host does without a name that another process has, and says
// what to do.
func TestLocalNameIsTaken(t *testing.T) {
	t.Parallel()
	p, _ := localPort(t, time.Minute)
	var log bytes.Buffer
	p.owner.gate.log = slog.New(slog.NewTextHandler(&log, nil))
	if listener, err := p.owner.listenLocal(p.plain.Addr()); listener != nil || err != nil {
		t.Errorf("%v, %v", listener, err)
	}
	name, err := localName(p.owner.own, p.plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), name) || !strings.Contains(log.String(), "ss -xlp") {
		t.Errorf("the log says only %s", log.String())
	}
}
