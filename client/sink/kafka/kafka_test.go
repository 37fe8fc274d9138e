package kafka

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/client/sink/sinktest"
)

func TestMain(m *testing.M) {
	sinktest.Main(m, func(broker string) (sink.Target, error) {
		return New(Config{Brokers: []string{broker}, Sink: "books"})
	}, nil)
}

// serve starts brokers in this process: Debian has no Kafka.
func serve(t *testing.T) string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster.ListenAddrs()[0]
}

// reader returns a function that reads the committed records of the first shard's partition.
func reader(t *testing.T, broker string) func() []sinktest.Seen {
	t.Helper()
	return func() (seen []sinktest.Seen) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		// A client that asked before there was a topic would remember that for a while.
		client, err := kgo.NewClient(kgo.SeedBrokers(broker))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, "ledger")
		if err != nil {
			return nil
		}
		end, found := ends.Lookup("ledger", 0)
		if !found || end.Err != nil || end.Offset <= 0 {
			return nil // there is no topic yet
		}
		consumer, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.KeepControlRecords(),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(
				map[string]map[int32]kgo.Offset{"ledger": {0: kgo.NewOffset().At(0)}}))
		if err != nil {
			t.Fatal(err)
		}
		defer consumer.Close()
		for next := int64(0); next < end.Offset; {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			fetches.EachRecord(func(record *kgo.Record) {
				next = record.Offset + 1
				if !record.Attrs.IsControl() {
					seen = append(seen, sinktest.Seen{Position: string(record.Key),
						Line: string(record.Value)})
				}
			})
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

// Each entry is there once for those that read what is committed, wherever a lane breaks off, and
// when the sender ends between the records and the end of their transaction.
func TestOnce(t *testing.T) {
	t.Parallel()
	broker := serve(t)
	chain := sinktest.NewLedger("test", 20, 12)
	made := open(t, Config{Brokers: []string{broker}, Sink: "books"})
	var writes atomic.Int32
	made.between = func(client *kgo.Client) {
		if writes.Add(1)%5 == 0 {
			client.Close()
		}
	}
	if err := sink.Run(t.Context(), chain, sinktest.Break(made, 1),
		sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	if err := sinktest.Compare(reader(t, broker)(), chain.Want(t)); err != nil {
		t.Fatal(err)
	}
	if writes.Load() < 20 {
		t.Fatalf("only %d writes", writes.Load())
	}
}

// A process that was taken for dead cannot write any more once another one has begun.
func TestFenced(t *testing.T) {
	t.Parallel()
	broker := serve(t)
	chain := sinktest.NewLedger("test", 3, 2)
	genesis, err := chain.ShardGenesis(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	place := sink.Chain{Name: "test", Genesis: genesis.Hash()}
	made := open(t, Config{Brokers: []string{broker}, Sink: "books"})
	batch := func(index int) *sink.Batch {
		mark := sink.Mark{Genesis: place.Genesis, Block: chain.Blocks[0].Hash,
			Position: sink.Position{Height: 1, Index: index}}
		return &sink.Batch{Chain: place, Through: mark,
			Records: []sink.Record{{Mark: mark, Line: []byte("{}")}}}
	}
	old, err := made.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := old.Write(t.Context(), batch(0)); err != nil {
		t.Fatal(err)
	}
	next, err := made.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	mark, err := next.Mark(t.Context())
	if err != nil || mark == nil || mark.Position != (sink.Position{Height: 1}) {
		t.Fatalf("%+v %v", mark, err)
	}
	if err := old.Write(t.Context(), batch(1)); err == nil {
		t.Fatal("the old process wrote")
	}
	if err := next.Write(t.Context(), batch(1)); err != nil {
		t.Fatal(err)
	}
	seen := reader(t, broker)()
	if len(seen) != 2 || seen[0].Position != "0/1/0" || seen[1].Position != "0/1/1" {
		t.Fatalf("%v", seen)
	}
}

// A topic that others write to, or that lacks a partition, is refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	broker := serve(t)
	chain := sinktest.NewLedger("test", 3, 2)
	made := open(t, Config{Brokers: []string{broker}, Partitions: 1, Sink: "books"})
	if err := sink.Run(t.Context(), chain, made, sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	if _, err := made.Open(t.Context(), sink.Chain{Shard: 1}); !errors.Is(err, sink.ErrRefused) ||
		!strings.Contains(err.Error(), "add partitions") {
		t.Errorf("another shard: %v", err)
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "ledger",
		Value: []byte("mine")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := sink.Run(t.Context(), chain, made, sinktest.Options()); !errors.Is(err,
		sink.ErrRefused) || !strings.Contains(err.Error(), "not from a sink") {
		t.Errorf("others' records: %v", err)
	}
}

// A second sink of the same topic, with another name, writes nothing, and leaves the first one as
// it is.
func TestAnotherName(t *testing.T) {
	t.Parallel()
	broker := serve(t)
	short, long := sinktest.NewLedger("test", 3, 2), sinktest.NewLedger("test", 5, 2)
	made := open(t, Config{Brokers: []string{broker}, Sink: "books"})
	if err := sink.Run(t.Context(), short, made, sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	genesis, err := short.ShardGenesis(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	place := sink.Chain{Name: "test", Genesis: genesis.Hash()}
	first, err := made.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Run(t.Context(), long, open(t, Config{Brokers: []string{broker},
		Sink: "others"}), sinktest.Options()); !errors.Is(err, sink.ErrRefused) ||
		!strings.Contains(err.Error(), `the sink "books"`) {
		t.Errorf("a sink of another name: %v", err)
	}
	mark := sink.Mark{Genesis: place.Genesis, Block: long.Blocks[3].Hash,
		Position: sink.Position{Height: 4}}
	if err := first.Write(t.Context(), &sink.Batch{Chain: place, Through: mark,
		Records: []sink.Record{{Mark: mark, Line: []byte("{}")}}}); err != nil {
		t.Errorf("the first sink: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := len(reader(t, broker)()), len(short.Want(t))+1; got != want {
		t.Errorf("%d records, not %d", got, want)
	}
}

func TestKilled(t *testing.T) {
	t.Parallel()
	broker := serve(t)
	sinktest.Killed(t, broker, reader(t, broker))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	good := []string{"127.0.0.1:9092"}
	for _, config := range []Config{{}, {Brokers: good, Topic: "a b"},
		{Brokers: good, Partitions: -1}, {Brokers: good, Mechanism: "none"},
		{Brokers: good, MessageBytes: 1}} {
		if _, err := New(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
}
