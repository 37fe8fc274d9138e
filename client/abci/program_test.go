package abci

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// growing is a chain in memory that grows: with each transaction that a pool posts, and by hand.
type growing struct {
	genesis *ledger.Genesis
	acme    *ledgertest.Client

	mutex  sync.Mutex
	blocks []*ledger.Block
	grown  chan struct{} // closed with the next block
	// fails, if set, may fail a reading from a height.
	fails func(from ledger.Height) error
	// stuck, if not 0, is how many blocks the first node has. Rotate moves on to another one.
	stuck int
}

func newGrowing(blocks ...[]string) *growing {
	g := &growing{genesis: ledgertest.OperatedGenesis(1), grown: make(chan struct{})}
	g.acme = ledgertest.NewClient(g.genesis, "acme")
	g.add(g.acme.Register("cash"))
	for _, each := range blocks {
		g.put(each...)
	}
	return g
}

// put adds a block with a ledger transaction for each of these.
func (g *growing) put(texts ...string) {
	var all []ledger.Transaction
	for i, text := range texts {
		one := g.acme.Next()
		one.Records = []ledger.Record{{Key: transactionKey("acme", "kv", i), Value: []byte(text)}}
		all = append(all, one)
	}
	g.add(all...)
}

func (g *growing) add(all ...ledger.Transaction) ledger.Height {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	bundle := g.acme.Bundle(all...)
	if len(g.blocks) == 0 {
		g.blocks = append(g.blocks, ledgertest.Block(g.genesis, bundle))
	} else {
		g.blocks = append(g.blocks, ledgertest.After(g.blocks[len(g.blocks)-1], bundle))
	}
	close(g.grown)
	g.grown = make(chan struct{})
	return ledger.Height(len(g.blocks))
}

// post is a Post that makes a block of each transaction.
func (g *growing) post(_ context.Context, transaction ledger.Transaction) (
	func(context.Context) (client.Answer, error), error) {
	transaction.Ledger, transaction.Signer = g.genesis.Hash(), "acme"
	transaction.Nonce = g.acme.Next().Nonce
	height := g.add(transaction)
	return func(context.Context) (client.Answer, error) {
		return client.Answer{Height: height, Status: &ledgerdv1.TransactionStatus{
			State: ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE}}, nil
	}, nil
}

func (g *growing) ShardGenesis(context.Context, ledger.ShardID) (*ledger.Genesis, error) {
	return g.genesis, nil
}

func (g *growing) ReadChain(ctx context.Context, _ ledger.ShardID, from ledger.Height,
	wait time.Duration) (client.Chain, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		g.mutex.Lock()
		blocks, grown, fails := g.blocks, g.grown, g.fails
		if g.stuck > 0 {
			blocks = blocks[:g.stuck]
		}
		g.mutex.Unlock()
		if fails != nil {
			if err := fails(from); err != nil {
				return client.Chain{}, err
			}
		}
		chain := client.Chain{Durable: ledger.Height(len(blocks))}
		if from <= chain.Durable {
			chain.Blocks = blocks[from-1 : min(int(from)+1, len(blocks))]
			return chain, nil
		}
		select {
		case <-grown:
		case <-timer.C:
			return chain, nil
		case <-ctx.Done():
			return chain, ctx.Err()
		}
	}
}

func (g *growing) TransactionIn(context.Context, ledger.ShardID, ledger.Hash) (
	*ledger.Transaction, error) {
	return nil, errors.New("nothing crosses here")
}

func (g *growing) Home(context.Context, ledger.OrganisationName) (ledger.ShardID, error) {
	return 0, nil
}

func (g *growing) Rotate() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.stuck = 0
}

// program is an application that keeps to ABCI 2.0, as the text of its specification has it: what
// it executed counts once it is committed, and is lost if it dies before. It notes each request
// that must not come.
type program struct {
	t       *testing.T
	address string

	mutex sync.Mutex
	// states are those after each height that was committed, from height 0 on.
	states [][]string
	// begun says that InitChain was there, open what FinalizeBlock executed and Commit has not.
	begun   bool
	open    []string
	opened  int64 // its height, or 0
	greeted bool  // Info was asked since the process began
	streams []net.Conn
	wrong   []string
	// talking counts the streams that it reads from. Each that ends sends to idle.
	talking int
	idle    chan struct{}
	// fault, if set, is asked before and after a request is executed.
	fault func(kind protowire.Number, after bool) fault
}

// fault is what a program does in the place of an answer.
type fault int

const (
	fine     fault = iota
	breakOff       // the connection breaks, and the process goes on
	die            // the process ends, and begins anew
)

