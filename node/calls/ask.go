package calls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	// patienceMin is the lower bound of a member's patience when the caller is in a hurry. The
	// first sign arrives after a third of it.
	patienceMin = 300 * time.Millisecond
	// lookEvery is the interval of checking the lanes to doubted members.
	lookEvery = 100 * time.Millisecond
	// doubtLasts is for how long a member that did not answer is asked after the others.
	doubtLasts = 5 * time.Second
	// doubtedMax bounds how many such members are remembered.
	doubtedMax = 4096
	// attemptsMax bounds the members that one call is sent to.
	attemptsMax = 16
)

// URL returns the base of the addresses of calls to a shard, for clients that need one. Transport
// ignores it.
func URL(shard ledger.ShardID) string { return fmt.Sprintf("http://shard-%d", shard) }

// transport is an http.RoundTripper to one shard, or to one member of it unless member is empty.
type transport struct {
	calls  *Calls
	shard  ledger.ShardID
	member rdmanet.PeerID
}

// Transport returns the transport to a shard, for an http.Client. Requests are unary: GET or POST,
// a body of at most BodyMax, no stream. The package comment says which members are asked and when.
// Besides the context's errors, a round trip returns ErrUnanswered, ErrNotCarried, ErrBusy or
// ErrClosed. Of a request's headers it sends Accept, Accept-Encoding, Content-Type,
// Content-Encoding, User-Agent, and those that begin with Connect- or Ledgerd-. The answer has all
// headers that the handler set.
func (c *Calls) Transport(shard ledger.ShardID) http.RoundTripper {
	return &transport{calls: c, shard: shard}
}

// TransportTo is Transport, but asks only one member of the shard, for a caller that does not take
// the first answer for the truth.
func (c *Calls) TransportTo(shard ledger.ShardID, member rdmanet.PeerID) http.RoundTripper {
	return &transport{calls: c, shard: shard, member: member}
}

// candidates returns the members to ask.
func (t *transport) candidates() []rdmanet.PeerID {
	if t.member != "" {
		return []rdmanet.PeerID{t.member}
	}
	return t.calls.order(t.calls.config.Candidates(t.shard))
}

// call is a round trip under way.
type call struct {
	calls      *Calls
	shard      ledger.ShardID
	request    *http.Request
	head, body []byte
	deadline   time.Time
	wake       chan struct{} // the state of an attempt changed
	candidates []rdmanet.PeerID
	attempts   []*attempt
}

// state is the state of an attempt. Only the call's goroutine uses attempts.
type state uint8

const (
	stateOpen state = iota
	stateAnswered
	stateLost
)

// attempt is a call as sent to one member.
type attempt struct {
	asked *wire.Asked
	peer  rdmanet.PeerID
	// heard is when the member last showed that it works on the call, or when it was asked.
	// patience is how long it may be silent after that.
	heard    time.Time
	patience time.Duration
	// doubted: the member was silent too long, or the fabric reported an event that may have lost
	// the call.
	doubted bool
	state   state
	answer  *answer
	err     error
}

// RoundTrip implements http.RoundTripper. The answer's body is in memory.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := t.calls
	head, body, err := prepare(r)
	if err != nil {
		return nil, err
	}
	if err := c.beginAsking(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.config.TimeoutMax)
	defer cancel()
	deadline, _ := ctx.Deadline()
	asked := &call{calls: c, shard: t.shard, request: r, head: head, body: body, deadline: deadline,
		wake: make(chan struct{}, 1), candidates: t.candidates()}
	defer asked.finish()
	return asked.run(ctx)
}

