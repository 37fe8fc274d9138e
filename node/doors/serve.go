package doors

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// HeaderScheme, in an answer, names the scheme that the address serves.
const HeaderScheme = "Ledgerd-Scheme"

// TLS reports whether the node serves TLS.
func (d *Doors) TLS() bool { return d.current.Load().certificates != nil }

// Scheme returns the scheme of the node's addresses.
func (d *Doors) Scheme() string {
	if d.TLS() {
		return "https"
	}
	return "http"
}

// Serve runs a server on a listener, over TLS if the node has a certificate. It returns the
// server's error.
func (d *Doors) Serve(server *http.Server, listener net.Listener) error {
	if !d.TLS() {
		return server.Serve(listener)
	}
	server.TLSConfig = &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return d.current.Load().certificates.serve(hello)
		},
	}
	return server.ServeTLS(secureListener{listener}, "", "")
}

// secureListener tells clients that do not begin with a handshake to use https.
type secureListener struct{ net.Listener }

// Accept implements net.Listener.
func (l secureListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &secureConnection{Conn: connection}, nil
}

// secureConnection looks at the first byte that the client sends. Only the handshake reads first,
// so begun needs no lock.
type secureConnection struct {
	net.Conn
	begun bool
}

// NetConn returns the connection below.
func (c *secureConnection) NetConn() net.Conn { return c.Conn }

// errPlain ends the handshake of a client that speaks plain HTTP.
var errPlain = errors.New("the client does not speak TLS")

const (
	// handshakeRecord is the first byte of a TLS connection.
	handshakeRecord = 0x16
	// plainPatience and plainBytesMax bound what is read of a plain request after the answer.
	plainPatience = time.Second
	plainBytesMax = 64 << 10
)

// Read implements net.Conn.
func (c *secureConnection) Read(buffer []byte) (int, error) {
	n, err := c.Conn.Read(buffer)
	if c.begun || n == 0 {
		return n, err
	}
	c.begun = true
	if buffer[0] == handshakeRecord {
		return n, err
	}
	const text = "This address serves TLS: use https:// instead of http://.\n"
	_ = c.SetDeadline(time.Now().Add(plainPatience))
	_, err = fmt.Fprintf(c.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; "+
		"charset=utf-8\r\n%s: https\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		HeaderScheme, len(text), text)
	// A connection that is closed before its input was read is reset, and the answer is lost.
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && err == nil &&
		half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, plainBytesMax)
	}
	return 0, errPlain
}
