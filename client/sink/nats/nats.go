// Package nats streams entries into NATS JetStream: a stream for each shard, and a message for each
// entry.
//
// The last message of a stream is the position: a message has its place in its headers. Each
// message names the number that it must get in the stream, so the server refuses it unless all
// messages before it are there, and it can be there only once. No window of time bounds that, other
// than that of Nats-Msg-Id, which the messages have too, for readers and for mirrors. If a server
// loses messages that it had acknowledged, the position goes back with them, and they come again. A
// message has the sink's name as well: a second sink of the same stream is refused.
package nats

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/ledger"
)

// The headers of a message, besides Nats-Msg-Id.
const (
	HeaderPosition = "Ledgerd-Position" // SHARD/HEIGHT/INDEX
	HeaderGenesis  = "Ledgerd-Genesis"  // of the shard's chain, in hex
	HeaderBlock    = "Ledgerd-Block"    // the block's hash
	HeaderTime     = "Ledgerd-Time"     // of the block, in milliseconds since 1970
	HeaderID       = "Ledgerd-Id"       // of the entry
	HeaderOutcome  = "Ledgerd-Outcome"
	HeaderSink     = "Ledgerd-Sink" // the sink's name
)

// Config says where to write.
type Config struct {
	Servers     []string // such as nats://127.0.0.1:4222
	Stream      string   // the name of the streams: STREAM-SHARD; default LEDGER
	Subject     string   // of the messages: SUBJECT.SHARD; default ledger
	Replicas    int      // of a stream that is made; default 1
	Credentials string   // a file of NATS credentials, if the servers ask for one
	User        string
	Password    string
	Token       string
	CA          string // a file of authorities in PEM
	Sink        string // its name
}

