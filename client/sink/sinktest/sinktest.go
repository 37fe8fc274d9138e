// Package sinktest is what the tests of all targets share: a chain that is the same in every
// process, lanes that break off at the worst moments, processes that are killed, and the check that
// each entry arrived once.
package sinktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// Ledger is a book of one shard in memory, as a sink.Source.
type Ledger struct {
	genesis *ledger.Genesis
	Blocks  []*ledger.Block
}

// nasty is a note with what targets may not be able to store.
const nasty = "NUL \x00, a quote \" ' and \\, <&>, \u2028, 😀\r\n"

// NewLedger returns a chain with so many blocks, each with some transfers and one that has a nasty
// note. The same arguments give the same chain.
func NewLedger(name string, blocks, transfers int) *Ledger {
	genesis := ledgertest.OperatedGenesis(1)
	genesis.Chain = name
	acme := ledgertest.NewClient(genesis, "acme")
	l := &Ledger{genesis: genesis}
	l.Blocks = []*ledger.Block{ledgertest.Block(genesis, acme.Bundle(acme.Register("mint",
		"cash")))}
	for len(l.Blocks) < blocks {
		var all []ledger.Transaction
		for i := range transfers {
			all = append(all, acme.Transfer("acme:mint", "acme:cash", int64(i+1)))
		}
		all[0].Note = []byte(nasty)
		all[0].Postings[0].Asset, all[0].Postings[1].Asset = "EUR", "EUR"
		l.Blocks = append(l.Blocks, ledgertest.After(l.Blocks[len(l.Blocks)-1],
			acme.Bundle(all...)))
	}
	return l
}

// Shards implements sink.Source.
func (l *Ledger) Shards(context.Context) (int, error) { return 1, nil }

// ShardGenesis implements sink.Source.
func (l *Ledger) ShardGenesis(context.Context, ledger.ShardID) (*ledger.Genesis, error) {
	return l.genesis, nil
}

// ReadChain implements sink.Source. An answer has at most seven blocks.
func (l *Ledger) ReadChain(_ context.Context, _ ledger.ShardID, from ledger.Height,
	_ time.Duration) (client.Chain, error) {
	chain := client.Chain{Durable: ledger.Height(len(l.Blocks))}
	if from <= chain.Durable {
		rest := l.Blocks[from-1:]
		chain.Blocks = rest[:min(len(rest), 7)]
	}
	return chain, nil
}

// TransactionIn implements sink.Source.
func (l *Ledger) TransactionIn(context.Context, ledger.ShardID,
	ledger.Hash) (*ledger.Transaction, error) {
	return nil, errors.New("sinktest: the chain has no crossings")
}

// Rotate implements sink.Source: there is one node.
func (l *Ledger) Rotate() {}

// Seen is what arrived of a record.
type Seen struct{ Position, Line string }

// Want returns what has to arrive of the chain.
func (l *Ledger) Want(t testing.TB) (want []Seen) {
	t.Helper()
	for _, block := range l.Blocks {
		for index, entry := range block.All() {
			line, err := journal.EntryLine(block, index, entry)
			if err != nil {
				t.Fatal(err)
			}
			position := sink.Position{Height: block.Header.Height, Index: index}
			want = append(want, Seen{position.String(), string(line)})
		}
	}
	return want
}

// Compare returns an error unless exactly what is wanted arrived, in order.
func Compare(seen, want []Seen) error {
	count := make(map[string]int)
	for _, each := range seen {
		if count[each.Position]++; count[each.Position] > 1 {
			return fmt.Errorf("%s arrived twice", each.Position)
		}
	}
	for _, each := range want {
		if count[each.Position] == 0 {
			return fmt.Errorf("%s did not arrive, of %d that are wanted and %d that arrived",
				each.Position, len(want), len(seen))
		}
	}
	if !slices.Equal(seen, want) {
		return errors.New("what arrived is in another order, or has other content")
	}
	return nil
}

// errBroken is the failure of a lane that breaks off.
var errBroken = errors.New("sinktest: the lane broke off")

// Break makes the lanes of a target break off: before a batch is written, after it was written and
// before the sender hears of it, or, by a context that ends, somewhere in between.
func Break(target sink.Target, seed uint64) sink.Target {
	return &breaking{Target: target, random: rand.New(rand.NewPCG(seed, 1))}
}