func newProgram(t *testing.T) *program {
	t.Helper()
	p := &program{t: t, states: [][]string{nil}, idle: make(chan struct{}, 1)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = "tcp://" + listener.Addr().String()
	t.Cleanup(func() { listener.Close(); p.die(-1) })
	go func() {
		for {
			stream, err := listener.Accept()
			if err != nil {
				return
			}
			p.mutex.Lock()
			p.streams = append(p.streams, stream)
			p.talking++
			p.mutex.Unlock()
			go p.talk(stream)
		}
	}()
	return p
}

// die ends the process and begins another one, with the state of a height: -1 is the last one.
func (p *program) die(height int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.dieLocked(height)
}

func (p *program) dieLocked(height int) {
	for _, each := range p.streams {
		each.Close()
	}
	p.streams, p.open, p.opened, p.greeted = nil, nil, 0, false
	if height >= 0 {
		p.states = p.states[:height+1]
		p.begun = p.begun && height > 0
	}
}

// hasRead waits until the program has ended all its streams. Their other ends are closed, and what
// was asked through them may still be executed: an adapter that begins then would be told of a
// state that changes.
func (p *program) hasRead() {
	deadline := time.After(patience)
	for {
		p.mutex.Lock()
		talking := p.talking
		p.mutex.Unlock()
		if talking == 0 {
			return
		}
		select {
		case <-p.idle:
		case <-deadline:
			p.t.Error("the program reads on, although nobody talks to it")
			return
		}
	}
}

func (p *program) talk(stream net.Conn) {
	defer func() {
		stream.Close()
		p.mutex.Lock()
		p.talking--
		p.mutex.Unlock()
		select {
		case p.idle <- struct{}{}:
		default: // one is enough to look again
		}
	}()
	reader := bufio.NewReader(stream)
	for {
		frame, err := readFrame(reader, maxMessageBytes)
		if err != nil {
			return
		}
		kind, content, err := openEnvelope(frame)
		if err != nil {
			return
		}
		number, answer := p.answer(stream, kind, content)
		if answer == nil {
			return
		}
		if _, err := stream.Write(appendFrame(nil, number, answer)); err != nil {
			return
		}
	}
}

func (p *program) hash() []byte {
	last := p.states[len(p.states)-1]
	return []byte(fmt.Sprintf("%d:%s", len(p.states)-1, strings.Join(last, ",")))
}

// refuses notes a request that must not come.
func (p *program) refuses(format string, arguments ...any) {
	p.wrong = append(p.wrong, fmt.Sprintf(format, arguments...))
}

func (p *program) answer(stream net.Conn, kind protowire.Number, content []byte) (protowire.Number,
	message) {
	if p.goesWrong(kind, false) {
		return 0, nil
	}
	number, answer := p.execute(stream, kind, content)
	if p.goesWrong(kind, true) {
		return 0, nil
	}
	return number, answer
}

func (p *program) goesWrong(kind protowire.Number, after bool) bool {
	p.mutex.Lock()
	asked := p.fault
	p.mutex.Unlock()
	if asked == nil {
		return false
	}
	what := asked(kind, after)
	if what == die {
		p.die(-1)
	}
	return what != fine
}

// execute executes a request, and notes it if it must not come now. A process that died executes
// nothing, whatever it has read.
func (p *program) execute(stream net.Conn, kind protowire.Number, content []byte) (protowire.Number,
	message) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !slices.Contains(p.streams, stream) {
		return 0, nil
	}
	height := int64(len(p.states) - 1)
	if kind != callFlush.request && kind != callInfo.request && !p.greeted &&
		kind != callCheck.request {
		p.refuses("request %d before Info", kind)
	}
	switch kind {
	case callFlush.request:
		return callFlush.answer, &empty{}
	case callInfo.request:
		p.greeted = true
		return callInfo.answer, &Info{Height: height, AppHash: p.hash()}
	case callInit.request:
		if height != 0 {
			p.refuses("InitChain at height %d", height)
		}
		p.begun = true
		return callInit.answer, &initAnswer{}
	case callCheck.request:
		return callCheck.answer, &TxResult{}
	case callPrepare.request:
		var request prepareRequest
		if err := decode(content, &request); err != nil {
			p.refuses("%v", err)
		}
		if !p.begun || p.opened != 0 {
			p.refuses("PrepareProposal at height %d, block %d open", height, p.opened)
		}
		return callPrepare.answer, &prepareAnswer{transactions: request.transactions}
	case callProcess.request, callFinal.request:
		var request blockRequest
		if err := decode(content, &request); err != nil {
			p.refuses("%v", err)
		}
		if !p.begun || request.height != height+1 {
			p.refuses("request %d of block %d at height %d", kind, request.height, height)
		}
		if kind == callProcess.request {
			if slices.ContainsFunc(request.transactions, func(each []byte) bool {
				return strings.HasPrefix(string(each), "bad")
			}) {
				return callProcess.answer, &processAnswer{proposalRejected}
			}
			return callProcess.answer, &processAnswer{proposalAccepted}
		}
		p.open = slices.Clone(p.states[height])
		for _, each := range request.transactions {
			p.open = append(p.open, string(each))
		}
		p.opened = request.height
		return callFinal.answer, &finalAnswer{results: make([]TxResult, len(request.transactions)),
			appHash: []byte(fmt.Sprintf("%d:%s", request.height, strings.Join(p.open, ",")))}
	case callCommit.request:
		if p.opened != height+1 {
			p.refuses("Commit at height %d, block %d open", height, p.opened)
			return 0, nil
		}
		p.states, p.open, p.opened = append(p.states, p.open), nil, 0
		return callCommit.answer, &commitAnswer{}
	}
	p.refuses("request %d", kind)
	return 0, nil
}