var (
	streamName  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	subjectName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,15}$`)
)

// New returns the target. It connects when a stream begins.
func New(config Config) (sink.Target, error) {
	if config.Stream == "" {
		config.Stream = "LEDGER"
	}
	if config.Subject == "" {
		config.Subject = "ledger"
	}
	if config.Replicas == 0 {
		config.Replicas = 1
	}
	if len(config.Servers) == 0 {
		return nil, errors.New("nats: no servers: name some, such as nats://127.0.0.1:4222")
	}
	if !streamName.MatchString(config.Stream) {
		return nil, fmt.Errorf("nats: stream %q: use up to 64 letters, digits, - and _",
			config.Stream)
	}
	if !subjectName.MatchString(config.Subject) {
		return nil, fmt.Errorf("nats: subject %q: use words of letters, digits, - and _ with dots "+
			"between them", config.Subject)
	}
	if config.Replicas < 1 || config.Replicas > 5 {
		return nil, fmt.Errorf("nats: replicas %d: 1 to 5 are possible", config.Replicas)
	}
	return &target{config: config}, nil
}

type target struct {
	config Config
	// between is called after the messages of a batch are sent; tests only.
	between func(*nats.Conn)
}

func (t *target) Close() error { return nil }

func (t *target) options() []nats.Option {
	c := &t.config
	options := []nats.Option{nats.Name("ledgerd sink " + c.Sink), nats.NoReconnect(),
		nats.Timeout(10 * time.Second)}
	if c.Credentials != "" {
		options = append(options, nats.UserCredentials(c.Credentials))
	}
	if c.User != "" {
		options = append(options, nats.UserInfo(c.User, c.Password))
	}
	if c.Token != "" {
		options = append(options, nats.Token(c.Token))
	}
	if c.CA != "" {
		options = append(options, nats.RootCAs(c.CA))
	}
	return options
}

// KeepsMarks implements sink.Target: the mark is part of the last message.
func (t *target) KeepsMarks() bool { return false }

// Open connects, and makes the shard's stream unless it is there.
func (t *target) Open(ctx context.Context, chain sink.Chain) (sink.Lane, error) {
	l := &lane{target: t, chain: chain, closed: make(chan struct{}),
		subject: fmt.Sprintf("%s.%d", t.config.Subject, chain.Shard)}
	connection, err := nats.Connect(strings.Join(t.config.Servers, ","), append(t.options(),
		nats.ClosedHandler(func(*nats.Conn) { close(l.closed) }))...)
	if err != nil {
		return nil, explain(err)
	}
	l.connection = connection
	if err := l.open(ctx); err != nil {
		connection.Close()
		return nil, explain(err)
	}
	return l, nil
}

// maxPending bounds the messages of a lane that are not acknowledged.
const maxPending = 256

// open finds or makes the stream.
func (l *lane) open(ctx context.Context) (err error) {
	if l.jetstream, err = jetstream.New(l.connection,
		jetstream.WithPublishAsyncMaxPending(maxPending)); err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%d", l.target.config.Stream, l.chain.Shard)
	l.stream, err = l.jetstream.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		l.stream, err = l.jetstream.CreateStream(ctx, jetstream.StreamConfig{Name: name,
			Description: fmt.Sprintf("entries of shard %d of the ledger %s", l.chain.Shard,
				l.chain.Name),
			Subjects: []string{l.subject}, Storage: jetstream.FileStorage,
			Replicas: l.target.config.Replicas, Duplicates: 2 * time.Minute})
	}
	if err != nil {
		return err
	}
	subjects := l.stream.CachedInfo().Config.Subjects
	if len(subjects) != 1 || subjects[0] != l.subject {
		return sink.Refuse("nats: the stream %s takes the subjects %q, and must take %s alone, "+
			"since only the sink may write there: name another stream or subject in the "+
			"configuration", name, subjects, l.subject)
	}
	return nil
}

type lane struct {
	target     *target
	chain      sink.Chain
	connection *nats.Conn
	closed     chan struct{} // closed with the connection, after which no answer comes
	jetstream  jetstream.JetStream
	stream     jetstream.Stream
	subject    string
	last       uint64 // the number of the stream's last message
}

func (l *lane) Close() error {
	l.connection.Close()
	return nil
}

// Mark reads the stream's last message.
func (l *lane) Mark(ctx context.Context) (*sink.Mark, error) {
	info, err := l.stream.Info(ctx)
	if err != nil {
		return nil, explain(err)
	}
	l.last = info.State.LastSeq
	if l.last == 0 {
		return nil, nil
	}
	message, err := l.stream.GetMsg(ctx, l.last)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, sink.Refuse("nats: the last message of the stream %s was deleted, by a person "+
			"or by the limits of the stream, and with it the place to go on: give the sink "+
			"another stream, with --from HEIGHT for where it begins", info.Config.Name)
	}
	if err != nil {
		return nil, explain(err)
	}
	return l.markOf(message.Header, info.Config.Name)
}

// markOf returns the mark that a message's headers have.
func (l *lane) markOf(header nats.Header, stream string) (*sink.Mark, error) {
	position, err := sink.ParsePosition(header.Get(HeaderPosition))
	genesis, failed := ledger.ParseHash(header.Get(HeaderGenesis))
	block, bad := ledger.ParseHash(header.Get(HeaderBlock))
	if err := errors.Join(err, failed, bad); err != nil {
		return nil, sink.Refuse("nats: the last message of the stream %s is not from a sink: only "+
			"the sink may write there: %w", stream, err)
	}
	if name := header.Get(HeaderSink); name != l.target.config.Sink {
		return nil, sink.Refuse("nats: the stream %s has the entries of the sink %q, and this one "+
			"is %q; nothing was written. Give this sink another stream and subject, or that name "+
			"if it is the same one", stream, name, l.target.config.Sink)
	}
	return &sink.Mark{Position: position, Genesis: genesis, Block: block}, nil
}

// Write publishes a batch. All messages are under way at once. If the server refuses one, it
// refuses those after it, too, since they would get other numbers than they name.
func (l *lane) Write(ctx context.Context, batch *sink.Batch) error {
	for records := batch.Records; len(records) > 0; {
		part := records[:min(len(records), maxPending)]
		records = records[len(part):]
		if err := l.publish(ctx, part); err != nil {
			return explain(err)
		}
	}
	return nil
}

func (l *lane) publish(ctx context.Context, records []sink.Record) error {
	acks := make([]jetstream.PubAckFuture, len(records))
	for i := range records {
		ack, err := l.jetstream.PublishMsgAsync(l.message(&records[i]),
			jetstream.WithExpectLastSequence(l.last+uint64(i)),
			jetstream.WithMsgID(messageID(&records[i])))
		if err != nil {
			return err
		}
		acks[i] = ack
	}
	if l.target.between != nil {
		l.target.between(l.connection)
	}
	for i, ack := range acks {
		select {
		case stored := <-ack.Ok():
			if want := l.last + uint64(i) + 1; stored.Sequence != want || stored.Duplicate {
				return fmt.Errorf("nats: message %s has the number %d in the stream instead of "+
					"%d: another process writes there; end it", records[i].Position,
					stored.Sequence, want)
			}
		case err := <-ack.Err():
			return err
		case <-l.closed:
			return errors.Join(errors.New("nats: the connection ended"), l.connection.LastError())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.last += uint64(len(records))
	return nil
}

// messageID returns what tells a message from all others.
func messageID(record *sink.Record) string {
	return record.Genesis.String()[:16] + "/" + record.Position.String()
}

func (l *lane) message(record *sink.Record) *nats.Msg {
	message := nats.NewMsg(l.subject)
	message.Data = record.Line
	for name, value := range map[string]string{
		HeaderPosition: record.Position.String(),
		HeaderGenesis:  record.Genesis.String(),
		HeaderBlock:    record.Block.String(),
		HeaderTime:     strconv.FormatUint(uint64(record.Time), 10),
		HeaderID:       record.ID.String(),
		HeaderOutcome:  record.Outcome,
		HeaderSink:     l.target.config.Sink,
	} {
		message.Header.Set(name, value)
	}
	return message
}

// explain adds to an error what to do about it. What a person must mend is refused.
func explain(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked):
		return sink.Refuse("nats: %w: check credentials, user and password in the configuration",
			err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return sink.Refuse("nats: %w: start the server with JetStream (nats-server -js)", err)
	case errors.Is(err, nats.ErrMaxPayload):
		return sink.Refuse("nats: %w: raise max_payload of the server", err)
	}
	return err
}
