package abci

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// chainSource is a chain in memory.
type chainSource struct {
	genesis *ledger.Genesis
	blocks  []*ledger.Block
}

func (s *chainSource) ShardGenesis(context.Context, ledger.ShardID) (*ledger.Genesis, error) {
	return s.genesis, nil
}

func (s *chainSource) ReadChain(ctx context.Context, _ ledger.ShardID, from ledger.Height,
	_ time.Duration) (client.Chain, error) {
	chain := client.Chain{Durable: ledger.Height(len(s.blocks))}
	if from > chain.Durable {
		<-ctx.Done()
		return chain, ctx.Err()
	}
	chain.Blocks = s.blocks[from-1:]
	return chain, nil
}

func (s *chainSource) Rotate() {}

func (s *chainSource) TransactionIn(context.Context, ledger.ShardID, ledger.Hash) (
	*ledger.Transaction, error) {
	return nil, errors.New("nothing crosses here")
}

func (s *chainSource) Home(context.Context, ledger.OrganisationName) (ledger.ShardID, error) {
	return 0, nil
}

// newChain returns a chain with a block for each list of transactions.
func newChain(blocks ...[]string) *chainSource {
	s := &chainSource{genesis: ledgertest.OperatedGenesis(1)}
	acme := ledgertest.NewClient(s.genesis, "acme")
	s.blocks = []*ledger.Block{ledgertest.Block(s.genesis, acme.Bundle(acme.Register("cash")))}
	for _, texts := range blocks {
		var all []ledger.Transaction
		for i, text := range texts {
			one := acme.Next()
			one.Records = []ledger.Record{{Key: transactionKey("acme", "kv", i),
				Value: []byte(text)}, {Key: "acme:abci/kvx", Value: []byte("of another one")}}
			all = append(all, one)
		}
		s.blocks = append(s.blocks, ledgertest.After(s.blocks[len(s.blocks)-1],
			acme.Bundle(all...)))
	}
	return s
}

// liar is an application that executes a transaction by keeping it, and accepts none with "bad" in
// it. Lie, if set, may answer a request in its place: with nil it breaks the connection off.
type liar struct {
	mutex    sync.Mutex
	height   int64
	executed []string
	pending  *blockRequest
	lie      func(kind protowire.Number) (answer protowire.Number, m message, lies bool)
}

func (l *liar) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			stream, err := listener.Accept()
			if err != nil {
				return
			}
			go l.talk(stream)
		}
	}()
	return "tcp://" + listener.Addr().String()
}

func (l *liar) talk(stream net.Conn) {
	defer stream.Close()
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
		number, answer := l.answer(kind, content)
		if answer == nil {
			return
		}
		if _, err := stream.Write(appendFrame(nil, number, answer)); err != nil {
			return
		}
	}
}

func (l *liar) hash() []byte {
	return []byte(fmt.Sprintf("%d:%s", l.height, strings.Join(l.executed, ",")))
}

func (l *liar) answer(kind protowire.Number, content []byte) (protowire.Number, message) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.lie != nil {
		if number, m, lies := l.lie(kind); lies {
			return number, m
		}
	}
	var block blockRequest
	switch kind {
	case callFlush.request:
		return callFlush.answer, &empty{}
	case callInfo.request:
		return callInfo.answer, &Info{Height: l.height, AppHash: l.hash()}
	case callInit.request:
		return callInit.answer, &initAnswer{}
	case callProcess.request:
		if decode(content, &block) != nil {
			return 0, nil
		}
		if bytes.Contains(bytes.Join(block.transactions, nil), []byte("bad")) {
			return callProcess.answer, &processAnswer{proposalRejected}
		}
		return callProcess.answer, &processAnswer{proposalAccepted}
	case callFinal.request:
		if decode(content, &block) != nil {
			return 0, nil
		}
		l.pending, l.height = &block, block.height
		for _, each := range block.transactions {
			l.executed = append(l.executed, string(each))
		}
		return callFinal.answer, &finalAnswer{results: make([]TxResult, len(block.transactions)),
			appHash: l.hash()}
	case callCommit.request:
		return callCommit.answer, &commitAnswer{}
	}
	return 0, nil
}

