package calls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
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

// errMemory means that there is no memory for an answer beside the others.
var errMemory = errors.New("no memory for the answer: too many others are arriving")

// URL returns the base of the addresses of calls to a shard, for clients that need one. Transport
// ignores it.
func URL(shard ledger.ShardID) string { return fmt.Sprintf("http://shard-%d", shard) }

// transport is an http.RoundTripper to one shard.
type transport struct {
	calls *Calls
	shard ledger.ShardID
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

// state is the state of an attempt.
type state uint8

const (
	stateOpen state = iota
	stateAnswered
	stateLost
	stateAbandoned
)

// attempt is a call as sent to one member. Calls.mu guards the fields that change.
type attempt struct {
	call *call
	id   uint64
	peer rdmanet.PeerID
	// stop ends the goroutine that sends a large request; nil if there is none.
	stop context.CancelFunc
	lane rdmanet.Lane // nil until something was sent
	// heard is when the member last showed that it works on the call, or when it was asked.
	// patience is how long it may be silent after that.
	heard    time.Time
	patience time.Duration
	// doubted: the member was silent too long, or the fabric reported an event that may have lost
	// the call.
	doubted  bool
	state    state
	answer   *answer
	body     bodyBuffer
	reserved int
	err      error
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
		wake: make(chan struct{}, 1), candidates: c.order(c.config.Candidates(t.shard))}
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
	k.checkLanes()
	c, result := k.calls, found{wait: lookEvery}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range k.attempts {
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
			c.recordSuspect(a.peer)
		default:
			result.open++
			result.wait = max(result.wait, a.patience-silent)
			result.working = true
		}
	}
	return result
}

// checkLanes finds, among the doubted attempts, those whose lane broke.
func (k *call) checkLanes() {
	c := k.calls
	for _, a := range k.attempts {
		c.mu.Lock()
		lane, doubted := a.lane, a.doubted && a.state == stateOpen
		c.mu.Unlock()
		if !doubted || lane == nil {
			continue
		}
		if _, err := lane.TrySend(); err != nil {
			c.lost(a.peer, a.id, err)
		}
	}
}

// ask sends the call to a member.
func (k *call) ask(peer rdmanet.PeerID) {
	c, now := k.calls, time.Now()
	left := k.deadline.Sub(now)
	a := &attempt{call: k, id: c.nextID.Add(1), peer: peer, heard: now,
		patience: min(c.config.Silence, max(left/3, patienceMin))}
	request := request{id: a.id, milliseconds: uint32(max(1, left.Milliseconds()))}
	frames := request.encode(k.head, k.body, c.config.PieceBytes)
	c.mu.Lock()
	c.open[a.id] = a
	c.mu.Unlock()
	k.attempts = append(k.attempts, a)
	if len(k.attempts) > 1 {
		c.repeated.Add(1)
	}
	if len(frames) == 1 {
		lane, sent, err := c.trySend(peer, frames[0])
		switch {
		case err != nil:
			c.lost(peer, a.id, err)
			return
		case sent:
			c.sentOn(a, lane)
			return
		}
	}
	k.sendLarge(a, frames)
}

// sendLarge sends a request that may have to wait for room. Its goroutine also tells the member to
// stop if the attempt ends without the member's answer.
func (k *call) sendLarge(a *attempt, frames [][]byte) {
	c := k.calls
	ctx, stop := context.WithCancel(c.life)
	a.stop = stop
	sending := c.own(func() {
		defer stop()
		if err := c.send(ctx, a.peer, frames, func(lane rdmanet.Lane) {
			c.sentOn(a, lane)
		}); err != nil && ctx.Err() == nil {
			c.lost(a.peer, a.id, err)
		}
		<-ctx.Done()
		c.mu.Lock()
		answered := a.state == stateAnswered
		c.mu.Unlock()
		if !answered {
			_, _, _ = c.trySend(a.peer, encodeCancel(a.id)) // otherwise its deadline ends the call
		}
	})
	if !sending {
		c.lost(a.peer, a.id, ErrClosed)
	}
}

func (c *Calls) sentOn(a *attempt, lane rdmanet.Lane) {
	c.mu.Lock()
	a.lane = lane
	c.mu.Unlock()
}

