package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// DefaultURL is the default address: a node on this machine.
const DefaultURL = "http://127.0.0.1:8080"

// withoutCompression asks nodes for plain answers. Compressing an answer full of hashes takes a
// node longer than the rest of the call, and makes it a third smaller at best.
var withoutCompression = connect.WithAcceptCompression("gzip", nil, nil)

// Options of a Client. The zero value of each field means its default.
type Options struct {
	TLS *tls.Config // for https: addresses; default: the system's roots; see ReadTLS
	// Token is shown to the nodes, as a bearer token. Only nodes on this machine get it without
	// TLS.
	Token   string
	Tries   int           // rounds over all nodes for a retryable call; default 8
	Backoff time.Duration // the pause after the first round; it doubles up to 2 s; default 50 ms
	// CallTime bounds one call to one node; default 30 s.
	CallTime time.Duration
	// WaitTime is how long one call waits for a level before the client submits or asks the same
	// again, which heals the loss of a node's pool; default 10 s.
	WaitTime time.Duration
	// MaxAnswerBytes bounds an answer; default 64 MiB.
	MaxAnswerBytes int
	// Queue lets transactions that cross shards wait for shards that are down or full. Without it
	// the nodes refuse them (Failure.Reason).
	Queue bool
}

// Client talks to one or several nodes of a ledger. In a book of several shards each node answers
// for the whole book. It is safe for concurrent use.
type Client struct {
	options   Options
	urls      []string
	services  []ledgerdv1connect.LedgerServiceClient
	streaming []ledgerdv1connect.LedgerServiceClient // the same nodes, over HTTP/2 only
	transport *http.Transport
	overHTTP2 *http.Transport
	nodes     []node         // for Submit
	reading   sync.WaitGroup // the nodes' streams
	stream    uint64         // of the nonces of Post
	current   atomic.Uint32  // the node that answered last

	mutex   sync.Mutex
	genesis ledger.Hash // zero: not asked yet
	rules   rules
	nonces  map[nonceStream]uint64
}

type nonceStream struct {
	organisation ledger.OrganisationName
	stream       uint64
}

// New makes a client of the nodes at these addresses, the preferred one first. No address means
// DefaultURL. An address without a scheme gets http.
func New(urls []string, options Options) (*Client, error) {
	if len(urls) == 0 {
		urls = []string{DefaultURL}
	}
	if options.Tries == 0 {
		options.Tries = 8
	}
	if options.Backoff == 0 {
		options.Backoff = 50 * time.Millisecond
	}
	if options.CallTime == 0 {
		options.CallTime = 30 * time.Second
	}
	if options.WaitTime == 0 {
		options.WaitTime = 10 * time.Second
	}
	if options.MaxAnswerBytes == 0 {
		options.MaxAnswerBytes = 64 << 20
	}
	c := &Client{
		options:   options,
		transport: newTransport(options.TLS),
		overHTTP2: newTransport(options.TLS),
		stream:    1 + rand.Uint64N(nonceStreams),
		nonces:    make(map[nonceStream]uint64),
	}
	// A stream in both directions needs HTTP/2, also without TLS.
	c.overHTTP2.Protocols = new(http.Protocols)
	c.overHTTP2.Protocols.SetHTTP2(true)
	c.overHTTP2.Protocols.SetUnencryptedHTTP2(true)
	c.overHTTP2.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second,
		PingTimeout: 15 * time.Second}
	for _, address := range urls {
		normal, err := normalURL(address)
		if err != nil {
			return nil, err
		}
		if options.Token != "" && exposes(normal) {
			return nil, fmt.Errorf("client: the token would be readable on the way to %s: use an "+
				"https:// address", normal)
		}
		c.urls = append(c.urls, normal)
		service := func(over *http.Transport) ledgerdv1connect.LedgerServiceClient {
			return ledgerdv1connect.NewLedgerServiceClient(
				&http.Client{Transport: &door{over, options.Token, over == c.overHTTP2}},
				normal,
				connect.WithReadMaxBytes(options.MaxAnswerBytes), withoutCompression)
		}
		c.services = append(c.services, service(c.transport))
		c.streaming = append(c.streaming, service(c.overHTTP2))
	}
	c.nodes = make([]node, len(c.urls))
	for i := range c.nodes {
		c.nodes[i].client, c.nodes[i].at = c, uint32(i)
		c.nodes[i].life, c.nodes[i].reading = context.Background(), &c.reading
	}
	return c, nil
}

func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: 5 * time.Second,
			KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     config.Clone(), // each transport adds its protocols
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
	}
}

func normalURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") ||
		parsed.RawQuery != "" || parsed.Fragment != "" {
		return "", fmt.Errorf("client: %q is not a node's address: one looks like %s", address,
			DefaultURL)
	}
	return strings.TrimRight(parsed.String(), "/"), nil
}

// Beside makes a client of other nodes that uses this client's TLS and token, unless options has
// its own.
func (c *Client) Beside(urls []string, options Options) (*Client, error) {
	if options.TLS == nil {
		options.TLS = c.options.TLS
	}
	if options.Token == "" {
		options.Token = c.options.Token
	}
	return New(urls, options)
}

// Close closes idle connections.
func (c *Client) Close() {
	for i := range c.nodes {
		c.nodes[i].closeIdle()
	}
	c.transport.CloseIdleConnections()
	c.overHTTP2.CloseIdleConnections()
}

// URLs returns the nodes' addresses.
func (c *Client) URLs() []string { return c.urls }

// Current returns the address of the node that is asked next.
func (c *Client) Current() string { return c.urls[c.at(0)] }

// Rotate moves to the next node.
func (c *Client) Rotate() { c.turn(c.current.Load()) }

// view returns a client of the nodes from first up to end. Both share the connections, and each has
// a node of its own that it asks next.
func (c *Client) view(first, end int) *Client {
	return &Client{options: c.options, urls: c.urls[first:end], services: c.services[first:end],
		streaming: c.streaming[first:end], nodes: c.nodes[first:end], transport: c.transport,
		overHTTP2: c.overHTTP2}
}

// turn moves on from a node, unless another goroutine already did.
func (c *Client) turn(from uint32) { c.current.CompareAndSwap(from, from+1) }

func (c *Client) at(offset uint32) uint32 {
	return (c.current.Load() + offset) % uint32(len(c.urls))
}

// ErrUnreachable means that no node answered.
var ErrUnreachable = errors.New("is the node running? start it with `ledgerd start --home ...` " +
	"or `ledgerd demo`")

// Failure is an error that a node returned.
type Failure struct {
	Code    connect.Code
	Message string   // a sentence for people
	Retry   bool     // the same call may be made again later or at another node
	Writers []string // addresses of nodes that take writes, if the node named some
	// Reason is shard_down or shard_full if a submission was refused because of another shard;
	// Options.Queue lets it wait. The client asks each node once, and does not try again: such a
	// shard may be away for hours.
	Reason string
	err    error
}

// Error implements error.
func (f *Failure) Error() string { return f.Message }

// Unwrap returns the error of the transport.
func (f *Failure) Unwrap() error { return f.err }

// CodeOf returns the code of a node's answer in an error, 0 if there is none.
func CodeOf(err error) connect.Code {
	if failure := (*Failure)(nil); errors.As(err, &failure) {
		return failure.Code
	}
	return 0
}

// lateError means that the caller's time ended before a node answered.
type lateError struct {
	address string
	ended   error // of the context
}

func (e *lateError) Error() string { return e.address + " did not answer in time" }

func (e *lateError) Unwrap() error { return e.ended }

// obstructed reports whether a node refused a submission because of another shard.
func obstructed(err error) bool {
	failure := (*Failure)(nil)
	return errors.As(err, &failure) && failure.Reason != ""
}

// explain converts a call's error to a sentence.
func (c *Client) explain(ctx context.Context, address string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		if errors.Is(ended, context.DeadlineExceeded) {
			return &lateError{address, ended}
		}
		return ended
	}
	if refused := doorError(address, err); refused != nil {
		return refused
	}
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) {
		return fmt.Errorf("%s: %w", address, err)
	}
	if !connect.IsWireError(err) {
		switch coded.Code() {
		// If the caller did not cancel the call, CodeCanceled means that the node reset the
		// connection.
		case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeCanceled:
			return fmt.Errorf("cannot reach %s: %w (%w)", address, ErrUnreachable,
				errors.Unwrap(coded))
		}
	}
	failure := &Failure{Code: coded.Code(), Message: coded.Message(),
		Retry:  coded.Meta().Get(api.HeaderRetry) == "true",
		Reason: coded.Meta().Get(api.HeaderReason), err: err}
	if writers := coded.Meta().Get(api.HeaderWriters); writers != "" {
		failure.Writers = strings.Split(writers, ",")
	}
	return failure
}

// verdict says what to do after a call that failed.
type verdict int

const (
	final     verdict = iota // no retry helps
	elsewhere                // another node may answer; this one took nothing
	unknown                  // another node may answer; this one may have taken the request
)

