package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/client/sink/config"
	"github.com/ledgerd/ledgerd/ledger"
)

// sinkLineInterval is the time between two lines of progress of a stream.
const sinkLineInterval = 5 * time.Second

// sinkOptions are the flags of ledgerd sink.
type sinkOptions struct {
	remote remoteOptions
	config string
	from   []string
	once   bool
	quiet  bool
	json   bool

	// bound, if set, takes the address of the listener for metrics; tests only.
	bound func(address string)
}

// sinkReport is what ledgerd sink --json prints at its end.
type sinkReport struct {
	Event   string `json:"event"` // done or stopped
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Written uint64 `json:"written"`
	Streams int    `json:"streams"`
}

// newSinkCommand returns the `ledgerd sink` command.
func newSinkCommand() *cobra.Command {
	var options sinkOptions
	command := &cobra.Command{
		Use:   "sink KIND --config FILE",
		Short: "Stream every entry to PostgreSQL, Kafka, NATS or a webhook, each once",
		Long: `Stream every entry of the ledger, with its outcome, to another system.

KIND is postgres, kafka, nats (JetStream) or webhook. Each entry becomes a row, a
record, a message or a signed POST request, in the order of its chain. Its content
is the line that the entry has in a journal (ledgerd export --journal).

The command streams the chains of all shards of the book, each by itself, up to
their last durable block, and goes on as blocks come, until it is stopped. After
an interruption of any kind run it again: the target itself says where to go on,
and each entry is there once, by its position SHARD/HEIGHT/INDEX. A webhook may
get the last entry twice, with the same position. If the target's position is of
another ledger, of another history, or past the chain, the command says so and
writes nothing.

FILE says which nodes to ask, what to stream (by account, asset and organisation)
and where to; docs/sinks.md has all keys. It has no secrets: it names environment
variables or files that have them.

A stream of which the target has nothing begins with block 1, or where --from
says: a height for all chains, SHARD=HEIGHT for one, or head for what comes from
now on (not kafka and nats). With --once the command ends at the last durable
block of its start.`,
		Example: `  # Into the tables of a database
  cat > sink.toml <<'END'
  name = "books"
  nodes = ["http://127.0.0.1:8080"]
  [filter]
  organisations = ["acme"]
  [postgres]
  url = "postgres://ledger@db.example/books?sslmode=verify-full"
  password_env = "SINK_PASSWORD"
  END
  ledgerd sink postgres --config sink.toml

  # Up to now, for a script
  ledgerd sink nats --config sink.toml --once --json

  # Only what comes from now on
  ledgerd sink webhook --config sink.toml --from head`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: config.Kinds,
		RunE:      options.run,
	}
	options.remote.bind(command, true)
	flags := command.Flags()
	flags.StringVar(&options.config, "config", "", "file that describes the stream, in TOML")
	flags.StringSliceVar(&options.from, "from", nil, "where a stream begins of which the target "+
		"has nothing: HEIGHT, SHARD=HEIGHT or head (default 1)")
	flags.BoolVar(&options.once, "once", false,
		"end at the block that is the last durable one now")
	flags.BoolVar(&options.quiet, "quiet", false, "show no progress, only what fails")
	addJSONFlag(command, &options.json)
	return command
}

// apply sets where streams begin.
func (o *sinkOptions) apply(options *sink.Options) error {
	for _, text := range o.from {
		shard, height, one := strings.Cut(text, "=")
		if !one {
			shard, height = "", text
		}
		if text == "head" {
			options.FromHead = true
			continue
		}
		at, err := strconv.ParseUint(height, 10, 62)
		if err != nil || at == 0 {
			return usagef("--from %q: use a height from 1 on, SHARD=HEIGHT or head", text)
		}
		if !one {
			options.From = ledger.Height(at)
			continue
		}
		number, err := strconv.ParseUint(shard, 10, 31)
		if err != nil {
			return usagef("--from %q: use a height from 1 on, SHARD=HEIGHT or head", text)
		}
		if options.FromOf == nil {
			options.FromOf = make(map[ledger.ShardID]ledger.Height)
		}
		options.FromOf[ledger.ShardID(number)] = ledger.Height(at)
	}
	if options.FromHead && len(o.from) > 1 {
		return usagef("--from head stands alone")
	}
	return nil
}

