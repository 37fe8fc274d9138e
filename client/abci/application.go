package abci

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// ErrApplication reports that the application could not be reached, broke off, or answered with an
// error.
var ErrApplication = errors.New("abci: the application")

// dialTime bounds one attempt to connect.
const dialTime = 5 * time.Second

// connection is one connection to the application. Requests go over it one after the other. After
// any error it is closed, and the next call connects again. It is safe for concurrent use.
type connection struct {
	network, address string
	limit            int // bytes of an answer
	// again says that a request may be sent again if the connection broke since the last one: it
	// changes nothing, and does not depend on what was sent before.
	again bool

	turn   chan struct{} // has one element while a call is under way
	stream net.Conn
	reader *bufio.Reader
}

// splitAddress returns the network and the address of an application: tcp://HOST:PORT or
// unix://PATH.
func splitAddress(text string) (network, address string, err error) {
	network, address, _ = strings.Cut(text, "://")
	if (network != "tcp" && network != "unix") || address == "" {
		return "", "", fmt.Errorf("application %q: write tcp://127.0.0.1:26658 or unix://PATH, as "+
			"the application's own address", text)
	}
	if network == "tcp" {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", "", fmt.Errorf("application %q: %w", text, err)
		}
	}
	return network, address, nil
}

func newConnection(network, address string, limit int) *connection {
	return &connection{network: network, address: address, limit: limit,
		turn: make(chan struct{}, 1)}
}

// call sends a request and waits for its answer. If the context ends first, the connection is
// closed: what the application does with the request is then unknown.
func (c *connection) call(ctx context.Context, kind call, request, answer message) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	idle := c.stream != nil
	err := c.callInTurn(ctx, kind, request, answer)
	if err == nil {
		return nil
	}
	c.drop()
	if idle && c.again && ctx.Err() == nil && !errors.Is(err, ErrMalformed) {
		if err = c.callInTurn(ctx, kind, request, answer); err == nil {
			return nil
		}
		c.drop()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w did not answer %s in time: %w", ErrApplication, kind.name, ctx.Err())
	}
	return fmt.Errorf("%w at %s://%s: %s: %w", ErrApplication, c.network, c.address, kind.name, err)
}

// callInTurn is call for the caller that has the turn.
func (c *connection) callInTurn(ctx context.Context, kind call, request, answer message) error {
	if c.stream == nil {
		stream, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, c.network, c.address)
		if err != nil {
			return fmt.Errorf("%w; is it running? The adapter connects again", err)
		}
		c.stream, c.reader = stream, bufio.NewReaderSize(stream, 64<<10)
	}
	stream := c.stream
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	frames := appendFrame(nil, kind.request, request)
	frames = appendFrame(frames, callFlush.request, &empty{})
	// The application may answer before it has read everything, if it refuses the request.
	written := make(chan error, 1)
	go func() {
		_, err := stream.Write(frames)
		written <- err
	}()
	err := c.read(kind, answer)
	if err != nil {
		c.drop() // ends the write
	}
	if failed := <-written; err == nil && failed != nil {
		err = failed
	}
	if err == nil && !stop() { // the deadline is set, or about to be
		err = ctx.Err()
	}
	return err
}

// read reads the answer to a request, and that to the flush after it.
func (c *connection) read(kind call, answer message) error {
	content, err := c.readAnswer(kind)
	if err != nil {
		return err
	}
	if _, err := c.readAnswer(callFlush); err != nil {
		return err
	}
	return decode(content, answer)
}

// readAnswer reads one answer, and returns its content.
func (c *connection) readAnswer(kind call) ([]byte, error) {
	frame, err := readFrame(c.reader, c.limit)
	if errors.Is(err, ErrMalformed) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("it broke off: %w", err)
	}
	number, content, err := openEnvelope(frame)
	if err != nil {
		return nil, err
	}
	if number == answerException {
		var report exception
		if err := decode(content, &report); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("it answered with an exception: %.1000q", report.text)
	}
	if number != kind.answer {
		return nil, malformed("answer %d where %s has %d: is the application of ABCI 2.0, and "+
			"does it speak the socket protocol?", number, kind.name, kind.answer)
	}
	return content, nil
}

// drop closes the connection. Its caller has the turn.
func (c *connection) drop() {
	if c.stream != nil {
		_ = c.stream.Close() // it is of no more use, whatever comes of it
		c.stream, c.reader = nil, nil
	}
}

// close closes the connection once no call is under way.
func (c *connection) close() {
	c.turn <- struct{}{}
	c.drop()
	<-c.turn
}

// application is the application behind its three connections, as CometBFT has them: consensus for
// blocks and proposals, mempool for checks, query for everything else.
type application struct {
	consensus, mempool, query *connection
	// block is held for as long as a block is executed: the application prepares no proposal
	// meanwhile. Committing is held for Commit alone: the application checks nothing meanwhile.
	block      sync.Mutex
	committing sync.RWMutex
}

func newApplication(address string, limit int) (*application, error) {
	network, place, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	app := &application{consensus: newConnection(network, place, limit),
		mempool: newConnection(network, place, limit), query: newConnection(network, place, limit)}
	app.mempool.again, app.query.again = true, true
	return app, nil
}

func (a *application) close() {
	a.consensus.close()
	a.mempool.close()
	a.query.close()
}

// asked is what Info tells the application of this side: the versions of CometBFT 0.38.
var asked = infoRequest{version: "0.38.0-ledgerd", blockVersion: 11, peerVersion: 8,
	abciVersion: "2.0.0"}

// info asks for the application's state, over one of its connections.
func (a *application) info(ctx context.Context, over *connection) (Info, error) {
	var answer Info
	request := asked
	return answer, over.call(ctx, callInfo, &request, &answer)
}

// check asks whether the application would take a transaction now.
func (a *application) check(ctx context.Context, transaction []byte) (TxResult, error) {
	a.committing.RLock()
	defer a.committing.RUnlock()
	var answer TxResult
	err := a.mempool.call(ctx, callCheck, &checkRequest{transaction: transaction}, &answer)
	return answer, err
}

// prepare lets the application change what this adapter is about to post.
func (a *application) prepare(ctx context.Context, request *prepareRequest) ([][]byte, error) {
	a.block.Lock()
	defer a.block.Unlock()
	var answer prepareAnswer
	err := a.consensus.call(ctx, callPrepare, request, &answer)
	return answer.transactions, err
}

// accepts asks whether the application accepts transactions as those of a block.
func (a *application) accepts(ctx context.Context, request *blockRequest,
	transactions [][]byte) (bool, error) {
	proposed := *request
	proposed.transactions = transactions
	var answer processAnswer
	err := a.consensus.call(ctx, callProcess, &proposed, &answer)
	if err != nil {
		return false, err
	}
	switch answer.status {
	case proposalAccepted:
		return true, nil
	case proposalRejected:
		return false, nil
	}
	return false, fmt.Errorf("%w answered ProcessProposal with status %d, which is neither ACCEPT "+
		"nor REJECT", ErrApplication, answer.status)
}

func (a *application) commit(ctx context.Context) error {
	a.committing.Lock()
	defer a.committing.Unlock()
	return a.consensus.call(ctx, callCommit, &empty{}, &commitAnswer{})
}