func judge(err error) verdict {
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) {
		return unknown
	}
	if connect.IsWireError(err) {
		if coded.Meta().Get(api.HeaderUnsure) == "true" {
			return unknown
		}
		retry := coded.Meta().Get(api.HeaderRetry) == "true"
		if retry || coded.Code() == connect.CodeDataLoss ||
			coded.Code() == connect.CodeUnavailable {
			return elsewhere
		}
		return final
	}
	if refused := (*net.OpError)(nil); errors.As(err, &refused) && refused.Op == "dial" ||
		doorError("", err) != nil {
		return elsewhere
	}
	switch coded.Code() {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeDeadlineExceeded,
		connect.CodeInternal, connect.CodeCanceled:
		return unknown
	}
	return final
}

// unsureError marks an error after which a node may have taken what was submitted.
type unsureError struct{ error }

func (e *unsureError) Unwrap() error { return e.error }

// pause waits between two rounds.
func (c *Client) pause(ctx context.Context, round int) error {
	length := min(c.options.Backoff<<min(round, 10), 2*time.Second)
	length = length/2 + rand.N(length/2+1) // so that many clients do not return at the same time
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call asks one node after the other. A patient call makes further rounds after a pause; otherwise
// it makes one round. If no node could be reached at all, or each refuses because of another shard,
// it gives up after that round.
func call[Request, Answer any](ctx context.Context, c *Client, patient bool, message *Request,
	method func(ledgerdv1connect.LedgerServiceClient, context.Context,
		*connect.Request[Request]) (*connect.Response[Answer], error),
) (*Answer, error) {
	return callFor(ctx, c, c.options.CallTime, patient, message, method)
}

// callFor is call with its own time limit for one call to one node.
func callFor[Request, Answer any](ctx context.Context, c *Client, limit time.Duration, patient bool,
	message *Request,
	method func(ledgerdv1connect.LedgerServiceClient, context.Context,
		*connect.Request[Request]) (*connect.Response[Answer], error),
) (*Answer, error) {
	return callAt(ctx, c, limit, patient, asking(c, message, method))
}

// callAt is callFor with a function that asks the node at a place in the list.
func callAt[Answer any](ctx context.Context, c *Client, limit time.Duration, patient bool,
	ask func(ctx context.Context, at uint32) (Answer, error)) (answer Answer, err error) {
	var none Answer
	rounds := 1
	if patient {
		rounds = c.options.Tries
	}
	var explained error
	reached, unsure := false, false
	defer func() {
		if err != nil && unsure {
			err = &unsureError{err}
		}
	}()
	for round := range rounds {
		if round > 0 {
			if err := c.pause(ctx, round-1); err != nil {
				return none, errors.Join(explained, err)
			}
		}
		again := false // another round may help
		for range c.urls {
			answer, verdict, err := onceAt(ctx, c, limit, ask)
			if err == nil {
				return answer, nil
			}
			explained = err
			unsure = unsure || !untouched(err, verdict)
			if ctx.Err() != nil || verdict == final {
				return none, explained
			}
			reached = reached || verdict == unknown || connect.IsWireError(err)
			again = again || !obstructed(err)
		}
		if !reached || !again {
			break
		}
	}
	return none, explained
}

// once asks one node. If it fails and another node may answer, once moves to the next node.
func once[Request, Answer any](ctx context.Context, c *Client, limit time.Duration,
	message *Request,
	method func(ledgerdv1connect.LedgerServiceClient, context.Context,
		*connect.Request[Request]) (*connect.Response[Answer], error),
) (*Answer, verdict, error) {
	return onceAt(ctx, c, limit, asking(c, message, method))
}

// asking returns the function that sends a message to the node at a place in the list.
func asking[Request, Answer any](c *Client, message *Request,
	method func(ledgerdv1connect.LedgerServiceClient, context.Context,
		*connect.Request[Request]) (*connect.Response[Answer], error),
) func(ctx context.Context, at uint32) (*Answer, error) {
	return func(ctx context.Context, at uint32) (*Answer, error) {
		response, err := method(c.services[at], ctx, connect.NewRequest(message))
		if err != nil {
			return nil, err
		}
		return response.Msg, nil
	}
}

// onceAt is once with a function that asks the node at a place in the list.
func onceAt[Answer any](ctx context.Context, c *Client, limit time.Duration,
	ask func(ctx context.Context, at uint32) (Answer, error)) (Answer, verdict, error) {
	turn := c.current.Load()
	at := turn % uint32(len(c.urls))
	bounded, cancel := context.WithTimeout(ctx, limit)
	answer, err := ask(bounded, at)
	cancel()
	if err == nil {
		return answer, final, nil
	}
	verdict := judge(err)
	if ctx.Err() == nil && verdict != final {
		c.turn(turn)
	}
	return answer, verdict, c.explain(ctx, c.urls[at], err)
}
