package client

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

const (
	// streamOpenTime bounds how long a stream may take to open.
	streamOpenTime = 5 * time.Second
	// streamAvoidTime is how long a node at which no stream could be opened gets unary calls.
	streamAvoidTime = time.Minute
	// streamCloseTime bounds how long a node may take to end a stream that the client has closed.
	streamCloseTime = time.Second
)

// What Client.Submit has under way on a stream at most, in bundles and in bytes. More goes by unary
// calls. A node reads twice as much of a stream before it sends an answer, so no bundle waits to be
// read.
const (
	streamBundles = 32
	streamBytes   = 2 << 20
)

// streamFrom is the number of transactions from which on Client.Submit submits a bundle on a
// stream. A smaller one is hardly worth the connection.
const streamFrom = 16

// node is a node as a Sender's lanes and Client.Submit submit to it: on one stream, or by unary
// calls if it serves none.
type node struct {
	client  *Client
	at      uint32          // in the client's list
	life    context.Context // of the streams
	reading *sync.WaitGroup // the streams

	mutex   sync.Mutex
	stream  *stream // nil: none is open
	opening bool
	avoid   time.Time // no stream is opened until then

	// Of a Client.
	bundles int  // under way on streams
	bytes   int  // of these
	closed  bool // a stream ends when it has no bundle
}

// submitFromAny submits a bundle of any of the client's callers to the node: on the stream if the
// bundle is large enough and the stream has room.
func (n *node) submitFromAny(ctx context.Context, bundle *ledger.Bundle,
	level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error) {
	if bundle.Len() < streamFrom {
		return n.submitUnary(ctx, bundle, level)
	}
	bytes := len(bundle.Encode())
	if !n.enter(bytes) {
		return n.submitUnary(ctx, bundle, level)
	}
	defer n.leave(bytes)
	return n.submit(ctx, bundle, level)
}

// enter takes room for a bundle on the stream, if there is any.
func (n *node) enter(bytes int) bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.bundles == streamBundles || n.bytes+bytes > streamBytes {
		return false
	}
	n.bundles++
	n.bytes += bytes
	return true
}

func (n *node) leave(bytes int) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.bundles--
	n.bytes -= bytes
	n.endIdle()
}

// closeIdle ends the stream once no bundle is under way on it, and so every stream after it.
func (n *node) closeIdle() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.closed = true
	n.endIdle()
}

// endIdle ends the stream of a closed client if nothing is under way on it. The caller must hold
// the mutex.
func (n *node) endIdle() {
	if n.closed && n.bundles == 0 {
		n.end()
		n.stream = nil
	}
}

// submit submits a bundle to the node and waits for its level. The errors are those of a unary
// call.
func (n *node) submit(ctx context.Context, bundle *ledger.Bundle,
	level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error) {
	for range 2 {
		open, err := n.open(ctx)
		if err != nil {
			return nil, err
		}
		if open == nil {
			break
		}
		statuses, err := open.submit(ctx, bundle, level)
		if !errors.Is(err, errStreamEnded) {
			return orForeseen(bundle, statuses, err)
		}
		n.forget(open)
	}
	return n.submitUnary(ctx, bundle, level)
}

func (n *node) submitUnary(ctx context.Context, bundle *ledger.Bundle,
	level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error) {
	answer, err := n.client.services[n.at].Submit(ctx,
		connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle),
			Wait: level, Queue: n.client.options.Queue}))
	if err != nil {
		return orForeseen(bundle, nil, err)
	}
	return answer.Msg.GetTransactions(), nil
}

// open returns the node's stream. It returns nil if there is none and the unary call serves better:
// if the node, or the way to it, carries no streams, or while another bundle opens one. The error
// means that the node cannot be reached.
func (n *node) open(ctx context.Context) (*stream, error) {
	n.mutex.Lock()
	if n.stream != nil || n.opening || time.Now().Before(n.avoid) {
		defer n.mutex.Unlock()
		return n.stream, nil
	}
	n.opening = true
	n.mutex.Unlock()
	made, err := n.newStream(ctx)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.opening = false
	switch refused := (*net.OpError)(nil); {
	case err == nil:
		n.stream = made
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &refused) && refused.Op == "dial":
		return nil, err
	default:
		n.avoid = time.Now().Add(streamAvoidTime)
	}
	return n.stream, nil
}

