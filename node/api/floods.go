package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// leastRate is the rate in bytes a second that a request's body must keep up.
	leastRate = 32 << 10
	// maxHeaderBytes bounds a request's header, and with it the message of a GET.
	maxHeaderBytes = 32 << 10
	// stuckWrite is how long a connection of HTTP/2 may take nothing that the server writes. Then
	// the server closes it, with all answers that wait in it.
	stuckWrite = 30 * time.Second
)

// bound sets the server's limits against callers that are slow on purpose, or that send frames of
// HTTP/2 in masses. The server itself answers resets, pings and settings: it starts no call for a
// stream while MaxConcurrentStreams run, ends a connection with four times as many that wait, and
// ends one that does not read the answers to its frames.
func bound(server *http.Server, options Options) {
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: int(options.MaxConcurrentCalls),
		MaxReadFrameSize:     64 << 10,
		SendPingTimeout:      15 * time.Second,
		PingTimeout:          15 * time.Second,
		WriteByteTimeout:     stuckWrite,
	}
	server.ReadHeaderTimeout = options.MaxHeaderTime
	server.IdleTimeout = options.MaxIdleTime
	server.MaxHeaderBytes = maxHeaderBytes
}

// withBodyDeadline cuts off a request whose body falls behind the least rate by more than patience.
// It also puts the response controller into the context, with which calls bound the time of their
// answers.
func withBodyDeadline(next http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		controller := http.NewResponseController(w)
		begin := time.Now()
		if controller.SetReadDeadline(begin.Add(patience)) == nil {
			r.Body = &timedBody{ReadCloser: r.Body, controller: controller,
				deadline: begin.Add(patience), patience: patience}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), controllerKey{},
			controller)))
	})
}

// timedBody moves the read deadline with the bytes that arrive. It clears the deadline when the
// body has arrived, since the server watches the connection for its end while the call runs.
type timedBody struct {
	io.ReadCloser
	controller *http.ResponseController
	deadline   time.Time
	patience   time.Duration
	unpaid     int // bytes that have not moved the deadline yet
}

func (b *timedBody) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	if errors.Is(err, io.EOF) {
		_ = b.controller.SetReadDeadline(time.Time{})
		return n, err
	}
	const step = leastRate / 8 // setting a deadline costs more than reading few bytes
	if b.unpaid += n; b.unpaid >= step {
		b.deadline = b.deadline.Add(time.Duration(b.unpaid) * time.Second / leastRate)
		// A fast beginning does not pay for a stop.
		if most := time.Now().Add(b.patience); b.deadline.After(most) {
			b.deadline = most
		}
		b.unpaid = 0
		_ = b.controller.SetReadDeadline(b.deadline)
	}
	return n, err
}