// executed returns what the program has executed, its height, and what must not have come.
func (p *program) executed() (texts string, height int64, wrong string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	last := len(p.states) - 1
	return strings.Join(p.states[last], " "), int64(last), strings.Join(p.wrong, "; ")
}

// setFault changes what goes wrong from now on.
func (p *program) setFault(to func(kind protowire.Number, after bool) fault) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fault = to
}

// adapter is a running adapter.
type adapter struct {
	t       *testing.T
	notices chan Notice
	address string // of its RPC
	stop    context.CancelFunc
	ended   chan error
}

// startAdapter runs an adapter of a chain that grows until the test ends.
func startAdapter(t *testing.T, p *program, chain *growing, folder string,
	change func(*Config)) *adapter {
	t.Helper()
	config := &Config{ChainID: "kv", Application: p.address, Folder: folder, Post: "acme",
		Listen: "127.0.0.1:0"}
	if change != nil {
		change(config)
	}
	return run(t, Options{Config: config, Nodes: chain, Post: chain.post})
}

// run runs an adapter until the test ends.
func run(t *testing.T, options Options) *adapter {
	t.Helper()
	config := options.Config
	if err := config.complete(config.Folder); err != nil {
		t.Fatal(err)
	}
	config.Timing.MaxBackoff = Duration(10 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	a := &adapter{t: t, notices: make(chan Notice, 10000), stop: cancel, ended: make(chan error, 1)}
	bound := make(chan string, 1)
	options.Report = func(notice Notice) { a.notices <- notice }
	options.Bound = func(address string) { bound <- address }
	options.poll = 100 * time.Millisecond
	go func() { a.ended <- Run(ctx, options) }()
	t.Cleanup(func() {
		cancel()
		a.end()
	})
	if config.Listen != "" {
		a.address = <-bound
	}
	return a
}

// end waits until the adapter ends, and returns its error.
func (a *adapter) end() error {
	select {
	case err := <-a.ended:
		a.ended <- err
		return err
	case <-time.After(patience):
		a.t.Error("the adapter does not end")
		return errors.New("it does not end")
	}
}

// patience bounds each wait of these tests. What they wait for takes far less.
const patience = 20 * time.Second

// await waits for a notice.
func (a *adapter) await(what string, is func(Notice) bool) Notice {
	a.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case notice := <-a.notices:
			if is(notice) {
				return notice
			}
		case err := <-a.ended:
			a.ended <- err
			a.t.Fatalf("%s: the adapter ended: %v", what, err)
		case <-deadline:
			a.t.Fatalf("no notice of %s", what)
		}
	}
}

// reaches waits until the application has executed a height.
func (a *adapter) reaches(height int64) {
	a.t.Helper()
	a.await(fmt.Sprint("height ", height), func(notice Notice) bool {
		return notice.Height == height && (notice.Event == "block" || notice.Event == "begin")
	})
}

// call calls a method of the RPC with a query, and decodes the result.
func (a *adapter) call(method, query string, result any) error {
	answer, err := http.Get("http://" + a.address + "/" + method + "?" + query)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var envelope struct {
		Result json.RawMessage
		Error  *failure
	}
	if err := json.NewDecoder(answer.Body).Decode(&envelope); err != nil {
		return fmt.Errorf("%s: %s: %w", method, answer.Status, err)
	}
	if envelope.Error != nil {
		return errors.New(envelope.Error.Data)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(envelope.Result, result)
}

// feedStatus is what these tests look at in status.
type feedStatus struct {
	Feed Feed `json:"feed"`
	Sync struct {
		Height string `json:"latest_block_height"`
		Behind bool   `json:"catching_up"`
	} `json:"sync_info"`
}

func (a *adapter) status() (status feedStatus) {
	a.t.Helper()
	if err := a.call("status", "", &status); err != nil {
		a.t.Fatal(err)
	}
	return status
}