type breaking struct {
	sink.Target
	random *rand.Rand
}

func (b *breaking) Open(ctx context.Context, chain sink.Chain) (sink.Lane, error) {
	lane, err := b.Target.Open(ctx, chain)
	if err != nil {
		return nil, err
	}
	return &breakingLane{Lane: lane, random: b.random}, nil
}

type breakingLane struct {
	sink.Lane
	random *rand.Rand
}

func (l *breakingLane) Write(ctx context.Context, batch *sink.Batch) error {
	switch l.random.IntN(12) {
	case 0:
		return errBroken
	case 1:
		return errors.Join(l.Lane.Write(ctx, batch), errBroken)
	case 2:
		short, cancel := context.WithTimeout(ctx, time.Duration(l.random.IntN(2000))*
			time.Microsecond)
		defer cancel()
		return l.Lane.Write(short, batch)
	}
	return l.Lane.Write(ctx, batch)
}

// Options are those of runs in tests: small batches, and no pauses.
func Options() sink.Options {
	return sink.Options{Once: true, BatchRecords: 10, Backoff: time.Millisecond,
		MaxBackoff: 20 * time.Millisecond, Patience: 50 * time.Millisecond, Poll: time.Millisecond,
		CallTime: 20 * time.Second, WriteTime: 20 * time.Second}
}

// Missing skips a test whose server is not installed, except where all tests have to run.
func Missing(t *testing.T, name, remedy string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed (%s)", name, remedy)
	}
	t.Skipf("%s is not installed (%s)", name, remedy)
}

// childVariable has the argument of a process that Main runs as a sink.
const childVariable = "LEDGERD_TEST_SINK"

// killedLedger is the chain of Killed: the same in the process that is killed.
func killedLedger() *Ledger { return NewLedger("killed", 40, 20) }

// Main is the TestMain of a target's package. In the processes that Killed starts it streams to the
// target that is made from an argument.
func Main(m *testing.M, open func(argument string) (sink.Target, error), after func()) {
	argument, child := os.LookupEnv(childVariable)
	if !child {
		status := m.Run()
		if after != nil {
			after()
		}
		os.Exit(status)
	}
	target, err := open(argument)
	if err == nil {
		options := Options()
		options.BatchRecords = 3
		err = errors.Join(sink.Run(context.Background(), killedLedger(), slow{target}, options),
			target.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// slow makes a target slow enough to be killed in the middle.
type slow struct{ sink.Target }

func (s slow) Open(ctx context.Context, chain sink.Chain) (sink.Lane, error) {
	lane, err := s.Target.Open(ctx, chain)
	if err != nil {
		return nil, err
	}
	return slowLane{lane}, nil
}

type slowLane struct{ sink.Lane }

func (l slowLane) Write(ctx context.Context, batch *sink.Batch) error {
	pause := time.NewTimer(2 * time.Millisecond)
	<-pause.C
	return l.Lane.Write(ctx, batch)
}

// Killed streams a chain in processes that are killed at random moments, until one of them is
// through, and checks what arrived.
func Killed(t *testing.T, argument string, seen func() []Seen) {
	t.Helper()
	want := killedLedger().Want(t)
	kills := 0
	for round := 0; ; round++ {
		command := exec.CommandContext(t.Context(), os.Args[0])
		command.Env = append(os.Environ(), childVariable+"="+argument)
		command.Stderr = os.Stderr
		begun := len(seen())
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		if round < 4 { // kill it once something more has arrived, and a moment later
			if err, over := awaitMore(t, ended, begun, seen); over {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			pause := time.NewTimer(time.Duration(rand.IntN(3000)) * time.Microsecond)
			<-pause.C
			if err := command.Process.Kill(); err == nil {
				kills++
			}
			<-ended
			continue
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		break
	}
	if kills == 0 {
		t.Fatal("the sink was through before it was killed once")
	}
	if err := Compare(seen(), want); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed %d times", kills)
}

// awaitMore waits until more has arrived, or the process has ended.
func awaitMore(t *testing.T, ended chan error, begun int, seen func() []Seen) (err error,
	over bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return err, true
		case <-t.Context().Done():
			t.Fatal("the test ended")
		case <-ticker.C:
		}
		if len(seen()) > begun {
			return nil, false
		}
	}
}
