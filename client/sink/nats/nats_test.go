package nats

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/client/sink/sinktest"
)

func TestMain(m *testing.M) {
	sinktest.Main(m, func(url string) (sink.Target, error) {
		return New(Config{Servers: []string{url}, Sink: "books"})
	}, nil)
}

// serve starts a server with JetStream in a temporary folder and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("nats-server")
	if err != nil {
		path = "/usr/sbin/nats-server" // Debian's place, which not every PATH has
		if _, err := os.Stat(path); err != nil {
			sinktest.Missing(t, "nats-server",
				"Debian: apt-get install --no-install-recommends nats-server")
		}
	}
	folder := t.TempDir()
	// The server takes a free port and writes it to a file.
	command := exec.Command(path, "-js", "-a", "127.0.0.1", "-p", "-1", "-sd", folder,
		"--ports_file_dir", folder)
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		files, err := filepath.Glob(filepath.Join(folder, "*.ports"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := strings.Cut(string(text), "nats://127.0.0.1:")
			if port, _, found := strings.Cut(port, `"`); found {
				return "nats://127.0.0.1:" + port
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("the server did not start: %s", &said)
		}
	}
}

// reader returns a function that reads all messages of the first shard's stream, in their order.
func reader(t *testing.T, url string) func() []sinktest.Seen {
	t.Helper()
	connection, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connection.Close)
	opened, err := jetstream.New(connection)
	if err != nil {
		t.Fatal(err)
	}
	return func() (seen []sinktest.Seen) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		stream, err := opened.Stream(ctx, "LEDGER-0")
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		last := stream.CachedInfo().State.LastSeq
		if last == 0 {
			return nil
		}
		consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		messages, err := consumer.Fetch(int(last), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for message := range messages.Messages() {
			seen = append(seen, sinktest.Seen{Position: message.Headers().Get(HeaderPosition),
				Line: string(message.Data())})
		}
		if messages.Error() != nil || len(seen) != int(last) {
			t.Fatalf("%d messages of %d: %v", len(seen), last, messages.Error())
		}
		return seen
	}
}

func open(t *testing.T, config Config) *target {
	t.Helper()
	made, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return made.(*target)
}

// Each entry is there once, wherever a lane breaks off, and when the connection ends while messages
// are under way. Two processes of the same sink do not add a message.
func TestOnce(t *testing.T) {
	t.Parallel()
	url := serve(t)
	chain := sinktest.NewLedger("test", 20, 12)
	made := open(t, Config{Servers: []string{url}, Sink: "books"})
	var writes atomic.Int32
	made.between = func(connection *nats.Conn) {
		if writes.Add(1)%5 == 0 {
			connection.Close()
		}
	}
	if err := sink.Run(t.Context(), chain, sinktest.Break(made, 1),
		sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	seen := reader(t, url)
	if err := sinktest.Compare(seen(), chain.Want(t)); err != nil {
		t.Fatal(err)
	}
	if writes.Load() < 20 {
		t.Fatalf("only %d writes", writes.Load())
	}
	longer := sinktest.NewLedger("test", 40, 12)
	failed := make(chan error)
	for range 2 {
		go func() {
			failed <- sink.Run(t.Context(), longer, open(t, Config{Servers: []string{url},
				Sink: "books"}), sinktest.Options())
		}()
	}
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if err := sinktest.Compare(seen(), longer.Want(t)); err != nil {
		t.Fatal(err)
	}
}

// A planted bug, messages that do not name the number that they must get, makes doubles once the
// server's window of ids is over, which this stream begins with.
func TestWindowIsNotEnough(t *testing.T) {
	t.Parallel()
	url := serve(t)
	connection, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	opened, err := jetstream.New(connection)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opened.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LEDGER-0",
		Subjects: []string{"ledger.0"}, Duplicates: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	chain := sinktest.NewLedger("test", 3, 2)
	made := open(t, Config{Servers: []string{url}, Sink: "books"})
	if err := sink.Run(t.Context(), chain, made, sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	genesis, err := chain.ShardGenesis(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	place := sink.Chain{Name: "test", Genesis: genesis.Hash()}
	opening, err := made.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	late := opening.(*lane)
	defer late.Close()
	if _, err := late.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	block := chain.Blocks[2]
	double := sink.Record{Mark: sink.Mark{Genesis: place.Genesis, Block: block.Hash,
		Position: sink.Position{Height: 3, Index: 1}}, ID: block.ID(1), Line: []byte("{}")}
	// The number that the message had is taken, whatever became of the window.
	if _, err := opened.PublishMsg(t.Context(), late.message(&double),
		jetstream.WithExpectLastSequence(late.last-1)); err == nil {
		t.Fatal("a double was taken")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for { // until the window is over
		stored, err := opened.PublishMsg(ctx, late.message(&double),
			jetstream.WithMsgID(messageID(&double)))
		if err != nil {
			t.Fatal(err)
		}
		if !stored.Duplicate {
			break
		}
	}
	if err := sinktest.Compare(reader(t, url)(), chain.Want(t)); err == nil ||
		!strings.Contains(err.Error(), "twice") {
		t.Fatalf("the planted double: %v", err)
	}
}

// A stream whose end was deleted, or that others write to, is refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	url := serve(t)
	connection, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	opened, err := jetstream.New(connection)
	if err != nil {
		t.Fatal(err)
	}
	chain := sinktest.NewLedger("test", 3, 2)
	made := open(t, Config{Servers: []string{url}, Sink: "books"})
	if err := sink.Run(t.Context(), chain, made, sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	books, others := made, open(t, Config{Servers: []string{url}, Sink: "others"})
	refused := func(words string) {
		t.Helper()
		if err := sink.Run(t.Context(), chain, made, sinktest.Options()); !errors.Is(err,
			sink.ErrRefused) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	made = others
	refused(`the sink "books"`)
	made = books
	if _, err := opened.Publish(t.Context(), "ledger.0", []byte("mine")); err != nil {
		t.Fatal(err)
	}
	refused("not from a sink")
	stream, err := opened.Stream(t.Context(), "LEDGER-0")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), stream.CachedInfo().State.LastSeq); err != nil {
		t.Fatal(err)
	}
	refused("was deleted")
	wide := open(t, Config{Servers: []string{url}, Stream: "WIDE", Subject: "wide"})
	if _, err := opened.CreateStream(t.Context(), jetstream.StreamConfig{Name: "WIDE-0",
		Subjects: []string{"wide.>"}}); err != nil {
		t.Fatal(err)
	}
	made = wide
	refused("only the sink may write there")
}

func TestKilled(t *testing.T) {
	t.Parallel()
	url := serve(t)
	sinktest.Killed(t, url, reader(t, url))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	good := []string{"nats://127.0.0.1:4222"}
	for _, config := range []Config{{}, {Servers: good, Stream: "a b"},
		{Servers: good, Subject: "a.*"}, {Servers: good, Replicas: 9}} {
		if _, err := New(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
}