func (o *sinkOptions) run(command *cobra.Command, arguments []string) (err error) {
	kind, known := config.KindOf(arguments[0])
	if !known {
		return usagef("kind %q: use %s", arguments[0], strings.Join(config.Kinds, ", "))
	}
	if o.config == "" {
		return usagef("name the file that describes the stream with --config FILE")
	}
	described, err := config.Read(o.config)
	if err != nil {
		return asUsage(err)
	}
	options := described.Options()
	options.Once = o.once
	if err := o.apply(&options); err != nil {
		return err
	}
	target, err := described.Target(kind)
	if err != nil {
		return asUsage(err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if len(o.remote.addresses()) == 0 {
		o.remote.nodes = described.Nodes
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	told := &sinkProgress{out: command.OutOrStdout(), errs: command.ErrOrStderr(), json: o.json,
		quiet: o.quiet, shown: make(map[ledger.ShardID]time.Time),
		streams: make(map[ledger.ShardID]sink.Event)}
	figures := sink.NewFigures()
	options.Report = func(event sink.Event) {
		figures.Take(event)
		told.take(event)
	}
	if listen := described.Metrics.Listen; listen != "" {
		ended, err := o.serveFigures(ctx, listen, figures)
		if err != nil {
			return err
		}
		defer ended()
	}
	err = sink.Run(ctx, nodes, target, options)
	stopped := ctx.Err() != nil && errors.Is(err, context.Canceled)
	if err != nil && !stopped {
		return err
	}
	return told.end(kind, described.Name, stopped)
}

// serveFigures serves the figures for Prometheus, until the returned function is called.
func (o *sinkOptions) serveFigures(ctx context.Context, address string,
	figures *sink.Figures) (func(), error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	if o.bound != nil {
		o.bound(listener.Addr().String())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", figures)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // it ends with the command
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// sinkProgress prints how far the streams are.
type sinkProgress struct {
	out, errs   io.Writer
	json, quiet bool
	shown       map[ledger.ShardID]time.Time
	streams     map[ledger.ShardID]sink.Event // the last event of each
}

// take prints an event. A stream's progress is shown from time to time only. That it cannot be
// shown does not end the stream.
func (p *sinkProgress) take(event sink.Event) {
	if event.Event != "shards" {
		p.streams[event.Shard] = event
	}
	if event.Event == "progress" && time.Since(p.shown[event.Shard]) < sinkLineInterval {
		return
	}
	p.shown[event.Shard] = time.Now()
	switch event.Event {
	case "begin", "progress", "end":
		if p.quiet {
			return
		}
	}
	if p.json {
		_ = writeJSONLine(p.out, event)
		return
	}
	if event.Event == "shards" {
		_, _ = fmt.Fprintln(p.errs, "asks again for the shards: "+sanitize(event.Error, 400))
		return
	}
	text := fmt.Sprintf("shard %d: %s, up to block %d of %d, %d written", event.Shard,
		map[string]string{"begin": "begins", "progress": "streams", "end": "is at its end",
			"retry": "tries again", "lost": "goes back"}[event.Event], event.Height, event.Durable,
		event.Written)
	if event.Error != "" {
		text += ": " + sanitize(event.Error, 400)
	}
	_, _ = fmt.Fprintln(p.errs, text)
}

// end prints what was done.
func (p *sinkProgress) end(kind, name string, stopped bool) error {
	report := sinkReport{Event: "done", Kind: kind, Name: name, Streams: len(p.streams)}
	if stopped {
		report.Event = "stopped"
	}
	var places []string
	for shard, event := range p.streams {
		report.Written += event.Written
		places = append(places, fmt.Sprintf("shard %d is at block %d", shard, event.Height))
	}
	if p.json {
		return writeJSONLine(p.out, report)
	}
	slices.Sort(places)
	_, err := fmt.Fprintf(p.out, "%s: %s written; %s\n", report.Event,
		plural(int(report.Written), "record"), strings.Join(places, ", "))
	return err
}
