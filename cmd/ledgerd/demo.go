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
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/demo"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
)

// demoNodesMax limits the nodes of a demo. Each has a store, and all share this process.
const demoNodesMax = 16

// demoRateMax limits the demo's transactions a second. `ledgerd bench ledger` measures more.
const demoRateMax = 1000

const (
	// demoCacheBytes is the size of the caches of one kind, for all nodes together.
	demoCacheBytes = 32 << 20
	// demoGarbagePercent is the collector's target: how much garbage may accumulate, relative to
	// the memory in use, before it is collected.
	demoGarbagePercent = 100
)

// demoStartTime limits the time that the nodes may take until they order.
const demoStartTime = time.Minute

// demoOptions are the flags of ledgerd demo.
type demoOptions struct {
	nodes, shards, port int
	tree                string
	rate                float64
	length              time.Duration
	json                bool
}

// demoEvent is a line of ledgerd demo --json. One is printed when the demo is ready, one at the
// end.
type demoEvent struct {
	Event    string      `json:"event"`
	Explorer string      `json:"explorer"`
	Nodes    []string    `json:"nodes"`
	Height   uint64      `json:"height"`
	Tally    *demo.Tally `json:"transactions,omitempty"`
	Seconds  float64     `json:"seconds"`
	// These are set if there are several shards: each shard's parent, the shard of each
	// organisation, and, at the end, the height of each shard.
	Tree    []ledger.ShardID `json:"tree,omitempty"`
	Homes   []demo.Home      `json:"homes,omitempty"`
	Heights []uint64         `json:"heights,omitempty"`
}

