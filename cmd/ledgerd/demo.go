package main

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/client"
	"github.com/ledgerd/ledgerd/node/demo"
	"github.com/ledgerd/ledgerd/node/testnet"
)

// demoNodesMax bounds the nodes of a demo: each has a store, and all share this process.
const demoNodesMax = 16

// demoRateMax bounds the demo's transactions a second; `ledgerd bench ledger` is there for more.
const demoRateMax = 1000

// demoStartTime is how long the nodes may take until they order.
const demoStartTime = time.Minute

// demoOptions are the flags of ledgerd demo.
type demoOptions struct {
	nodes, port int
	rate        float64
	length      time.Duration
	json        bool
}

// demoEvent is a line of ledgerd demo --json: when it is ready, and when it has ended.
type demoEvent struct {
	Event    string      `json:"event"`
	Explorer string      `json:"explorer"`
	Nodes    []string    `json:"nodes"`
	Height   uint64      `json:"height"`
	Tally    *demo.Tally `json:"transactions,omitempty"`
	Seconds  float64     `json:"seconds"`
}

// newDemoCommand is ledgerd demo.
func newDemoCommand() *cobra.Command {
	var o demoOptions
	command := &cobra.Command{
		Use:   "demo",
		Short: "Run a small ledger in this process, with life in it",
		Long: `Run a small ledger in this process, with life in it: several nodes that order
and keep the same book, and two banks, two airlines and an exchange that use
it. Everybody who looks at the explorer, which is also the API's address, sees
transactions come in.

The book is in a temporary folder, which is removed at the end; an interrupt
(Ctrl-C) leaves nothing behind.`,
		Example: `  ledgerd demo
  ledgerd demo --nodes 7 --port 9000 --rate 100 --for 10m`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(command.Context(), command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.IntVar(&o.nodes, "nodes", 4, "number of nodes")
	flags.IntVar(&o.port, "port", 8080, "port of node 0's explorer and API; node i takes the i-th after it if that is free")
	flags.Float64Var(&o.rate, "rate", 20, "transactions a second; 0 for none")
	flags.DurationVar(&o.length, "for", 0, "how long to run (default until interrupted)")
	addJSONFlag(command, &o.json)
	return command
}

func (o *demoOptions) validate() error {
	switch {
	case o.nodes < 1 || o.nodes > demoNodesMax:
		return usagef("--nodes is %d: a demo has 1 to %d nodes; `ledgerd testnet` runs more, each in its own process", o.nodes, demoNodesMax)
	case o.port < 0 || o.port > 65535:
		return usagef("--port is %d: ports are 1 to 65535, and 0 means any that is free", o.port)
	case !(o.rate >= 0 && o.rate <= demoRateMax):
		return usagef("--rate is %v: a demo takes 0 to %d transactions a second; `ledgerd bench ledger` measures more", o.rate, demoRateMax)
	case o.length < 0:
		return usagef("--for is %v: say how long to run, for example --for 10m, or leave it out", o.length)
	}
	return nil
}

// ports are those of the nodes' APIs. The first one has to be free, in place of another one that is not any free one is taken.
func (o *demoOptions) ports() ([]int, error) {
	ports := make([]int, o.nodes)
	for i := range ports {
		if o.port == 0 {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port+i)))
		if err != nil && i == 0 {
			return nil, fmt.Errorf("port %d is not free (%w): choose another one with --port, for example --port %d", o.port, err, o.port+100)
		}
		if err != nil {
			continue
		}
		ports[i] = o.port + i
		if err := listener.Close(); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// run runs the demo until ctx ends, or for as long as told, and leaves nothing behind.
func (o *demoOptions) run(ctx context.Context, out, errs io.Writer) (err error) {
	ports, err := o.ports()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ledgerd-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tuneMemory()
	logger := slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelError}))
	small := store.Options{MemTableBytes: 8 << 20, BlockCacheBytes: 8 << 20, DecodedCacheBytes: 8 << 20, ReserveBytes: 64 << 20}
	cluster, err := testnet.Embed(ctx, testnet.EmbedOptions{Dir: dir, Ports: ports, Chain: "demo", Start: nodeStarter(logger, small)})
	if err != nil {
		return interruptedIsFine(ctx, err)
	}
	begun := time.Now()
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		err = errors.Join(err, cluster.Stop(stopping))
	}()
	starting, cancel := context.WithTimeout(ctx, demoStartTime)
	defer cancel()
	if err := cluster.Ordering(starting); err != nil {
		return interruptedIsFine(ctx, err)
	}
	nodes := make([]*client.Client, o.nodes)
	urls := cluster.URLs()
	for i := range urls {
		// Each asks a node of its own, and the next one where that takes no writes any more.
		if nodes[i], err = client.New(slices.Concat(urls[i:], urls[:i]), client.Options{}); err != nil {
			return err
		}
		defer nodes[i].Close()
	}
	actors, err := demo.NewActors(cryptorand.Reader)
	if err != nil {
		return err
	}
	if err := actors.Begin(ctx, nodes[0]); err != nil {
		return interruptedIsFine(ctx, err)
	}
	if err := o.welcome(out, cluster.URLs()); err != nil {
		return err
	}
	if o.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.length)
		defer cancel()
	}
	err = o.live(ctx, out, cluster, nodes, actors)
	return errors.Join(err, o.farewell(out, cluster, actors.Tally(), time.Since(begun)))
}

