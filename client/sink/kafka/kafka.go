// Package kafka streams entries into a Kafka topic: shard S into partition S, a record for each
// entry.
//
// A batch is one Kafka transaction. The last committed record of a partition is the position: a
// record has its place in its headers and as its key. Opening a lane takes the stream's
// transactional id over, which fences an older process out and ends its transaction, before the
// last record is read. So a batch is there wholly or not at all, and once, for readers with
// isolation.level=read_committed. The transactional id is of the topic and the shard, whatever the
// sink's name: a second sink of the same topic would write every entry again. It finds the name of
// the first one in the last record, and is refused.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/ledger"
)

// The headers of a record. Its key is the position, too.
const (
	HeaderPosition = "ledgerd-position" // SHARD/HEIGHT/INDEX
	HeaderGenesis  = "ledgerd-genesis"  // of the shard's chain, in hex
	HeaderBlock    = "ledgerd-block"    // the block's hash
	HeaderTime     = "ledgerd-time"     // of the block, in milliseconds since 1970
	HeaderID       = "ledgerd-id"       // of the entry
	HeaderOutcome  = "ledgerd-outcome"
	HeaderSink     = "ledgerd-sink" // the sink's name
)

// Config says where to write.
type Config struct {
	Brokers    []string // such as 127.0.0.1:9092
	Topic      string   // default ledger
	Partitions int      // of a topic that is made: one for each shard; default 16
	Replicas   int      // of a topic that is made; default: the brokers' own default
	TLS        *tls.Config
	Mechanism  string // of SASL: plain, scram-sha-256 or scram-sha-512; empty for none
	User       string
	Password   string
	// MessageBytes is the longest record that the brokers take; default 1,000,000.
	MessageBytes int
	Sink         string // its name
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)

