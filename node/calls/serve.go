package calls

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"

	"github.com/ledgerd/ledgerd/node/wire"
)

// serve answers a call of a peer.
func (c *Calls) serve(ctx context.Context, asked *wire.Served) error {
	if asked.Kind != kindCall {
		return fmt.Errorf("%w: kind %d", errMessage, asked.Kind)
	}
	r, err := decodeRequest(asked.Head)
	if err != nil {
		return err
	}
	w := newAnswerWriter(c.inService)
	defer w.release()
	c.handle(ctx, asked, &r, w)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := w.send(asked, c.config.PieceBytes); err != nil {
		return fmt.Errorf("the answer to %s: %w", r.target, err)
	}
	return nil
}

// busyAnswer is the answer to a call beyond the bounds.
func busyAnswer() []byte {
	w := newAnswerWriter(nil)
	w.fail(http.StatusServiceUnavailable, "unavailable",
		"this node serves as many calls of other shards as it may: ask another member, or try "+
			"again in a moment", true)
	return slices.Concat(w.begin(), w.head, w.body)
}

// handle runs the handler. It turns a panic into an internal error.
func (c *Calls) handle(ctx context.Context, asked *wire.Served, r *request, w *answerWriter) {
	defer func() {
		if panicked := recover(); panicked != nil {
			c.config.Logger.Error("panic in a call of another shard", "peer", asked.From, "target",
				r.target, "panic", panicked, "stack", string(debug.Stack()))
			w.fail(http.StatusInternalServerError, "internal",
				"internal error: the node's log has the details", false)
		}
	}()
	target, err := url.ParseRequestURI(r.target)
	if err != nil {
		w.fail(http.StatusBadRequest, "invalid_argument", "the target is malformed", false)
		return
	}
	if streams(r.header) {
		w.fail(http.StatusUnsupportedMediaType, "unimplemented",
			"streams are not carried between shards", false)
		return
	}
	call := &http.Request{
		Method: r.method, URL: target, RequestURI: r.target, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
		Header: r.header, Body: io.NopCloser(bytes.NewReader(asked.Body)),
		ContentLength: int64(len(asked.Body)), Host: "ledgerd", RemoteAddr: string(asked.From.ID),
	}
	c.config.Serve.ServeHTTP(w, call.WithContext(ctx))
}

// errAnswer means that an answer is too large, or that there is no memory for it.
var errAnswer = errors.New("calls: the answer is too large")

// answerWriter is the http.ResponseWriter of a call. It holds the answer in memory.
type answerWriter struct {
	memory   *wire.Budget
	reserved int
	header   http.Header
	head     []byte // the headers when the status was written
	status   int    // 0 until it is written
	body     []byte
	failed   bool // fail made the answer
}

func newAnswerWriter(memory *wire.Budget) *answerWriter {
	return &answerWriter{memory: memory, header: make(http.Header)}
}

// Header returns the headers. Changes after the status was written have no effect.
func (w *answerWriter) Header() http.Header { return w.header }

// WriteHeader writes the status, the first time.
func (w *answerWriter) WriteHeader(status int) {
	if w.status != 0 || status < statusMin {
		return
	}
	if status > statusMax {
		w.fail(http.StatusInternalServerError, "internal", fmt.Sprintf("status %d", status), false)
		return
	}
	head, err := appendHeaders(nil, w.header, all)
	if err != nil {
		w.fail(http.StatusInternalServerError, "internal", err.Error(), false)
		return
	}
	w.status, w.head = status, head
}

// Write appends to the body. Data that does not fit makes the whole answer an error.
func (w *answerWriter) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.failed {
		return 0, errAnswer
	}
	if len(w.body)+len(data) > BodyMax {
		w.fail(http.StatusTooManyRequests, "resource_exhausted",
			fmt.Sprintf("the answer is larger than %d bytes: ask for less", BodyMax), false)
		return 0, errAnswer
	}
	if !w.memory.Take(len(data)) {
		w.fail(http.StatusServiceUnavailable, "unavailable",
			"this node has no memory for the answer, as too many others wait: ask "+
				"another member, or try again in a moment", true)
		return 0, errAnswer
	}
	w.reserved += len(data)
	w.body = append(w.body, data...)
	return len(data), nil
}

// fail replaces the answer with an error in the form of Connect's unary calls.
func (w *answerWriter) fail(status int, code, message string, retry bool) {
	w.release()
	header := http.Header{"Content-Type": {"application/json"}}
	if retry {
		header.Set(HeaderRetry, "true")
	}
	w.head, _ = appendHeaders(nil, header, all)
	w.body, _ = json.Marshal(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{code, message})
	w.status, w.failed = status, true
}

// send sends the answer, in chunks of up to piece bytes of the body.
func (w *answerWriter) send(asked *wire.Served, piece int) error {
	w.WriteHeader(http.StatusOK)
	if len(w.body) <= piece {
		return asked.End(w.begin(), w.head, w.body)
	}
	if err := asked.Send(w.begin(), w.head, w.body[:piece]); err != nil {
		return err
	}
	rest := w.body[piece:]
	for ; len(rest) > piece; rest = rest[piece:] {
		if err := asked.Send(rest[:piece]); err != nil {
			return err
		}
	}
	return asked.End(rest)
}

// begin returns what precedes the head.
func (w *answerWriter) begin() []byte {
	to := binary.LittleEndian.AppendUint16(make([]byte, 0, answerHeaderSize), uint16(w.status))
	return binary.LittleEndian.AppendUint32(to, uint32(len(w.head)))
}

// release frees the body's memory.
func (w *answerWriter) release() {
	w.memory.Give(w.reserved)
	w.reserved, w.body = 0, nil
}