// interruptedIsFine makes an error that is the user's wish to end no error.
func interruptedIsFine(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// live lets the actors act, and tells how it goes, until ctx ends or a node does.
func (o *demoOptions) live(ctx context.Context, out io.Writer, cluster *testnet.Embedded, nodes []*client.Client, actors *demo.Actors) error {
	acting, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if o.rate > 0 {
			actors.Run(acting, nodes, demo.Options{Rate: o.rate, Seed: uint64(time.Now().UnixNano())})
		}
	}()
	defer func() { stop(); <-ended }()
	interval, terminal := demoInterval, isTerminal(out)
	if terminal {
		interval = time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	shown := cluster.Nodes()
	for {
		select {
		case <-ctx.Done():
			return nil
		case i := <-cluster.Ended():
			if ended := cluster.Nodes()[i]; errors.Is(ended.Err(), node.ErrRemoved) {
				if shown = slices.DeleteFunc(slices.Clone(shown), func(other testnet.Node) bool { return other == ended }); len(shown) == 0 {
					return errors.New("none of the nodes is a member of the ledger any more")
				}
				if !o.json {
					_, _ = fmt.Fprintf(out, "\n%s is no member any more: the others go on without it\n", testnet.Name(i)) // as below
				}
				continue
			}
			return fmt.Errorf("%s ended by itself: %w", testnet.Name(i), cluster.Nodes()[i].Err())
		case <-ticker.C:
			if !o.json {
				o.status(out, shown[0].State(), actors.Tally(), terminal)
			}
		}
	}
}

// demoInterval is how often the demo tells how it goes where that is no terminal.
const demoInterval = 10 * time.Second

// status tells how it goes, in one line, which on a terminal replaces the last one.
func (o *demoOptions) status(out io.Writer, state api.NodeState, tally demo.Tally, terminal bool) {
	line := fmt.Sprintf("%s  block %d   %d transactions, %d refused   %.0f/s   ordered in %.1f ms, durable in %.1f ms", time.Now().Format(time.TimeOnly),
		state.Heights.Ordered, tally.Applied+tally.Refused, tally.Refused, state.TransactionsPerSecond,
		float64(state.OrderLatency.Microseconds())/1e3, float64(state.DurableLatency.Microseconds())/1e3)
	if tally.Lost > 0 {
		line += fmt.Sprintf("   %d not taken", tally.Lost)
	}
	if terminal {
		_, _ = fmt.Fprintf(out, "\r%s\x1b[K", line) // the demo goes on though nobody looks
		return
	}
	_, _ = fmt.Fprintln(out, line) // the same
}

// welcome tells where to look and what to try.
func (o *demoOptions) welcome(out io.Writer, urls []string) error {
	if o.json {
		return writeJSONLine(out, demoEvent{Event: "ready", Explorer: urls[0], Nodes: urls})
	}
	plural := "s"
	if len(urls) == 1 {
		plural = ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "A ledger of %d node%s runs in this process.\n\n  explorer  %s\n\n", len(urls), plural, urls[0])
	for i, url := range urls {
		fmt.Fprintf(&text, "  %-8s  %s\n", testnet.Name(i), url)
	}
	node := ""
	if urls[0] != client.DefaultURL {
		node = " --node " + urls[0]
	}
	fmt.Fprintf(&text, "\nOpen the explorer, or try in another terminal:\n\n  ledgerd status%s\n  ledgerd export --node %s --balances\n\nCtrl-C ends it and leaves nothing behind.\n\n", node, urls[0])
	_, err := io.WriteString(out, text.String())
	return err
}

// farewell tells what there was.
func (o *demoOptions) farewell(out io.Writer, cluster *testnet.Embedded, tally demo.Tally, ran time.Duration) error {
	height := uint64(0)
	for _, node := range cluster.Nodes() {
		height = max(height, uint64(node.State().Heights.Ordered))
	}
	if o.json {
		return writeJSONLine(out, demoEvent{
			Event: "ended", Explorer: cluster.URLs()[0], Nodes: cluster.URLs(), Height: height, Tally: &tally, Seconds: ran.Seconds(),
		})
	}
	_, err := fmt.Fprintf(out, "\nEnded after %v: %d blocks, %d transactions, %d of them refused. Nothing is left.\n",
		ran.Round(time.Second), height, tally.Applied+tally.Refused, tally.Refused)
	return err
}