// New returns the target. It connects when a stream begins.
func New(config Config) (sink.Target, error) {
	if config.Topic == "" {
		config.Topic = "ledger"
	}
	if config.Partitions == 0 {
		config.Partitions = 16
	}
	if config.Replicas == 0 {
		config.Replicas = -1
	}
	if config.MessageBytes == 0 {
		config.MessageBytes = 1_000_000
	}
	if len(config.Brokers) == 0 {
		return nil, errors.New("kafka: no brokers: name some, such as 127.0.0.1:9092")
	}
	if !topicName.MatchString(config.Topic) {
		return nil, fmt.Errorf("kafka: topic %q: use letters, digits, ., _ and -, at most 200",
			config.Topic)
	}
	if config.Partitions < 1 || config.Partitions > ledger.MaxShards {
		return nil, fmt.Errorf("kafka: partitions %d: 1 to %d are possible", config.Partitions,
			ledger.MaxShards)
	}
	if config.MessageBytes < 1024 || config.MessageBytes > 64<<20 {
		return nil, fmt.Errorf("kafka: message_bytes %d: 1024 to %d are possible",
			config.MessageBytes, 64<<20)
	}
	t := &target{config: config}
	t.common = []kgo.Opt{kgo.SeedBrokers(config.Brokers...), kgo.ClientID("ledgerd-sink-" +
		config.Sink), kgo.DialTimeout(10 * time.Second), kgo.RetryTimeout(20 * time.Second)}
	if config.TLS != nil {
		t.common = append(t.common, kgo.DialTLSConfig(config.TLS))
	}
	switch config.Mechanism {
	case "":
	case "plain":
		t.common = append(t.common, kgo.SASL(plain.Auth{User: config.User,
			Pass: config.Password}.AsMechanism()))
	case "scram-sha-256":
		t.common = append(t.common, kgo.SASL(scram.Auth{User: config.User,
			Pass: config.Password}.AsSha256Mechanism()))
	case "scram-sha-512":
		t.common = append(t.common, kgo.SASL(scram.Auth{User: config.User,
			Pass: config.Password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("kafka: mechanism %q: use plain, scram-sha-256 or scram-sha-512",
			config.Mechanism)
	}
	return t, nil
}

type target struct {
	config Config
	common []kgo.Opt
	// between is called after the records of a batch are sent and before the transaction ends;
	// tests only.
	between func(*kgo.Client)
}

func (t *target) Close() error { return nil }

// KeepsMarks implements sink.Target: the mark is part of the last record.
func (t *target) KeepsMarks() bool { return false }

// Open makes the topic unless it is there, and takes over the stream's transactional id.
func (t *target) Open(ctx context.Context, chain sink.Chain) (_ sink.Lane, err error) {
	options := append([]kgo.Opt{
		kgo.TransactionalID(fmt.Sprintf("ledgerd-%s-%d", t.config.Topic, chain.Shard)),
		kgo.TransactionTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(int32(t.config.MessageBytes)),
		kgo.DefaultProduceTopic(t.config.Topic),
	}, t.common...)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	l := &lane{target: t, chain: chain, client: client}
	if err := l.open(ctx); err != nil {
		client.Close()
		return nil, explain(err)
	}
	return l, nil
}

type lane struct {
	target *target
	chain  sink.Chain
	client *kgo.Client
}

func (l *lane) open(ctx context.Context) error {
	count, err := l.target.partitions(ctx)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if err := l.target.makeTopic(ctx); err != nil {
			return err
		}
		count, err = l.target.partitions(ctx)
	}
	if err != nil {
		return err
	}
	if int(l.chain.Shard) >= count {
		return sink.Refuse("kafka: the topic %s has %d partitions, and shard %d needs one of its "+
			"own: add partitions to the topic", l.target.config.Topic, count, l.chain.Shard)
	}
	if _, err := l.Mark(ctx); errors.Is(err, sink.ErrRefused) {
		return err // before it gets in the way of the sink that writes there
	}
	_, _, err = l.client.ProducerID(ctx) // it fences older producers
	return err
}

// partitions returns how many partitions the topic has. It uses a client of its own: a client
// remembers for a while that there was no topic.
func (t *target) partitions(ctx context.Context) (int, error) {
	client, err := kgo.NewClient(t.common...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx, t.config.Topic)
	if err != nil {
		return 0, err
	}
	detail := topics[t.config.Topic]
	return len(detail.Partitions), detail.Err
}

// makeTopic makes the topic. It keeps its records: the last one is the position.
func (t *target) makeTopic(ctx context.Context) error {
	client, err := kgo.NewClient(t.common...)
	if err != nil {
		return err
	}
	defer client.Close()
	forever := "-1"
	made, err := kadm.NewClient(client).CreateTopic(ctx, int32(t.config.Partitions),
		int16(t.config.Replicas), map[string]*string{"retention.ms": &forever}, t.config.Topic)
	if err = errors.Join(err, made.Err); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("making the topic %s: %w", t.config.Topic, err)
	}
	return nil
}

func (l *lane) Close() error {
	l.client.Close()
	return nil
}

// Mark reads the last committed record of the partition.
func (l *lane) Mark(ctx context.Context) (*sink.Mark, error) {
	topic, partition := l.target.config.Topic, int32(l.chain.Shard)
	admin := kadm.NewClient(l.client)
	begins, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, explain(err)
	}
	ends, err := admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, explain(err)
	}
	begin, _ := begins.Lookup(topic, partition)
	end, found := ends.Lookup(topic, partition)
	if err := errors.Join(begin.Err, end.Err); err != nil || !found {
		return nil, fmt.Errorf("kafka: the offsets of %s, partition %d: %w", topic, partition, err)
	}
	if end.Offset == 0 {
		return nil, nil
	}
	for back := int64(16); ; back *= 16 {
		from := max(begin.Offset, end.Offset-back)
		last, err := l.lastRecord(ctx, from, end.Offset)
		if err != nil {
			return nil, explain(err)
		}
		if last != nil {
			return l.markOf(last)
		}
		if from == begin.Offset {
			break
		}
	}
	if begin.Offset > 0 {
		return nil, sink.Refuse("kafka: the records of %s, partition %d, up to offset %d were "+
			"deleted, and with them the place to go on: give the sink another topic, with --from "+
			"HEIGHT for where it begins", topic, partition, begin.Offset)
	}
	return nil, nil // transactions that were aborted only
}