// feed runs an application on a chain until it is at the chain's end, or Run fails.
func feed(t *testing.T, l *liar, chain *chainSource, folder string) error {
	t.Helper()
	config := &Config{ChainID: "kv", Application: l.serve(t), Folder: folder}
	if err := config.complete(folder); err != nil {
		t.Fatal(err)
	}
	config.Timing.MaxBackoff, config.Timing.GiveUp = Duration(10*time.Millisecond),
		Duration(300*time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := Run(ctx, Options{Config: config, Nodes: chain, Report: func(notice Notice) {
		if notice.Height == int64(len(chain.blocks)) && notice.Event != "retry" {
			cancel()
		}
	}})
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// A block's transactions come in their order, without what the application does not accept and
// without those of other applications, and a second run feeds nothing again.
func TestFeed(t *testing.T) {
	t.Parallel()
	chain := newChain([]string{"a", "bad", "b"}, []string{""}, []string{"bad", "bad"},
		[]string{"c", "d", "bad", "e"})
	l, folder := &liar{}, t.TempDir()
	for range 2 {
		if err := feed(t, l, chain, folder); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(l.executed, " "); got != "a b c d e" || l.height != 5 {
			t.Fatalf("%q at %d", got, l.height)
		}
	}
}

// Applications that lie or break off are refused or tried again, and never fed past it.
func TestLies(t *testing.T) {
	t.Parallel()
	once := true
	for name, each := range map[string]struct {
		lie  func(kind protowire.Number) (protowire.Number, message, bool)
		want string // of the error; empty: none
	}{
		"too few results": {func(kind protowire.Number) (protowire.Number, message, bool) {
			return callFinal.answer, &finalAnswer{results: make([]TxResult, 7)},
				kind == callFinal.request
		}, "7 results for"},
		"another kind of answer": {func(kind protowire.Number) (protowire.Number, message, bool) {
			return callCommit.answer, &empty{}, kind == callInfo.request
		}, "of ABCI 2.0"},
		"an exception": {func(kind protowire.Number) (protowire.Number, message, bool) {
			return answerException, &exception{"out of ink"}, kind == callProcess.request
		}, "out of ink"},
		"no status": {func(kind protowire.Number) (protowire.Number, message, bool) {
			return callProcess.answer, &processAnswer{9}, kind == callProcess.request
		}, "neither ACCEPT nor REJECT"},
		"below zero": {func(kind protowire.Number) (protowire.Number, message, bool) {
			return callInfo.answer, &Info{Height: -1}, kind == callInfo.request
		}, "height is -1"},
		"breaks off for ever": {func(kind protowire.Number) (protowire.Number, message, bool) {
			return 0, nil, kind == callProcess.request
		}, "gave up after"},
		"breaks off once": {func(kind protowire.Number) (protowire.Number, message, bool) {
			lies := once && kind == callProcess.request
			once = once && !lies
			return 0, nil, lies
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := feed(t, &liar{lie: each.lie}, newChain([]string{"a"}, []string{"b"}),
				t.TempDir())
			if each.want == "" && err != nil || each.want != "" && (err == nil ||
				!strings.Contains(err.Error(), each.want)) {
				t.Errorf("%v, want %q", err, each.want)
			}
		})
	}
}

// An application with another state at its old height is refused: at once, and when it replays.
func TestAnotherState(t *testing.T) {
	t.Parallel()
	chain := newChain([]string{"a"}, []string{"b"})
	for name, changed := range map[string]*liar{
		"at once": {height: 3, executed: []string{"a", "x"}},
		"replays": {height: 2, executed: []string{"x"}},
	} {
		folder := t.TempDir()
		if err := feed(t, &liar{}, chain, folder); err != nil {
			t.Fatal(err)
		}
		if err := feed(t, changed, chain, folder); !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), "hash is") {
			t.Errorf("%s: %v", name, err)
		}
		other := newChain([]string{"a"}, []string{"c"})
		if err := feed(t, &liar{}, other, folder); !errors.Is(err, ErrRefused) {
			t.Errorf("another history: %v", err)
		}
	}
}