// prepare reads a request. It closes the body, as a RoundTripper must.
func prepare(r *http.Request) (head, body []byte, err error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return nil, nil, fmt.Errorf("%w: method %q", ErrNotCarried, r.Method)
	}
	if streams(r.Header) {
		return nil, nil, fmt.Errorf("%w: a stream of %s", ErrNotCarried,
			r.Header.Get("Content-Type"))
	}
	if head, err = encodeHead(r.Method, r.URL.RequestURI(), r.Header); err != nil {
		return nil, nil, err
	}
	if r.Body == nil {
		return head, nil, nil
	}
	if body, err = io.ReadAll(io.LimitReader(r.Body, BodyMax+1)); err != nil {
		return nil, nil, fmt.Errorf("calls: reading the request: %w", err)
	}
	if len(body) > BodyMax {
		return nil, nil, fmt.Errorf("%w: a body of more than %d bytes", ErrNotCarried, BodyMax)
	}
	return head, body, nil
}

// streams reports whether the content type is that of a stream.
func streams(header http.Header) bool {
	kind := header.Get("Content-Type")
	return strings.HasPrefix(kind, "application/connect+") ||
		strings.HasPrefix(kind, "application/grpc")
}

func (c *Calls) beginAsking() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.asking >= c.config.AskingMax:
		return fmt.Errorf("%w: %d, try again in a moment", ErrBusy, c.asking)
	}
	c.asking++
	c.asked.Add(1)
	return nil
}

// order moves members that did not answer lately behind the others.
func (c *Calls) order(candidates []rdmanet.PeerID) []rdmanet.PeerID {
	ordered, last := make([]rdmanet.PeerID, 0, len(candidates)), []rdmanet.PeerID(nil)
	since := time.Now().Add(-doubtLasts)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, peer := range candidates {
		switch at, doubted := c.doubted[peer]; {
		case !doubted:
			ordered = append(ordered, peer)
		case at.Before(since):
			delete(c.doubted, peer)
			ordered = append(ordered, peer)
		default:
			last = append(last, peer)
		}
	}
	ordered = append(ordered, last...)
	return ordered[:min(len(ordered), attemptsMax)]
}

// run asks one member after the other until there is an answer, no member is left, or the time is
// up.
func (k *call) run(ctx context.Context) (*http.Response, error) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		if k.calls.life.Err() != nil {
			return nil, ErrClosed
		}
		found := k.look(time.Now())
		more := len(k.attempts) < len(k.candidates)
		switch {
		case found.answer != nil && (!retry(found.answer) || !more && !found.working):
			return k.response(found.answer), nil
		case !found.working && more:
			k.ask(k.candidates[len(k.attempts)])
			continue
		case found.open == 0:
			return nil, k.failed(ErrUnanswered)
		}
		timer.Reset(found.wait)
		select {
		case <-k.wake:
		case <-timer.C:
		case <-ctx.Done():
			return nil, k.failed(ctx.Err())
		case <-k.calls.life.Done():
			return nil, ErrClosed
		}
	}
}

// retry reports whether an answer says that another member may have a better one.
func retry(a *answer) bool {
	return a.status == http.StatusServiceUnavailable && a.header.Get(HeaderRetry) == "true"
}

// found summarizes the attempts of a call.
type found struct {
	// answer is the one that wins, or the first of those that say "retry".
	answer *answer
	// open counts the attempts that may still be answered. working reports that one of them is not
	// silent.
	open    int
	working bool
	// wait is how long nothing changes unless a message arrives.
	wait time.Duration
}

// look evaluates the attempts.
func (k *call) look(now time.Time) found {
	c, result := k.calls, found{wait: lookEvery}
	for _, a := range k.attempts {
		if a.state == stateOpen {
			k.update(a)
		}
		silent := now.Sub(a.heard)
		switch {
		case a.state == stateAnswered:
			if result.answer == nil || retry(result.answer) && !retry(a.answer) {
				result.answer = a.answer
			}
		case a.state != stateOpen:
		case silent >= c.config.GiveUp:
			c.lose(a, fmt.Errorf("silent for %v", silent.Round(time.Millisecond)))
		case a.doubted:
			result.open++
		case silent >= a.patience:
			result.open++
			a.doubted = true
			c.suspect(a.peer)
		default:
			result.open++
			result.wait = max(result.wait, a.patience-silent)
			result.working = true
		}
	}
	return result
}

