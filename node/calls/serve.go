package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// copyMax is the largest body in one frame that is copied. The copy keeps a waiting call from
// holding a larger buffer.
const copyMax = 32 << 10

// servingKey identifies a call of a peer.
type servingKey struct {
	peer rdmanet.PeerID
	id   uint64
}

// serving is a running call of a peer. Calls.mu guards the fields that change.
type serving struct {
	key     servingKey
	from    rdmanet.Peer
	request *request
	body    bodyBuffer
	arrived chan struct{} // closed when the body is complete
	cancel  context.CancelFunc
	signAt  time.Time
}

// accept starts to serve a call, or answers that this node is too busy.
func (c *Calls) accept(from rdmanet.Peer, r *request) {
	s := &serving{key: servingKey{from.ID, r.id}, from: from, request: r,
		arrived: make(chan struct{}), signAt: time.Now().Add(firstSignAfter)}
	timeout := min(time.Duration(r.milliseconds)*time.Millisecond, c.config.TimeoutMax)
	c.mu.Lock()
	switch {
	case c.closed || c.serving[s.key] != nil:
		c.mu.Unlock()
		return
	case len(c.serving) >= c.config.ServingMax || c.ofPeer[from.ID] >= c.config.ServingPerPeer ||
		!c.inService.take(r.total):
		c.mu.Unlock()
		c.refuse(from, r.id)
		return
	}
	if s.body = newBodyBuffer(r.total, r.body); s.body.complete() {
		if r.total <= copyMax {
			s.body.bytes = slices.Clone(s.body.bytes)
		}
		close(s.arrived)
	}
	r.body = nil
	ctx, cancel := context.WithTimeout(c.life, timeout)
	s.cancel = cancel
	c.serving[s.key] = s
	c.ofPeer[from.ID]++
	c.served.Add(1)
	c.done.Go(func() { c.serve(ctx, s) })
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// refuse answers "busy".
func (c *Calls) refuse(to rdmanet.Peer, id uint64) {
	c.refused.Add(1)
	w := newAnswerWriter(&c.inService)
	w.fail(http.StatusServiceUnavailable, "unavailable",
		"this node serves as many calls of other shards as it may: ask another member, or try "+
			"again in a moment", true)
	frames := w.frames(id, c.config.PieceBytes)
	for _, frame := range frames {
		if _, sent, err := c.trySend(to.ID, frame); err != nil || !sent {
			return // the caller detects the silence
		}
	}
}

// acceptPart handles a later piece of a request.
func (c *Calls) acceptPart(from rdmanet.Peer, p part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.serving[servingKey{from.ID, p.id}]
	if s == nil {
		return nil
	}
	if s.body.complete() {
		return fmt.Errorf("%w: a part behind the end", errFrame)
	}
	if err := s.body.add(p); err != nil {
		s.cancel()
		return err
	}
	if s.body.complete() {
		close(s.arrived)
	}
	return nil
}

// cancelled ends a call that its caller cancelled.
func (c *Calls) cancelled(from rdmanet.Peer, id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.serving[servingKey{from.ID, id}]; s != nil {
		s.cancel()
	}
}

// endServing ends the calls of a peer for which ended returns true.
func (c *Calls) endServing(peer rdmanet.PeerID, ended func(*serving) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.serving {
		if s.from.ID == peer && ended(s) {
			s.cancel()
		}
	}
}

// serve waits for a call's body, runs the handler and sends the answer.
func (c *Calls) serve(ctx context.Context, s *serving) {
	defer s.cancel()
	defer func() {
		c.mu.Lock()
		delete(c.serving, s.key)
		if c.ofPeer[s.key.peer]--; c.ofPeer[s.key.peer] == 0 {
			delete(c.ofPeer, s.key.peer)
		}
		c.mu.Unlock()
		c.inService.give(s.request.total)
	}()
	select {
	case <-s.arrived:
	case <-ctx.Done():
		return
	}
	w := newAnswerWriter(&c.inService)
	defer w.release()
	c.handle(ctx, s, w)
	if ctx.Err() != nil {
		return
	}
	frames := w.frames(s.request.id, c.config.PieceBytes)
	if len(frames) == 1 {
		if _, sent, err := c.trySend(s.key.peer, frames[0]); sent || err != nil {
			c.answerLost(s, err)
			return
		}
	}
	err := c.send(ctx, s.key.peer, frames, func(rdmanet.Lane) {})
	if ctx.Err() == nil {
		c.answerLost(s, err)
	}
}

func (c *Calls) answerLost(s *serving, err error) {
	if err != nil {
		c.logger.Info("an answer to a call of another shard could not be sent", "peer", s.from,
			"target", s.request.target, "error", err)
	}
}

// handle runs the handler. It turns a panic into an internal error.
func (c *Calls) handle(ctx context.Context, s *serving, w *answerWriter) {
	defer func() {
		if panicked := recover(); panicked != nil {
			c.logger.Error("panic in a call of another shard", "peer", s.from, "target",
				s.request.target, "panic", panicked, "stack", string(debug.Stack()))
			w.fail(http.StatusInternalServerError, "internal",
				"internal error: the node's log has the details", false)
		}
	}()
	target, err := url.ParseRequestURI(s.request.target)
	if err != nil {
		w.fail(http.StatusBadRequest, "invalid_argument", "the target is malformed", false)
		return
	}
	if streams(s.request.header) {
		w.fail(http.StatusUnsupportedMediaType, "unimplemented",
			"streams are not carried between shards", false)
		return
	}
	r := &http.Request{
		Method: s.request.method, URL: target, RequestURI: s.request.target, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
		Header: s.request.header, Body: io.NopCloser(bytes.NewReader(s.body.bytes)),
		ContentLength: int64(s.request.total), Host: "ledgerd", RemoteAddr: string(s.from.ID),
	}
	c.config.Serve.ServeHTTP(w, r.WithContext(ctx))
}

// sign sends signs to callers while any call is served.
func (c *Calls) sign() {
	for {
		select {
		case <-c.wake:
		case <-c.life.Done():
			return
		}
		ticker := time.NewTicker(signTick)
		for more := true; more; {
			select {
			case now := <-ticker.C:
				more = c.signAll(now)
			case <-c.life.Done():
				ticker.Stop()
				return
			}
		}
		ticker.Stop()
	}
}

// signAll sends the signs that are due, and reports whether any call is served.
func (c *Calls) signAll(now time.Time) bool {
	due := make(map[rdmanet.PeerID][]uint64)
	c.mu.Lock()
	more := len(c.serving) > 0
	for _, s := range c.serving {
		if !now.Before(s.signAt) {
			s.signAt = now.Add(signEvery)
			due[s.key.peer] = append(due[s.key.peer], s.request.id)
		}
	}
	c.mu.Unlock()
	for peer, ids := range due {
		for some := range slices.Chunk(ids, workingMax) {
			// A peer that has no room, or is gone, detects the silence.
			_, _, _ = c.trySend(peer, encodeWorking(some))
		}
	}
	return more
}

// errAnswer means that an answer is too large, or that there is no memory for it.
var errAnswer = errors.New("calls: the answer is too large")

// answerWriter is the http.ResponseWriter of a call. It holds the answer in memory.
type answerWriter struct {
	memory   *budget
	reserved int
	header   http.Header
	head     []byte // the headers when the status was written
	status   int    // 0 until it is written
	body     []byte
	failed   bool // fail made the answer
}

func newAnswerWriter(memory *budget) *answerWriter {
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
	if !w.memory.take(len(data)) {
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

// frames returns the answer's frames.
func (w *answerWriter) frames(id uint64, piece int) [][]byte {
	w.WriteHeader(http.StatusOK)
	a := answer{id: id, status: w.status}
	return a.encode(w.head, w.body, piece)
}

// release frees the body's memory.
func (w *answerWriter) release() {
	w.memory.give(w.reserved)
	w.reserved, w.body = 0, nil
}
