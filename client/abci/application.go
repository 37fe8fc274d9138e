package abci

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
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
	// first, if set, is the only call that connects: what comes after it depends on its answer. An
	// application that went away in between may be another one than before.
	first *call

	turn    gate // for the time of a call
	stream  net.Conn
	reader  *bufio.Reader
	dropped func(error) // if set, takes why the connection was closed
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
	return &connection{network: network, address: address, limit: limit, turn: newGate()}
}

// call sends a request and waits for its answer. If the context ends first, the connection is
// closed: what the application does with the request is then unknown.
func (c *connection) call(ctx context.Context, kind call, request, answer message) error {
	if err := c.turn.enter(ctx); err != nil {
		return fmt.Errorf("%w has not answered what it was asked before %s: %w", ErrApplication,
			kind.name, err)
	}
	defer c.turn.leave()
	idle := c.stream != nil
	if !idle && c.first != nil && kind.request != c.first.request {
		return fmt.Errorf("%w is not connected", ErrApplication)
	}
	err := c.callInTurn(ctx, kind, request, answer)
	if err == nil {
		return nil
	}
	if idle && c.again && ctx.Err() == nil && !errors.Is(err, ErrMalformed) {
		c.drop(nil)
		if err = c.callInTurn(ctx, kind, request, answer); err == nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w did not answer %s in time: %w", ErrApplication, kind.name,
			context.Cause(ctx))
	} else {
		err = fmt.Errorf("%w at %s://%s: %s: %w", ErrApplication, c.network, c.address, kind.name,
			err)
	}
	c.drop(err)
	return err
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
		_ = stream.Close() // ends the write; the caller drops the connection
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

// drop closes the connection, for a reason. Its caller has the turn.
func (c *connection) drop(why error) {
	if c.stream == nil {
		return
	}
	_ = c.stream.Close() // it is of no more use, whatever comes of it
	c.stream, c.reader = nil, nil
	if c.dropped != nil {
		c.dropped(why)
		c.dropped = nil
	}
}

// close closes the connection once no call is under way.
func (c *connection) close() {
	c.turn <- struct{}{}
	defer c.turn.leave()
	c.drop(nil)
}

// whenDropped sets what is called once the connection is closed. If it is closed, that is at once.
func (c *connection) whenDropped(call func(error)) {
	c.turn <- struct{}{}
	defer c.turn.leave()
	if c.stream == nil {
		call(nil)
		return
	}
	c.dropped = call
}

// application is the application behind its three connections, as CometBFT has them: consensus for
// blocks and proposals, mempool for checks, query for everything else.
type application struct {
	consensus, mempool, query *connection
	// block is for as long as a block is executed, or the application asked where it is: it
	// prepares no proposal meanwhile.
	block gate
	// begun says that the application was asked where it is, and is there. The gate of block is for
	// it, too.
	begun  bool
	teller *teller
	// giveUp, if not 0, bounds each call about a block.
	giveUp time.Duration
}

func newApplication(config *Config, limit int, teller *teller) (*application, error) {
	network, place, err := splitAddress(config.Application)
	if err != nil {
		return nil, err
	}
	app := &application{consensus: newConnection(network, place, limit),
		mempool: newConnection(network, place, limit), query: newConnection(network, place, limit),
		block: newGate(), teller: teller, giveUp: time.Duration(config.Timing.GiveUp)}
	app.mempool.again, app.query.again = true, true
	app.consensus.first = &callInfo
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
	var answer TxResult
	err := a.mempool.call(ctx, callCheck, &checkRequest{transaction: transaction}, &answer)
	return answer, err
}

// prepare lets the application change what this adapter is about to post.
func (a *application) prepare(ctx context.Context, request *prepareRequest) ([][]byte, error) {
	if err := a.block.enter(ctx); err != nil {
		return nil, err
	}
	defer a.block.leave()
	if !a.begun {
		return nil, fmt.Errorf("%w is not connected", ErrApplication)
	}
	var answer prepareAnswer
	err := a.consensus.call(ctx, callPrepare, request, &answer)
	return answer.transactions, err
}

// alive finds out whether the application is still there, and is still the one that was asked where
// it is.
func (a *application) alive(ctx context.Context) error {
	if err := a.block.enter(ctx); err != nil {
		return err
	}
	defer a.block.leave()
	return a.consensus.call(ctx, callFlush, &empty{}, &empty{})
}

// errGaveUp is the end of a call that took longer than Timing.GiveUp.
var errGaveUp = errors.New("gave up")

// asks makes a call about a block of a height, for as long as it takes.
func (a *application) asks(ctx context.Context, kind call, height int64, request,
	answer message) error {
	if a.giveUp > 0 {
		bounded, cancel := context.WithTimeoutCause(ctx, a.giveUp, fmt.Errorf("%w after %s: "+
			"whether the application executes block %d is not known. Restart the application, "+
			"and run the same command again", errGaveUp, a.giveUp, height))
		defer cancel()
		ctx = bounded
	}
	answered := a.teller.asks(kind.name, height)
	err := a.consensus.call(ctx, kind, request, answer)
	answered(err)
	return err
}

// accepts asks whether the application accepts transactions as those of a block.
func (a *application) accepts(ctx context.Context, request *blockRequest,
	transactions [][]byte) (bool, error) {
	proposed := *request
	proposed.transactions = transactions
	var answer processAnswer
	err := a.asks(ctx, callProcess, request.height, &proposed, &answer)
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

// commit has the application commit the block of a height. It checks nothing meanwhile.
func (a *application) commit(ctx context.Context, height int64) error {
	if err := a.mempool.turn.enter(ctx); err != nil {
		return err
	}
	defer a.mempool.turn.leave()
	return a.asks(ctx, callCommit, height, &empty{}, &commitAnswer{})
}