// newStream opens a stream. It returns once the node takes bundles on it.
func (n *node) newStream(ctx context.Context) (*stream, error) {
	life, cancel := context.WithCancel(n.life)
	s := &stream{cancel: cancel, queue: n.client.options.Queue,
		waiting: make(map[uint64]chan result)}
	abandon := context.AfterFunc(ctx, cancel)
	late := time.AfterFunc(streamOpenTime, cancel)
	defer abandon()
	defer late.Stop()
	s.calls = n.client.streaming[n.at].SubmitStream(life)
	_ = s.calls.Send(nil) // the headers; Receive returns its error
	if _, err := s.calls.Receive(); err != nil {
		cancel()
		_ = s.calls.CloseResponse()
		return nil, err
	}
	n.reading.Go(func() {
		defer cancel()
		s.read()
		n.forget(s)
	})
	return s, nil
}

// forget lets the next bundle open another stream.
func (n *node) forget(ended *stream) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.stream == ended {
		n.stream = nil
	}
	if ended.closing != nil {
		ended.closing.Stop()
	}
}

// close ends the stream, on which no bundle waits. It does not wait for the reader.
func (n *node) close() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.end()
}

// end is close for a caller that holds the mutex.
func (n *node) end() {
	if n.stream == nil {
		return
	}
	_ = n.stream.calls.CloseRequest()
	n.stream.closing = time.AfterFunc(streamCloseTime, n.stream.cancel)
}

// errStreamEnded means that a stream ended without taking a bundle. Another stream to the same node
// may take it.
var errStreamEnded = errors.New("client: the stream has ended")

// stream is an open stream to a node. One goroutine reads it.
type stream struct {
	calls *connect.BidiStreamForClient[ledgerdv1.SubmitStreamRequest,
		ledgerdv1.SubmitStreamResponse]
	cancel  context.CancelFunc
	closing *time.Timer
	queue   bool // Options.Queue
	sending sync.Mutex

	mutex   sync.Mutex
	next    uint64
	waiting map[uint64]chan result // by number
	ended   error                  // for bundles without an answer
}

// result is a node's answer, or the error of the stream.
type result struct {
	answer *ledgerdv1.BundleAnswer
	err    error
}

// submit sends a bundle and waits for its answer.
func (s *stream) submit(ctx context.Context, bundle *ledger.Bundle,
	level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error) {
	request := &ledgerdv1.SubmitStreamRequest{Bundle: bundle.Encode(), Wait: level,
		WaitMs: milliseconds(ctx), Queue: s.queue}
	answered := make(chan result, 1)
	s.mutex.Lock()
	if s.ended != nil {
		s.mutex.Unlock()
		return nil, errStreamEnded
	}
	s.next++
	request.Number = s.next
	s.waiting[request.Number] = answered
	s.mutex.Unlock()
	if err := s.send(ctx, request); err != nil {
		s.cancel() // the reader reports why
	}
	select {
	case got := <-answered:
		if got.err != nil {
			return nil, got.err
		}
		return statusesOf(got.answer, bundle)
	case <-ctx.Done():
		s.mutex.Lock()
		delete(s.waiting, request.Number)
		s.mutex.Unlock()
		return nil, ctx.Err()
	}
}

// send sends a request. If the node takes nothing until the context ends, the stream ends, too.
func (s *stream) send(ctx context.Context, request *ledgerdv1.SubmitStreamRequest) error {
	defer context.AfterFunc(ctx, s.cancel)()
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.calls.Send(request)
}

// milliseconds returns the time that a context leaves, 0 if it has no bound.
func milliseconds(ctx context.Context) uint32 {
	deadline, set := ctx.Deadline()
	if !set {
		return 0
	}
	return uint32(min(max(time.Until(deadline).Milliseconds(), 1), math.MaxUint32))
}