// finish ends the open attempts of a call and releases their memory.
func (k *call) finish() {
	c := k.calls
	var cancel []*attempt
	c.mu.Lock()
	c.asking--
	for _, a := range k.attempts {
		if a.state == stateOpen {
			a.state = stateAbandoned
			delete(c.open, a.id)
			if a.stop == nil {
				cancel = append(cancel, a)
			}
		}
		c.gathered.give(a.reserved)
		a.reserved = 0
	}
	c.mu.Unlock()
	for _, a := range k.attempts {
		if a.stop != nil {
			a.stop()
		}
	}
	for _, a := range cancel {
		_, _, _ = c.trySend(a.peer, encodeCancel(a.id)) // otherwise its deadline ends the call
	}
}

// response converts an answer to net/http's type.
func (k *call) response(a *answer) *http.Response {
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
	k.calls.logger.Debug("a call to another shard has no answer", "shard", k.shard, "target",
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
	k.calls.mu.Lock()
	defer k.calls.mu.Unlock()
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

// find returns the attempt that a frame of a peer is about, or nil if it is over. The caller holds
// the lock.
func (c *Calls) find(peer rdmanet.PeerID, id uint64) *attempt {
	if a := c.open[id]; a != nil && a.peer == peer {
		return a
	}
	return nil
}

// heardOf records that a member works on a call. The caller holds the lock.
func (c *Calls) heardOf(a *attempt) {
	a.heard, a.patience, a.doubted = time.Now(), c.config.Silence, false
	delete(c.doubted, a.peer)
}

// over ends an attempt and wakes its call. The caller holds the lock.
func (c *Calls) over(a *attempt, state state) {
	a.state = state
	delete(c.open, a.id)
	a.call.tell()
}

// tell wakes a call.
func (k *call) tell() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// answered handles an answer, or its beginning.
func (c *Calls) answered(from rdmanet.Peer, answer *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.find(from.ID, answer.id)
	if a == nil || a.answer != nil {
		return
	}
	c.heardOf(a)
	if len(answer.body) < answer.total {
		if !c.gathered.take(answer.total) {
			c.over(a, stateLost)
			a.err = errMemory
			return
		}
		a.reserved = answer.total
	}
	a.answer, a.body = answer, newBodyBuffer(answer.total, answer.body)
	c.answeredIfComplete(a)
}

// answeredPart handles a later piece of an answer.
func (c *Calls) answeredPart(from rdmanet.Peer, p part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.find(from.ID, p.id)
	if a == nil {
		return nil
	}
	if a.answer == nil {
		return fmt.Errorf("%w: a part before the answer", errFrame)
	}
	c.heardOf(a)
	if err := a.body.add(p); err != nil {
		c.lose(a, err)
		return err
	}
	c.answeredIfComplete(a)
	return nil
}

func (c *Calls) answeredIfComplete(a *attempt) {
	if a.body.complete() {
		a.answer.body = a.body.bytes
		c.over(a, stateAnswered)
	}
}

// working handles a sign.
func (c *Calls) working(from rdmanet.Peer, ids []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if a := c.find(from.ID, id); a != nil {
			c.heardOf(a)
		}
	}
}

// lost ends an attempt that cannot be answered any more.
func (c *Calls) lost(peer rdmanet.PeerID, id uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.find(peer, id); a != nil {
		c.lose(a, err)
	}
}

// lose is lost for a caller that holds the lock.
func (c *Calls) lose(a *attempt, err error) {
	a.err = err
	c.recordSuspect(a.peer)
	c.over(a, stateLost)
}

// doubt makes the calls that a member was asked look for another member.
func (c *Calls) doubt(peer rdmanet.PeerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordSuspect(peer)
	for _, a := range c.open {
		if a.peer == peer {
			a.doubted = true
			a.call.tell()
		}
	}
}

// recordSuspect records that a member did not answer. The caller holds the lock.
func (c *Calls) recordSuspect(peer rdmanet.PeerID) {
	if _, known := c.doubted[peer]; known || len(c.doubted) < doubtedMax {
		c.doubted[peer] = time.Now()
	}
}