// lastRecord returns the last committed record of the partition between two offsets, or nil if
// there is none.
func (l *lane) lastRecord(ctx context.Context, from, end int64) (last *kgo.Record, err error) {
	if from >= end {
		return nil, nil
	}
	reader, err := kgo.NewClient(append([]kgo.Opt{
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // so that the end is seen
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.target.config.Topic: {
			int32(l.chain.Shard): kgo.NewOffset().At(from)}}),
	}, l.target.common...)...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		next := from
		fetches.EachRecord(func(record *kgo.Record) {
			next = record.Offset + 1
			if !record.Attrs.IsControl() && record.Offset < end {
				last = record
			}
		})
		if next >= end {
			return last, nil
		}
	}
}

// markOf returns the mark that a record's headers have.
func (l *lane) markOf(record *kgo.Record) (*sink.Mark, error) {
	values := make(map[string]string)
	for _, header := range record.Headers {
		values[header.Key] = string(header.Value)
	}
	position, err := sink.ParsePosition(values[HeaderPosition])
	genesis, failed := ledger.ParseHash(values[HeaderGenesis])
	block, bad := ledger.ParseHash(values[HeaderBlock])
	if err := errors.Join(err, failed, bad); err != nil {
		return nil, sink.Refuse("kafka: record %d of %s, partition %d, is not from a sink: only "+
			"the sink may write there: %w", record.Offset, record.Topic, record.Partition, err)
	}
	if name := values[HeaderSink]; name != l.target.config.Sink {
		return nil, sink.Refuse("kafka: the topic %s has the entries of the sink %q, and this one "+
			"is %q; nothing was written. Give this sink another topic, or that name if it is the "+
			"same stream", record.Topic, name, l.target.config.Sink)
	}
	return &sink.Mark{Position: position, Genesis: genesis, Block: block}, nil
}

// Write produces a batch in one transaction. After an error the transaction is aborted, at the
// latest when the next lane takes over its id.
func (l *lane) Write(ctx context.Context, batch *sink.Batch) error {
	if len(batch.Records) == 0 {
		return nil
	}
	if err := l.client.BeginTransaction(); err != nil {
		return explain(err)
	}
	records := make([]*kgo.Record, len(batch.Records))
	for i := range batch.Records {
		records[i] = l.record(&batch.Records[i])
	}
	if err := l.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return explain(err)
	}
	if l.target.between != nil {
		l.target.between(l.client)
	}
	return explain(l.client.EndTransaction(ctx, kgo.TryCommit))
}

// record returns the record of an entry. Its timestamp is the present time, not the block's:
// brokers delete by it.
func (l *lane) record(r *sink.Record) *kgo.Record {
	text := r.Position.String()
	return &kgo.Record{Topic: l.target.config.Topic, Partition: int32(r.Shard),
		Key: []byte(text), Value: r.Line,
		Headers: []kgo.RecordHeader{
			{Key: HeaderPosition, Value: []byte(text)},
			{Key: HeaderGenesis, Value: []byte(r.Genesis.String())},
			{Key: HeaderBlock, Value: []byte(r.Block.String())},
			{Key: HeaderTime, Value: strconv.AppendUint(nil, uint64(r.Time), 10)},
			{Key: HeaderID, Value: []byte(r.ID.String())},
			{Key: HeaderOutcome, Value: []byte(r.Outcome)},
			{Key: HeaderSink, Value: []byte(l.target.config.Sink)},
		}}
}

// explain adds to an error what to do about it. What a person must mend is refused.
func explain(err error) error {
	if err == nil || errors.Is(err, sink.ErrRefused) {
		return err
	}
	hint := ""
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		hint = "raise message_bytes in the configuration, and max.message.bytes of the topic"
	case errors.Is(err, kerr.SaslAuthenticationFailed),
		errors.Is(err, kerr.UnsupportedSaslMechanism):
		hint = "check mechanism, user and password in the configuration"
	case errors.Is(err, kerr.TopicAuthorizationFailed),
		errors.Is(err, kerr.TransactionalIDAuthorizationFailed),
		errors.Is(err, kerr.ClusterAuthorizationFailed):
		hint = "allow the user to describe, read, write and create the topic, and to write with " +
			"transactional ids that begin with ledgerd-"
	default:
		return fmt.Errorf("kafka: %w", err)
	}
	return sink.Refuse("kafka: %w: %s", err, hint)
}