// read hands out answers until the stream ends.
func (s *stream) read() {
	var err error
	for err == nil {
		var message *ledgerdv1.SubmitStreamResponse
		if message, err = s.calls.Receive(); err != nil {
			break
		}
		s.mutex.Lock()
		for _, answer := range message.GetAnswers() {
			if answered := s.waiting[answer.GetNumber()]; answered != nil {
				delete(s.waiting, answer.GetNumber())
				answered <- result{answer: answer}
			}
		}
		s.mutex.Unlock()
	}
	if coded := (*connect.Error)(nil); errors.Is(err, io.EOF) {
		err = errStreamEnded
	} else if errors.As(err, &coded) {
		coded.Meta() // makes the map, since several bundles get the error
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ended = err
	for _, answered := range s.waiting {
		answered <- result{err: err}
	}
	s.waiting = nil
	_ = s.calls.CloseRequest()
	_ = s.calls.CloseResponse()
}

// refusalError returns the error that the unary call would have returned.
func refusalError(refusal *ledgerdv1.BundleRefusal) error {
	refused := connect.NewWireError(connect.Code(refusal.GetCode()),
		errors.New(refusal.GetReason()))
	if refusal.GetRetry() {
		refused.Meta().Set(api.HeaderRetry, "true")
	}
	if reason := refusal.GetReasonCode(); reason != "" {
		refused.Meta().Set(api.HeaderReason, reason)
	}
	if refusal.GetUnsure() {
		refused.Meta().Set(api.HeaderUnsure, "true")
	}
	if writers := refusal.GetWriters(); len(writers) > 0 {
		refused.Meta().Set(api.HeaderWriters, strings.Join(writers, ","))
	}
	return refused
}

// statusChunk is how many statuses share an allocation. A caller that keeps one keeps all of these.
const statusChunk = 16

// statusesOf returns the statuses of a bundle's transactions.
func statusesOf(answer *ledgerdv1.BundleAnswer, bundle *ledger.Bundle) (
	[]*ledgerdv1.TransactionStatus, error) {
	if refusal := answer.GetRefusal(); refusal != nil {
		return nil, refusalError(refusal)
	}
	ids := bundle.IDs()
	statuses := make([]*ledgerdv1.TransactionStatus, 0, len(ids))
	var chunk []ledgerdv1.TransactionStatus
	var digits string // of the ids of the chunk
	for _, run := range answer.GetRuns() {
		if int(run.GetCount()) > len(ids)-len(statuses) {
			return nil, errOtherBundle(answer, bundle)
		}
		first := run.GetStatus()
		for i := range run.GetCount() {
			if len(chunk) == 0 {
				next := ids[len(statuses):min(len(statuses)+statusChunk, len(ids))]
				chunk, digits = make([]ledgerdv1.TransactionStatus, len(next)), inHex(next)
			}
			status, id := &chunk[0], &ids[len(statuses)]
			status.Id, status.IdHex = id[:], digits[:2*len(id)]
			chunk, digits = chunk[1:], digits[2*len(id):]
			status.State, status.Shard = first.GetState(), first.GetShard()
			if status.Height = first.GetHeight(); status.Height != 0 {
				status.Index = first.GetIndex() + i
			}
			status.ReasonCode, status.Reason = first.GetReasonCode(), first.GetReason()
			status.Destinations, status.WaitsFor = first.GetDestinations(), first.GetWaitsFor()
			status.SettledHeight = first.GetSettledHeight()
			status.Everywhere = first.GetEverywhere()
			statuses = append(statuses, status)
		}
	}
	if len(statuses) != len(ids) {
		return nil, errOtherBundle(answer, bundle)
	}
	return statuses, nil
}

// inHex returns the hex digits of ids, one after the other.
func inHex(ids []ledger.Hash) string {
	digits := make([]byte, 0, 2*ledger.HashSize*statusChunk)
	for i := range ids {
		digits = hex.AppendEncode(digits, ids[i][:])
	}
	return string(digits)
}

func errOtherBundle(answer *ledgerdv1.BundleAnswer, bundle *ledger.Bundle) error {
	count := uint64(0)
	for _, run := range answer.GetRuns() {
		count += uint64(run.GetCount())
	}
	return fmt.Errorf("client: the node answered %d statuses for %d transactions", count,
		bundle.Len())
}