// newDemoCommand returns the `ledgerd demo` command.
func newDemoCommand() *cobra.Command {
	var o demoOptions
	command := &cobra.Command{
		Use:   "demo",
		Short: "Run a small ledger in this process, with live traffic",
		Long: `Run a small ledger in this process, with live traffic: several nodes order and
keep the same book, and two banks, two airlines and an exchange use it. Open the
explorer to see transactions come in. Its address is also the API's.

The book is split over three shards, each with a chain and four nodes of its own.
The banks, airlines and the exchange are spread over the shards, so that many of
their transactions cross shards. Change that with --shards and --nodes; --nodes
alone makes a book of one shard with that many nodes.

The book is in a temporary folder, which is removed at the end; an interrupt
(Ctrl-C) leaves nothing behind.`,
		Example: `  ledgerd demo
  ledgerd demo --shards 5 --nodes 3 --tree binary
  ledgerd demo --nodes 7 --port 9000 --rate 100 --for 10m`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if given := command.Flags().Changed; given("nodes") && !given("shards") {
				o.shards = 1
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(command.Context(), command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.IntVar(&o.nodes, "nodes", 4, "number of nodes of each shard")
	flags.IntVar(&o.shards, "shards", 3,
		"number of shards; 1 if --nodes is given and this is not")
	flags.StringVar(&o.tree, "tree", "breadth",
		"tree of the shards: breadth, binary, chain, or a file with a line \"shard parent\" for "+
			"each shard")
	flags.IntVar(&o.port, "port", 8080, "port of node 0's explorer and API; node i takes the "+
		"i-th after it if that is free")
	flags.Float64Var(&o.rate, "rate", 20, "transactions a second; 0 for none")
	flags.DurationVar(&o.length, "for", 0, "how long to run (default until interrupted)")
	addJSONFlag(command, &o.json)
	bindTreeCompletion(command)
	return command
}

func (o *demoOptions) validate() error {
	switch {
	case o.shards < 1:
		return usagef("--shards is %d: a ledger has 1 shard or more", o.shards)
	case o.shards > 1 && o.nodes >= 1 && o.shards*o.nodes > demoNodesMax:
		return usagef("%d shards of %d nodes are %d nodes: a demo has at most %d, for example "+
			"--shards 3 --nodes 4; `ledgerd testnet` runs more, each in its own process",
			o.shards, o.nodes, o.shards*o.nodes, demoNodesMax)
	case o.nodes < 1 || o.nodes > demoNodesMax:
		return usagef("--nodes is %d: a demo has 1 to %d nodes; `ledgerd testnet` runs more, "+
			"each in its own process", o.nodes, demoNodesMax)
	case o.port < 0 || o.port > 65535:
		return usagef("--port is %d: ports are 1 to 65535, and 0 means any that is free", o.port)
	case !(o.rate >= 0 && o.rate <= demoRateMax):
		return usagef("--rate is %v: a demo takes 0 to %d transactions a second; `ledgerd bench "+
			"ledger` measures more", o.rate, demoRateMax)
	case o.length < 0:
		return usagef("--for is %v: say how long to run, for example --for 10m, or leave it out",
			o.length)
	}
	return nil
}

// ports returns the ports of the nodes' APIs. The first port has to be free. Any other port that is
// in use is replaced by 0, which takes any free port.
func (o *demoOptions) ports() ([]int, error) {
	ports := make([]int, o.shards*o.nodes)
	for i := range ports {
		if o.port == 0 {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port+i)))
		if err != nil && i == 0 {
			return nil, fmt.Errorf("port %d is not free (%w): choose another one with --port, "+
				"for example --port %d", o.port, err, o.port+100)
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

// run runs the demo for --for, or until ctx ends, and leaves nothing behind.
func (o *demoOptions) run(ctx context.Context, out, errs io.Writer) (err error) {
	tree, err := readShardTree(o.tree, o.shards)
	if err != nil {
		return err
	}
	ports, err := o.ports()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ledgerd-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tuneMemory(0)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(demoGarbagePercent) // the heap with all nodes' stores is not small
	}
	logger := slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelError}))
	share := int64(demoCacheBytes / len(ports))
	small := store.Options{MemTableBytes: 8 << 20, BlockCacheBytes: share, DecodedCacheBytes: share,
		ReserveBytes: 64 << 20}
	cluster, err := testnet.Embed(ctx, testnet.EmbedOptions{Dir: dir, Ports: ports,
		Shards: o.shards, Tree: tree, Chain: "demo", Start: nodeStarter(logger, small)})
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
	urls := cluster.URLs()
	nodes := make([]*client.Client, len(urls))
	for i := range urls {
		// Each client asks a node of its own, and another node once that one takes no more writes.
		if nodes[i], err = client.New(slices.Concat(urls[i:], urls[:i]),
			client.Options{}); err != nil {
			return err
		}
		defer nodes[i].Close()
	}
	actors, err := demo.NewActors(cryptorand.Reader, o.shards)
	if err != nil {
		return err
	}
	if err := actors.Begin(ctx, nodes[0]); err != nil {
		return interruptedIsFine(ctx, err)
	}
	if err := o.welcome(out, cluster, actors.Homes()); err != nil {
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

// interruptedIsFine drops an error that is due to the user ending the command.
func interruptedIsFine(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// live runs the actors and reports their progress, until ctx ends or a node does.
func (o *demoOptions) live(ctx context.Context, out io.Writer, cluster *testnet.Embedded,
	nodes []*client.Client, actors *demo.Actors) error {
	acting, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if o.rate > 0 {
			actors.Run(acting, nodes, demo.Options{Rate: o.rate,
				Seed: uint64(time.Now().UnixNano())})
		}
	}()
	defer func() { stop(); <-ended }()
	interval, terminal := demoInterval, isTerminal(out)
	if terminal {
		interval = time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	shown := make([]int, len(cluster.Nodes()))
	for i := range shown {
		shown[i] = i
	}
	var before demo.Tally
	for {
		select {
		case <-ctx.Done():
			return nil
		case i := <-cluster.Ended():
			if errors.Is(cluster.Nodes()[i].Err(), node.ErrRemoved) {
				if shown = slices.DeleteFunc(shown, func(other int) bool {
					return other == i
				}); len(shown) == 0 {
					return errors.New("none of the nodes is a member of the ledger any more")
				}
				if !o.json {
					// Ignore the error, as in status.
					_, _ = fmt.Fprintf(out,
						"\n%s is no member any more: the others go on without it\n",
						testnet.Name(i))
				}
				continue
			}
			return fmt.Errorf("%s ended by itself: %w", testnet.Name(i), cluster.Nodes()[i].Err())
		case <-ticker.C:
			if !o.json {
				tally := actors.Tally()
				o.status(out, cluster, shown, tally, before, interval, terminal)
				before = tally
			}
		}
	}
}

// demoInterval is the pause between two progress lines if the output is no terminal.
const demoInterval = 10 * time.Second

// status prints one line about the progress since the previous interval. On a terminal the line
// replaces the last one.
func (o *demoOptions) status(out io.Writer, cluster *testnet.Embedded, shown []int, tally,
	before demo.Tally, interval time.Duration, terminal bool) {
	state := cluster.Nodes()[shown[0]].State()
	blocks, crossed, rate := fmt.Sprintf("block %d", state.Heights.Ordered),
		"", state.TransactionsPerSecond
	if o.shards > 1 {
		heights := o.heights(cluster)
		texts := make([]string, len(heights))
		for i, height := range heights {
			texts[i] = strconv.FormatUint(height, 10)
		}
		blocks, crossed = "blocks "+strings.Join(texts, " "),
			fmt.Sprintf(", %d across shards", tally.Crossed)
		// A node knows only the rate of its own shard.
		rate = float64(tally.Applied+tally.Refused-before.Applied-before.Refused) / interval.
			Seconds()
	}
	line := fmt.Sprintf("%s  %s   %d transactions, %d refused%s   %.0f/s   ordered in %.1f ms, "+
		"durable in %.1f ms", time.Now().Format(time.TimeOnly),
		blocks, tally.Applied+tally.Refused, tally.Refused, crossed, rate,
		float64(state.OrderLatency.Microseconds())/1e3,
		float64(state.DurableLatency.Microseconds())/1e3)
	if tally.Lost > 0 {
		line += fmt.Sprintf("   %d not taken", tally.Lost)
	}
	if terminal {
		_, _ = fmt.Fprintf(out, "\r%s\x1b[K", line) // the demo goes on even if this fails
		return
	}
	_, _ = fmt.Fprintln(out, line) // as above
}

// heights returns, for each shard, the greatest height of its nodes.
func (o *demoOptions) heights(cluster *testnet.Embedded) []uint64 {
	heights := make([]uint64, o.shards)
	for i, node := range cluster.Nodes() {
		shard := cluster.Homes()[i].Genesis.Shard
		heights[shard] = max(heights[shard], uint64(node.State().Heights.Ordered))
	}
	return heights
}

// welcome prints the explorer's address and some commands to try.
func (o *demoOptions) welcome(out io.Writer, cluster *testnet.Embedded, homes []demo.Home) error {
	urls := cluster.URLs()
	if o.json {
		ready := demoEvent{Event: "ready", Explorer: urls[0], Nodes: urls}
		if o.shards > 1 {
			ready.Tree, ready.Homes = cluster.Homes()[0].Genesis.Tree, homes
		}
		return writeJSONLine(out, ready)
	}
	node := ""
	if urls[0] != client.DefaultURL {
		node = " --node " + urls[0]
	}
	var text strings.Builder
	if o.shards > 1 {
		fmt.Fprintf(&text, "A ledger of %d shards with %s each runs in this process.\n\n  "+
			"explorer  %s\n\n", o.shards, plural(o.nodes, "node"), urls[0])
		o.tellShards(&text, cluster, homes)
		fmt.Fprintf(&text, "\nOpen the explorer, or try in another terminal:\n\n  ledgerd "+
			"shards%s\n", node)
	} else {
		fmt.Fprintf(&text, "A ledger of %s runs in this process.\n\n  explorer  %s\n\n",
			plural(len(urls), "node"), urls[0])
		for i, url := range urls {
			fmt.Fprintf(&text, "  %-8s  %s\n", testnet.Name(i), url)
		}
		fmt.Fprint(&text, "\nOpen the explorer, or try in another terminal:\n\n")
	}
	fmt.Fprintf(&text, "  ledgerd status%s\n  ledgerd export --node %s --balances\n\nCtrl-C "+
		"ends it and leaves nothing behind.\n\n", node, urls[0])
	_, err := io.WriteString(out, text.String())
	return err
}

// tellShards prints for each shard its place in the tree, its organisations and its nodes'
// addresses.
func (o *demoOptions) tellShards(text *strings.Builder, cluster *testnet.Embedded,
	homes []demo.Home) {
	urls, tree := cluster.URLs(), cluster.Homes()[0].Genesis.Tree
	for shard := range ledger.ShardID(o.shards) {
		place := "the root"
		if parent := tree[shard]; parent != shard {
			place = fmt.Sprintf("below shard %d", parent)
		}
		var living []string
		for _, home := range homes {
			if home.Shard == shard {
				living = append(living, string(home.Organisation))
			}
		}
		if len(living) == 0 {
			living = []string{"no organisations"}
		}
		fmt.Fprintf(text, "  shard %d, %s: %s live there\n", shard, place,
			strings.Join(living, ", "))
		for i, url := range urls {
			if cluster.Homes()[i].Genesis.Shard == shard {
				fmt.Fprintf(text, "    %-8s  %s\n", testnet.Name(i), url)
			}
		}
	}
}

// farewell prints the totals.
func (o *demoOptions) farewell(out io.Writer, cluster *testnet.Embedded, tally demo.Tally,
	ran time.Duration) error {
	heights := o.heights(cluster)
	if o.json {
		ended := demoEvent{Event: "ended", Explorer: cluster.URLs()[0], Nodes: cluster.URLs(),
			Height: slices.Max(heights), Tally: &tally, Seconds: ran.Seconds()}
		if o.shards > 1 {
			ended.Heights = heights
		}
		return writeJSONLine(out, ended)
	}
	blocks, crossed := uint64(0), ""
	for _, height := range heights {
		blocks += height
	}
	if o.shards > 1 {
		crossed = fmt.Sprintf(", %d across shards", tally.Crossed)
	}
	_, err := fmt.Fprintf(out, "\nEnded after %v: %d blocks, %d transactions, %d of them "+
		"refused%s. Nothing is left.\n",
		ran.Round(time.Second), blocks, tally.Applied+tally.Refused, tally.Refused, crossed)
	return err
}
