package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// flooder opens connections from one address of the loopback.
type flooder struct {
	testing.TB
	to   string
	dial net.Dialer
	open []net.Conn
}

func newFlooder(t testing.TB, from, url string) *flooder {
	f := &flooder{TB: t, to: strings.TrimPrefix(url, "http://"),
		dial: net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}}
	t.Cleanup(f.close)
	return f
}

// connect opens a connection and sends the beginning of a request on it.
func (f *flooder) connect(beginning string) {
	f.Helper()
	connection, err := f.dial.DialContext(f.Context(), "tcp", f.to)
	if err != nil {
		f.Fatal(err)
	}
	f.open = append(f.open, connection)
	_, _ = io.WriteString(connection, beginning)
}

func (f *flooder) close() {
	for _, connection := range f.open {
		_ = connection.Close()
	}
}

// call makes a call on a new connection from an address, and returns the first line of the answer.
func (f *flooder) call() (string, error) {
	connection, err := f.dial.DialContext(f.Context(), "tcp", f.to)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(connection, "POST /ledgerd.v1.LedgerService/GetNode HTTP/1.1\r\n"+
		"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"+
		"Connection: close\r\n\r\n{}"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(connection).ReadString('\n')
	return strings.TrimSpace(line), err
}

const unfinishedCall = "POST /ledgerd.v1.LedgerService/Submit HTTP/1.1\r\nHost: localhost\r\n" +
	"Content-Type: application/proto\r\nContent-Length: 1000\r\n\r\n0"

// Idle connections give way to new ones, so any number of them shuts nobody out.
func TestIdleConnectionsGiveWay(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxConnections: 40,
		MaxConnectionsPerAddress: 30})
	stranger := newFlooder(t, "127.0.0.2", b.door.URL)
	for range 300 {
		stranger.connect("")
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		client := newFlooder(t, from, b.door.URL)
		for range 50 {
			if line, err := client.call(); line != "HTTP/1.1 200 OK" {
				t.Fatalf("a call from %s: %q, %v", from, line, err)
			}
		}
	}
	if open := b.metric("ledgerd_api_connections"); open > 40 {
		t.Errorf("%v connections are open, at most 40 are allowed", open)
	}
	if evicted := b.metric("ledgerd_api_connections_evicted_total"); evicted < 250 {
		t.Errorf("%v connections gave way, want nearly 300", evicted)
	}
}

// An address that fills all its connections with calls shuts out no other address.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxConnections: 40,
		MaxConnectionsPerAddress: 10})
	stranger := newFlooder(t, "127.0.0.2", b.door.URL)
	for deadline := time.Now().Add(patience); ; stranger.connect(unfinishedCall) {
		if b.metric("ledgerd_api_connections_refused_total") > 20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no connection is refused")
		}
	}
	client := newFlooder(t, "127.0.0.3", b.door.URL)
	for range 20 {
		if line, err := client.call(); line != "HTTP/1.1 200 OK" {
			t.Fatalf("a call from another address: %q, %v", line, err)
		}
	}
	if line, err := stranger.call(); err == nil {
		t.Errorf("a call from the address of the flood: %q, want a closed connection", line)
	}
	stranger.close()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if line, _ := stranger.call(); line == "HTTP/1.1 200 OK" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("closed connections still count")
		}
	}
}

// metric returns a metric without labels.
func (b *bank) metric(name string) (value float64) {
	b.Helper()
	_, _, text := ask(b.T, "GET", b.door.URL+"/metrics", nil, "")
	for line := range strings.Lines(text) {
		if after, found := strings.CutPrefix(line, name+" "); found {
			if _, err := fmt.Sscan(after, &value); err != nil {
				b.Fatal(err)
			}
			return value
		}
	}
	b.Fatalf("no metric %s", name)
	return 0
}