// update takes over what is known about an open attempt.
func (k *call) update(a *attempt) {
	c := k.calls
	if a.doubted {
		a.asked.Check()
	}
	now := a.asked.Progress()
	if now.Heard.After(a.heard) {
		a.heard, a.patience, a.doubted = now.Heard, c.config.Silence, false
		c.trust(a.peer)
	}
	a.doubted = a.doubted || now.Doubted
	switch {
	case now.Whole:
		answer, err := readAnswer(a.asked)
		if err != nil {
			c.lose(a, err)
			return
		}
		a.answer, a.state = answer, stateAnswered
	case errors.Is(now.Err, wire.ErrMemory): // not the member's fault
		a.err, a.state = now.Err, stateLost
	case now.Err != nil:
		c.lose(a, now.Err)
	}
}

// ask sends the call to a member.
func (k *call) ask(peer rdmanet.PeerID) {
	c := k.calls
	a := &attempt{peer: peer, asked: c.requests.Ask(peer, wire.Request{Kind: kindCall, Head: k.head,
		Body: k.body, Deadline: k.deadline, AnswerMax: answerMax, Wake: k.wake})}
	a.heard = a.asked.Progress().Heard
	a.patience = min(c.config.Silence, max(k.deadline.Sub(a.heard)/3, patienceMin))
	k.attempts = append(k.attempts, a)
	if len(k.attempts) > 1 {
		c.repeated.Add(1)
	}
}

// finish ends the attempts of a call and releases their memory.
func (k *call) finish() {
	for _, a := range k.attempts {
		a.asked.Close()
	}
	k.calls.mu.Lock()
	k.calls.asking--
	k.calls.mu.Unlock()
}

// unsure reports whether a member may have carried out the call without the answer that wins.
func (k *call) unsure(winner *answer) bool {
	return slices.ContainsFunc(k.attempts, func(a *attempt) bool {
		switch {
		case a.answer == winner:
			return false
		case a.state == stateAnswered:
			return a.answer.header.Get(HeaderUnsure) == "true"
		}
		return a.state == stateOpen || a.asked.Sent()
	})
}

// response converts an answer to net/http's type.
func (k *call) response(a *answer) *http.Response {
	if k.unsure(a) {
		a.header.Set(HeaderUnsure, "true")
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body)), Request: k.request,
	}
}

// failed returns the error of a call without an answer: the shard, and what to do. The log has what
// each member did.
func (k *call) failed(cause error) error {
	k.calls.config.Logger.Debug("a call to another shard has no answer", "shard", k.shard, "target",
		k.request.URL.Path, "members", k.story(), "error", cause)
	if !errors.Is(cause, ErrUnanswered) {
		return fmt.Errorf("calls: shard %d: %w: allow more time, or see with `ledgerd shards` "+
			"which of its members are up", k.shard, cause)
	}
	k.calls.unanswered.Add(1)
	return fmt.Errorf("%w: shard %d: try again; `ledgerd shards` shows which of its members are "+
		"up", cause, k.shard)
}

// story returns what each asked member did.
func (k *call) story() []string {
	story := make([]string, len(k.attempts))
	for i, a := range k.attempts {
		did := "works on it"
		switch {
		case a.state == stateAnswered:
			did = fmt.Sprintf("status %d, try again", a.answer.status)
		case a.err != nil:
			did = a.err.Error()
		case a.doubted:
			did = fmt.Sprintf("silent for %v", time.Since(a.heard).Round(time.Millisecond))
		}
		story[i] = fmt.Sprintf("%s: %s", a.peer, did)
	}
	return story
}

// lose ends an attempt that a member cannot answer any more.
func (c *Calls) lose(a *attempt, err error) {
	a.err, a.state = err, stateLost
	c.suspect(a.peer)
}

// suspect records that a member did not answer.
func (c *Calls) suspect(peer rdmanet.PeerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.doubted[peer]; known || len(c.doubted) < doubtedMax {
		c.doubted[peer] = time.Now()
	}
}

// trust forgets that a member did not answer.
func (c *Calls) trust(peer rdmanet.PeerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.doubted, peer)
}
